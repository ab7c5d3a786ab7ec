import pytest

from kernels.dsl import status
from tests.golden import refused, same_text


def test_nothing_to_report_is_an_empty_text():
    assert status.describe([status.NOTHING] * status.STATUS_WORDS, 0) == ""


def test_a_report_is_a_sentence():
    for words in (
        [status.COMPLETE, 1, 3, status.EXIT, 0, 4, 3, 1_410_065_408, 2],
        [status.COMPLETE, 0, 0, status.ENTRY, 7, -(1 << 31), (1 << 31) - 1, 250_999_999, 0],
        [status.COMPLETE, 2, 131, status.ENTRY, status.ALL_RANKS, 32, 31, -1_294_967_296, 0],
        [status.COMPLETE, 1, 2, status.DATA, 3, 7, 512, 1_410_065_408, 2],
        [status.COMPLETE, 0, 0, status.RESULT, 2, -1, 0, 3_000_000, 0],
        [status.CLAIMED, *[0] * (status.STATUS_WORDS - 1)],
    ):
        same_text(status.describe(words, 5))


@pytest.mark.parametrize("state", [-1, 3, 0x7F7F7F7F])
def test_words_that_no_kernel_wrote_are_an_error(state):
    with refused():
        status.describe([state, *[0] * (status.STATUS_WORDS - 1)], 0)
    with refused():
        status.describe([status.COMPLETE, 0, 0, len(status.PHASES), 0, 0, 0, 0, 0], 0)


def test_a_wrong_number_of_words_is_an_error():
    with refused():
        status.describe([0, 0, 0], 0)
