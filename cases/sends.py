"""How many elements each rank sends to each, by Case.counts: what a router of experts would have decided.

All ranks together send numel * world_size elements, whatever the counts: so cases that differ in counts alone move the
same number of bytes, and their times say what the imbalance costs. No rank sends or gets more than ROOM * numel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cases.case import Case, Counts, Sends

ROOM = 2
"""Elements of a rank's input and output buffer, in multiples of numel: the capacity factor of a mixture of experts."""


def sends_of(case: Case) -> Sends:
    """Return the elements that each rank sends to each. ValueError for unknown counts.

    uniform: numel / world_size each. skewed: each rank sends numel; three quarters of it go to the ranks by popularity,
    which rises evenly from one rank to the next around the ring, and one quarter by a popularity of the sender's own,
    so that the most popular of n ranks gets 0.75 (2n - 1) / n + 0.25 times the mean, but for rounding. zeros: one rank
    sends nothing and another gets nothing; each of the others sends to every second of the rest, the same to each but
    for one element. seed says which ranks these are. On one rank all are the same.
    """
    made = {Counts.uniform: _uniform, Counts.skewed: _skewed, Counts.zeros: _zeros}.get(Counts(case.counts))
    assert made is not None
    return _kept(made, case.numel, case.world_size, case.seed)


@lru_cache(maxsize=64)
def _kept(made: Callable[[int, int, int], Sends], numel: int, ranks: int, seed: int) -> Sends:
    return made(numel, ranks, seed)


def _uniform(numel: int, ranks: int, seed: int) -> Sends:
    return ((numel // ranks,) * ranks,) * ranks


def _skewed(numel: int, ranks: int, seed: int) -> Sends:
    common = ranks * (numel // ranks * 3 // 4)
    own = numel - common
    return tuple(
        tuple(
            _risen(common, ranks, (peer + seed) % ranks) + _risen(own, ranks, (peer + seed + rank) % ranks)
            for peer in range(ranks)
        )
        for rank in range(ranks)
    )


def _risen(total: int, parts: int, place: int) -> int:
    """Return a part of total that rises with its place, as 1, 3, 5 ..: all parts together are the total."""
    return total * (place + 1) ** 2 // parts**2 - total * place**2 // parts**2


def _zeros(numel: int, ranks: int, seed: int) -> Sends:
    if ranks == 1:
        return _uniform(numel, ranks, seed)
    silent = seed % ranks
    ignored = (silent + 1 + seed // ranks % (ranks - 1)) % ranks
    rows = [[0] * ranks for _ in range(ranks)]
    senders = [rank for rank in range(ranks) if rank != silent]
    getters = [rank for rank in range(ranks) if rank != ignored]
    steps = range(0, ranks - 1, 2)
    for place, sender in enumerate(senders):
        whole = _share(numel * ranks, len(senders), place)
        for part, step in enumerate(steps):
            rows[sender][getters[(place + step) % len(getters)]] = _share(whole, len(steps), part)
    return tuple(map(tuple, rows))


def _share(total: int, parts: int, place: int) -> int:
    """Return a part of total: all are the same but for one element, and together the total."""
    return total // parts + (place < total % parts)
