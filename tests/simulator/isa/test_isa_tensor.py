"""Tensor copies against an oracle that moves one element after the other, and what is wrong with some."""

import pytest

from tests.simulator.isa import vectors_tensor as vectors
from tests.simulator.isa.tensor_maps import case_of, swizzled


@pytest.mark.parametrize("made", vectors.cases(), ids=str)
def test_a_box_is_loaded_and_stored(made):
    vectors.check_load(*made)
    vectors.check_store(*made)


@pytest.mark.parametrize("rank", range(1, 6))
def test_every_form_of_a_load(rank):
    case = {
        "element": "bf16",
        "swizzle": 128,
        "row": "whole",
        "corner": "beyond",
        "nan": True,
        "step": 1,
        "shared": 640,
    }
    made = case_of(rank, **case)
    vectors.check_load(*made, "shared::cluster")
    vectors.check_load(*made, "shared::cluster", 2)


@pytest.mark.parametrize(("made", "word"), list(vectors.reductions()), ids=str)
def test_a_box_is_combined(made, word):
    vectors.check_store(made, (1,) * len(made.box), 0, word)


def test_a_swizzle_is_a_permutation_of_its_pattern():
    for swizzle in (32, 64, 128):
        assert sorted(swizzled(one, swizzle) for one in range(swizzle * 8)) == list(range(swizzle * 8))
    assert [swizzled(128 * row, 128) // 16 % 8 for row in range(9)] == [*range(8), 0]
    assert [swizzled(128 * row, 64) // 16 % 8 for row in range(5)] == [0, 1, 2, 3, 0]
