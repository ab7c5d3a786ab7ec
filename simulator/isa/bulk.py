"""Bulk copies and reductions between global and shared memory (cp.async.bulk and its relatives), and their fences.

What a copy does after its issue is in simulator/run/copies.py. Waiting for a group ends a basic block: the machine
keeps the lanes there. The operations and types of reductions are those of the PTX ISA's tables. Additions of floats
keep subnormals, as an H200 does; of f32 the PTX ISA says that they are flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.isa.atomic import combination
from simulator.isa.mbarriers import barrier_reader, values_of
from simulator.isa.memory import element_type, fence_run
from simulator.isa.registry import DTYPES, Binder, LaneFrame, Lanes, Run, UnknownInstruction, operation
from simulator.isa.spaces import (
    CLUSTER_MASK,
    CLUSTER_SHIFT,
    FIRST_TAG,
    Place,
    address_reader,
    places_of,
    shared_place,
    shared_reader,
)
from simulator.memory.space import LaneFault, blamed, fault_where
from simulator.memory.tensor_map import Tile
from simulator.memory.transfer import Transfer
from simulator.ptx.ir import Immediate, Instruction, Operand

UNIT_BYTES = 16
"""Addresses and sizes of bulk copies are multiples of it, and a byte mask has a bit for each byte of it."""
TILE_ALIGNMENT = 128
"""Of a tensor copy's place in shared memory."""
PREFETCHES = ("L2::64B", "L2::128B", "L2::256B")
HINT = "L2::cache_hint"
COUNTED = "mbarrier::complete_tx::bytes"
CLUSTER = "shared::cluster"
MULTICAST = "multicast::cluster"
PAIR = "cta_group::2"

_WHOLE = {"add": "u32 s32 u64", "inc": "u32", "dec": "u32"}
_WITHIN = _WHOLE | {word: "u32 s32" for word in ("min", "max")} | {word: "b32" for word in ("and", "or", "xor")}
TO_GLOBAL = (
    _WHOLE
    | {"add": "u32 s32 u64 f32 f64", "add.noftz": "f16 bf16"}
    | {word: "u32 s32 u64 s64 f16 bf16" for word in ("min", "max")}
    | {word: "b32 b64" for word in ("and", "or", "xor")}
)
"""Types by operation of reductions within shared memory and to global memory."""


def _forms(table: dict[str, str]) -> list[str]:
    return [f"{word}.{name}" for word, names in table.items() for name in names.split()]


def policy(
    instruction: Instruction, operands: list[Operand], bind: Binder, prefetches: tuple[str, ...] = ()
) -> list[Operand]:
    """Return the operands without that of a cache hint, which is the last one. Raises UnknownInstruction for hints that
    the instruction can't have."""
    for word in instruction.qualifiers:
        if word in PREFETCHES and word not in prefetches:
            raise UnknownInstruction(f"{instruction.opcode} has no .{word} here; {instruction.where()}")
    if HINT not in instruction.qualifiers:
        return operands
    assert isinstance(operands[-1], Immediate) or bind.register_dtype(operands[-1]) == "u8"
    return operands[:-1]


def no_hint(instruction: Instruction) -> None:
    """Raise UnknownInstruction if the instruction has a cache hint."""
    for word in instruction.qualifiers:
        if word in (*PREFETCHES, HINT):
            raise UnknownInstruction(f"{instruction.opcode} has no .{word} here; {instruction.where()}")


def check_direction(instruction: Instruction, wanted: tuple[str, ...]) -> None:
    spaces = tuple(word for word in instruction.qualifiers if word == "global" or word.startswith("shared"))
    if spaces != wanted or ("tile" in instruction.qualifiers and "tensor" not in instruction.qualifiers):
        raise UnknownInstruction(f"the simulator has no such direction of a bulk copy; {instruction.where()}")


def _check_size(instruction: Instruction, size: Operand) -> None:
    """A literal that is no multiple is refused at once, as the assembler does."""
    if isinstance(size, Immediate) and size.bits % UNIT_BYTES:
        raise UnknownInstruction(f"{_wrong_size(size.bits)}; {instruction.where()}")


def _wrong_size(size_bytes: int) -> str:
    return f"a bulk copy of {size_bytes} bytes; it copies a multiple of {UNIT_BYTES}, and not nothing"


def _checked(position: int, size_bytes: int, address: int = 0) -> None:
    if size_bytes == 0 or size_bytes % UNIT_BYTES:
        raise LaneFault(position, _wrong_size(size_bytes))
    if address % UNIT_BYTES:
        raise LaneFault(position, f"a bulk copy at {address:#x}: not aligned to {UNIT_BYTES} bytes")


def rank_of(frame: LaneFrame, position: int) -> int:
    rank = frame.view.rank
    return rank if isinstance(rank, int) else int(rank[position])


# Into shared memory


def aimed(
    frame: LaneFrame, position: int, place: Place, key: int, size_bytes: int, unit_bytes: int = UNIT_BYTES,
    is_paired: bool = False, what: str = "a bulk copy",
) -> int:  # fmt: skip
    """Return where a lane's destination in shared memory lies. Raises LaneFault for one that is wrong, and if the
    mbarrier is in another block's memory; is_paired: than those of the pair."""
    shared = shared_place(frame, place, position, size_bytes, unit_bytes, what)
    row, clusters = frame.batch.shared.shape[1], frame.batch.launched.clusters
    if key // row not in ([shared // row] if not is_paired else clusters.pair_of(shared // row)):
        raise LaneFault(position, f"{what} to a block of the cluster: its mbarrier is in another block's memory")
    with blamed(position):
        frame.batch.mbarriers.at(key)
    return shared


Destinations = list[tuple[Place, int]]
"""Of one lane: places in shared memory, each with the key of the mbarrier that counts its bytes."""


def destination_reader(
    instruction: Instruction, target: Operand, counter: Operand, mask: list[Operand], bind: Binder
) -> Callable[[LaneFrame], list[Destinations]]:
    """Return a function from a frame to the lanes' destinations; mask: the operand of a multicast, none without one."""
    assert len(mask) == (MULTICAST in instruction.qualifiers)
    (space,) = (word for word in instruction.qualifiers if word.startswith("shared"))
    places, keys = shared_reader(target, bind), barrier_reader(instruction, counter, bind)
    masks = mask_reader(mask[0], bind) if mask else None

    def read(frame: LaneFrame) -> list[Destinations]:
        if masks is None:
            pairs = zip(places_of(frame, places(frame), space), keys(frame), strict=True)
            return [[pair] for pair in pairs]
        row = frame.batch.shared.shape[1]
        aims = aims_of(frame, places(frame), masks(frame))
        found = []
        for each, key in zip(aims, keys(frame), strict=True):
            blocks = [place[0] for place in each]
            if PAIR in instruction.qualifiers:  # in each pair the block that is even if the given mbarrier's is
                clusters = frame.batch.launched.clusters
                side = int(clusters.ranks_of(key // row)) % 2
                blocks = [clusters.pair_of(block)[side] for block in blocks]
            found.append([(place, block * row + key % row) for place, block in zip(each, blocks, strict=True)])
        return found

    return read


def into_shared(
    frame: LaneFrame, instruction: Instruction, position: int, source: int, address: int, size_bytes: int,
    to: Destinations, tile: Tile | None = None,
) -> None:  # fmt: skip
    """Issue a lane's copy from global memory at the index `source`, which it calls address."""
    is_paired, unit_bytes = PAIR in instruction.qualifiers, UNIT_BYTES if tile is None else TILE_ALIGNMENT
    begins = tuple(aimed(frame, position, *one, size_bytes, unit_bytes, is_paired) for one in to)
    keys = tuple(key for _, key in to)
    many = keys if len(keys) > 1 else ()
    transfer = Transfer(
        ("global", source), "shared", begins, size_bytes, address, keys[0], mbarriers=many, tile=tile
    )  # fmt: skip
    frame.batch.copies.issue(int(frame.view.lanes[position]), instruction, transfer)


@operation(
    *(f"cp.async.bulk.{space}.global.{COUNTED}" for space in ("shared::cta", "shared::cluster")),
    f"cp.async.bulk.shared::cluster.global.{COUNTED}.{MULTICAST}",
    neutral=f"{HINT} {' '.join(PREFETCHES)}",
)
def _load(instruction: Instruction, bind: Binder) -> Run:
    """From global memory into that of the thread's own block, or of blocks of its cluster."""
    (space,) = (word for word in instruction.qualifiers if word.startswith("shared"))
    check_direction(instruction, (space, "global"))
    target, source, size, counter, *mask = policy(instruction, list(instruction.operands), bind)
    _check_size(instruction, size)
    addresses, sizes = address_reader(source, bind), values_of(size, bind)
    destinations = destination_reader(instruction, target, counter, mask, bind)

    def run(frame: LaneFrame) -> None:
        lanes = zip(addresses(frame).tolist(), sizes(frame), destinations(frame), strict=True)
        for position, (address, size_bytes, to) in enumerate(lanes):
            _checked(position, size_bytes, address)
            with blamed(position):
                index = frame.batch.space.resolve_bulk(rank_of(frame, position), address, size_bytes, "load")
            into_shared(frame, instruction, position, index, address, size_bytes, to)

    return run


def mask_reader(operand: Operand, bind: Binder) -> Callable[[LaneFrame], list[int]]:
    """A function from a frame to the lanes' 16-bit masks."""
    assert isinstance(operand, Immediate) or bind.register_dtype(operand) == "u2"
    slot = bind.read(operand, "u2")
    return lambda frame: list(np.broadcast_to(frame.regs[slot], frame.count).astype(np.int64).tolist())


def aims_of(frame: LaneFrame, places: Lanes, masks: list[int]) -> list[tuple[Place, ...]]:
    """Return for each lane the same place in each block of the cluster whose rank is in the lane's mask."""
    size = frame.batch.cluster
    given = np.array(masks, np.int64)
    text = f"of a cluster with ranks 0 to {size - 1}"
    wrong = (given == 0) | (given >> size != 0)
    fault_where(wrong, lambda lane: f"a copy to the blocks in mask {masks[lane]:#x} {text}")
    found: list[list[Place]] = [[] for _ in masks]
    for rank in range(size):
        chosen = np.flatnonzero(given >> rank & 1)
        if len(chosen):
            addresses = (places[chosen] & CLUSTER_MASK) + (rank + FIRST_TAG << CLUSTER_SHIFT)
            with blamed(chosen):
                some = places_of(frame.batch.narrow(frame, chosen, []), addresses, CLUSTER)
            for position, place in zip(chosen.tolist(), some, strict=True):
                found[position].append(place)
    return [tuple(one) for one in found]


@operation(
    f"cp.async.bulk.shared::cluster.shared::cta.{COUNTED}",
    *(f"cp.reduce.async.bulk.shared::cluster.shared::cta.{COUNTED}.{form}" for form in _forms(_WITHIN)),
)
def _within(instruction: Instruction, bind: Binder) -> Run:
    """Copy from the own shared memory to a block of the cluster, whose mbarrier counts the bytes; or combine.

    In a launch without clusters it is an illegal instruction, as an H200 showed.
    """
    check_direction(instruction, (CLUSTER, "shared::cta"))
    no_hint(instruction)
    target, source, size, counter = instruction.operands
    _check_size(instruction, size)
    to, origin, sizes = shared_reader(target, bind), shared_reader(source, bind), values_of(size, bind)
    keys = barrier_reader(instruction, counter, bind)
    change = _change(instruction)

    def run(frame: LaneFrame) -> None:
        batch = frame.batch
        if not batch.launched.clusters.is_explicit:
            raise LaneFault(0, "a bulk copy within shared memory where the launch has no clusters: a GPU stops there")
        aims, places = places_of(frame, to(frame), CLUSTER), places_of(frame, origin(frame), "shared::cta")
        rows = zip(aims, places, sizes(frame), keys(frame), strict=True)
        for position, (aim, place, size_bytes, key) in enumerate(rows):
            _checked(position, size_bytes)
            shared = shared_place(frame, place, position, size_bytes, UNIT_BYTES, "a bulk copy")
            begin = aimed(frame, position, aim, key, size_bytes)
            transfer = Transfer(("shared", shared), "shared", (begin,), size_bytes, -1, key, *change)
            batch.copies.issue(int(frame.view.lanes[position]), instruction, transfer)

    return run


# Into global memory


def _change(instruction: Instruction) -> tuple[Any, str]:
    """What becomes of a target: combine and element as in Transfer."""
    if "reduce" not in instruction.qualifiers:
        return None, "u1"
    name = element_type(instruction)
    word = next(one for one in instruction.qualifiers if one in TO_GLOBAL)
    return combination(word, name, in_global=False), DTYPES[name]


def _chosen_reader(instruction: Instruction, operands: list[Operand], bind: Binder) -> Any:
    """Take a byte mask off the operands; return a function from a frame to the lanes' masks, None without one."""
    if "cp_mask" not in instruction.qualifiers:
        return None
    return mask_reader(operands.pop(), bind)


def _into_global(instruction: Instruction, bind: Binder, multicast: bool) -> Run:
    change = _change(instruction)
    check_direction(instruction, ("global", "shared::cta"))
    operands = list(instruction.operands)
    masks = _chosen_reader(instruction, operands, bind)
    target, source, size = policy(instruction, operands, bind)
    _check_size(instruction, size)
    addresses, places, sizes = address_reader(target, bind), shared_reader(source, bind), values_of(size, bind)
    name = ".".join(word for word in instruction.mnemonic.split(".")[:5] if word not in ("global", "shared::cta"))

    def run(frame: LaneFrame) -> None:
        batch = frame.batch
        chosen = masks(frame) if masks is not None else [None] * frame.count
        origins = places_of(frame, places(frame), "shared::cta")
        rows = zip(addresses(frame).tolist(), origins, sizes(frame), chosen, strict=True)
        for position, (address, place, size_bytes, mask) in enumerate(rows):
            _checked(position, size_bytes, address)
            shared = shared_place(frame, place, position, size_bytes, UNIT_BYTES, "a bulk copy")
            rank = rank_of(frame, position)
            with blamed(position):
                if multicast:
                    targets = tuple(batch.space.resolve_bulk_multicast(rank, address, size_bytes, name))
                else:
                    targets = (batch.space.resolve_bulk(rank, address, size_bytes, "store"),)
            bits = None if mask is None else np.resize(mask >> np.arange(UNIT_BYTES) & 1 == 1, size_bytes)
            transfer = Transfer(("shared", shared), "global", targets, size_bytes, address, -1, *change, bits)
            batch.copies.issue(int(frame.view.lanes[position]), instruction, transfer)

    return run


@operation(
    *(f"cp.async.bulk.global.shared::cta.bulk_group{mask}" for mask in ("", ".cp_mask")),
    *(f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{form}" for form in _forms(TO_GLOBAL)),
)
def _store(instruction: Instruction, bind: Binder) -> Run:
    """Copy, or combine. A multicast address is none of this instruction's (Space refuses it): multimem.cp.async.bulk
    takes those."""
    return _into_global(instruction, bind, multicast=False)


@operation(
    *(f"multimem.cp.async.bulk.shared::cta.bulk_group{mask}" for mask in ("", ".cp_mask")),
    *(f"multimem.cp.reduce.async.bulk.shared::cta.bulk_group.{form}" for form in _forms(TO_GLOBAL)),
)
def _store_multicast(instruction: Instruction, bind: Binder) -> Run:
    """The same to every replica."""
    words = instruction.qualifiers
    known = ["cp", "reduce", "async", "bulk", "global", "shared::cta", "bulk_group", "cp_mask"]
    strange = [word for word in words if word not in (*known, *DTYPES, "noftz", *TO_GLOBAL)]
    if strange:  # orders and scopes, which other forms of multimem have
        raise UnknownInstruction(f"multimem.cp has no .{strange[0]} here; {instruction.where()}")
    return _into_global(instruction, bind, multicast=True)


@operation("cp.async.bulk.prefetch.L2.global")
def _prefetch(instruction: Instruction, bind: Binder) -> Run:
    """Caches are not simulated: only what the PTX ISA leaves undefined is refused."""
    source, size = policy(instruction, list(instruction.operands), bind)
    _check_size(instruction, size)
    addresses, sizes = address_reader(source, bind), values_of(size, bind)

    def run(frame: LaneFrame) -> None:
        for position, (address, size_bytes) in enumerate(zip(addresses(frame).tolist(), sizes(frame), strict=True)):
            if size_bytes % UNIT_BYTES or address % UNIT_BYTES:
                text = f"a prefetch of {size_bytes} bytes at {address:#x}: both are multiples of {UNIT_BYTES}"
                raise LaneFault(position, text)

    return run


# Groups


@operation("cp.async.bulk.commit_group", "cp.async.commit_group")
def _commit(instruction: Instruction, bind: Binder) -> Run:
    no_hint(instruction)
    assert not instruction.operands
    return lambda frame: frame.batch.copies.commit(frame.view.lanes, instruction)


@operation("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read", "cp.async.wait_group", "cp.async.wait_all")
def _wait_group(instruction: Instruction, bind: Binder) -> Run:
    """Ends a block: carried out by the machine."""
    no_hint(instruction)
    return lambda frame: None


# Fences


@operation(
    "fence.mbarrier_init",
    "fence.proxy.async",
    "fence.proxy.async.global",
    "fence.proxy.async.shared::cta",
    "fence.proxy.async.shared::cluster",
)
def _fence(instruction: Instruction, bind: Binder) -> Run:
    """Between two steps all memory is one, whichever proxy looks at it: a fence has nothing left to do but to be
    reported."""
    return fence_run(instruction)
