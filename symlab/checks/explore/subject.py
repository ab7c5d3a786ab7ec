"""What is explored, and one run of it under one order of threads.

A subject is plain data, so that it can be sent to a helper process. Its run is one world, made for it and closed after
it, and ends in one of three ways: right, with a failure, or undecided when the time or the steps ran out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cases.finding import SEVERITIES, Finding
from memory.fabric import HeapFull
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.options import Interleaving
from simulator.run.choices import Choice
from simulator.world import SimulatedWorld, SimulatorOptions
from symlab.checks.explore.blame import Wrong, blame, blame_race
from symlab.checks.explore.shrink import Tried
from symlab.checks.explore.trace import Layout, Row, Tracer, Turns

if TYPE_CHECKING:
    from cases.record.record import Check

WRONG, FAULT, DEADLOCK, RACE = "wrong output", "fault", "deadlock", "race"
SHOWN = 5
"""Maximum number of findings of the race checker to tell of one run."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came out: problem is "" if it is right; wrong is the first wrong element, if it is one."""

    problem: str = ""
    wrong: Wrong | None = None
    launch: int = 0


def judgement_of(check: Check | None, wrong: Wrong | None) -> Judgement:
    """Return what a check of a run says. wrong: the place of its first wrong element."""
    assert check is not None
    launch = check.first_mismatch.launch if check.first_mismatch is not None else 0
    return Judgement("; ".join(check.faults), wrong, launch) if check.faults else Judgement()


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed: WRONG, FAULT, DEADLOCK or RACE, what was said of it, and the PTX lines where it happened.

    launch: the checked launch whose output is wrong, from 0; 0 if that is unknown. races: what the race checker says of
    a run that fails by itself, a sentence each.
    """

    kind: str
    message: str
    lines: tuple[int, ...] = ()
    wrong: Wrong | None = None
    launch: int = 0
    races: tuple[str, ...] = ()

    def is_like(self, other: Failure) -> bool:
        """Whether both are the same mistake as far as that is known: the kind, and a line that both have."""
        if self.kind != other.kind:
            return False
        return self.kind == WRONG or self.lines == other.lines or bool(set(self.lines) & set(other.lines))


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended. undecided: why it is not known, "" if it is. choices, switches, shapes and launches (see Tried)
    are there if they were recorded, rows and cause if it was traced."""

    failure: Failure | None
    undecided: str = ""
    choices: tuple[Choice, ...] = ()
    switches: int = 0
    shapes: frozenset[tuple[int, int, int]] = frozenset()
    launches: tuple[int, ...] = ()
    rows: tuple[Row, ...] = ()
    cause: str = ""

    def tried(self, like: Failure) -> Tried:
        """What it means to who looks for a run with fewer switches that fails like another."""
        fails = self.failure is not None and self.failure.is_like(like)
        return Tried(fails, self.choices, self.switches, self.shapes, self.launches)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is run: a launch on all ranks of a world, and how to judge it.

    label names it for people; digest is that of its kernel's PTX. options: of its simulated world. launches: number of
    checked launches in a row. layouts: of its tensors, for traces. judge runs that many launches within a deadline in
    seconds, and judges what came out; it raises WorldFailure.
    """

    label: str
    digest: str
    world_size: int
    options: SimulatorOptions
    deadline_s: float
    judge: Callable[[ThreadWorld, float, int], Judgement]
    layouts: Mapping[str, Layout]
    launches: int = 1


def run_once(
    subject: Subject, order: Interleaving, deadline_s: float = math.inf, *, records: bool = False, traces: bool = False
) -> Ran:
    """Run a subject in a world of its own. records: keep the choices; traces: keep what happened, too.

    Raises ValueError for what can't run in any order, such as buffers that don't fit.
    """
    options = replace(subject.options.under(order), records_choices=records or traces)
    machine = SimulatedWorld(subject.world_size, options)
    for listener in (machine.tally, machine.printer):  # neither counts nor prints: this is one of many runs
        machine.space.events.remove(listener)
    turns = Turns()
    if traces:
        turns = Tracer(machine.space, subject.layouts, lambda: machine.batches)
    if records or traces:
        machine.space.events.add(turns)
    world = ThreadWorld(subject.world_size, machine=machine)
    try:
        failure, undecided = _judged(subject, world, min(subject.deadline_s, deadline_s))
        found = sorted((one for one in machine.findings if one.fails), key=lambda one: SEVERITIES.index(one.severity))
        failure = _with_races(failure, found, undecided)
        rows, cause = _told(turns, failure, found) if isinstance(turns, Tracer) else ((), "")
        facts = (turns.switches, frozenset(turns.shapes), tuple(turns.launches))
        return Ran(failure, undecided, machine.choices, *facts, rows, cause)
    finally:
        world.close()


def _judged(subject: Subject, world: ThreadWorld, deadline_s: float) -> tuple[Failure | None, str]:
    try:
        found = subject.judge(world, deadline_s, subject.launches)
    except WorldFailure as failure:
        if isinstance(failure.__cause__, (ValueError, HeapFull)):
            raise ValueError(failure.message) from failure
        if str(failure.status) == "TIMEOUT":
            return None, failure.message
        kind = DEADLOCK if str(failure.status) == "DEADLOCK" else FAULT
        lines = tuple(sorted({place.ptx_line for place in failure.places}))
        return Failure(kind, failure.message, lines), ""
    return (Failure(WRONG, found.problem, (), found.wrong, found.launch) if found.problem else None), ""


def _with_races(failure: Failure | None, found: Sequence[Finding], undecided: str) -> Failure | None:
    """The failure with what the race checker found; of a run that did not fail, the races are the failure."""
    if not found:
        return failure
    said = [one.sentence() for one in found[:SHOWN]]
    said += [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    if failure is not None:
        return replace(failure, races=tuple(said))
    right = f"how the run would have ended is unknown: {undecided}" if undecided else "the output of this run is right"
    lines = {line for line in (found[0].first.line, found[0].second.line) if line > 0}
    return Failure(RACE, "\n".join([*said, right]), tuple(sorted(lines)))


def _told(tracer: Tracer, failure: Failure | None, found: Sequence[Finding]) -> tuple[tuple[Row, ...], str]:
    """The rows of a trace, and which access went wrong, if that can be told."""
    cause = ""
    if failure is not None and failure.kind == RACE:
        cause = blame_race(tracer, found[0])
    elif failure is not None and failure.wrong is not None:
        cause = blame(tracer, failure.wrong)
    elif failure is not None and failure.kind == FAULT and tracer.noted:
        last = tracer.noted[-1]
        if last.instruction is not None and last.instruction.line in failure.lines:
            last.marks.append("faults")
    return tracer.rows(), cause
