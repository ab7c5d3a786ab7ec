"""Bulk copies between global and shared memory (cp.async.bulk), the mbarriers that count them, and their fences.

What a copy does after its issue is in simulator/run/copies.py. Waiting for a group ends a basic block: the machine
keeps the lanes there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.memory import fence_run
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.isa.spaces import address_reader, shared_reader
from simulator.memory.space import LaneFault
from simulator.observe.events import MbarrierOperation, tell
from simulator.ptx.ir import Instruction, Operand, Register

UNIT_BYTES = 16
"""Addresses and sizes of bulk copies are multiples of it."""
BARRIER_BYTES = 8
_ORDERS = "acquire release relaxed cta cluster"
_SHARED = ("shared", "shared::cta")


def _values(operand: Operand, bind: Binder) -> Any:
    """A function from a frame to the lanes' values of a 32-bit operand."""
    slot = bind.read(operand, "u4")
    return lambda frame: np.broadcast_to(frame.regs[slot], frame.count).astype(np.int64).tolist()


def _shared_place(frame: LaneFrame, address: int, position: int, size_bytes: int, unit_bytes: int, what: str) -> int:
    """Where a lane's shared address lies in the batch's shared memory (one row a block), checked."""
    size = frame.batch.shared_bytes
    if address % unit_bytes:
        raise LaneFault(position, f"{what} at byte {address:#x} of shared memory is not aligned to {unit_bytes} bytes")
    if not 0 <= address <= size - size_bytes:
        text = f"{what} of {size_bytes} bytes at byte {address:#x} of shared memory"
        raise LaneFault(position, f"{text}: outside the block's {size} bytes")
    row: int = frame.batch.shared.shape[1]
    return int(frame.view.lanes[position]) // frame.view.launched.block * row + address


def _barrier_reader(operand: Operand, bind: Binder) -> Any:
    """A function from a frame to the lanes' keys of mbarriers."""
    addresses = shared_reader(operand, bind)

    def keys(frame: LaneFrame) -> list[int]:
        found = addresses(frame).tolist()
        return [
            _shared_place(frame, address, position, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier")
            for position, address in enumerate(found)
        ]

    return keys


# Copies


def _rank_of(frame: LaneFrame, position: int) -> int:
    rank = frame.view.rank
    return rank if isinstance(rank, int) else int(rank[position])


def _copy(instruction: Instruction, bind: Binder, is_load: bool) -> Run:
    words = instruction.qualifiers
    spaces = [word for word in words if word == "global" or word.startswith("shared")]
    if (spaces[0] == "global") == is_load:
        raise UnknownInstruction(f"the simulator has no such direction of cp.async.bulk; {instruction.where()}")
    target, source, size, *rest = instruction.operands
    assert len(rest) == (1 if is_load else 0)
    outside, inside = (source, target) if is_load else (target, source)
    addresses, places, sizes = address_reader(outside, bind), shared_reader(inside, bind), _values(size, bind)
    keys = _barrier_reader(rest[0], bind) if is_load else None

    def run(frame: LaneFrame) -> None:
        copies = frame.batch.copies
        counted = keys(frame) if keys is not None else [-1] * frame.count
        rows = zip(addresses(frame).tolist(), places(frame).tolist(), sizes(frame), counted, strict=True)
        for position, (address, place, size_bytes, key) in enumerate(rows):
            if size_bytes == 0 or size_bytes % UNIT_BYTES:
                text = f"a bulk copy of {size_bytes} bytes; it copies a multiple of {UNIT_BYTES}, and not nothing"
                raise LaneFault(position, text)
            if address % UNIT_BYTES:
                raise LaneFault(position, f"a bulk copy at {address:#x}: not aligned to {UNIT_BYTES} bytes")
            shared = _shared_place(frame, place, position, size_bytes, UNIT_BYTES, "a bulk copy")
            if is_load and key not in copies.mbarriers:
                raise LaneFault(position, f"{copies.place(key)} holds no mbarrier")
            try:
                action = "load" if is_load else "store"
                rank = _rank_of(frame, position)
                index = frame.batch.space.resolve_bulk(rank, address, size_bytes, action)
            except LaneFault as fault:
                raise LaneFault(position, fault.message) from None
            copies.issue(int(frame.view.lanes[position]), instruction, shared, index, size_bytes, is_load, key)

    return run


@operation(
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
)
def _load(instruction: Instruction, bind: Binder) -> Run:
    """Without a cluster launch a block is a cluster of its own, so both names mean its own shared memory."""
    return _copy(instruction, bind, is_load=True)


@operation("cp.async.bulk.global.shared::cta.bulk_group")
def _store(instruction: Instruction, bind: Binder) -> Run:
    return _copy(instruction, bind, is_load=False)


@operation("cp.async.bulk.commit_group")
def _commit(instruction: Instruction, bind: Binder) -> Run:
    return lambda frame: frame.batch.copies.commit(frame.view.lanes, instruction)


@operation("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read")
def _wait_group(instruction: Instruction, bind: Binder) -> Run:
    """Ends a block: carried out by the machine."""
    return lambda frame: None


# mbarriers


def _each(frame: LaneFrame, keys: list[int], change: Any) -> list[int]:
    """Call change(key, position) for each lane, in their order; return the phases that the mbarriers were in before."""
    copies = frame.batch.copies
    phases = []
    for position, key in enumerate(keys):
        phases.append(copies.phase(key))
        try:
            change(key, position)
        except LaneFault as fault:
            raise LaneFault(position, fault.message) from None
    return phases


def _report(
    frame: LaneFrame, instruction: Instruction, operation: str, keys: Any, phases: Any, counts: Any, passed: Any = None
) -> None:
    """Tell the listeners of an operation; keys, phases and counts: one a lane, or one for all."""
    events, view = frame.batch.space.events, frame.view
    if events.mbarrier:
        columns = [np.asarray(one, np.int64) for one in (keys, phases, counts)]
        at, phase, count = (np.broadcast_to(one, frame.count) for one in columns)
        at = at % frame.batch.shared.shape[1]
        who = (view.launched, view.lanes, events.step)
        tell(events.mbarrier, MbarrierOperation(*who, instruction, operation, at, phase, count, passed))


@operation(*(f"mbarrier.init.{space}.b64" for space in _SHARED))
def _init(instruction: Instruction, bind: Binder) -> Run:
    keys, counts = _barrier_reader(instruction.operands[0], bind), _values(instruction.operands[1], bind)

    def run(frame: LaneFrame) -> None:
        made, given = keys(frame), counts(frame)
        phases = _each(frame, made, lambda key, position: frame.batch.copies.init(key, given[position]))
        frame.batch.space.version += 1
        _report(frame, instruction, "init", made, phases, given)

    return run


@operation(*(f"mbarrier.inval.{space}.b64" for space in _SHARED))
def _inval(instruction: Instruction, bind: Binder) -> Run:
    keys = _barrier_reader(instruction.operands[0], bind)

    def run(frame: LaneFrame) -> None:
        gone = keys(frame)
        phases = _each(frame, gone, lambda key, position: frame.batch.copies.invalidate(key))
        _report(frame, instruction, "inval", gone, phases, 0)

    return run


def _arrival(instruction: Instruction, bind: Binder, expects: bool) -> Run:
    """An arrival gives a state for forms of wait that are not here: only its sink is taken."""
    sink, address, *rest = instruction.operands
    assert sink == Register("_")
    assert len(rest) == 1 if expects else len(rest) <= 1
    keys = _barrier_reader(address, bind)
    values = _values(rest[0], bind) if rest else lambda frame: [1] * frame.count

    def run(frame: LaneFrame) -> None:
        copies, given, told = frame.batch.copies, values(frame), keys(frame)
        arrivals = [1] * frame.count if expects else given

        def change(key: int, position: int) -> None:
            if expects:
                copies.expect(key, given[position])
            copies.arrive(key, arrivals[position])

        phases = _each(frame, told, change)
        frame.batch.space.version += 1
        if expects:
            _report(frame, instruction, "expect_tx", told, phases, given)
        _report(frame, instruction, "arrive", told, phases, arrivals)

    return run


@operation(*(f"mbarrier.arrive.{space}.b64" for space in _SHARED), neutral=_ORDERS)
def _arrive(instruction: Instruction, bind: Binder) -> Run:
    return _arrival(instruction, bind, expects=False)


@operation(*(f"mbarrier.arrive.expect_tx.{space}.b64" for space in _SHARED))
def _arrive_expecting(instruction: Instruction, bind: Binder) -> Run:
    return _arrival(instruction, bind, expects=True)


@operation(*(f"mbarrier.{word}.parity.{space}.b64" for word in ("try_wait", "test_wait") for space in _SHARED))
def _wait(instruction: Instruction, bind: Binder) -> Run:
    """try_wait may suspend the thread for a while and then give up: here it gives up at once."""
    target = bind.write(instruction.operands[0])
    addresses = shared_reader(instruction.operands[1], bind)
    parities = bind.read(instruction.operands[2], "u4")
    word = "try_wait" if "try_wait" in instruction.qualifiers else "test_wait"
    assert len(instruction.operands) <= 4  # the last is a hint of how long to suspend

    def run(frame: LaneFrame) -> None:
        copies = frame.batch.copies
        # Many threads ask the same few barriers: each is looked at once.
        row = np.int64(frame.batch.shared.shape[1])
        blocks: Lanes = frame.batch.blocks_of(frame.view.lanes)
        found = addresses(frame)
        _, first, back = np.unique(blocks * row + found, return_index=True, return_inverse=True)
        phases = np.empty(len(first), np.int64)
        for number, position in enumerate(first.tolist()):
            key = _shared_place(frame, int(found[position]), position, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier")
            if key not in copies.mbarriers:
                raise LaneFault(position, f"{copies.place(key)} holds no mbarrier")
            phases[number] = copies.phase(key)
            copies.asked = key
        parity = np.broadcast_to(frame.regs[parities], frame.count)
        if bool((parity > 1).any()):
            position = int(np.argmax(parity > 1))
            raise LaneFault(position, f"a phase has parity 0 or 1, not {int(parity[position])}")
        passed = (phases[back] & 1) != parity
        fill(frame.regs[target], passed)
        _report(frame, instruction, word, found, phases[back], 0, passed)

    return run


# Fences


@operation(
    "fence.mbarrier_init",
    "fence.proxy.async",
    "fence.proxy.async.global",
    "fence.proxy.async.shared::cta",
)
def _fence(instruction: Instruction, bind: Binder) -> Run:
    """Between two steps all memory is one, whichever proxy looks at it: a fence has nothing left to do but to be
    reported."""
    return fence_run(instruction)
