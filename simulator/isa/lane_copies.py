"""cp.async: each lane copies 4, 8 or 16 bytes from global into shared memory, and goes on before they are there.

What happens afterwards is in simulator/run/lane_copies.py. Bytes beyond src-size are zeros, and so are all of a lane
whose ignore-src holds; a lane that reads nothing may name any source. Caches are not simulated: .ca, .cg, hints and
sizes of prefetches change nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.bulk import PREFETCHES, no_hint, policy
from simulator.isa.mbarriers import barrier_reader
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, operation
from simulator.isa.spaces import address_reader, shared_index, shared_reader
from simulator.memory.space import fault_where
from simulator.ptx.ir import Immediate, Instruction, Operand, Register

_SIZES = {"ca": (4, 8, 16), "cg": (16,)}
_SPACES = ("", ".shared", ".shared::cta")


def _taken_reader(operands: list[Operand], size_bytes: int, bind: Binder) -> Any:
    """Return a function from a frame to how many bytes each lane reads; operands: src-size or ignore-src, or none."""
    if not operands:
        return lambda frame: np.full(frame.count, size_bytes, np.int64)
    (operand,) = operands
    if isinstance(operand, Register) and bind.register_dtype(operand) == "?":
        ignored = bind.read(operand, "?")
        return lambda frame: np.where(frame.regs[ignored], 0, size_bytes).astype(np.int64)
    assert not isinstance(operand, Register) or bind.register_dtype(operand) == "u4"
    slot = bind.read(operand, "u4")

    def read(frame: LaneFrame) -> Lanes:
        found = np.broadcast_to(frame.regs[slot], frame.count).astype(np.int64)
        text = f"cp.async of {size_bytes} bytes reads"
        fault_where(found > size_bytes, lambda lane: f"{text} {int(found[lane])}: src-size is no larger")
        return found

    return read


@operation(*(f"cp.async.{cache}.{space}.global" for cache in _SIZES for space in ("shared", "shared::cta")))
def _copy(instruction: Instruction, bind: Binder) -> Run:
    words = instruction.qualifiers
    spaces = [word for word in words if word == "global" or word.startswith("shared")]
    assert spaces[-1] == "global"
    assert sum(word in PREFETCHES for word in words) <= 1
    target, source, size, *more = policy(instruction, list(instruction.operands), bind, PREFETCHES)
    assert isinstance(size, Immediate)
    size_bytes = size.bits
    assert size_bytes in _SIZES["cg" if "cg" in words else "ca"]
    places, addresses = shared_reader(target, bind), address_reader(source, bind)
    taken = _taken_reader(more, size_bytes, bind)

    def run(frame: LaneFrame) -> None:
        space, wanted = frame.batch.space, taken(frame)
        given = addresses(frame)
        wrong = (given % np.uint64(size_bytes) != 0) & (wanted > 0)
        fault_where(wrong, lambda lane: f"cp.async from {int(given[lane]):#x}: not aligned to {size_bytes} bytes")
        shared = shared_index(frame, places(frame), size_bytes)
        index = space.resolve_parts(frame.view, given, wanted)
        frame.batch.copies.issue_lanes(frame.view.lanes, instruction, shared, given.copy(), index, size_bytes, wanted)

    return run


@operation(*(f"cp.async.mbarrier.arrive{noinc}{space}.b64" for noinc in ("", ".noinc") for space in _SPACES))
def _arrive(instruction: Instruction, bind: Binder) -> Run:
    """An arrival once the lane's copies so far are done; without .noinc the phase waits for it in addition."""
    no_hint(instruction)
    (address,) = instruction.operands
    keys = barrier_reader(instruction, address, bind)
    adds = "noinc" not in instruction.qualifiers

    def run(frame: LaneFrame) -> None:
        frame.batch.copies.arrive_later(frame.view.lanes, instruction, keys(frame), adds)
        frame.batch.space.version += 1

    return run
