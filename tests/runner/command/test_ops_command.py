"""The command line with each op: what it says, what its records say, and that nothing but the op has to be given."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cases.ops import COLLECTIVES
from kernels.catalogue import SPECS
from tests.runner.conftest import Outcome

Symlab = Callable[..., Outcome]


def test_the_first_lines_of_an_op_that_moves_data(symlab: Symlab) -> None:
    done = symlab("op=all_gather", "algorithms=[push]", "world_size=3", "sizes=[12,13,1K]")
    lines = done.out.splitlines()
    assert lines[0] == "symlab: all_gather float32, moves data, 3 ranks, 2 sizes x 1 algorithm = 2 cases"
    assert lines[1] == "sizes: rounded down so that all ranks have equal chunks, as in nccl-tests; 12 and 13 became 12"
    assert "[2/2] push 1020 n3 PASSED" in lines
    assert "all_gather float32, moves data, 3 ranks, normal inputs" in lines
    record = done.records[0]
    assert (record["case"]["accumulator"], record["case"]["root"], record["case"]["offset"]) == ("none", 0, 0)
    assert record["request"]["configuration"]["accumulator"] == "auto"
    assert record["request"]["resolved"] == {"dtype": "float32", "accumulator": "none", "reduction": "none"}
    assert "rounded" not in symlab("op=all_gather", "algorithms=[push]", "sizes=[12]", "world_size=3").out


@pytest.mark.parametrize("op", [one.op for one in COLLECTIVES])
def test_an_op_alone_is_a_request(symlab: Symlab, op: str) -> None:
    done = symlab(f"op={op}", "algorithms=auto")
    assert done.code == 0
    assert set(done.statuses) == {"PASSED"}
    cases = [record["case"] for record in done.records]
    assert {case["op"] for case in cases} == {op}
    assert {case["size_bytes"] for case in cases} == ({4} if op == "barrier" else {1024, 8192, 65536})
    assert {case["dtype"] for case in cases} == {"uint32" if op == "barrier" else "float32"}
    assert len({case["algorithm"] for case in cases}) == len([spec for spec in SPECS if spec.op == op])


@pytest.mark.slow
def test_ops_can_be_swept_over(symlab: Symlab) -> None:
    done = symlab("-m", "op=all_reduce,all_gather,barrier", "algorithms=auto")
    assert done.code == 0
    lines = done.out.splitlines()
    assert "all_reduce float32, accumulator float32, sum, 2 ranks, normal inputs" in lines
    assert "barrier uint32, moves data, 2 ranks, normal inputs" in lines
    assert any("(op=all_gather)" in line for line in lines)


def test_what_an_op_can_not_do_ends_before_anything_runs(symlab: Symlab) -> None:
    done = symlab("op=all_gather", "algorithms=auto", "reduction=sum")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "symlab: error: all_gather only moves data: no reduction 'sum' (reduction), give none or auto\n"
    )
