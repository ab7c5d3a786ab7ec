"""Copies of boxes of tensors by a tensor map (cp.async.bulk.tensor and its relatives), in tile mode.

They are bulk copies (bulk.py, simulator/run/copies.py) whose bytes lie in global memory as simulator/memory/tensor_map
says. The map is read when the copy is issued, as the thread would read it. A store by a map over a multicast
address reaches every replica, as NVIDIA's examples expect of it; loads and reductions there are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from simulator.isa.atomic import combination
from simulator.isa.bulk import (
    COUNTED,
    HINT,
    MULTICAST,
    PAIR,
    TILE_ALIGNMENT,
    TO_GLOBAL,
    check_direction,
    destination_reader,
    into_shared,
    policy,
    rank_of,
)
from simulator.isa.registry import DTYPES, Binder, LaneFrame, Run, UnknownInstruction, operation
from simulator.isa.spaces import address_reader, load_rows, places_of, shared_place, shared_reader
from simulator.memory.space import MULTICAST as MULTICAST_WINDOW
from simulator.memory.space import LaneFault, blamed, fault_where
from simulator.memory.tensor_map import MAP_ALIGNMENT, READ_BYTES, TensorMap, Tile, decoded, tile_at
from simulator.memory.transfer import Transfer
from simulator.ptx.ir import Immediate, Instruction, Operand, Vector

_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
_BITWISE = dict.fromkeys(("and", "or", "xor"), "u32 s32 u64")
_CHANGES = {word: TO_GLOBAL[word] for word in ("min", "max", "inc", "dec")} | _BITWISE
_CHANGES["add"] = "u32 s32 u64 f16 bf16 f32 f64"
"""A map's types by operation; any other is an illegal instruction on an H200 (28 November 2026)."""

_READ_WIDTH = 16
_Box = tuple[TensorMap, tuple[int, ...]]
"""A map, and where the box begins."""


def _boxes(
    instruction: Instruction, place: Operand, coordinates: Operand, bind: Binder, stores: bool = False
) -> Callable[[LaneFrame], list[_Box]]:
    """Return a function from a frame to the lanes' boxes, which are loaded or stored."""
    rank = 1 + next(number for number, word in enumerate(_DIMENSIONS) if word in instruction.qualifiers)
    parts = coordinates.parts if isinstance(coordinates, Vector) else ()
    if len(parts) != rank:
        raise UnknownInstruction(f"a copy of {rank} dimensions with {len(parts)} coordinates; {instruction.where()}")
    assert all(isinstance(one, Immediate) or bind.register_dtype(one) == "u4" for one in parts)
    addresses, slots = address_reader(place, bind), [bind.read(one, "u4") for one in parts]

    def read(frame: LaneFrame) -> list[_Box]:
        where = addresses(frame)
        columns = [np.broadcast_to(frame.regs[slot].view("i4"), frame.count).tolist() for slot in slots]
        found = []
        for position, (made, at) in enumerate(
            zip(_maps(frame, where, instruction), zip(*columns, strict=True), strict=True)
        ):
            if len(made.box) != rank:
                text = f"a copy of {rank} dimensions by a tensor map of {len(made.box)}"
                raise LaneFault(position, f"{text}; their numbers must agree")
            if wrong := made.wrong_corner(at, stores):
                raise LaneFault(position, wrong)
            found.append((made, at))
        return found

    return read


def _maps(frame: LaneFrame, addresses: Any, instruction: Instruction) -> list[TensorMap]:
    """The tensor maps at generic addresses."""
    fault_where(
        addresses % np.uint64(MAP_ALIGNMENT) != 0,
        lambda lane: f"a tensor map at {int(addresses[lane]):#x}: not aligned to {MAP_ALIGNMENT} bytes",
    )
    parts = [
        load_rows(frame, "", addresses + np.uint64(at), _READ_WIDTH, "u8", instruction)
        for at in range(0, READ_BYTES, _READ_WIDTH)
    ]
    found = []
    for position, row in enumerate(np.concatenate(parts, axis=1)):
        try:
            found.append(decoded(row.tobytes()))
        except ValueError as error:
            raise LaneFault(position, str(error)) from None
    return found


def _placed(frame: LaneFrame, position: int, made: TensorMap, tile: Tile, action: str) -> tuple[int, ...]:
    """Return the index where a lane's tensor begins, of each replica if it is multicast. Raises LaneFault unless all
    that the copy touches is memory that it may."""
    space, rank = frame.batch.space, rank_of(frame, position)
    if not len(tile.there):
        return (rank * space.capacity,)
    is_multicast = made.address - space.base(rank) >= MULTICAST_WINDOW * space.capacity
    with blamed(position):
        if is_multicast and action == "store":
            low, end = int(tile.there.min()), int(tile.there.max()) + tile.unit_bytes
            found = space.resolve_bulk_multicast(rank, made.address + low, end - low, "a tensor copy")
            return tuple(index - low for index in found)
        return (space.resolve_stretches(rank, made.address, tile.stretches, action),)


@operation(
    *(
        f"cp.async.bulk.tensor.{rank}.{space}.global.{COUNTED}{group}"
        for rank in _DIMENSIONS
        for space in ("shared::cta", "shared::cluster", f"shared::cluster.{MULTICAST}")
        for group in ("", ".cta_group::1", f".{PAIR}")
    ),
    neutral=f"{HINT} tile",
)
def _load(instruction: Instruction, bind: Binder) -> Run:
    """From global memory into that of the thread's own block, or of blocks of its cluster."""
    (space,) = (word for word in instruction.qualifiers if word.startswith("shared"))
    check_direction(instruction, (space, "global"))
    target, place, at, counter, *mask = policy(instruction, list(instruction.operands), bind)
    boxes = _boxes(instruction, place, at, bind)
    destinations = destination_reader(instruction, target, counter, mask, bind)

    def run(frame: LaneFrame) -> None:
        for position, ((made, corner), to) in enumerate(zip(boxes(frame), destinations(frame), strict=True)):
            tile = tile_at(made, corner, to[0][0][1])
            (index,) = _placed(frame, position, made, tile, "load")
            how = (made.address, made.box_bytes, to, tile)
            into_shared(frame, instruction, position, index, *how)

    return run


@operation(
    *(f"cp.async.bulk.tensor.{rank}.global.shared::cta.bulk_group" for rank in _DIMENSIONS),
    *(
        f"cp.reduce.async.bulk.tensor.{rank}.global.shared::cta.{word}.bulk_group"
        for rank in _DIMENSIONS
        for word in _CHANGES
    ),
)
def _store(instruction: Instruction, bind: Binder) -> Run:
    """From the block's shared memory to global memory; or combine. What is out of bounds stays as it is, but for the
    rest of a unit of 16 bytes that begins inside (of combinations that is assumed)."""
    check_direction(instruction, ("global", "shared::cta"))
    place, at, source = policy(instruction, list(instruction.operands), bind)
    boxes, places = _boxes(instruction, place, at, bind, stores=True), shared_reader(source, bind)
    word = next((one for one in instruction.qualifiers if one in _CHANGES), "")

    def run(frame: LaneFrame) -> None:
        batch = frame.batch
        origins = places_of(frame, places(frame), "shared::cta")
        for position, ((made, corner), origin) in enumerate(zip(boxes(frame), origins, strict=True)):
            if made.is_padded:
                raise LaneFault(
                    position, f"a tensor copy to global memory by a map of {made.element}, which is for loads"
                )
            size = made.box_bytes
            shared = shared_place(frame, origin, position, size, TILE_ALIGNMENT, "a bulk copy")
            tile = tile_at(made, corner, origin[1], stores=True)
            targets = _placed(frame, position, made, tile, "reduce" if word else "store")
            chosen = np.zeros((size // tile.unit_bytes, tile.unit_bytes), np.bool_)
            chosen[tile.places // tile.unit_bytes] = True
            transfer = Transfer(("shared", shared), "global", targets, size, made.address, tile=tile)
            transfer = replace(transfer, chosen=chosen.reshape(-1))
            if word:
                combine, element = _change(position, word, made)
                transfer = replace(transfer, combine=combine, element=element)
            batch.copies.issue(int(frame.view.lanes[position]), instruction, transfer)

    return run


def _change(position: int, word: str, made: TensorMap) -> tuple[Any, str]:
    """Return what a reduction does to a target's elements, as in Transfer: the map says of which type they are."""
    known = _CHANGES[word]
    if made.element not in known.split():
        raise LaneFault(position, f"a reduction with .{word} by a tensor map of {made.element}: it takes {known}")
    name = f"b{made.element[1:]}" if word in _BITWISE else made.element
    return combination(word, name, in_global=False), DTYPES[name]


@operation(*(f"cp.async.bulk.prefetch.tensor.{rank}.L2.global" for rank in _DIMENSIONS))
def _prefetch(instruction: Instruction, bind: Binder) -> Run:
    """Caches are not simulated: only a map that a copy could not use is refused."""
    place, at = policy(instruction, list(instruction.operands), bind)
    boxes = _boxes(instruction, place, at, bind)

    def run(frame: LaneFrame) -> None:
        boxes(frame)

    return run
