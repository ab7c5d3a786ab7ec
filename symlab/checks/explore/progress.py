"""How far a search is: a line now and then, each after twice the time of the one before."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from reports.table.text import counted
from symlab.checks.explore.search import Plan, Search, Searched

FIRST_S = 5.0
"""Seconds without a line."""


def searched(plan: Plan, clock: Callable[[], float] = time.monotonic) -> Searched:
    """Search, and tell of it on stderr."""
    next_s, wait_s = clock() + FIRST_S, FIRST_S

    def tell(done: Searched) -> None:
        nonlocal next_s, wait_s
        if clock() >= next_s:
            print(f"symlab: {progress_text(plan, done)}", file=sys.stderr, flush=True)
            next_s, wait_s = clock() + wait_s, 2 * wait_s

    return Search(plan, tell).run()


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
