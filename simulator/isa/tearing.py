"""Vector accesses in two parts, between which other threads may run.

PTX makes a vector access one scalar access for each element, in no order. The first part takes some of the elements,
chosen by Batch.tear, and notes them for each lane; the rest takes the others. Listeners hear of one access, of all
elements, at its first part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.isa.memory import element_type, rows_of, slots_of
from simulator.isa.registry import DTYPES, TABLE, Binder, LaneFrame, Run, find, key_of
from simulator.isa.spaces import READERS
from simulator.memory.space import LaneFault
from simulator.observe.events import Access, Listener, Stored, tell
from simulator.observe.lanes import ids_of
from simulator.ptx.ir import Address, Instruction, Register, Vector

_VECTORS = frozenset({"v2", "v4", "v8"})
_SILENT = Listener()


class _Heard(Listener):
    """What the listeners would have heard of the first element: accesses, each with the stores that come of it."""

    def __init__(self) -> None:
        self.events: list[Access | Stored] = []

    def access(self, event: Access) -> None:
        self.events.append(event)

    def stored(self, event: Stored) -> None:
        self.events.append(event)

    shared_access = access


@dataclass(frozen=True, slots=True)
class _Whole:
    """A vector store as listeners hear of it. sources: the slots of its elements, as integers of dtype kind."""

    instruction: Instruction
    width_bytes: int
    sources: list[Any]
    kind: str

    def tell(self, frame: LaneFrame, heard: _Heard, shift: int) -> None:
        """Tell what was heard of the element that lies shift bytes behind the beginning, as said of all elements."""
        events, access = frame.batch.space.events, None
        for event in heard.events:
            if isinstance(event, Access):
                access = self._access(event, shift)
                tell(events.shared_access if event.space == "shared" else events.access, access)
            elif events.stored and access is not None and not access.is_affine:
                at = np.searchsorted(ids_of(frame.view.lanes), ids_of(access.lanes))
                tell(events.stored, Stored(event.places - shift, rows_of(frame, self.sources, self.kind)[at]))

    def _access(self, event: Access, shift: int) -> Access:
        addresses = event.addresses - event.addresses.dtype.type(shift)
        index, is_affine = event.index, event.is_affine
        if index is not None:
            index = index - shift
            is_affine = bool((np.diff(index) == self.width_bytes).all())
        return replace(
            event,
            instruction=self.instruction,
            width_bytes=self.width_bytes,
            addresses=addresses,
            index=index,
            is_affine=is_affine,
        )


def first_of(mask: int, elements: int) -> int:
    """Return which elements come first, as bits, of any positive number: some of them, and never all."""
    return 1 + (mask - 1) % ((1 << elements) - 2)


def torn(instruction: Instruction, bind: Binder, build: Callable[[Instruction, Binder], Run]) -> Run:
    """Return the function of one part of a vector access; build makes that of a whole one."""
    whole = replace(instruction, part=0)
    run = build(whole, bind)
    if instruction.opcode == "ld" or "ld_reduce" in instruction.qualifiers:
        return _load_part(whole, instruction.part, run, bind)
    return _store_part(whole, instruction.part, run, bind)


def _load_part(whole: Instruction, part: int, run: Run, bind: Binder) -> Run:
    """A load takes all elements first, and reads some of them again."""
    target = whole.operands[0]
    assert isinstance(target, Vector)
    slots = slots_of(target, True, bind, "u4")
    elements = len(slots)

    def first(frame: LaneFrame) -> None:
        run(frame)
        frame.batch.note_torn(frame.view.lanes, first_of(frame.batch.tear, elements))

    def rest(frame: LaneFrame) -> None:
        regs, done = frame.regs, frame.batch.torn[ids_of(frame.view.lanes)]
        before = [None if slot is None else regs[slot].copy() for slot in slots]
        with frame.batch.space.events.only(_SILENT):
            run(frame)
        for number, (slot, kept) in enumerate(zip(slots, before, strict=True)):
            if slot is not None:
                regs[slot][...] = np.where(done >> number & 1, kept, regs[slot])

    return first if part == 1 else rest


def _store_part(whole: Instruction, part: int, run: Run, bind: Binder) -> Run:
    """A store is a store of each element."""
    each = _elements(whole)
    if len(each) < 2:  # no smaller form is in the table
        return run if part == 1 else lambda frame: None
    runs = [find(one).build(one, bind) for one, _ in each]
    width = 2 * each[-1][1] - each[-2][1]
    space = next((word for word in whole.qualifiers if word.startswith(("global", "shared"))), "").replace("::cta", "")
    addresses = READERS["global" if whole.opcode == "multimem" else space](whole.operands[0], bind)
    slots = [bind.read(one, "u1") for one in _registers(whole)]
    kind = f"u{np.dtype(DTYPES[element_type(whole)]).itemsize}"
    heard_as = _Whole(whole, width, slots_of(whole.operands[1], False, bind, kind), kind)

    def parts(frame: LaneFrame, numbers: list[int], listener: Listener) -> None:
        try:
            for number in numbers:
                with frame.batch.space.events.only(listener):
                    runs[number](frame)
        except LaneFault:
            run(frame)  # says it of the whole access
            raise

    def first(frame: LaneFrame) -> None:
        if (np.asarray(addresses(frame)).astype(np.int64) & (width - 1)).any():
            run(frame)  # says that it is not aligned
        chosen = first_of(frame.batch.tear, len(each))
        numbers = [number for number in range(len(each)) if chosen >> number & 1]
        heard = _Heard()
        parts(frame, numbers[:1], heard)
        parts(frame, numbers[1:], _SILENT)
        heard_as.tell(frame, heard, each[numbers[0]][1])
        frame.batch.note_torn(frame.view.lanes, chosen)

    def rest(frame: LaneFrame) -> None:
        done = frame.batch.torn[ids_of(frame.view.lanes)]
        for number in range(len(each)):
            lanes = np.flatnonzero(done >> number & 1 == 0)
            if len(lanes):
                parts(
                    frame if len(lanes) == frame.count else frame.batch.narrow(frame, lanes, slots), [number], _SILENT
                )

    return first if part == 1 else rest


def _registers(whole: Instruction) -> list[Register]:
    """The registers that a store reads."""
    address, vector = whole.operands[0], whole.operands[1]
    assert isinstance(address, Address)
    parts = (address.base, *(vector.parts if isinstance(vector, Vector) else (vector,)))
    return [one for one in dict.fromkeys(parts) if isinstance(one, Register)]


def _elements(whole: Instruction) -> list[tuple[Instruction, int]]:
    """The smallest stores that the table has for the parts of a vector, each with its offset in bytes."""
    address, vector = whole.operands[0], whole.operands[1]
    assert isinstance(address, Address)
    assert isinstance(vector, Vector)
    size = np.dtype(DTYPES[element_type(whole)]).itemsize
    for together in (1, 2, 4):
        words = [f"v{together}" if word in _VECTORS else word for word in whole.qualifiers]
        qualifiers = tuple(word for word in words if word != "v1")
        if together >= len(vector.parts) or key_of(replace(whole, qualifiers=qualifiers)) not in TABLE:
            continue
        found = []
        for start in range(0, len(vector.parts), together):
            there = replace(address, offset_bytes=address.offset_bytes + start * size)
            parts = vector.parts[start : start + together]
            data = parts[0] if together == 1 else Vector(parts)
            found.append((replace(whole, qualifiers=qualifiers, operands=(there, data)), start * size))
        return found
    return [(whole, 0)]
