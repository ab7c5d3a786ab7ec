"""clusterlaunchcontrol: a block asks for the work of a cluster that has not begun. Here the answer is no: each cluster
runs itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.bulk import aims_of
from simulator.isa.registry import Binder, LaneFrame, Run, operation
from simulator.isa.spaces import BARRIER_BYTES, places_of, shared_place, shared_reader
from simulator.memory.space import blamed
from simulator.memory.transfer import Transfer
from simulator.ptx.ir import Instruction

_BYTES = 16
_ALL = "multicast::cluster::all"
_NO_BLOCK = 0xFFFFFFFF
"""What the number of no block reads as; PTX leaves it open."""


@operation(
    *(
        f"clusterlaunchcontrol.try_cancel.async{space}.mbarrier::complete_tx::bytes{cast}.b128"
        for space in ("", ".shared::cta")
        for cast in ("", f".{_ALL}")
    )
)
def _ask(instruction: Instruction, bind: Binder) -> Run:
    """An answer of 16 bytes, that of no, and what its mbarrier counts, in the own block or in all of the cluster."""
    places, counters = (shared_reader(one, bind) for one in instruction.operands)

    def run(frame: LaneFrame) -> None:
        batch = frame.batch
        both: Any = []
        for one in (places, counters):
            addresses = np.broadcast_to(one(frame), frame.count)
            if _ALL in instruction.qualifiers:
                both.append(aims_of(frame, addresses, [(1 << batch.cluster) - 1] * frame.count))
            else:
                both.append([[place] for place in places_of(frame, addresses, "shared::cta")])
        for position, pairs in enumerate(zip(*both, strict=True)):
            for aim, barrier in zip(*pairs, strict=True):
                shared = shared_place(frame, aim, position, _BYTES, _BYTES, "an answer")
                key = shared_place(frame, barrier, position, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier")
                with blamed(position):
                    batch.mbarriers.at(key)
                transfer = Transfer(("register", -1), "shared", (shared,), _BYTES, -1, key, None, "u4")
                batch.copies.issue(int(frame.view.lanes[position]), instruction, transfer, np.zeros(_BYTES, np.uint8))

    return run


@operation(
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
    *(f"clusterlaunchcontrol.query_cancel.get_first_ctaid::{axis}.b32.b128" for axis in "xyz"),
)
def _answer(instruction: Instruction, bind: Binder) -> Run:
    """Whether a cluster was given away, and its first block."""
    target = bind.write(instruction.operands[0])
    value = 0 if "is_canceled" in instruction.qualifiers else _NO_BLOCK
    return lambda frame: frame.regs[target].fill(value)
