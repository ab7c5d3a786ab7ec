"""Which faults are made: drawn by a seed, spread over all packages and their rooms by the lines that tests run.

A draw is by digests of the seed and of places. So a fault that turns out to change nothing is replaced by the next of
its room, and all others stay as they are.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from tests.faults.made import Fault

LOUD = {"arguments", "result"}
"""Kinds that mostly raise a TypeError at once, which any test finds."""


def drawn(faults: Sequence[Fault], count: int, seed: str, equivalent: Collection[str] = ()) -> list[Fault]:
    """Return count faults of those given, or fewer where rooms have too few. equivalent: names of faults to pass by.

    Each package has at least one, and else as many as its share of the lines; so has each room of its package's.
    """
    rooms: dict[str, dict[tuple[str, int], list[Fault]]] = defaultdict(lambda: defaultdict(list))
    for one in faults:
        rooms[one.room][one.path, one.line].append(one)
    packages: dict[str, dict[str, int]] = defaultdict(dict)
    for room, lines in rooms.items():
        packages[room.partition("/")[0]][room] = len(lines)
    shares = allotted(count, {name: sum(own.values()) for name, own in packages.items()}, least=1)
    found = []
    for package, own in sorted(packages.items()):
        for room, share in allotted(shares[package], own).items():
            found += [one for one, _ in zip(_ordered(rooms[room], seed, equivalent), range(share), strict=False)]
    return found


def allotted(count: int, weights: Mapping[str, int], least: int = 0) -> dict[str, int]:
    """Divide a count by weights: rounded down to whole numbers, and the rest to the largest remainders. least: for
    each, as far as there are as many."""
    names = sorted(weights)
    least = min(least, count // max(len(names), 1))
    left, total = count - least * len(names), max(sum(weights.values()), 1)
    shares = {name: least + left * weights[name] // total for name in names}
    rest = sorted(names, key=lambda name: (-(left * weights[name] % total), name))
    for name in rest[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


def _ordered(
    lines: Mapping[tuple[str, int], Sequence[Fault]], seed: str, equivalent: Collection[str]
) -> Iterator[Fault]:
    """One fault of each line: lines in the seed's order, and of a line's kinds each as likely as the others. LOUD ones
    are made only where a line has no other, and three of four such lines come last."""

    def order(place: tuple[str, int]) -> tuple[bool, str]:
        drawn_at = _digest(seed, *place)
        return {one.kind for one in lines[place]} <= LOUD and drawn_at[-1] not in "048c", drawn_at

    for path, line in sorted(lines, key=order):
        own = [one for one in lines[path, line] if one.name not in equivalent]
        if not own:
            continue
        kinds = {one.kind for one in own}
        kind = min(kinds - LOUD or kinds, key=lambda kind: _digest(seed, path, line, kind))
        yield min((one for one in own if one.kind == kind), key=lambda one: _digest(seed, one.name, one.line))


def _digest(*parts: object) -> str:
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()
