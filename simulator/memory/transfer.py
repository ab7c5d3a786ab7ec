"""What a bulk copy does: an instruction describes it when it is issued, and it takes place later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.memory.tensor_map import Tile


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """A bulk copy. source and targets: state space ("global" or "shared") and where it begins, in Space.memory or in
    the batch's shared memory; several targets are the replicas of a multicast address, or places in several blocks of a
    cluster. A source "register" begins at -1.

    global_address: of the one in global memory, as the thread sees it, -1 if there is none. mbarrier: the key of the
    one that counts the bytes, -1 of a copy that belongs to a group; mbarriers: of several targets in shared memory, the
    key for each. combine: of a reduction, from a target's elements
    of dtype `element` and the source's to the target's new ones. chosen: which bytes are copied, None for all.

    tile: of a tensor copy, what it moves of the tensor that begins at the place in global memory; size_bytes is the
    box's.
    """

    source: tuple[str, int]
    target_space: str
    targets: tuple[int, ...]
    size_bytes: int
    global_address: int
    mbarrier: int = -1
    combine: Callable[[Any, Any], Any] | None = None
    element: str = "u1"
    chosen: npt.NDArray[np.bool_] | None = None
    mbarriers: tuple[int, ...] = ()
    tile: Tile | None = None
