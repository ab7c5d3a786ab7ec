"""Loads, stores, fences: parameters, global memory (own, peers') and shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.registry import DTYPES, TYPES, Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.isa.spaces import (
    POISON,
    READERS,
    address_reader,
    load_rows,
    report_shared,
    shared_index,
    shared_reader,
    store_rows,
)
from simulator.memory.space import LaneFault, fault_where
from simulator.observe.events import Fence, Stored, tell
from simulator.ptx.ir import Address, Instruction, Register, Symbol, Vector

ORDER = "weak relaxed acquire release acq_rel volatile mmio cta cluster gpu sys"
"""Memory order and scope. The simulator runs one step after another, so all of them hold; listeners see them."""
_CACHE = (
    "ca cg cs lu cv wb wt L1::evict_normal L1::evict_first L1::evict_last L1::no_allocate L1::evict_unchanged "
    "L2::64B L2::128B L2::256B L2::cache_hint"
)
_TYPES = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
_FORMS = tuple(
    f"{vector}{name}" for name in _TYPES for vector in ("", "v2.", "v4.", "v8.") if vector != "v8." or name[1:] == "32"
)
NARROW = tuple(one for one in _FORMS if (one[:3], one[-2:]) not in (("v4.", "64"), ("v8.", "32")))
"""Types with vectors, of 128 bits at most: 256 are for global memory only."""
_WIDE = "b128"


def element_type(instruction: Instruction) -> str:
    """The type a memory instruction moves: its last qualifier that is one."""
    return [word for word in instruction.qualifiers if word in TYPES][-1]


def slots_of(operand: Any, write: bool, bind: Binder, dtype: str) -> list[Any]:
    """The slots of a register or of a vector of them; None for a destination that is not wanted ("_")."""
    parts = operand.parts if isinstance(operand, Vector) else (operand,)
    return [
        (None if part == Register("_") else bind.write(part)) if write else bind.read(part, dtype) for part in parts
    ]


_LOAD_ORDERS = frozenset({"weak", "relaxed", "acquire"})
_STORE_ORDERS = frozenset({"weak", "relaxed", "release"})
_REDUCTION_ORDERS = frozenset({"relaxed", "release"})
_ORDERS = {
    "ld": _LOAD_ORDERS | {"volatile"},
    "st": _STORE_ORDERS | {"volatile"},
    "red": _REDUCTION_ORDERS,
    "atom": frozenset({"relaxed", "acquire", "release", "acq_rel"}),
    "multimem.ld_reduce": _LOAD_ORDERS,
    "multimem.st": _STORE_ORDERS,
    "multimem.red": _REDUCTION_ORDERS,
}
"""The orders that each kind of access may have (PTX ISA 9.7.9); the assembler accepts no others."""
_NO_MMIO = frozenset({"v2", "v4", "v8", "shared", "shared::cta", "shared::cluster", "L1::no_allocate"})
"""What the assembler takes for no access to a device: .mmio does not stand beside it."""


def check_order(instruction: Instruction) -> None:
    """An order the opcode has; order and scope together or not at all (weak, volatile alone; atomics: either alone)."""
    words = set(instruction.qualifiers)
    kind = instruction.opcode
    if kind == "multimem":
        kind += "." + next(word for word in instruction.qualifiers if f"multimem.{word}" in _ORDERS)
    orders = words & {"weak", "relaxed", "acquire", "release", "acq_rel", "volatile"}
    if len(orders) > 1 or not orders <= _ORDERS[kind]:
        raise UnknownInstruction(f"{kind} has no order {' '.join(sorted(orders))}; {instruction.where()}")
    scoped = words & {"cta", "cluster", "gpu", "sys"}
    if scoped and words & {"local", "const"}:
        raise UnknownInstruction(f"memory that no other thread writes has no scope; {instruction.where()}")
    if bool(orders & {"relaxed", "acquire", "release"}) != bool(scoped) and kind not in ("atom", "red"):
        raise UnknownInstruction(f"an order without a scope, or a scope without an order; {instruction.where()}")
    if "mmio" in words and not (kind in ("ld", "st") and {"relaxed", "sys"} <= words and not words & _NO_MMIO):
        raise UnknownInstruction(f"mmio is relaxed.sys, of one element in global memory; {instruction.where()}")


@operation(*(f"ld.param{where}.{name}" for name in NARROW for where in ("", "::entry", "::func")))
def _load_parameter(instruction: Instruction, bind: Binder) -> Run:
    """A parameter, or a part of one that is a struct; not aligned to the access or beyond its end is no operand.

    A kernel's parameters are the same for all threads of a rank; those of functions and calls are each thread's own.
    """
    address = instruction.operands[1]
    assert isinstance(address, Address)
    if not isinstance(address.base, Symbol):
        return load_build("param", instruction, bind)
    if bind.place(address.base.name)[0] == "frame":
        return load_build("local", instruction, bind)
    kind = DTYPES[element_type(instruction)]
    targets = slots_of(instruction.operands[0], True, bind, kind)
    position, size_bytes = bind.parameter(address.base.name)
    item = np.dtype(kind).itemsize
    first, width = address.offset_bytes, item * len(targets)
    assert 0 <= first <= size_bytes - width
    assert first % width == 0
    places = [(slot, (position, first + item * number, kind)) for number, slot in enumerate(targets)]

    def run(frame: LaneFrame) -> None:
        for slot, place in places:
            if slot is not None:
                extend(frame.regs[slot], np.atleast_1d(frame.batch.parameter(*place)[frame.view.rank]), kind)

    return run


def load_build(space: str, instruction: Instruction, bind: Binder) -> Run:
    """Return the function of a load from any state space; "" is generic."""
    kind = DTYPES[element_type(instruction)]
    targets = slots_of(instruction.operands[0], True, bind, kind)
    addresses = READERS[space](instruction.operands[1], bind)
    width = np.dtype(kind).itemsize * len(targets)

    def run(frame: LaneFrame) -> None:
        rows = load_rows(frame, space, addresses(frame), width, kind, instruction)
        for position, slot in enumerate(targets):
            if slot is not None:
                extend(frame.regs[slot], rows[:, position], kind)

    return run


def store_build(space: str, instruction: Instruction, bind: Binder) -> Run:
    """Return the function of a store to any state space; "" is generic."""
    unsigned = f"u{np.dtype(DTYPES[element_type(instruction)]).itemsize}"
    addresses = READERS[space](instruction.operands[0], bind)
    sources = slots_of(instruction.operands[1], False, bind, unsigned)

    def run(frame: LaneFrame) -> None:
        store_rows(frame, space, addresses(frame), rows_of(frame, sources, unsigned), instruction)

    return run


@operation(*(f"ld.global.nc.{one}" for one in _FORMS), neutral=_CACHE)
def _load_read_only(instruction: Instruction, bind: Binder) -> Run:
    """A load through the cache that nothing keeps coherent: of memory that no one writes while the kernel runs. Other
    ranks may write to symmetric memory at any time, so there it is a fault."""
    load = load_build("global", instruction, bind)
    addresses = address_reader(instruction.operands[1], bind)

    def run(frame: LaneFrame) -> None:
        heaps = frame.batch.space
        places = addresses(frame)
        position = heaps.first_symmetric(frame.view, places)
        if position >= 0:
            place = heaps.describe_address(frame.view, places, position)
            raise LaneFault(position, f"ld.global.nc of {place}: symmetric memory, to which other ranks may write")
        load(frame)

    return run


@operation(*(f"st.param{where}.{name}" for name in NARROW for where in ("", "::func")))
def _store_parameter(instruction: Instruction, bind: Binder) -> Run:
    """A parameter of a call, or what a function returns: the thread's own."""
    address = instruction.operands[0]
    assert isinstance(address, Address)
    assert isinstance(address.base, Symbol)
    assert bind.place(address.base.name)[0] == "frame"
    return store_build("local", instruction, bind)


def _ordered(build: Any, space: str) -> Any:
    """A builder of a load or a store to a state space, whose order is checked."""

    def checked(instruction: Instruction, bind: Binder) -> Run:
        check_order(instruction)
        run: Run = build(space, instruction, bind)
        return run

    return checked


def _register() -> None:
    for opcode, build in (("ld", load_build), ("st", store_build)):
        for space in ("", "global"):
            keys = (f"{opcode}.{space}.{one}".replace("..", ".") for one in (*_FORMS, _WIDE))
            operation(*keys, neutral=f"{ORDER} {_CACHE}")(_ordered(build, space))
        for space in ("local", "const", "shared::cluster") if opcode == "ld" else ("local", "shared::cluster"):
            operation(*(f"{opcode}.{space}.{name}" for name in NARROW))(_ordered(build, space))


_register()


def rows_of(frame: LaneFrame, slots: list[int], unsigned: str) -> Lanes:
    """Registers side by side: a matrix of one row a lane."""
    rows = np.empty((frame.count, len(slots)), unsigned)
    for position, slot in enumerate(slots):
        rows[:, position] = frame.regs[slot]
    return rows


def extend(target: Lanes, values: Lanes, kind: str) -> None:
    """Into a register at least as wide as the type: signed types keep their sign."""
    if target.dtype.itemsize == values.dtype.itemsize:
        target[...] = values.view(target.dtype) if values.dtype != target.dtype else values
    else:
        fill(target, values.astype(f"{'i' if kind[0] == 'i' else 'u'}{target.dtype.itemsize}"))


@operation(
    *(f"ld.{space}.{name}" for space in ("shared", "shared::cta") for name in (*NARROW, _WIDE)),
)
def _load_shared(instruction: Instruction, bind: Binder) -> Run:
    check_order(instruction)
    kind = DTYPES[element_type(instruction)]
    size = np.dtype(kind).itemsize
    targets = slots_of(instruction.operands[0], True, bind, kind)
    addresses = shared_reader(instruction.operands[1], bind)

    def run(frame: LaneFrame) -> None:
        places = addresses(frame)
        start = shared_index(frame, places, size * len(targets))
        report_shared(frame, places, size * len(targets), instruction, "load")
        batch = frame.batch
        good = batch.shared_written.reshape(-1)
        kept = None
        if batch.shared_start >= 0:
            kept = batch.space.load_shared(
                frame.view, batch.shared_start + start, size * len(targets), kind, instruction
            )
        for position, slot in enumerate(targets):
            at = start + position * size
            fine = np.logical_and.reduce([good[at + byte] for byte in range(size)])
            fault_where(~fine, lambda _: POISON)
            if slot is not None and kept is not None:
                extend(frame.regs[slot], kept[:, position], kind)
            elif slot is not None:
                extend(frame.regs[slot], batch.shared.view(kind).reshape(-1)[at // size], kind)

    return run


@operation(
    *(f"st.{space}.{name}" for space in ("shared", "shared::cta") for name in (*NARROW, _WIDE)),
)
def _store_shared(instruction: Instruction, bind: Binder) -> Run:
    check_order(instruction)
    kind = f"u{np.dtype(DTYPES[element_type(instruction)]).itemsize}"
    size = np.dtype(kind).itemsize
    addresses = shared_reader(instruction.operands[0], bind)
    sources = slots_of(instruction.operands[1], False, bind, kind)

    def run(frame: LaneFrame) -> None:
        places = addresses(frame)
        start = shared_index(frame, places, size * len(sources))
        report_shared(frame, places, size * len(sources), instruction, "store")
        batch = frame.batch
        if batch.space.events.stored:
            flat = batch.shared.view(np.uint8).reshape(-1) if batch.shared_start < 0 else None
            tell(batch.space.events.stored, Stored(start, rows_of(frame, sources, kind), flat))
        if batch.mbarriers.objects:
            batch.mbarriers.check_write(start, size * len(sources))
        if batch.shared_start >= 0:
            rows, places = rows_of(frame, sources, kind), batch.shared_start + start
            batch.space.store_shared(frame.view, places, rows, instruction)
        order = batch.space.lane_order(frame.count)
        for position, slot in enumerate(sources):
            at, values = start + position * size, np.broadcast_to(frame.regs[slot].astype(kind), frame.count)
            if order is not None:
                at, values = at[order], values[order]
            if batch.shared_start < 0:
                batch.shared.view(kind).reshape(-1)[at // size] = values
            for byte in range(size):
                batch.shared_written.reshape(-1)[at + byte] = True
        batch.space.version += 1

    return run


@operation(
    "fence",
    "fence.proxy.alias",
    "fence.sc",
    "membar",
    "membar.gl",
    neutral=ORDER,
)
def _fence(instruction: Instruction, bind: Binder) -> Run:
    """One step runs after another and all see one memory, so a fence has nothing left to do but to be reported."""
    return fence_run(instruction)


def fence_run(instruction: Instruction) -> Run:
    """Return a fence's function, which tells the listeners."""

    def run(frame: LaneFrame) -> None:
        events = frame.batch.space.events
        if events.fence:
            tell(events.fence, Fence(frame.view.launched, frame.view.lanes, events.step, instruction))

    return run
