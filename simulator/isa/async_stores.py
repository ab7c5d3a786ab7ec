"""Stores and reductions of registers to shared memory of the cluster that an mbarrier counts: st.async, red.async.

They take place later than the instruction, as bulk copies do (simulator/run/copies.py), whose source is registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.isa.atomic import combination
from simulator.isa.bulk import CLUSTER, COUNTED, aimed
from simulator.isa.clusters import in_cluster
from simulator.isa.memory import element_type, rows_of, slots_of
from simulator.isa.registry import DTYPES, TYPES, Binder, LaneFrame, Lanes, Run, UnknownInstruction, operation
from simulator.isa.spaces import BARRIER_BYTES, address_reader, places_of, shared_place, shared_reader
from simulator.memory.transfer import Transfer
from simulator.ptx.ir import Instruction, Operand

_SPACES = ("", f"{CLUSTER}.")
_STORED = [f"{vector}{name}" for vector in ("", "v2.", "v4.") for name in ("b32", "u32", "s32", "f32")]
_STORED += [f"{vector}{name}" for vector in ("", "v2.") for name in ("b64", "u64", "s64", "f64")]
_REDUCED = {"add": "u32 s32 u64 s64", "inc": "u32", "dec": "u32", "min": "u32 s32", "max": "u32 s32"}
_REDUCED |= dict.fromkeys(("and", "or", "xor"), "b32")


def _check_words(instruction: Instruction, orders: tuple[str, ...]) -> None:
    """Raise UnknownInstruction for a qualifier that other stores and reductions have."""
    words = [word for word in instruction.qualifiers if word not in TYPES]
    strange = [one for one in words if one not in ("async", CLUSTER, COUNTED, "v2", "v4", *orders, *_REDUCED)]
    if strange:
        raise UnknownInstruction(f"{instruction.opcode}.async has no .{strange[0]}; {instruction.where()}")


def _reader(instruction: Instruction, operand: Operand, bind: Binder) -> Callable[[LaneFrame], Lanes]:
    """A function from a frame to the lanes' addresses of the cluster's shared memory; generic without a space."""
    if CLUSTER in instruction.qualifiers:
        found: Callable[[LaneFrame], Lanes] = shared_reader(operand, bind)
        return found
    generic = address_reader(operand, bind)
    name = f"{instruction.opcode}.async"
    return lambda frame: in_cluster(generic(frame).view(np.int64), True, name)


def _build(instruction: Instruction, bind: Binder, combine: Any) -> Run:
    target, value, counter = instruction.operands
    kind = DTYPES[element_type(instruction)]
    unsigned = f"u{np.dtype(kind).itemsize}"
    places, counters = _reader(instruction, target, bind), _reader(instruction, counter, bind)
    sources = slots_of(value, False, bind, unsigned)
    size_bytes = np.dtype(kind).itemsize * len(sources)
    name = f"{instruction.opcode}.async"

    def run(frame: LaneFrame) -> None:
        batch = frame.batch
        given = rows_of(frame, sources, unsigned).view(np.uint8)
        aims, barriers = (places_of(frame, one(frame), CLUSTER) for one in (places, counters))
        for position, (aim, barrier) in enumerate(zip(aims, barriers, strict=True)):
            key = shared_place(frame, barrier, position, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier")
            shared = aimed(frame, position, aim, key, size_bytes, size_bytes, what=name)
            transfer = Transfer(("register", -1), "shared", (shared,), size_bytes, -1, key, combine, kind)
            batch.copies.issue(int(frame.view.lanes[position]), instruction, transfer, given[position].copy())

    return run


@operation(*(f"st.async.{space}{COUNTED}.{form}" for space in _SPACES for form in _STORED))
def _store(instruction: Instruction, bind: Binder) -> Run:
    _check_words(instruction, ("weak",))
    return _build(instruction, bind, None)


@operation(
    *(
        f"red.async.{space}{COUNTED}.{word}.{name}"
        for space in _SPACES
        for word, names in _REDUCED.items()
        for name in names.split()
    )
)
def _reduce(instruction: Instruction, bind: Binder) -> Run:
    _check_words(instruction, ("relaxed", "cluster"))
    words = instruction.qualifiers
    if not {"relaxed", "cluster"}.issubset(words):
        raise UnknownInstruction(f"red.async is relaxed in the scope of a cluster; {instruction.where()}")
    word = next(one for one in words if one in _REDUCED)
    return _build(instruction, bind, combination(word, element_type(instruction), False))
