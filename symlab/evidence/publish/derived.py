"""symlab publish --derive: all that follows from the bundles in reports/published, in one call.

Sections, tables and figures, of each set without them kernels and profiles, then the model's score, and the manifest at
the end. What is there and of the same records stays, so a call that was interrupted goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases.record.record import Record
from reports.table.text import counted
from runner.request.experiments import CONF
from runner.request_error import RequestError
from symlab.evidence import published as tables
from symlab.rooms import has, part_of

_SET, _SCORE = "publish --derive", "publish --derive, the score"


@dataclass(frozen=True, slots=True)
class Means:
    """What deriving works with; tests put their own in. keep: writes the score, in place of what does. root: the
    project's folder."""

    keep: Callable[[Any], None] | None = None
    root: Path = CONF.parent


def derive(means: Means | None = None) -> int:
    """Make what follows from the published bundles. Returns the exit code: 0 all is there, 1 a set's kernels can't be
    made again, which is said. RequestError if what is published can't be read or changed."""
    means = means or Means()
    root = means.root
    try:
        records = tables.refresh(root)
    except ValueError as error:
        raise RequestError(f"{error} (--derive)") from error
    try:
        failed = [name for name, some in records.items() if not _derived(name, some, means)]
    except KeyboardInterrupt as interrupt:
        tables.reseal(root)
        interrupt.add_note("what was made is kept; the same command goes on")
        raise
    try:
        if has(_SCORE):
            _say(part_of(_SCORE)(root, records, **({"keep": means.keep} if means.keep else {})))
        else:
            _say("no score: symlab/speed is not installed")
    except ValueError as error:
        _say(f"no score: {error}")
        failed.append("score")
    tables.reseal(root)
    state = f"not whole: {', '.join(failed)}" if failed else "all derived"
    _say(f"{counted(len(records), 'published set')}, {state}")
    return 1 if failed else 0


def _derived(name: str, records: Sequence[Record], means: Means) -> bool:
    """Make a set's kernels and profiles where they are missing. Returns whether all are there."""
    place = means.root / tables.PLACE / name
    try:
        if has(_SET):
            part_of(_SET)(place, records, _say)
    except (OSError, RuntimeError, ValueError) as error:
        _say(f"{name}: {' '.join(str(error).split())}")
        return False
    return True


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
