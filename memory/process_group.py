"""torch's process group over all ranks of this process's world, made on the first call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from memory.fabric import FabricError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from memory.meeting import Store


@dataclass(slots=True)
class _Membership:
    """Which rank this process is, and how to make one more connection to its world's store."""

    rank: int
    world_size: int
    connect: Callable[[], Store]


_membership: _Membership | None = None


def join_world(rank: int, world_size: int, connect: Callable[[], Store]) -> None:
    """From now on this process is that rank; process_group() needs to know. connect gives a store of torch's own."""
    global _membership
    _membership = _Membership(rank, world_size, connect)


def process_group() -> ProcessGroup:
    """torch's process group over all ranks of this rank's world, made on the first call. Collective, that once.

    NCCL for tensors on GPUs, gloo for those on CPUs. Raises FabricError in a process that is no rank of a world.
    """
    if _membership is None:
        raise FabricError("this process is no rank of a world of processes: it has no process group")
    import torch
    from torch import distributed
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    if not distributed.is_initialized():
        distributed.init_process_group(
            backend="cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=PrefixStore("process_group", cast(Any, _membership.connect())),
            rank=_membership.rank,
            world_size=_membership.world_size,
        )
    group = distributed.group.WORLD
    assert group is not None
    return group
