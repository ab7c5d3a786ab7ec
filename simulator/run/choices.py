"""What a schedule decides, one choice after another: enough to run the same interleaving again, or a part of it.

A list of choices as text has a line for each, of JSON: who took a step, which copies moved on, and where a host went on
while kernels of other ranks were under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.observe.lanes import Group, ids_of
from simulator.run.groups import compact

WHOLE = 255
"""More accesses than a basic block is run for at once: to its end."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Lanes of a batch (by its place among those under way) run on from a place of their kernel.

    index: the step where they are. accesses: how many accesses to memory they make, at most, before others may run;
    they stop at the end of the basic block. tear: which elements of a vector access come first, 0 for all of them.
    shuffle: the order in which lanes of one instruction reach the same address, 0 for that of their numbers. wakes:
    sleeping lanes whose memory has changed were woken before.
    """

    batch: int
    index: int
    lanes: Group
    accesses: int = WHOLE
    tear: int = 0
    shuffle: int = 0
    wakes: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """Copies of a batch moved on: the places of these among those under way.

    lane: of copies of single lanes, only those of the 32 around this one; -1: all. tear: see Copies.advance. idle:
    nothing else could happen.
    """

    batch: int
    copies: tuple[int, ...]
    lane: int = -1
    tear: int = 0
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """Hosts of ranks whose kernels are done went on, while kernels of others were under way."""


@dataclass(frozen=True, slots=True)
class Until:
    """All lanes run in the fair order until a launch of this number has begun on some rank. No schedule chooses this:
    it stands for choices that were left out."""

    launch: int


Choice = Turn | Moved | Returned | Until


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
    turns = [(one.batch, ids_of(one.lanes)) for one in choices if isinstance(one, Turn)]
    pairs = pairwise(turns)
    return sum(before[0] != after[0] or not np.array_equal(before[1], after[1]) for before, after in pairs)


def _row(one: Choice) -> list[object]:
    if isinstance(one, Turn):
        return ["turn", one.batch, one.index, _runs(one.lanes), one.accesses, one.tear, one.shuffle, int(one.wakes)]
    if isinstance(one, Moved):
        return ["copies", one.batch, list(one.copies), one.lane, one.tear, int(one.idle)]
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
    if kind == "copies":
        batch, copies, lane, tear, idle = rest
        if not isinstance(copies, list):
            raise ValueError(copies)
        return Moved(_count(batch), tuple(map(_count, copies)), _count(lane, least=-1), _count(tear), bool(idle))
    if kind != "turn":
        raise ValueError(kind)
    batch, index, runs, *numbers = rest
    accesses, tear, shuffle, wakes = map(_count, numbers)
    if not isinstance(runs, list) or not runs:
        raise ValueError(runs)
    lanes = np.concatenate([np.arange(_count(count, least=1)) + _count(first) for first, count in runs])
    if (np.diff(lanes) < 1).any():
        raise ValueError(runs)
    return Turn(_count(batch), _count(index), compact(lanes), accesses, tear, shuffle, bool(wakes))


def _count(value: object, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value
