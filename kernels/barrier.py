"""Barriers over ranks, block by block: block b of every rank waits for block b of all others.

Both kinds carry the order of the whole block. What any of its threads did or saw before is ordered by bar.sync before
the release at system scope of the signalling thread; what others released is acquired by the waiting thread and
passed on by the second bar.sync. A barrier has a number, its epoch, which only grows and wraps: a kernel reads its
block's last one from device memory and writes back the last one it used, so launches follow each other, also in a
graph, with no work by the host and nothing to be reset. Waits compare the difference as a signed number, which is
right across the wrap.

The wait loops are a load, a comparison and a branch, with no other state: an interpreter can see that they make no
progress.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute

from kernels import device


@cute.jit
def over_peers(
    thread: cutlass.Int32,
    block: cutlass.Int32,
    rank: cutlass.Int32,
    epoch: cutlass.Int32,
    signal_peers: cutlass.Int64,
    signals: cutlass.Int64,
    world_size: cutlass.Constexpr,
) -> None:
    """Barrier number epoch through peers' addresses; needs world_size threads a block.

    signals is int32[blocks][world_size]: entry [b][p] is the last epoch in which block b of rank p arrived. Thread t
    tells rank t, and waits for rank t.
    """
    cute.arch.sync_threads()
    if thread < world_size:
        row = block * world_size
        device.signal(device.load_address(signal_peers, thread) + cutlass.Int64(row + rank) * 4, epoch)
        flag = signals + cutlass.Int64(row + thread) * 4
        while device.observe(flag) - epoch < 0:
            pass
    cute.arch.sync_threads()


@cute.jit
def over_multicast(
    thread: cutlass.Int32,
    block: cutlass.Int32,
    epoch: cutlass.Int32,
    signals_multicast: cutlass.Int64,
    signals: cutlass.Int64,
    world_size: cutlass.Constexpr,
) -> None:
    """Barrier number epoch through the switch: one reduction adds to all ranks' counters.

    signals is int32[blocks]: how often block b of any rank has arrived, so epoch e is complete at e * world_size.
    Every thread fences on both sides between the two addresses of the same bytes: ordinary and multicast accesses go
    through different proxies, and payload that crosses from one to the other is ordered by a release and an acquire
    only with a proxy fence on the way.
    """
    device.fence_aliases()
    cute.arch.sync_threads()
    if thread == 0:
        offset = cutlass.Int64(block) * 4
        device.multimem_signal(signals_multicast + offset)
        complete = epoch * world_size
        while device.observe(signals + offset) - complete < 0:
            pass
    cute.arch.sync_threads()
    device.fence_aliases()
