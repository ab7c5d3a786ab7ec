"""How far a search is: one line that is rewritten on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from reports.table.text import counted
from symlab.checks.explore.search import Plan, Search, Searched

REDRAWN_S = 0.5
FIRST_S = 5.0
"""Seconds without a line where there is no terminal. Each later line comes after twice the time of the one before."""


class Progress:
    """Tells of a search on a stream."""

    def __init__(self, plan: Plan, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._next_s = clock() + (REDRAWN_S if self._is_terminal else FIRST_S)
        self._wait_s = FIRST_S
        self._has_line = False

    def tell(self, searched: Searched) -> None:
        """Say how far it is, if it is time to."""
        if self._clock() < self._next_s:
            return
        text = progress_text(self._plan, searched)
        if self._is_terminal:
            self._next_s = self._clock() + REDRAWN_S
            self._stream.write(f"\r\x1b[2K{text}")
            self._has_line = True
        else:
            self._next_s = self._clock() + self._wait_s
            self._wait_s *= 2
            self._stream.write(f"symlab: {text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._has_line:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()


def searched(plan: Plan) -> Searched:
    """Search, and tell of it on stderr."""
    progress = Progress(plan, sys.stderr)
    done = Search(plan, progress.tell).run()
    progress.end()
    return done


def progress_text(plan: Plan, searched: Searched) -> str:
    """ "120 of 400 runs, 30 of 100 seeds, 12.3 runs/s, 14 s left"."""
    rate = searched.runs / max(searched.seconds, 1e-9)
    seeds = searched.runs // plan.runs_of_a_seed
    parts = [counted(searched.runs, "run"), counted(seeds, "seed")]
    left = []
    if plan.seeds is not None and plan.runs is not None:
        parts = [f"{searched.runs:,} of {counted(plan.runs, 'run')}", f"{seeds:,} of {counted(plan.seeds, 'seed')}"]
        left.append((plan.runs - searched.runs) / max(rate, 1e-9))
    if plan.seconds is not None:
        left.append(plan.seconds - searched.seconds)
    return ", ".join([*parts, f"{rate:.3g} runs/s", f"{max(min(left), 0):.0f} s left" if left else "no end is set"])
