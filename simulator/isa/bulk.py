"""Bulk copies between global and shared memory (cp.async.bulk), the mbarriers that count them, and their fences.

What a copy does after its issue is in simulator/run/copies.py. Waiting for a group ends a basic block: the machine
keeps the lanes there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.memory import address_reader, shared_reader
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.memory.space import LaneFault
from simulator.ptx.ir import Instruction, Operand, Register
from simulator.run.copies import LAG_STEPS, Copy
from simulator.run.groups import ids_of
from simulator.run.mbarriers import MAX_COUNT, MBarrier

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
    batch = frame.batch
    size = batch.shared_bytes
    if address % unit_bytes:
        raise LaneFault(position, f"{what} at byte {address:#x} of shared memory is not aligned to {unit_bytes} bytes")
    if not 0 <= address <= size - size_bytes:
        text = f"{what} of {size_bytes} bytes at byte {address:#x} of shared memory"
        raise LaneFault(position, f"{text}: outside the block's {size} bytes")
    row: int = batch.shared.shape[1]
    return int(frame.ids[position]) // int(batch.block) * row + address


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
                index = frame.batch.space.resolve_bulk(rank, address, size_bytes, instruction, action)
            except LaneFault as fault:
                raise LaneFault(position, fault.message) from None
            lane, due = int(frame.ids[position]), frame.batch.steps + LAG_STEPS
            copies.issue(Copy(lane, instruction, shared, index, size_bytes, is_load, due, key))

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
    return lambda frame: frame.batch.copies.commit(ids_of(frame.ids).tolist())


@operation("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read")
def _wait_group(instruction: Instruction, bind: Binder) -> Run:
    """Ends a block: carried out by the machine."""
    return lambda frame: None


# mbarriers


def _changed(frame: LaneFrame, keys: list[int], change: Any) -> None:
    """Call change(mbarrier, position) for each lane, in their order."""
    copies = frame.batch.copies
    for position, key in enumerate(keys):
        try:
            copies.count(key, lambda barrier, position=position: change(barrier, position))
        except LaneFault as fault:
            raise LaneFault(position, fault.message) from None
    frame.batch.space.version += 1


@operation(*(f"mbarrier.init.{space}.b64" for space in _SHARED))
def _init(instruction: Instruction, bind: Binder) -> Run:
    keys, counts = _barrier_reader(instruction.operands[0], bind), _values(instruction.operands[1], bind)

    def run(frame: LaneFrame) -> None:
        known = frame.batch.copies.mbarriers
        for position, (key, count) in enumerate(zip(keys(frame), counts(frame), strict=True)):
            if not 1 <= count <= MAX_COUNT:
                raise LaneFault(position, f"an mbarrier for {count} arrivals; it takes 1 to {MAX_COUNT:,}")
            if key in known:
                raise LaneFault(position, f"{frame.batch.copies.place(key)} holds {known[key]} already")
            known[key] = MBarrier(count)
        frame.batch.space.version += 1

    return run


@operation(*(f"mbarrier.inval.{space}.b64" for space in _SHARED))
def _inval(instruction: Instruction, bind: Binder) -> Run:
    keys = _barrier_reader(instruction.operands[0], bind)

    def run(frame: LaneFrame) -> None:
        copies = frame.batch.copies
        for position, key in enumerate(keys(frame)):
            if copies.mbarriers.pop(key, None) is None:
                raise LaneFault(position, f"{copies.place(key)} holds no mbarrier")

    return run


def _arrival(instruction: Instruction, bind: Binder, expects: bool) -> Run:
    """An arrival gives a state for forms of wait that are not here: only its sink is taken."""
    sink, address, *rest = instruction.operands
    assert sink == Register("_")
    assert len(rest) == 1 if expects else len(rest) <= 1
    keys = _barrier_reader(address, bind)
    values = _values(rest[0], bind) if rest else lambda frame: [1] * frame.count

    def run(frame: LaneFrame) -> None:
        given = values(frame)

        def change(barrier: MBarrier, position: int) -> None:
            if expects:
                barrier.expect(given[position])
            barrier.arrive(1 if expects else given[position])

        _changed(frame, keys(frame), change)

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
    assert len(instruction.operands) <= 4  # the last is a hint of how long to suspend

    def run(frame: LaneFrame) -> None:
        copies = frame.batch.copies
        # Many threads ask the same few barriers: each is looked at once.
        row = np.int64(frame.batch.shared.shape[1])
        blocks: Lanes = frame.batch.blocks_of(frame.ids)
        found = addresses(frame)
        _, first, back = np.unique(blocks * row + found, return_index=True, return_inverse=True)
        phases = np.empty(len(first), np.int64)
        for number, position in enumerate(first.tolist()):
            key = _shared_place(frame, int(found[position]), position, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier")
            if key not in copies.mbarriers:
                raise LaneFault(position, f"{copies.place(key)} holds no mbarrier")
            phases[number] = copies.mbarriers[key].phase
            copies.asked = key
        parity = np.broadcast_to(frame.regs[parities], frame.count)
        if bool((parity > 1).any()):
            position = int(np.argmax(parity > 1))
            raise LaneFault(position, f"a phase has parity 0 or 1, not {int(parity[position])}")
        fill(frame.regs[target], (phases[back] & 1) != parity)

    return run


# Fences


@operation(
    "fence.mbarrier_init",
    "fence.proxy.async",
    "fence.proxy.async.global",
    "fence.proxy.async.shared::cta",
)
def _fence(instruction: Instruction, bind: Binder) -> Run:
    """Between two steps all memory is one, whichever proxy looks at it: a fence has nothing left to do."""
    return lambda frame: None
