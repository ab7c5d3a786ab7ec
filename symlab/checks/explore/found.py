"""A failure that was found: shrunk to few switches, traced, kept in a file, and run again from it."""

from __future__ import annotations

import json
import math
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cases.documents import decoded, encoded
from memory.atomic_file import replacing
from reports.table.text import counted
from runner.request_error import RequestError
from simulator.options import Interleaving, Schedule
from simulator.run.choices import Choice, Turn, choices_of, text_of
from symlab.checks.explore.reading import MAX_LINES, lines_of, switches_of
from symlab.checks.explore.shrink import Shrinker
from symlab.checks.explore.subject import Failure, Ran, Subject, run_once
from symlab.checks.explore.trace import Row

FORMAT = "symlab exploration"
VERSION = 3
"""Version 1 named lanes by batches, which depend on when launches begin; version 2 named fields otherwise."""
MAX_LAUNCHES = 1000
"""Maximum number of checked launches that a file may ask for, as of a case."""


@dataclass(frozen=True, slots=True)
class World:
    """How a world is made, but for what an order says: what a repetition has to have in common."""

    world_size: int
    gpu: str | None
    heap_bytes: int
    memory: str
    multicast: bool
    multimem: str
    races: bool
    step_budget: int


@dataclass(frozen=True, slots=True)
class Found:
    """A failing run, all of it: `order.follows` are its choices, one by one.

    label and digest are those of its subject; switches_before and switches count, in the run that was found and in
    this one, the turns none of whose warps ran in the turn before; late_before and late the late accesses of weak
    memory (simulator/memory/chance.py). cause: which access went wrong, if that can be told.
    launches: number of its checked launches. what: how to make the subject again (of a command its overrides and the
    case). is_shrunk is false if the
    time was up before the search for fewer switches was at its end. fails_in_fair: the fair order fails in the same
    way, so that the mistake is not one of orders alone.
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
    what: dict[str, Any]
    world: World
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

    def document(self) -> dict[str, Any]:
        """The failure as JSON has it."""
        whole = encoded(replace(self, order=replace(self.order, follows=None)))
        choices = text_of(self.order.follows or ()).splitlines()
        return {"format": FORMAT, "version": VERSION, **whole, "choices": choices}

    def write(self, path: Path) -> None:
        """Write it to a file. Raises OSError."""
        with replacing(path) as place:
            place.write_text(json.dumps(self.document(), separators=(",", ":")) + "\n", encoding="utf-8")


def world_of(subject: Subject) -> World:
    """Return how a subject's world is made."""
    options = subject.options
    return World(
        subject.world_size,
        None if options.gpu is None else options.gpu.name,
        options.heap_bytes,
        str(options.memory),
        options.multicast,
        str(options.multimem),
        options.races,
        options.step_budget,
    )


def _switches(count: int) -> str:
    return f"{count:,} switch{'' if count == 1 else 'es'}"


def _late(count: int) -> str:
    return f" and {count:,} late access{'' if count == 1 else 'es'}" if count else ""


def read(path: Path) -> Found:
    """Return what a file holds. RequestError, in one line, for one that holds none."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe would be waited for
            raise RequestError(f"{path} is a pipe or a device (--replay), give a file that symlab explore wrote")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise RequestError(f"{path}: {reason} (--replay), give a file that symlab explore wrote") from None
    try:
        return _read(json.loads(text))  # not documents.parsed: a long trace has more objects than that takes
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError) else ""
        reason = f" ({' '.join(reason.split())[:100]})" if reason else ""
        raise RequestError(
            f"{path}: no exploration{reason} (--replay), give a file that symlab explore wrote"
        ) from None


def _read(document: dict[str, Any]) -> Found:
    if document.pop("format") != FORMAT or document["version"] != VERSION:
        raise ValueError(f"it is of version {document['version']}")
    del document["version"]
    choices = choices_of("\n".join(document.pop("choices")))
    found = decoded(Found, document, "it")
    order = found.order
    if Schedule(order.schedule) is Schedule.fair:
        raise ValueError("schedule is fair, which has one order")
    for name, value, least, most in (
        ("seed", order.seed, 0, math.inf),
        ("launches", found.launches, 1, MAX_LAUNCHES),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name} is {value}")
    return replace(found, order=replace(order, follows=choices))


def shrunk(
    subject: Subject,
    order: Interleaving,
    failure: Failure,
    seconds: float,
    what: dict[str, Any] | None = None,
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
        what=what or {},
        world=world_of(subject),
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


def other_world(subject: Subject, found: Found) -> tuple[str, Any, Any] | None:
    """Return what of a subject's world is not as in the file: its name, what it was, what it is; None if all is."""
    was, now = asdict(found.world), asdict(world_of(subject))
    return next(((name, was[name], now[name]) for name in now if was[name] != now[name]), None)


def other_kernel(subject: Subject, found: Found) -> str:
    """Return a sentence if the subject's kernel is not the one of the file, else ""."""
    if subject.digest == found.digest:
        return ""
    before, now = (digest.removeprefix("sha256:")[:12] for digest in (found.digest, subject.digest))
    return (
        f"the kernel differs from the one of the file (digest {now}, and not {before}): the file's choices are "
        "followed as far as they fit"
    )


def replayed(subject: Subject, found: Found, deadline_s: float = math.inf) -> tuple[Ran, str]:
    """Run a failure again. Return how it ended, and where events or the failure differ from the file, else ""."""
    ran = run_once(replace(subject, launches=found.launches), found.order, deadline_s, traces=True)
    return ran, _difference(found.rows, ran.rows) or _other_failure(found.failure, ran.failure)


def _difference(before: tuple[Row, ...], now: tuple[Row, ...]) -> str:
    for number, (one, other) in enumerate(zip(before, now, strict=False), 1):
        where = f"event {number} of {len(before)}"
        if one.text != other.text:
            return f"{where} differs: it was '{one.text}', and is '{other.text}'"
        if one != other:
            return f"{where} ({one.text}) differs in {_first_field(one, other, [each.name for each in fields(Row)])}"
    if len(before) != len(now):
        return f"there are {len(now)} events, and there were {len(before)}"
    return ""


def _other_failure(before: Failure, now: Failure | None) -> str:
    if now is None:
        return ""
    compared = ("kind", "message", "lines", "races")
    difference = _first_field(before, now, compared)
    return f"the failure differs in {difference}" if difference else ""


def _first_field(one: object, other: object, names: Iterable[str]) -> str:
    """Return the first field that differs, with both values; "" if none does."""
    for name in names:
        before, now = getattr(one, name), getattr(other, name)
        if before != now:
            return f"{name}: it was {before!r}, and is {now!r}"
    return ""
