"""Names with a tuning: what they mean, that they cross processes, and that equal code is compiled once."""

import pickle
from dataclasses import replace

import pytest

import symlab
from cases.case import Case
from kernels.catalogue import MATMUL_FILES, NAMES, find, is_known, takes_push
from kernels.compile import executable
from kernels.fused import tuning_of, tunings_of
from kernels.spec import refuses
from kernels.tuned_name import base_of, step_of, values_of, with_step
from memory.fabric import Traits
from runner.case.cases import collective
from tests.golden import refused


def case_of(name, size_bytes=4096):
    spec = find(name)
    return Case(spec.op, spec.algorithm, "float32", "float32", "sum", size_bytes, 2)


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_takes_a_tuning(name):
    step = step_of("x@t128b8l4")
    spec = find(with_step(name, step))
    assert spec.name == f"{name}@t128b8l4"
    case = Case(spec.op, spec.algorithm, spec.dtypes[0], spec.accumulators[0], spec.reductions[0], 1 << 20, 2)
    assert spec.launch(case).block == (128, 1, 1)
    assert 1 <= spec.launch(case).blocks <= 8
    assert pickle.loads(pickle.dumps(spec)) is spec
    assert takes_push(name) == (name == "all_reduce/two_shot")


def test_a_name_says_all_of_a_step():
    assert values_of("two_shot@t512b64l8p") == {"threads": 512, "blocks": 64, "loads_in_flight": 8, "push": True}
    step = step_of("two_shot@t512b64l8p")
    assert with_step("two_shot", step) == "two_shot@t512b64l8p"
    assert base_of("all_reduce/two_shot@t512b64l8p") == "all_reduce/two_shot"


@pytest.mark.parametrize("name", MATMUL_FILES)
def test_the_name_of_a_matmuls_tuning_says_all_of_it(name):
    case = symlab.case(name, gemm=(4096, 512, 64), ranks=1 if name.startswith("matmul/") else 2)
    for tuning in tunings_of(name):
        spec = find(f"{name}@{tuning.name}")
        mine = replace(case, algorithm=spec.algorithm)
        assert replace(tuning_of(mine), reason=tuning.reason) == tuning
        assert pickle.loads(pickle.dumps(spec)) is spec
        assert values_of(spec.algorithm) == tuning.values()
    own = replace(mine, algorithm=f"{case.algorithm}@{tuning_of(case).name}")
    assert find(own.name).launch(own) == find(name).launch(case)
    assert find(own.name).choices(own) == find(name).choices(case)


STEPS = (
    "",
    "t512b64",
    "t512b64l8q",
    "t512b64l8\n",
    "t500b64l8",
    "t2048b64l8",
    "t512b1000l8",
    "t512b64l8@t512b64l8",
    "t\u066512b64l8",
)
OF_MATMULS = (
    "c256s3k4p128f2x1m8",
    "c256s3k4p128f2x1m8b132d",
    "c256s03k4p128f2x1m8b132",
    "c256s4k4p128f2x1m8b132",
    "c256s3k4p128f2x1m8b133",
    "c256s3k4p128f2x2m8b1",
    "c256s3k4p128f2x3m8b132",
    "d",
    "t512b64l8",
)
OTHERS = ("one_shot@t512b64l8p", "twoshot@t512b64l8")


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"all_reduce/{one}"
            for one in (*(f"two_shot@{step}" for step in STEPS), *OTHERS, "two_shot@c64s2k1p16f1x1m1b1")
        ),
        *(f"matmul_all_reduce/inbox@{tuning}" for tuning in OF_MATMULS),
    ],
)
def test_another_name_is_refused_in_one_line(name):
    with refused() as caught:
        find(name)
    assert len(str(caught.value).splitlines()) == 1
    assert not is_known(name)


def test_too_few_blocks_for_the_groups_are_a_refusal():
    spec = find("all_gather/push@t128b1l4")
    case = Case("all_gather", spec.algorithm, "float32", "none", "none", 4096, 2)
    found = refuses(spec, collective("all_gather"), case, Traits("any", "sm_90a", 2, 1 << 30, False))
    assert "can't be divided into 2 groups" in str(found)


def test_equal_code_is_compiled_once_and_has_the_name_asked_for(tmp_path):
    few, many = "all_reduce/one_shot@t128b4l8", "all_reduce/one_shot@t128b8l8"
    made = [executable(find(name), case_of(name), "sm_90a", tmp_path) for name in (few, many)]
    assert [one.name for one in made] == [few, many]
    assert made[0].ptx == made[1].ptx
    assert len(list(tmp_path.glob("*.json"))) == 1
    assert "@" not in made[0].entry
    assert executable(find(few), case_of(few), "sm_90a", tmp_path).name == few
