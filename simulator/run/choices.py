"""What a schedule decides, one choice after another: enough to run the same interleaving again, or a part of it.

A list of choices as text has a line for each, of JSON: which launches began, who took a step, which copies moved on,
which accesses of weak memory were late, and where a host went on while kernels of other ranks were under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.memory.chance import Late
from simulator.observe.lanes import Group, ids_of
from simulator.run.decode import WHOLE
from simulator.run.groups import compact


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Lanes of a launch run on from a place of their kernel.

    launch: its number on the rank of the first lane. threads: how many it has on a rank. lanes: those of rank r are
    r * threads and so on, whatever other ranks do: so a turn means the same where ranks' launches begin together and
    where they begin apart.

    index: the step where they are. accesses: how many accesses to memory they make, at most, before others may run;
    they stop at the end of the basic block. tear: which elements of a vector access come first, 0 for all of them.
    shuffle: the order in which lanes of one instruction reach the same address, 0 for that of their numbers. wakes:
    sleeping lanes whose memory has changed were woken before.
    """

    launch: int
    threads: int
    index: int
    lanes: Group
    accesses: int = WHOLE
    tear: int = 0
    shuffle: int = 0
    wakes: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """Copies of a launch moved on: of each the lane that issued it, and its place among those of the lane.

    launch, threads and lanes are as in Turn. lane: of copies of single lanes, only those of the 32 around this one; -1:
    all. tear: see Copies.advance. idle: nothing else could happen.
    """

    launch: int
    threads: int
    copies: tuple[tuple[int, int], ...]
    lane: int = -1
    tear: int = 0
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Began:
    """Launches of several ranks began together: of each the rank, and its number there, ascending.

    due: their time had come while lanes were ready to run; else a launch begins when nothing else can happen.
    """

    launches: tuple[tuple[int, int], ...]
    due: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """Hosts of ranks whose kernels are done went on, while kernels of others were under way."""


@dataclass(frozen=True, slots=True)
class Until:
    """All lanes run in the fair order until a launch of this number has begun on some rank. No schedule chooses this:
    it stands for choices that were left out."""

    launch: int


Choice = Turn | Moved | Began | Returned | Until | Late


def text_of(choices: Iterable[Choice]) -> str:
    """Return choices as text, a line each."""
    return "".join(json.dumps(_row(one), separators=(",", ":")) + "\n" for one in choices)


def choices_of(text: str) -> tuple[Choice, ...]:
    """Return the choices of a text. Raises ValueError naming a line that cannot be read."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(_choice(json.loads(line)))
        except (ValueError, TypeError, KeyError, IndexError, OverflowError):
            raise ValueError(f"line {number} of the choices is no choice of a schedule: {line[:80]}") from None
    return tuple(found)


def switches(choices: Sequence[Choice]) -> int:
    """Return how often other lanes run than those of the turn before."""
    turns = [(one.launch, ids_of(one.lanes)) for one in choices if isinstance(one, Turn)]
    pairs = pairwise(turns)
    return sum(before[0] != after[0] or not np.array_equal(before[1], after[1]) for before, after in pairs)


def _row(one: Choice) -> list[object]:
    if isinstance(one, Turn):
        how = [one.accesses, one.tear, one.shuffle, int(one.wakes)]
        return ["turn", one.launch, one.threads, one.index, _runs(one.lanes), *how]
    if isinstance(one, Moved):
        return ["copies", one.launch, one.threads, list(map(list, one.copies)), one.lane, one.tear, int(one.idle)]
    if isinstance(one, Late):
        return ["late", one.launch, one.threads, one.lane, one.line, one.nth, list(one.drawn)]
    if isinstance(one, Began):
        return ["begin", list(map(list, one.launches)), int(one.due)]
    return ["until", one.launch] if isinstance(one, Until) else ["returned"]


def _runs(lanes: Group) -> list[list[int]]:
    """Lanes as runs: the first of each, and their number."""
    if isinstance(lanes, range):
        return [[lanes.start, len(lanes)]]
    ids = ids_of(lanes)
    parts = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    return [[int(one[0]), len(one)] for one in parts]


def _choice(row: list[object]) -> Choice:
    kind, *rest = row
    if kind == "returned" and not rest:
        return Returned()
    if kind == "until":
        (launch,) = rest
        return Until(_count(launch))
    if kind == "late":
        launch, threads, lane, line, nth, drawn = rest
        if not isinstance(drawn, list):
            raise ValueError(drawn)
        where = (_count(launch), _count(threads, least=1), _count(lane))
        return Late(*where, _count(line), _count(nth), tuple(map(_count, drawn)))
    if kind == "begin":
        launches, due = rest
        return Began(_pairs(launches), bool(due))
    if kind == "copies":
        launch, threads, copies, lane, tear, idle = rest
        numbers = (_count(lane, least=-1), _count(tear))
        return Moved(_count(launch), _count(threads, least=1), _pairs(copies), *numbers, bool(idle))
    if kind != "turn":
        raise ValueError(kind)
    launch, threads, index, runs, *more = rest
    accesses, tear, shuffle, wakes = map(_count, more)
    if not isinstance(runs, list) or not runs:
        raise ValueError(runs)
    lanes = np.concatenate([np.arange(_count(count, least=1)) + _count(first) for first, count in runs])
    if (np.diff(lanes) < 1).any():
        raise ValueError(runs)
    where = (_count(launch), _count(threads, least=1), _count(index))
    return Turn(*where, compact(lanes), accesses, tear, shuffle, bool(wakes))


def _pairs(value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    return tuple((_count(one), _count(other)) for one, other in value)


def _count(value: object, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value
