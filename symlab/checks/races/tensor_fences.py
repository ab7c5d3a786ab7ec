"""What PTX wants between tcgen05 of one thread and of another, besides the barrier: tcgen05.fence::after_thread_sync by
the later one, and tcgen05.wait::st behind stores.

A thread that fences knows of tensor memory what it knew then. Fences before the barrier are not judged.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.happens_before.clocks import CODE_MASK, COPY_CODE, LOW_MASK, STAMP_SHIFT
from simulator.happens_before.extras import GENERIC, Numbers
from simulator.happens_before.order import Order
from simulator.happens_before.running import WARP, Held, Many, Running
from simulator.happens_before.shadow import WRITE, Shadow, taken
from symlab.checks.races.report import Findings, Info

FENCE = "tcgen05.fence::after_thread_sync"
WAIT_STORED = "tcgen05.wait::st"


class TensorFences:
    """info_at: what happened at a stamp. held: by launch and lane, what it knew at its last fence. waits: by actor,
    stamps of its waits for stores."""

    def __init__(self, order: Order, info_at: Callable[[int], Info], found: Findings) -> None:
        self.order, self.info_at, self.found = order, info_at, found
        self.held: dict[tuple[int, int], Held] = {}
        self.waits: dict[int, list[int]] = {}

    def fence(self, run: Running, lanes: Numbers, held: Held) -> None:
        """Lanes fence; held: what they know."""
        for at, lane in enumerate(lanes.tolist()):
            mine = self.held[id(run), lane] = held.some(slice(at, at + 1))
            self.order.held["tensor fence", id(run), lane] = mine.row

    def wait(self, held: Held, stamp: int) -> None:
        """Lanes wait for their stores."""
        for actor in held.actor.tolist():
            self.waits.setdefault(actor, []).append(stamp)

    def forget(self, run: Running) -> None:
        """A launch is over: nothing accesses its tensor memory any more."""
        self.held = {key: one for key, one in self.held.items() if key[0] != id(run)}

    def fenced(self, run: Running, lanes: Numbers) -> list[Held | None]:
        """What each lane knew at its last fence."""
        return [self.held.get((id(run), lane)) for lane in lanes.tolist()]

    def check(
        self, shadow: Shadow, now: Many, by_cores: bool, fenced: list[Held | None], offsets: Numbers, info: Info
    ) -> None:
        """Cells are accessed, as touch says. by_cores: by those of a thread, whose work is in order. fenced: what
        each of the actors knew at its fence."""
        for kept, epochs in shadow.kept.items():
            if kept.kind != WRITE and not info.is_write:
                continue
            old = taken(epochs, shadow.places(offsets, info.width, False))
            actors, mine = old & LOW_MASK, now.actors(np.arange(len(old)))
            both = (actors & CODE_MASK >= COPY_CODE) & by_cores
            some = np.flatnonzero((old > 0) & (actors // WARP != mine // WARP) & ~both)
            some = some[~self.order.unknown(now, some, old[some], GENERIC)] if len(some) else some
            for epoch in np.unique(old[some]).tolist():
                self._judge(epoch, fenced[int(now.index[some[old[some] == epoch][0]])], now, info)

    def _judge(self, epoch: int, fenced: Held | None, now: Many, info: Info) -> None:
        stamp, actor, one = epoch >> STAMP_SHIFT, epoch & LOW_MASK, np.zeros(1, np.int64)
        first = self.info_at(stamp)
        if first.instruction is not None and "st" in first.instruction.qualifiers:
            after = [wait << STAMP_SHIFT | actor for wait in self.waits.get(actor, []) if wait > stamp]
            every = np.array(after, np.int64)
            if not after or self.order.unknown(now, np.zeros(len(every), np.int64), every, GENERIC).all():
                self.found.add_unfenced(first, info, int(now.actors(one)[0]), "tensor memory", WAIT_STORED, "race")
        if fenced is None or self.order.unknown(Many(fenced, one), one, np.array([epoch]), GENERIC)[0]:
            self.found.add_unfenced(first, info, int(now.actors(one)[0]), "tensor memory", FENCE)
