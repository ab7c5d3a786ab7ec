"""The first observer: counts accesses and bytes by kind and by link.

Others (races, timing) listen at the same place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.memory.space import Access

KINDS = ("own_read", "own_write", "peer_read", "peer_write", "multicast_reduce", "multicast_store", "signal")
_SIGNAL = frozenset({"acquire", "release", "acq_rel"})


@dataclass(slots=True)
class Counters:
    """instructions: PTX instructions times lanes. A signal is an access with acquire or release order, or an atomic.

    Links are counted as rank viewer to rank target ("0->3"), in bytes that viewer read from or wrote to target's
    memory; the switch is counted from the viewer's side: bytes reduced, and bytes stored, once.
    """

    world_size: int
    capacity: int
    instructions: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict)
    links: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.instructions = 0
        self.counts = {kind: [0, 0] for kind in KINDS}
        self.links = np.zeros((self.world_size, self.world_size), np.int64)

    def access(self, access: Access) -> None:
        words = access.instruction.qualifiers
        signal = not _SIGNAL.isdisjoint(words) or access.action in ("atomic", "red")
        if isinstance(access.target, int) and access.target < 0:
            kind = "signal" if signal else "multicast_reduce" if access.action == "reduce" else "multicast_store"
            self._count(kind, access.lanes, access.width_bytes)
            return
        viewer, target = access.viewer, access.target
        if isinstance(viewer, int) and isinstance(target, int):
            own = access.lanes if viewer == target else 0
            self.links[viewer, target] += access.lanes * access.width_bytes
        else:
            own = int(np.count_nonzero(np.equal(viewer, target)))
            pairs = np.bincount(viewer * self.world_size + target, minlength=self.world_size**2)
            self.links += pairs.reshape(self.links.shape) * access.width_bytes
        if signal:
            self._count("signal", access.lanes, access.width_bytes)
        else:
            way = "read" if access.action == "load" else "write"
            self._count(f"own_{way}", own, access.width_bytes)
            self._count(f"peer_{way}", access.lanes - own, access.width_bytes)

    def _count(self, kind: str, lanes: int, width_bytes: int) -> None:
        self.counts[kind][0] += lanes
        self.counts[kind][1] += lanes * width_bytes

    def summary(self) -> dict[str, Any]:
        """{"accesses": {kind: {"count", "bytes"}}, "links": {"0->1": bytes}}; links between different ranks only."""
        links = {
            f"{viewer}->{target}": int(self.links[viewer, target])
            for viewer, target in np.argwhere(self.links > 0).tolist()
            if viewer != target
        }
        return {
            "accesses": {kind: {"count": count, "bytes": size} for kind, (count, size) in self.counts.items()},
            "links": links,
        }
