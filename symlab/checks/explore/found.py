"""A failure that was found: shrunk to few switches, traced, kept in a file, and run again from it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cases.documents import decoded, encoded
from cases.record.reading import contents
from memory.atomic_file import replacing
from reports.table.text import counted
from runner.request_error import RequestError
from simulator.options import Interleaving, Schedule
from simulator.run.choices import Choice, Turn, choices_of, text_of
from symlab.checks.explore.reading import MAX_LINES, lines_of, switches_of
from symlab.checks.explore.shrink import Shrinker
from symlab.checks.explore.subject import Failure, Ran, Subject, run_once
from symlab.checks.explore.trace import Row

VERSION = 4
MOST_BYTES = 1 << 28
MAX_LAUNCHES = 1000
"""Maximum number of checked launches that a file may ask for, as of a case."""


@dataclass(frozen=True, slots=True)
class Found:
    """A failing run, all of it: `order.follows` are its choices, one by one.

    label and digest are those of its subject; switches_before and switches count, in the run that was found and in
    this one, the turns none of whose warps ran in the turn before; late_before and late the late accesses of weak
    memory (simulator/memory/chance.py). cause: which access went wrong, if that can be told. launches: number of its
    checked launches. is_shrunk is false if the time was up before the search for fewer switches was at its end.
    fails_in_fair: the fair order fails in the same way, so that the mistake is not one of orders alone.
    """

    label: str
    digest: str
    order: Interleaving
    failure: Failure
    rows: tuple[Row, ...]
    cause: str
    switches_before: int
    switches: int
    late_before: int
    late: int
    tries: int
    is_shrunk: bool
    launches: int
    fails_in_fair: bool

    def text(self, most_lines: int = MAX_LINES) -> str:
        """The failure and its trace for people."""
        before = f"{_switches(self.switches_before)}{_late(self.late_before)} before"
        needed = switches_of(self.rows)
        upto = f", {needed} of them in its launch up to what went wrong" if needed < self.switches else ""
        runs = counted(self.tries, "run") + ("" if self.is_shrunk else ", the time was up")
        under = "in the fair order, too" if self.fails_in_fair else f"under {self.order}"
        heading = [
            f"{self.label}: {self.failure.kind} {under}",
            *(f"  {line.strip()}" for line in self.failure.message.splitlines()),
            f"shrunk to {_switches(self.switches)}{upto}{_late(self.late)} ({before}, {runs})",
            *([f"what went wrong: {self.cause}"] if self.cause else []),
            *(f"the race checker says of this run: {one}" for one in self.failure.races),
            *self._torn(),
            f"the interleaving (> a switch, ! what went wrong{', ~ not the newest store' if self.late else ''}):",
        ]
        return "\n".join([*heading, *lines_of(self.rows, most_lines)])

    def _torn(self) -> list[str]:
        """What it means that vector accesses come apart in it, which the search could not do without."""
        if not any(isinstance(one, Turn) and one.tear for one in self.order.follows or ()):
            return []
        return ["a vector access comes apart in it: vector_8 or vector_16 excludes that (assumptions, of the launch)"]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a file has of a failure: the overrides and the case that make its subject again, and how it failed."""

    symlab_exploration: int
    overrides: tuple[str, ...]
    case: str
    config_dir: str | None
    digest: str
    order: Interleaving
    launches: int
    failure: Failure
    choices: tuple[str, ...]

    @staticmethod
    def of(found: Found, overrides: tuple[str, ...], case: str, config_dir: Path | None) -> Kept:
        """Return what to keep of a failure of a case of a command."""
        folder = None if config_dir is None else str(config_dir.absolute())
        order, choices = replace(found.order, follows=None), text_of(found.order.follows or ()).splitlines()
        made = (VERSION, overrides, case, folder, found.digest, order, found.launches, found.failure)
        return Kept(*made, tuple(choices))

    def write(self, path: Path) -> None:
        """Write it to a file. Raises OSError."""
        with replacing(path) as place:
            place.write_text(json.dumps(encoded(self), separators=(",", ":")) + "\n", encoding="utf-8")

    def replayed(self, subject: Subject) -> Ran:
        """Run the failure again."""
        order = replace(self.order, follows=choices_of("\n".join(self.choices)))
        return run_once(replace(subject, launches=self.launches), order, traces=True)


def read(path: Path) -> Kept:
    """Return what a file holds. RequestError, in one line, for one that holds none."""
    try:
        kept: Kept = decoded(Kept, json.loads(contents(path, MOST_BYTES)), "it")
        choices_of("\n".join(kept.choices))
        if kept.symlab_exploration != VERSION or Schedule(kept.order.schedule) is Schedule.fair:
            raise ValueError(f"version {kept.symlab_exploration}, schedule {kept.order.schedule}")
        if kept.order.seed < 0 or not 1 <= kept.launches <= MAX_LAUNCHES:
            raise ValueError(f"seed is {kept.order.seed}, launches is {kept.launches}")
    except (ValueError, TypeError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        reason = " ".join(said.split()).removeprefix(f"{path}: ")[:100]
        raise RequestError(
            f"{path}: no exploration ({reason}; --replay), give a file that symlab explore wrote"
        ) from None
    return kept


def _switches(count: int) -> str:
    return f"{count:,} switch{'' if count == 1 else 'es'}"


def _late(count: int) -> str:
    return f" and {count:,} late access{'' if count == 1 else 'es'}" if count else ""


def shrunk(
    subject: Subject,
    order: Interleaving,
    failure: Failure,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Found, KeyboardInterrupt | None]:
    """Look for the failure with fewer switches for some seconds, and trace the best run.

    An interrupt ends the search, not the trace; it comes back beside what was found until then. Runs of other orders
    and numbers of launches may raise: the failure that was found is reported all the same.
    """
    interrupt: KeyboardInterrupt | None = None
    first = run_once(subject, order, records=True)
    assert first.failure is not None, "the seed does not repeat"
    ends_s = clock() + seconds
    before, late_before = first.switches, first.tried(failure).late
    fair = Ran(None)

    def attempt(candidate: tuple[Choice, ...]) -> Any:
        left_s = max(ends_s - clock(), 0.1)
        return _tried(subject, replace(order, follows=candidate), left_s, records=True).tried(failure)

    search = Shrinker(attempt, ends_s, clock)
    try:
        if seconds:
            subject, first = _with_fewer_launches(subject, order, first, failure)
        fair = _tried(subject, Interleaving())
        search.shrink(first.tried(failure))
    except KeyboardInterrupt as raised:
        interrupt = raised
    best = search.best if search.best.choices else first.tried(failure)
    late = best.late
    followed = replace(order, follows=best.choices)
    traced = run_once(subject, followed, traces=True)
    found = Found(
        label=subject.label,
        digest=subject.digest,
        order=followed,
        failure=traced.failure or failure,
        rows=traced.rows,
        cause=traced.cause,
        switches_before=before,
        switches=traced.switches,
        late_before=late_before,
        late=late,
        tries=search.tries,
        is_shrunk=interrupt is None and not search.is_over,
        launches=subject.launches,
        fails_in_fair=fair.failure is not None and fair.failure.is_like(failure),
    )
    return found, interrupt


def _with_fewer_launches(subject: Subject, order: Interleaving, first: Ran, failure: Failure) -> tuple[Subject, Ran]:
    """The subject with as few launches as still fail in the same way, of one and those up to the wrong one."""
    for launches in dict.fromkeys((1, failure.launch // 2 + 1, failure.launch + 1)):
        if launches < subject.launches:
            shorter = replace(subject, launches=launches)
            ran = _tried(shorter, replace(order, follows=first.choices), records=True)
            if ran.failure is not None and ran.failure.is_like(failure):
                return shorter, ran
    return subject, first


def _tried(subject: Subject, order: Interleaving, deadline_s: float = math.inf, *, records: bool = False) -> Ran:
    """Run a subject in another way than it failed; what it raises says no more than that it can't run so."""
    try:
        return run_once(subject, order, deadline_s, records=records)
    except Exception as error:
        return Ran(None, str(error))
