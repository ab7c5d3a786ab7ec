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
from tests.golden import refused, same_text


def test_nothing_to_report_is_an_empty_text():
    assert describe([NOTHING] * STATUS_WORDS, 0) == ""


def test_a_report_is_a_sentence():
    for words in (
        [COMPLETE, 1, 3, EXIT, 0, 4, 3, 1_410_065_408, 2],
        [COMPLETE, 0, 0, ENTRY, 7, -(1 << 31), (1 << 31) - 1, 250_999_999, 0],
        [COMPLETE, 2, 131, ENTRY, ALL_RANKS, 32, 31, -1_294_967_296, 0],
        [COMPLETE, 1, 2, DATA, 3, 7, 512, 1_410_065_408, 2],
        [COMPLETE, 0, 0, RESULT, 2, -1, 0, 3_000_000, 0],
        [CLAIMED, *[0] * (STATUS_WORDS - 1)],
    ):
        same_text(describe(words, 5))


@pytest.mark.parametrize("state", [-1, 3, 0x7F7F7F7F])
def test_words_that_no_kernel_wrote_are_an_error(state):
    with refused():
        describe([state, *[0] * (STATUS_WORDS - 1)], 0)
    with refused():
        describe([COMPLETE, 0, 0, len(PHASES), 0, 0, 0, 0, 0], 0)


def test_a_wrong_number_of_words_is_an_error():
    with refused():
        describe([0, 0, 0], 0)
