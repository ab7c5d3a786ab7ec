"""Numbers as text: what they are, and what is no number."""

import gc
import sys
import threading

import pytest

from kernels.own.expressions import evaluated
from tests.golden import refused

NAMES = {"numel": 1000, "block": 256, "rank": 3}

RIGHT = {
    "numel": 1000,
    "numel // block": 3,
    "ceil_div(numel, block)": 4,
    "min(3, numel % 7 - 10)": -4,
    "-rank * 2 + 1": -5,
    "(rank + 1) % 4": 0,
    "1 if numel % 8 == 0 and not block > 256 else 2": 1,
    "rank < 3 or numel >= 1001": 0,
    "max(1, 2, 3) != 3": 0,
}

WRONG = [
    "numel / 2",
    "numell",
    "2.5",
    "numel.real",
    "open('x')",
    "(",
    "",
    "1 // (rank - 3)",
    "min()",
    "'a' * 3",
    "2 ** 9",
]


@pytest.mark.parametrize("text", RIGHT)
def test_text_is_a_number(text):
    assert evaluated(text, NAMES) == RIGHT[text]


def test_a_whole_number_is_itself():
    assert evaluated(7, {}) == 7


@pytest.mark.parametrize("text", WRONG)
def test_other_text_is_refused(text):
    with refused():
        evaluated(text, NAMES)


def test_what_is_no_text_is_refused():
    for value in (2.5, True, [1]):
        with refused():
            evaluated(value, NAMES)


def test_a_name_is_known_whether_it_matters_or_not():
    names = {"numel": 8, "rank": 1, "block": 4}
    assert evaluated("numel if rank else block", names) == 8
    with refused():
        evaluated("numel if rank else blocks", names)


def test_threads_of_ranks_read_expressions_at_once():
    """CPython 3.11 counts the depth of what all threads parse as one, and what is collected meanwhile switches them."""
    text = "+".join(f"min({number}, max({number}, n))" for number in range(60))
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    failed = []

    class Collected:
        def __del__(self):
            sum(range(50))

    def reads():
        for _ in range(60):
            one = Collected()
            one.me = one
            del one
            try:
                evaluated(text, {"n": 3})
            except SystemError as error:
                failed.append(error)
                return

    was_enabled = gc.isenabled()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    gc.enable()
    try:
        threads = [threading.Thread(target=reads) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        if not was_enabled:
            gc.disable()
    assert not failed
