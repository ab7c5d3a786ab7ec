"""Instructions that end a basic block (branches, barriers, returns): named here, carried out by the machine.

Kept in a table like the others, so that an unknown form of them stops as every unknown instruction does.
"""

from __future__ import annotations

from simulator.isa.registry import Binder, LaneFrame, Run, operation
from simulator.ptx.ir import Instruction


@operation(
    "bra",
    "brx.idx",
    "call",
    "ret",
    "exit",
    "bar.sync",
    "bar.warp.sync",
    "barrier.sync",
    "bar.arrive",
    "barrier.arrive",
    "barrier.cluster.arrive",
    "barrier.cluster.arrive.release",
    "barrier.cluster.arrive.relaxed",
    "barrier.cluster.wait",
    "barrier.cluster.wait.acquire",
    "nanosleep.u32",
    neutral="uni aligned cta",
)
def _control(instruction: Instruction, bind: Binder) -> Run:
    def run(frame: LaneFrame) -> None:
        return None

    return run
