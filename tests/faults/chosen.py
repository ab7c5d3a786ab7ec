"""Which faults are made: drawn by a seed, spread over all packages and their rooms by the lines that tests run.

A draw is by digests of the seed and of places. So a fault that turns out to change nothing is replaced by the next of
its room, and all others stay as they are.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from tests.faults.made import Fault


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
            order = (one for one in _ordered(rooms[room], seed) if one.name not in equivalent)
            found += [one for one, _ in zip(order, range(share), strict=False)]
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


def _ordered(lines: Mapping[tuple[str, int], Sequence[Fault]], seed: str) -> Iterator[Fault]:
    """One fault of each line: lines in the seed's order, and of a line's kinds each as likely as the others."""
    for path, line in sorted(lines, key=lambda place: _digest(seed, *place)):
        own = lines[path, line]
        kind = min({one.kind for one in own}, key=lambda kind: _digest(seed, path, line, kind))
        yield min((one for one in own if one.kind == kind), key=lambda one: _digest(seed, one.name, one.line))


def _digest(*parts: object) -> str:
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()
