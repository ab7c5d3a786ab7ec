"""How far a run over many seeds is: lines on standard error, from its third second on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence

from reports.table.text import counted

FIRST_S = 2.0
"""Seconds that pass without a line. Each later line comes after twice the time of the one before."""


def told(numbers: Sequence[int], clock: Callable[[], float] = time.monotonic) -> Iterator[int]:
    """Yield the seeds, and tell of those that are done, once that takes over two seconds, and of all at the end.

    A seed that failed ends the iteration early: then the exception says which it was.
    """
    started_s = clock()
    next_s = FIRST_S
    for done, number in enumerate(numbers):
        elapsed_s = clock() - started_s
        if elapsed_s >= next_s:
            print(
                f"symlab: {done} of {counted(len(numbers), 'seed')} in {elapsed_s:.1f} s", file=sys.stderr, flush=True
            )
            next_s = 2 * elapsed_s
        yield number
    elapsed_s = clock() - started_s
    if elapsed_s >= FIRST_S:
        print(f"symlab: {rate(len(numbers), 'seed', elapsed_s)}", file=sys.stderr, flush=True)


def rate(count: int, noun: str, elapsed_s: float) -> str:
    """Return "20 seeds in 12.5 s, 1.6 a second"."""
    return f"{counted(count, noun)} in {elapsed_s:.1f} s, {count / max(elapsed_s, 1e-9):.3g} a second"
