"""Kernels that a YAML file describes: what a case makes of an entry, and entries that are wrong, in one line each."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from cases.case import Case
from kernels.brought import spec_at
from kernels.own.arguments import ArgumentSpec
from kernels.own.described import variants
from tests.golden import refused
from tests.kernels.own.own_entries import ADDED, SUM, changed, write_entries


def case_of(spec, size_bytes=4096, ranks=4, **others):
    values = {"dtype": "float32", "accumulator": "float32", "reduction": "sum"} | others
    return Case(spec.op, spec.algorithm, size_bytes=size_bytes, world_size=ranks, **values)


@pytest.fixture
def place(tmp_path):
    """place(entry): the place of an entry called sum."""
    return lambda entry, marks="": f"{write_entries(tmp_path, sum=entry)}:sum{marks}"


def test_expressions_are_those_of_the_case(place):
    spec = spec_at(place(SUM))
    case = case_of(spec, 1 << 20)
    assert (spec.name, spec.accumulators, spec.archs[0]) == ("all_reduce/sum", ("native", "float32"), "sm_90")
    assert spec.launch(case).blocks == 4
    assert [(one.name, one.size_bytes) for one in spec.workspaces(case)] == [("flags", 64), ("epochs", 16)]
    assert spec.launch(case_of(spec, 1024)).blocks == 1
    found = spec.arguments(case, spec.launch(case), 2)
    assert found[-1] == ArgumentSpec("u32", 1 << 18)
    assert [(one.kind, one.of) for one in spec.parameters] == [("peers", "input"), ("peers", "flags")]


def test_a_parameter_has_other_values_under_another_name(place):
    spec = spec_at(place(SUM, "@blocks8"))
    assert (spec.algorithm, spec.launch(case_of(spec, 1 << 20)).blocks) == ("sum_blocks8", 8)
    assert spec_at(place(SUM, "@blocks4")).algorithm == "sum"
    file = Path(place(SUM).rpartition(":")[0])
    assert variants(file, "sum") == ("sum@blocks4", "sum@blocks8")
    for marks in ("@blocks5", "@threads8", "@8", "@", "@blocks4-blocks8"):
        with refused():
            spec_at(place(SUM, marks))


def test_an_entry_may_be_of_more_ranks_than_two(place):
    """It is tried with a case that it takes."""
    given = {"requires": ["world_size >= 4"], "arguments": [{"peer": ["input", 3]}, *SUM["arguments"][1:]]}
    spec = spec_at(place(changed(SUM, **given)))
    assert spec.refusal(case_of(spec), "sm_90a") is None
    assert spec.refusal(replace(case_of(spec), world_size=2), "sm_90a") is not None


def test_a_spec_crosses_to_another_process_by_its_place(place):
    spec = spec_at(place(SUM))
    again = pickle.loads(pickle.dumps(spec))
    assert (again.name, again.files) == (spec.name, spec.files)
    assert [Path(one).name for one in spec.files] == ["kernels.yaml", "one_shot.ptx"]


def test_a_function_has_its_own_launch(place):
    spec = spec_at(place(ADDED, "@threads64"))
    case = case_of(spec, 2048, 2)
    launch = spec.launch(case)
    assert (launch.blocks, launch.threads) == (8, 64)
    assert spec.made(case, "sm_90a").host.launch == launch


def test_what_a_case_lacks_is_refused_with_the_reason(place):
    spec = spec_at(place(changed(SUM, requires=["numel % 64 == 0", "world_size != 3"])))
    for case in (case_of(spec, 4100), case_of(spec, 4096, 3), case_of(spec, offset=1)):
        refusal = spec.refusal(case, "sm_90a")
        with refused():
            raise ValueError(str(refusal))
    assert spec.refusal(case_of(spec), "sm_90a") is None


def arguments(last):
    return [*SUM["arguments"][:-1], last]


WRONG = {
    "an unknown key": {"lunch": {"grid": 1}},
    "no op": {"op": None},
    "an unknown op": {"op": "all_redcue"},
    "an offset beyond a workspace": {"arguments": [*SUM["arguments"][:2], "flags+4096", *SUM["arguments"][3:]]},
    "counts of others": {"op": "all_to_all_v", "arguments": [{"peers": "counts"}, *SUM["arguments"][1:]]},
    "owners that are no ranks": {"fold": "from_next_rank", "owner": "index"},
    "an owner of another fold": {"owner": "rank"},
    "a promise to report a dead rank": {"promises": ["dead_rank"]},
    "no kernel": {"kernel": None},
    "a value that stands twice": {"parameters": {"blocks": [4, 8, 4]}},
    "machine code": {"kernel": "one_shot.cubin:one_shot"},
    "no such file": {"kernel": "two_shot.ptx:two_shot"},
    "no such entry": {"kernel": "one_shot.ptx:two_shot"},
    "a name in braces": {"kernel": "one_shot.ptx:one_shot_{dtyp}"},
    "no block": {"launch": {"grid": 4}},
    "an unknown key of the launch": {"launch": {"grid": 4, "block": 256, "smem": 0}},
    "a launch beyond a GPU": {"launch": {"grid": 4, "block": 2048}},
    "a name that no case has": {"launch": {"grid": "numell // 256", "block": 256}},
    "a fraction": {"launch": {"grid": "numel / 256", "block": 256}},
    "grid within the launch": {"launch": {"grid": 4, "block": "grid * 32"}},
    "an unknown buffer": {"arguments": arguments("numel")},
    "an unknown kind": {"arguments": arguments({"u33": 1})},
    "too few arguments": {"arguments": SUM["arguments"][:-1]},
    "an argument of another size": {"arguments": arguments({"u64": "numel"})},
    "a float for a whole number": {"arguments": arguments({"f32": 1.0})},
    "a number beyond its kind": {"arguments": arguments({"u32": "0 - numel"})},
    "a count of launches": {"arguments": arguments("launch")},
    "a pointer": {"arguments": [*SUM["arguments"][:4], {"pointer": ["output"]}, *SUM["arguments"][5:]]},
    "a tensor for PTX": {"arguments": [*SUM["arguments"][:4], {"tensor": "output"}, *SUM["arguments"][5:]]},
    "a workspace without a size": {"workspaces": {"flags": {"dtype": "uint32"}, "epochs": {"numel": "grid"}}},
    "a workspace of nothing": {"workspaces": {"flags": {"numel": "grid - grid"}, "epochs": {"numel": "grid"}}},
    "a workspace called input": {"workspaces": {"input": {"numel": 1}}},
    "a workspace called counts": {"workspaces": SUM["workspaces"] | {"counts": {"numel": 1}}},
    "a workspace called status": {"workspaces": SUM["workspaces"] | {"status": {"numel": 1}}},
    "a fill that is no bytes": {"workspaces": {"flags": {"numel": 1, "fill": "ones"}, "epochs": {"numel": 1}}},
    "an unknown dtype of a workspace": {"workspaces": {"flags": {"numel": 1, "dtype": "u8"}, "epochs": {"numel": 1}}},
    "a parameter without values": {"parameters": {"blocks": []}},
    "a parameter called rank": {"parameters": {"rank": [1]}},
    "a requirement of no case": {"requires": ["rank == 0"]},
    "no dtypes": {"dtypes": None},
    "an unknown dtype": {"dtypes": ["float31"]},
    "a text for a list": {"dtypes": "float32"},
    "an unknown fold": {"fold": "any"},
    "a fold by owners": {"fold": "from_next_rank"},
    "an unknown assumption": {"assumptions": ["luck"]},
    "an unknown promise": {"promises": ["speed"]},
    "a limit that is no number": {"max_world_size": "eight"},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_entry_is_refused_in_one_line(what, place):
    with refused():
        spec_at(place(changed(SUM, **WRONG[what])))


def test_a_file_that_is_no_ptx_is_named(place, tmp_path):
    (tmp_path / "other.ptx").write_text("no PTX", encoding="utf-8")
    with refused():
        spec_at(place(changed(SUM, kernel="other.ptx:one_shot")))


@pytest.mark.parametrize("key", ["kernel", "arguments", "launch"])
def test_a_wrong_entry_of_a_function(key, place):
    value = {"kernel": "add_tensors.py:added_tensors", "arguments": ["input"], "launch": {"block": "numel // 32"}}[key]
    with refused():
        spec = spec_at(place(changed(ADDED, **{key: value})))
        refusal = spec.refusal(case_of(spec), "sm_90a")
        raise ValueError(str(refusal))


@pytest.mark.parametrize("constant", [{"constexpr": "rank"}, {"u32": "rank + 64"}])
def test_a_constant_of_a_function_is_the_same_on_all_ranks(constant, place):
    given = [*ADDED["arguments"][:2], constant]
    with refused():
        spec_at(place(changed(ADDED, arguments=given, parameters=None)))


@pytest.mark.parametrize(
    "text", ["sum: [", "- sum", "total: {op: all_reduce}", "sum: all_reduce", "sum: {op: \udc80}", "sum: 1\nsum: 2"]
)
def test_a_file_without_the_entry(text, tmp_path):
    file = tmp_path / "kernels.yaml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with refused():
        spec_at(f"{file}:sum")
