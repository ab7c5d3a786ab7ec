"""What the assumption kernel_end says: which launches' accesses are complete for all GPUs before an access.

A launch's accesses are complete before the next launch of its stream begins. So a thread that sees a store of that next
launch, by a strong read that decides where it goes on, is behind them: its stores after the read, and later launches.
Its loads after the read are not: a GPU may have read ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from simulator.happens_before.clocks import BLOCK_SHIFT, LOW_MASK, RANK_SHIFT, STAMP_SHIFT
from simulator.happens_before.extras import GENERIC
from simulator.happens_before.order import SYS, Order
from simulator.happens_before.running import Actor
from simulator.observe.lanes import Launched
from symlab.checks.races.report import Info, Watched

Known = dict[tuple[int, int | None], int]
"""By rank and stream, the number of the last launch whose accesses are complete."""

InfoOf = Callable[[int], Info]
"""The facts about an access, by its stamp."""


@dataclass(slots=True)
class KernelEnds:
    """begins: by rank and number of a launch, what was complete when it began; ends: by rank and stream, when the last
    launch had ended."""

    begins: dict[tuple[int, int], Known] = field(default_factory=dict)
    ends: dict[tuple[int, int | None], Known] = field(default_factory=dict)

    def restart(self) -> None:
        """All that happened is complete."""
        self.begins.clear()
        self.ends.clear()

    def began(self, launched: Launched) -> None:
        for rank, number in zip(launched.ranks, launched.numbers, strict=True):
            self.begins[rank, number] = dict(self.ends.get((rank, launched.stream), {}))

    def ended(self, launched: Launched, rank: int, number: int, seen: Iterable[Watched], infos: InfoOf) -> None:
        """A launch of a rank has ended. seen: what strong reads saw; infos: of accesses."""
        known = {**self.begins[rank, number], (rank, launched.stream): number}
        for one in seen:
            if one.run.launched is launched:
                for _, writer in _writers(one, one.actors >> RANK_SHIFT == rank, infos):
                    for place, last in self.begins.get(writer, {}).items():
                        known[place] = max(last, known.get(place, last))
        self.ends[rank, launched.stream] = known

    def are_before(
        self, first: Info, epoch: int, second: Info, who: Actor, position: int, seen: Iterable[Watched], order: Order,
        infos: InfoOf,
    ) -> bool:  # fmt: skip
        """Return whether the launch of an earlier access was complete before a later one, by the actor at a position.
        epoch: of the earlier one."""
        if first.launched is None or second.launched is None:
            return False
        rank, actor = (epoch & LOW_MASK) >> RANK_SHIFT, int(who.actors(np.array([position]))[0])
        place, number = (rank, first.launched.launched.stream), first.launched.launched.number_on(rank)
        mine = second.launched.launched
        begun = self.begins.get((actor >> RANK_SHIFT, mine.number_on(actor >> RANK_SHIFT)), {})
        if begun.get(place, -1) >= number >= 0:
            return True
        for one in seen if second.is_write else ():
            if one.run is second.launched:
                for read, writer in _writers(one, one.actors >> BLOCK_SHIFT == actor >> BLOCK_SHIFT, infos):
                    is_known = self.begins.get(writer, {}).get(place, -1) >= number >= 0
                    epochs = np.array([one.stamp << STAMP_SHIFT | int(one.actors[read])])
                    if is_known and not order.unknown(who, np.array([position]), epochs, GENERIC)[0]:
                        return True
        return False


def _writers(one: Watched, at: np.ndarray, infos: InfoOf) -> Iterable[tuple[int, tuple[int, int]]]:
    """Of some reads, a position and the rank and number of the launch that wrote what was read there; each rank and
    stamp once."""
    if not one.info.is_seen:
        return
    epochs = np.where(at, one.epochs, 0)
    ranks = (epochs & LOW_MASK) >> RANK_SHIFT
    at = (epochs > 0) & ((one.info.scope == SYS) | (ranks == one.actors >> RANK_SHIFT))
    some = np.flatnonzero(at)
    _, first = np.unique((epochs[some] >> STAMP_SHIFT) * (1 << 20) + ranks[some], return_index=True)
    for position in some[first].tolist():
        info, rank = infos(int(epochs[position]) >> STAMP_SHIFT), int(ranks[position])
        if info.launched is not None and (number := info.launched.launched.number_on(rank)) >= 0:
            yield position, (rank, number)
