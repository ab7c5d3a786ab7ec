"""symlab publish --derive: all that follows from the bundles in reports/published, in one call.

Sections, tables and figures, of each set without them kernels and profiles, then the model's score, and the manifest at
the end. What is there and of the same records stays, so a call that was interrupted goes on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases.record.record import Record
from reports.record.bundle import published_sets
from reports.record.writing import write_file
from reports.table.text import counted
from runner.request.experiments import CONF
from runner.request_error import RequestError
from symlab.evidence import published as tables
from symlab.evidence.publish import pages
from symlab.rooms import has, part_of

_SET, _SCORE = "publish --derive", "publish --derive, the score"
_TITLE = re.compile(r"^# .*$", re.MULTILINE)
_CHECK = re.compile(r"^(    symlab (?:audit|table) )\S+$", re.MULTILINE)


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
    for name in published_sets(root):
        _rename(root / tables.PLACE / name / pages.PAGE)
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


def _rename(page: Path) -> None:
    """Give a page that symlab publish wrote the name of the folder that it is in now."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if text.startswith(pages.HEAD):
        name = page.parent.name
        renamed = _CHECK.sub(lambda match: f"{match[1]}{tables.PLACE.as_posix()}/{name}", text)
        renamed = _TITLE.sub(f"# {name}", renamed, count=1)
        if renamed != text:
            write_file(page, renamed.encode())


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
