"""Where inputs and outputs lie in and out of place, and which bytes a launch must leave as they were."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.ops import COLLECTIVES
from runner.case.layout import Layout, layout_of
from tests.golden import refused, same_text

CASE = Case("all_reduce", "tried", "float32", "float32", "sum", 48, 4)


def layout(op, **changes):
    return layout_of(replace(CASE, op=op, **changes))


IN_PLACE = {"placement": "in_place"}
EMPTY = {"size_bytes": 0}
LAYOUTS = [
    *(("all_gather", {}), ("reduce_scatter", {}), ("all_reduce", {"offset": 3})),
    *(("all_reduce", {"offset": 3, "dtype": "uint8"}), ("barrier", {"dtype": "uint32", "size_bytes": 4})),
    *((op, IN_PLACE) for op in ("all_reduce", "all_gather", "reduce_scatter")),
    # with counts per peer 48 bytes are 3 elements for each rank; of zeros' rank 1 gets nothing, rank 0 sends nothing
    *(("all_to_all_v", changes) for changes in ({}, {"counts": "zeros"})),
]
KEPT = [
    *(("all_gather", {}, 2, True), ("reduce", {}, 2, False)),
    *(("all_to_all_v", {}, 2, True), ("all_to_all_v", {"counts": "zeros"}, 1, True)),
    *(("all_reduce", IN_PLACE, 1, True), ("reduce", IN_PLACE, 1, False), ("all_gather", IN_PLACE, 1, True)),
    *(("reduce_scatter", IN_PLACE, rank, True) for rank in (0, 2)),
    *(("all_reduce", EMPTY, 1, True), ("all_reduce", EMPTY | IN_PLACE, 1, True), ("reduce", EMPTY, 1, False)),
]


def test_where_inputs_and_outputs_begin():
    same_text("\n".join(f"{op} {changes}: {layout(op, **changes)}" for op, changes in LAYOUTS))


@pytest.mark.parametrize("op", [one.op for one in COLLECTIVES if one.in_place is None])
def test_an_op_without_a_form_in_place_is_an_error(op):
    with refused():
        layout(op, placement="in_place")


def test_what_a_rank_leaves_as_it_was():
    """The input out of place; the output of a rank that is given none, and what lies behind one with counts per peer;
    in place what is not output. Bytes beside the input are poison."""
    lines = [
        f"{op} {changes}, rank {rank}{'' if gives else ' without output'}: {layout(op, **changes).kept(rank, gives)}"
        for op, changes, rank, gives in KEPT
    ]
    lines += [str(Layout((40,), size, (16,), (8,), (start,), 0).kept(0, True)) for size, start in ((8, 24), (16, 16))]
    same_text("\n".join(lines))
