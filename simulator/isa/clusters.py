"""Shared memory of other blocks of a cluster: whose it is (mapa, getctarank), and fences of it.

simulator/isa/spaces.py has the addresses; barriers of clusters are in simulator/run/cluster_barriers.py. Generic
addresses have 64 bits, so mapa and getctarank of 32 bits want .shared::cluster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.memory import fence_run
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.isa.spaces import CLUSTER_MASK, CLUSTER_SHIFT, FIRST_TAG, WINDOWS, symbol_reader
from simulator.memory.space import WINDOW_SHIFT, fault_where
from simulator.ptx.ir import Instruction, Operand, Symbol

_WINDOW = np.int64(WINDOWS["shared"])


def _place_reader(operand: Operand, kind: str, bind: Binder) -> Any:
    """A function from a frame to the lanes' values of an address, a register or a variable, as int64."""
    if isinstance(operand, Symbol):
        read = symbol_reader(operand, bind)
    else:
        slot = bind.read(operand, kind)
        read = lambda frame: frame.regs[slot]  # noqa: E731
    return lambda frame: np.broadcast_to(np.asarray(read(frame)).astype(np.int64), frame.count)


def in_cluster(addresses: Lanes, is_generic: bool, word: str) -> Lanes:
    """Addresses of shared memory in the cluster; a generic one must lie in the window of shared memory."""
    if not is_generic:
        return addresses
    wrong = addresses >> WINDOW_SHIFT != _WINDOW >> WINDOW_SHIFT
    fault_where(wrong, lambda lane: f"{word} of {int(addresses[lane]):#x}: not a generic address of shared memory")
    return addresses - _WINDOW


@operation("mapa.shared::cluster.u32", "mapa.shared::cluster.u64", "mapa.u64")
def _map(instruction: Instruction, bind: Binder) -> Run:
    """The address of the same place in the block with a rank in the cluster."""
    target, source, number = instruction.operands
    kind = "u4" if "u32" in instruction.qualifiers else "u8"
    is_generic = "shared::cluster" not in instruction.qualifiers
    to, ranks = bind.write(target), bind.read(number, "u4")
    addresses = _place_reader(source, kind, bind)

    def run(frame: LaneFrame) -> None:
        size = frame.batch.launched.clusters.size
        wanted = np.broadcast_to(frame.regs[ranks], frame.count).astype(np.int64)
        text = f"of a cluster with ranks 0 to {size - 1}"
        fault_where(wanted >= size, lambda lane: f"mapa to rank {int(wanted[lane])} {text}")
        places = in_cluster(addresses(frame), is_generic, "mapa")
        found = (places & CLUSTER_MASK) + (wanted + FIRST_TAG << CLUSTER_SHIFT) + (_WINDOW if is_generic else 0)
        fill(frame.regs[to], found.astype(kind))

    return run


@operation("getctarank.shared::cluster.u32", "getctarank.shared::cluster.u64", "getctarank.u64")
def _rank(instruction: Instruction, bind: Binder) -> Run:
    """The rank in the cluster of the block that an address names."""
    target, source = instruction.operands
    kind = "u4" if "u32" in instruction.qualifiers else "u8"
    is_generic = "shared::cluster" not in instruction.qualifiers
    to = bind.write(target)
    addresses = _place_reader(source, kind, bind)

    def run(frame: LaneFrame) -> None:
        tags = in_cluster(addresses(frame), is_generic, "getctarank") >> CLUSTER_SHIFT
        own = frame.batch.launched.clusters.ranks_of(frame.batch.blocks_of(frame.view.lanes))
        fill(frame.regs[to], np.where(tags == 0, own, tags - FIRST_TAG).astype(np.uint32))

    return run


@operation("fence.sync_restrict::shared::cta", "fence.sync_restrict::shared::cluster")
def _fence(instruction: Instruction, bind: Binder) -> Run:
    """A fence of objects in shared memory alone: a release of the own block's, an acquire of the cluster's."""
    releases = "sync_restrict::shared::cta" in instruction.qualifiers
    words = [word for word in instruction.qualifiers if not word.startswith("sync_restrict")]
    if sorted(words) != sorted(["release" if releases else "acquire", "cluster"]):
        raise UnknownInstruction(f"{instruction.mnemonic}: there is no such fence; {instruction.where()}")
    return fence_run(instruction)
