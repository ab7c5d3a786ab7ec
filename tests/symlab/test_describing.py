"""Kernels by name, and cases: what the command resolves and refuses, symlab.case does, too."""

import re
from dataclasses import replace

import pytest

import symlab
from cases.ops import OPS
from kernels.catalogue import MATMUL_FILES, NAMES, SPECS
from runner.case.cases import cases_of, resolved
from runner.command.plan import prepare
from runner.request.compose import compose_jobs, hydra_over
from runner.world.fabrics import FabricName
from tests.golden import refused
from tests.kernels.own_kernel import write_ring


def as_the_command_has_it(*overrides):
    """The message of a wrong request, or the id of the only case, by way of Hydra and the command's plan."""
    try:
        with hydra_over():
            jobs = compose_jobs([*overrides, "baselines=none", "track=none", "fabric=simulator"], False)
        (case,) = prepare(overrides, jobs).jobs[0].cases
    except ValueError as error:
        return str(error)
    return case.id


def test_the_catalogue_is_listed_whole_and_by_op():
    assert symlab.catalogue() == (*NAMES, *MATMUL_FILES)
    assert [name for op in OPS for name in symlab.catalogue(op)] == [*NAMES, *MATMUL_FILES]
    with refused():
        symlab.catalogue("all_reduc")


def test_a_product_has_three_sizes():
    with refused():
        symlab.case("all_gather_matmul/push", gemm=(4, 8), ranks=2)


def test_kernels_are_found_by_name_and_by_place(tmp_path):
    assert symlab.kernel("all_gather/pull") in SPECS
    assert symlab.kernel(f"{write_ring(tmp_path)}:TRIAL").name == "send_recv/ring"
    with refused():
        symlab.kernel("all_gather/pul")
    with refused():
        symlab.kernel(f"{tmp_path}/other.py:SPEC")


def test_a_case_has_one_placement():
    with refused():
        symlab.case("all_reduce/one_shot", size_bytes=64, placement="both")


WORLDS = ((2, "auto"), (3, "bfloat16"), (8, "float64"))


@pytest.mark.parametrize(("name", "ranks", "dtype"), [(name, *WORLDS[at % 3]) for at, name in enumerate(NAMES)])
def test_what_is_left_open_becomes_what_the_command_makes_of_it(name, ranks, dtype):
    op, _, algorithm = name.partition("/")
    size = "16" if op == "barrier" else "4K"
    wanted = as_the_command_has_it(
        f"op={op}", f"algorithms=[{algorithm}]", f"sizes=[{size}]", f"world_size={ranks}", f"dtype={dtype}"
    )
    try:
        found = symlab.case(name, size_bytes=size, ranks=ranks, dtype=dtype).id
    except ValueError as error:
        found = str(error)
    assert found == wanted


WRONG = {
    **{"size_bytes": ["4Q", 6], "ranks": [0, "two"], "dtype": ["floot32"], "accumulator": ["int8"]},
    **{"reduction": ["mean"], "placement": ["inplace"], "inputs": ["random"], "seed": [-1, 1.5]},
    **{"root": [1], "offset": [-2]},
}
KEYS = {"size_bytes": "sizes=[{}]", "ranks": "world_size={}"}


@pytest.mark.parametrize(
    ("argument", "value"), [(argument, one) for argument, values in WRONG.items() for one in values]
)
def test_a_wrong_value_has_the_commands_message_with_the_arguments_name(argument, value):
    override = KEYS.get(argument, f"{argument}={{}}").format(value)
    rest = [] if override.startswith("sizes") else ["sizes=[4K]"]
    wanted = as_the_command_has_it("op=all_reduce", "algorithms=[one_shot]", override, *rest)
    for name, instead in (("sizes.list[0]", "size_bytes"), ("(sizes)", "(size_bytes)"), ("world_size", "ranks")):
        wanted = wanted.replace(name, instead)
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        symlab.case("all_reduce/one_shot", **{"size_bytes": "4K", argument: value})
    assert f"({argument}" in wanted


@pytest.mark.parametrize(
    "kernel", ["one_shot", "all_reduc/one_shot", "all_reduce/one_shut", "all_reduce/", "all_reduce/auto"]
)
def test_an_unknown_kernel_is_named(kernel):
    with refused():
        symlab.case(kernel, size_bytes="4K")


@pytest.mark.parametrize("name", ["halves.py", "kernels/halves.py"])
def test_a_file_without_the_name_in_it_says_what_to_add(name):
    with refused():
        symlab.kernel(name)
    with refused():
        symlab.case(name, size_bytes="4K")


def test_a_size_for_gpus_is_no_matter_of_the_simulators_heap():
    assert symlab.case("all_reduce/two_shot", size_bytes="1G", ranks=8).size_bytes == 1 << 30


def test_a_brought_kernel_and_a_library_have_cases(tmp_path):
    place = f"{write_ring(tmp_path)}:SPEC"
    assert symlab.case(place, size_bytes="1K").name == "send_recv/ring"
    assert symlab.case(symlab.kernel(place), size_bytes="1K") == symlab.case(place, size_bytes="1K")
    nccl = symlab.case("all_reduce/nccl", size_bytes="1K")
    assert (nccl.algorithm, nccl.accumulator) == ("nccl", "library")


def test_a_case_is_the_runners_own():
    with hydra_over():
        (job,) = compose_jobs(["op=reduce_scatter", "algorithms=[pull]", "sizes=[100]", "world_size=3"], False)
    fabric = job.request.fabric
    (case,) = cases_of(resolved(job.request, replace(fabric, name=FabricName.simulator)))
    assert symlab.case("reduce_scatter/pull", size_bytes=100, ranks=3) == case
    assert case.size_bytes == 96, "rounded down to equal chunks, as in nccl-tests"
