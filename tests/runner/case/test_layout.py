"""Where inputs and outputs lie in and out of place, and which bytes a launch must leave as they were."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.ops import COLLECTIVES
from runner.case.layout import Layout, Piece, layout_of
from tests.golden import refused

CASE = Case("all_reduce", "tried", "float32", "float32", "sum", 48, 4)


def layout(op, **changes):
    return layout_of(replace(CASE, op=op, **changes))


def test_out_of_place_they_are_two_payloads_that_begin_alike():
    assert layout("all_gather") == Layout((12, 48), 12, (48,) * 4, (0,) * 4, (0,) * 4, 0)
    assert layout("reduce_scatter") == Layout((48, 12), 48, (12,) * 4, (0,) * 4, (0,) * 4, 0)
    assert layout("all_reduce", offset=3).offset_bytes == 12
    assert layout("all_reduce", offset=3, dtype="uint8").offset_bytes == 3
    assert layout("barrier", dtype="uint32", size_bytes=4).payloads_bytes == (4, 16)


def test_in_place_they_share_one_and_may_begin_at_another_place_on_every_rank():
    assert layout("all_reduce", placement="in_place") == Layout((48,), 48, (48,) * 4, (0,) * 4, (0,) * 4, 0)
    assert layout("all_gather", placement="in_place") == Layout((48,), 12, (48,) * 4, (0, 12, 24, 36), (0,) * 4, 0)
    assert layout("reduce_scatter", placement="in_place") == Layout((48,), 48, (12,) * 4, (0,) * 4, (0, 12, 24, 36), 0)


@pytest.mark.parametrize("op", [one.op for one in COLLECTIVES if one.in_place is None])
def test_an_op_without_a_form_in_place_is_an_error(op):
    with refused():
        layout(op, placement="in_place")


def test_out_of_place_the_input_is_kept_and_the_output_where_the_rank_is_given_none():
    assert layout("all_gather").kept(2, True) == ((Piece(0, 12, 0),), ())
    assert layout("reduce").kept(2, False) == ((Piece(0, 48, 0),), (Piece(0, 48, None),))


def test_with_counts_per_peer_what_lies_behind_a_ranks_output_is_kept():
    """48 bytes are 3 elements for each rank; of zeros' counts rank 1 gets nothing, rank 0 sends nothing."""
    even = layout("all_to_all_v")
    assert even == Layout((96, 96), 96, (48,) * 4, (0,) * 4, (0,) * 4, 0)
    assert even.kept(2, True) == ((Piece(0, 96, 0),), (Piece(48, 96, None),))
    zeros = layout("all_to_all_v", counts="zeros")
    assert zeros.outputs_bytes[1] == 0
    assert sum(zeros.outputs_bytes) == 4 * 48
    assert zeros.kept(1, True) == ((Piece(0, 96, 0),), (Piece(0, 96, None),))


def test_in_place_what_is_not_output_is_kept():
    assert layout("all_reduce", placement="in_place").kept(1, True) == ((),)
    assert layout("reduce", placement="in_place").kept(1, False) == ((Piece(0, 48, 0),),)
    assert layout("all_gather", placement="in_place").kept(1, True) == ((),)
    scatter = layout("reduce_scatter", placement="in_place")
    assert scatter.kept(0, True) == ((Piece(12, 48, 12),),)
    assert scatter.kept(2, True) == ((Piece(0, 24, 0), Piece(36, 48, 36)),)


def test_in_place_bytes_beside_the_input_are_kept_as_poison():
    apart = Layout((40,), 8, (16,), (8,), (24,), 0)
    assert apart.kept(0, True) == ((Piece(0, 8, None), Piece(8, 16, 0), Piece(16, 24, None)),)
    overlapping = Layout((40,), 16, (16,), (8,), (16,), 0)
    assert overlapping.kept(0, True) == ((Piece(0, 8, None), Piece(8, 16, 0), Piece(32, 40, None)),)


def test_nothing_is_kept_of_an_empty_message():
    assert layout("all_reduce", size_bytes=0).kept(1, True) == ((), ())
    assert layout("all_reduce", size_bytes=0, placement="in_place").kept(1, True) == ((),)
    assert layout("reduce", size_bytes=0).kept(1, False) == ((), ())
