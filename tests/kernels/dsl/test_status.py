from __future__ import annotations

import pytest

from kernels.dsl.status import (
    ALL_RANKS,
    CLAIMED,
    COMPLETE,
    DATA,
    ENTRY,
    EXIT,
    NOTHING,
    PHASES,
    RESULT,
    STATUS_WORDS,
    describe,
)


def test_nothing_to_report_is_an_empty_text() -> None:
    assert describe([NOTHING] * STATUS_WORDS, 0) == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            [COMPLETE, 1, 3, EXIT, 0, 4, 3, 1_410_065_408, 2],
            "rank 1, block 3: exit barrier: waited 10.0 s for rank 0: expected epoch 4, saw 3",
        ),
        (
            [COMPLETE, 0, 0, ENTRY, 7, -(1 << 31), (1 << 31) - 1, 250_999_999, 0],
            "rank 0, block 0: entry barrier: waited 250 ms for rank 7: expected epoch -2147483648, saw 2147483647",
        ),
        (
            [COMPLETE, 2, 131, ENTRY, ALL_RANKS, 32, 31, -1_294_967_296, 0],
            "rank 2, block 131: entry barrier: waited 3.0 s for all ranks: expected 32 arrivals, saw 31",
        ),
        (
            [COMPLETE, 1, 2, DATA, 3, 7, 512, 1_410_065_408, 2],
            "rank 1, block 2: data of a peer: waited 10.0 s for rank 3: epoch 7, nothing at byte 512",
        ),
        (
            [COMPLETE, 0, 0, RESULT, 2, -1, 0, 3_000_000, 0],
            "rank 0, block 0: result of a peer: waited 3 ms for rank 2: epoch -1, nothing at byte 0",
        ),
        (
            [CLAIMED, *[0] * (STATUS_WORDS - 1)],
            "rank 5: a wait for another rank gave up, and the kernel had not finished",
        ),
    ],
)
def test_a_report_is_a_sentence(words: list[int], text: str) -> None:
    assert describe(words, 5).startswith(text)


@pytest.mark.parametrize("state", [-1, 3, 0x7F7F7F7F])
def test_words_that_no_kernel_wrote_are_an_error(state: int) -> None:
    with pytest.raises(ValueError, match=rf"the status words are overwritten: {state}, "):
        describe([state, *[0] * (STATUS_WORDS - 1)], 0)
    with pytest.raises(ValueError, match=r"overwritten: 2, 0, 0, 5,"):
        describe([COMPLETE, 0, 0, len(PHASES), 0, 0, 0, 0, 0], 0)


def test_a_wrong_number_of_words_is_an_error() -> None:
    with pytest.raises(ValueError, match=rf"a status has {STATUS_WORDS} words, not 3"):
        describe([0, 0, 0], 0)
