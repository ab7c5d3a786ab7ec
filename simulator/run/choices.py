"""What a schedule decides, one choice after another: enough to run the same interleaving again, or a part of it.

A list of choices as text has a line for each, of JSON: which launches began, who took a step, which copies moved on,
which accesses of weak memory were late, and where a host went on while kernels of other ranks were under way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from typing import Any

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
KINDS: dict[str, Any] = {
    "turn": Turn,
    "copies": Moved,
    "late": Late,
    "begin": Began,
    "until": Until,
    "returned": Returned,
}


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
    kind = next(kind for kind, of in KINDS.items() if of is type(one))
    return [kind, *(_plain(getattr(one, field.name)) for field in fields(one))]


def _plain(value: object) -> object:
    if isinstance(value, (range, np.ndarray)):
        return _runs(value)
    return int(value) if isinstance(value, bool) else value


def _runs(lanes: Group) -> list[list[int]]:
    """Lanes as runs: the first of each, and their number."""
    if isinstance(lanes, range):
        return [[lanes.start, len(lanes)]]
    ids = ids_of(lanes)
    parts = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    return [[int(one[0]), len(one)] for one in parts]


def _choice(row: list[object]) -> Choice:
    kind, *values = row
    of = KINDS[str(kind)]
    names = [field.name for field in fields(of)]
    found: Choice = of(*(_READERS.get(name, _count)(value) for name, value in zip(names, values, strict=True)))
    return found


def _group(runs: Any) -> Group:
    """The lanes of runs, which ascend."""
    lanes = np.concatenate([np.arange(_count(count, least=1)) + _count(first) for first, count in runs])
    if (np.diff(lanes) < 1).any():
        raise ValueError(runs)
    return compact(lanes)


def _pairs(value: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    return tuple((_count(one), _count(other)) for one, other in value)


def _count(value: object, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "lanes": _group,
    "copies": _pairs,
    "launches": _pairs,
    "drawn": lambda values: tuple(map(_count, values)),
    "threads": partial(_count, least=1),
    "lane": partial(_count, least=-1),
    **dict.fromkeys(("wakes", "idle", "due"), bool),
}
"""How the values of fields are read; those of others are counts."""
