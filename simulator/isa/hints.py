"""What concerns caches and the order of launches: prefetches, policies, priorities, discards, griddepcontrol.

Caches are not simulated, so most of it does nothing. discard gives data up: its bytes are poison again. A launch begins
when those before it on its rank are over, so griddepcontrol has nothing to wait for.
"""

from __future__ import annotations

import numpy as np

from simulator.isa.registry import Binder, LaneFrame, Run, operation
from simulator.isa.spaces import address_reader
from simulator.ptx.ir import Immediate, Instruction

LINE_BYTES = 128
_PRIORITIES = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")


def _nothing(frame: LaneFrame) -> None:
    return None


@operation(
    *(f"prefetch{space}.{level}" for space in ("", ".global", ".local") for level in ("L1", "L2")),
    *(f"prefetch.global.{level}" for level in _PRIORITIES[:2]),
    "prefetchu.L1",
    *(f"prefetch{space}.tensormap" for space in ("", ".param", ".const")),
    "applypriority.L2::evict_normal",
    "applypriority.global.L2::evict_normal",
    "griddepcontrol.wait",
    "griddepcontrol.launch_dependents",
)
def _hint(instruction: Instruction, bind: Binder) -> Run:
    wanted = {"griddepcontrol": 0, "applypriority": 2}.get(instruction.opcode, 1)
    assert len(instruction.operands) == wanted
    return _nothing


@operation(
    *(f"createpolicy.fractional.{one}.b64" for one in _PRIORITIES),
    *(
        f"createpolicy.fractional.{one}.{other}.b64"
        for one in _PRIORITIES[::2]
        for other in _PRIORITIES[2:]
        if one != other
    ),
    "createpolicy.fractional.L2::evict_normal.L2::evict_unchanged.b64",
    "createpolicy.fractional.L2::evict_normal.L2::evict_first.b64",
    "createpolicy.cvt.L2.b64",
)
def _policy(instruction: Instruction, bind: Binder) -> Run:
    """A policy's bits mean something to caches only: 0 here."""
    target = bind.write(instruction.operands[0])
    return lambda frame: frame.regs[target].fill(0)


@operation("discard.L2", "discard.global.L2")
def _discard(instruction: Instruction, bind: Binder) -> Run:
    addresses = address_reader(instruction.operands[0], bind)
    assert instruction.operands[1] == Immediate(LINE_BYTES)

    def run(frame: LaneFrame) -> None:
        space = frame.batch.space
        span = space.resolve(frame.view, addresses(frame), LINE_BYTES, instruction, "store")
        for start in np.unique(span.index).tolist():
            space.make_poison(start, LINE_BYTES)

    return run
