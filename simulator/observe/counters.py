"""Counters: the first listener. Instructions, accesses and bytes by kind, and bytes by link."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.observe.events import (
    MULTICAST_TARGET,
    Access,
    CopyMoment,
    LaneCopyMoment,
    LaneEvent,
    LaunchBegan,
    Listener,
    Stepped,
)
from simulator.observe.lanes import ids_of

KINDS = ("own_read", "own_write", "peer_read", "peer_write", "multicast_reduce", "multicast_store", "signal")
_READS, _WRITES = ("own_read", "peer_read"), ("own_write", "peer_write")
_SIGNAL = frozenset({"acquire", "release", "acq_rel"})
Own = bool | npt.NDArray[np.bool_]
"""Whether an access is to the own rank's memory: that of all lanes, or of each."""


class Counters(Listener):
    """What kernels did since reset().

    launches: their numbers, over all ranks. instructions are PTX instructions times lanes. A signal is an
    access with acquire or release order, or an atomic; a bulk copy or reduction is one access of its size, when it is
    issued, and so is what a lane's cp.async reads; shared memory is not counted. links[viewer, target]: bytes that rank
    viewer read from or wrote to target's memory. The switch is counted from the viewer's side: bytes reduced, and bytes
    stored, once.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.reset()

    def reset(self) -> None:
        self.links = np.zeros((self.world_size, self.world_size), np.int64)
        self.instructions = 0
        self.accesses = {kind: {"count": 0, "bytes": 0} for kind in KINDS}
        self.launches: set[int] = set()
        self.ranks: set[int] = set()

    # Events

    def launch_began(self, event: LaunchBegan) -> None:
        self.launches.update(event.launched.numbers)
        self.ranks.update(event.launched.ranks)

    def stepped(self, event: Stepped) -> None:
        self.instructions += event.instructions * event.count

    def access(self, event: Access) -> None:
        words = event.instruction.qualifiers
        signal = not _SIGNAL.isdisjoint(words) or event.action in ("atomic", "red")
        if event.space == "multicast":
            kind = "signal" if signal else "multicast_reduce" if event.action == "reduce" else "multicast_store"
            self._count(event, (kind, kind), event.width_bytes, True)
            return
        viewer, target = event.viewer, event.target
        if isinstance(viewer, int) and isinstance(target, int):
            own: Own = viewer == target
            self.links[viewer, target] += event.count * event.width_bytes
        else:
            own = np.equal(viewer, target)
            pairs = np.bincount(viewer * self.world_size + target, minlength=self.world_size**2)
            self.links += pairs.reshape(self.links.shape) * event.width_bytes
        kinds = ("signal", "signal") if signal else _READS if event.action == "load" else _WRITES
        self._count(event, kinds, event.width_bytes, own)

    def copy(self, event: CopyMoment) -> None:
        if event.moment == "issued" and event.target == MULTICAST_TARGET:
            self._count(event, ("multicast_store", "multicast_store"), event.global_bytes, True)
        elif event.moment == "issued" and event.within < 0:
            viewer = int(event.ranks[0])
            self.links[viewer, event.target] += event.global_bytes
            kinds = _READS if event.is_load else _WRITES
            self._count(event, kinds, event.global_bytes, viewer == event.target)

    def lane_copy(self, event: LaneCopyMoment) -> None:
        if event.moment != "issued":
            return
        for size in np.unique(event.taken[event.taken > 0]).tolist():
            at = event.taken == size
            lanes, targets = ids_of(event.lanes)[at], event.targets[at]
            some = LaneEvent(event.launched, lanes, event.step)
            pairs = np.bincount(some.ranks * self.world_size + targets, minlength=self.world_size**2)
            self.links += pairs.reshape(self.links.shape) * size
            self._count(some, _READS, size, some.ranks == targets)

    def _count(self, event: LaneEvent, kinds: tuple[str, str], width_bytes: int, own: Own) -> None:
        """Count an access of each lane. kinds: what it is if it is to the own rank's memory (own), and if it is not."""
        lanes = event.count
        mine = (lanes if own else 0) if isinstance(own, bool) else int(np.count_nonzero(own))
        for kind, number in zip(kinds, (mine, lanes - mine), strict=True):
            self.accesses[kind]["count"] += number
            self.accesses[kind]["bytes"] += number * width_bytes

    # What is said

    def summary(self) -> dict[str, Any]:
        """Return what was counted as plain values, of all launches that ranks have begun.

        instructions, accesses ({kind: {"count", "bytes"}}) and links ({"0->1": bytes}, between different ranks only)
        are sums over these launches; "of" says how many they are, and on how many ranks.
        """
        links = {
            f"{viewer}->{target}": int(self.links[viewer, target])
            for viewer, target in np.argwhere(self.links > 0).tolist()
            if viewer != target
        }
        return {
            "instructions": self.instructions,
            "accesses": {kind: dict(one) for kind, one in self.accesses.items()},
            "links": links,
            "of": {"launches": len(self.launches), "ranks": len(self.ranks)},
        }
