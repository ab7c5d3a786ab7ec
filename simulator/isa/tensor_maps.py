"""Tensor maps that kernels change: tensormap.replace, copies of a map from shared memory, and the fences around both.

A copy reads its map when it is issued, and sees what is there then. Whether a fence stands between is the race
checker's to say.
"""

from __future__ import annotations

import numpy as np

from simulator.isa.bulk import rank_of
from simulator.isa.matrices import WARP, whole_warps
from simulator.isa.memory import ORDER
from simulator.isa.registry import Binder, LaneFrame, Run, UnknownInstruction, operation
from simulator.isa.spaces import READERS, load_rows, store_rows
from simulator.memory.space import blamed
from simulator.memory.tensor_map import MAP_BYTES, READ_BYTES, UNIT_BYTES
from simulator.observe.events import Fence, tell
from simulator.ptx.ir import Immediate, Instruction

_FIELDS = {
    "global_address": ("b64", 0),
    "rank": ("b32", 0),
    "box_dim": ("b32", 5),
    "global_dim": ("b32", 5),
    "global_stride": ("b64", 4),
    "element_stride": ("b32", 5),
}
"""Type of the new value, and of how many dimensions there is one, 0 if not of one."""
_SPACES = ("global", "shared::cta")


def _parts(field: str, at: int) -> tuple[tuple[int, int, int, int], ...]:
    """Where bits of a field are, of a dimension: word, lowest bit there, number of bits, lowest bit of the value."""
    found = {
        "global_address": ((0, 0, 32, 0), (1, 0, 32, 32)),
        "rank": ((2, 4, 3, 0),),
        "box_dim": ((14, 8 * at - 8, 8, 0),) if at else ((13, 24, 8, 0),),
        "global_dim": ((8 + at, 0, 32, 0),),
        "global_stride": ((3 + at, 0, 32, 4), (7, 4 * at, 4, 36)),
        "element_stride": ((13, 3 * at, 3, 0),),
    }
    return found[field]


@operation(
    *(
        f"tensormap.replace.tile.{field}.{space}.b1024.{kind}"
        for field, (kind, _) in _FIELDS.items()
        for space in _SPACES
    )
)
def _replace(instruction: Instruction, bind: Binder) -> Run:
    """A field of a map gets another value: of extents one less, of strides units of 16 bytes."""
    place, *which, value = instruction.operands
    field = next(word for word in instruction.qualifiers if word in _FIELDS)
    space = next(word for word in instruction.qualifiers if word in _SPACES).removesuffix("::cta")
    kind, count = _FIELDS[field]
    at = which[0].bits if which and isinstance(which[0], Immediate) else 0
    if bool(count) != bool(which) or at >= max(count, 1):
        raise UnknownInstruction(f"{instruction.mnemonic} of dimension {at}; {instruction.where()}")
    addresses, source = READERS[space](place, bind), bind.read(value, f"u{int(kind[1:]) // 8}")
    parts, less = _parts(field, at), int(field.endswith("_dim") or field == "element_stride")

    def run(frame: LaneFrame) -> None:
        begins = np.broadcast_to(addresses(frame), frame.count)
        values = np.broadcast_to(frame.regs[source], frame.count).astype(np.uint64) - np.uint64(less)
        for word, low, bits, of in parts:
            where = begins + begins.dtype.type(4 * word)
            mask = np.uint32(((1 << bits) - 1) << low)
            old = load_rows(frame, space, where, 4, "u4", instruction)[:, 0]
            given = (values >> np.uint64(of)).astype(np.uint32) << np.uint32(low) & mask
            store_rows(frame, space, where, (old & ~mask | given)[:, None], instruction)

    return run


@operation("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic", neutral=f"{ORDER} sync aligned")
def _copy(instruction: Instruction, bind: Binder) -> Run:
    """What a map says from shared memory to global memory, once for each warp. CuTe DSL writes nothing else of it."""
    to, source, size = instruction.operands
    assert isinstance(size, Immediate)
    assert size.bits == MAP_BYTES
    targets, sources = READERS["global"](to, bind), READERS["shared"](source, bind)

    def run(frame: LaneFrame) -> None:
        firsts = np.arange(0, whole_warps(frame, instruction) * WARP, WARP)
        one = frame.batch.narrow(frame, firsts, [])
        there, here = (np.broadcast_to(every(frame), frame.count)[firsts] for every in (targets, sources))
        for at in range(0, READ_BYTES, UNIT_BYTES):
            rows = load_rows(one, "shared", here + here.dtype.type(at), UNIT_BYTES, "u4", instruction)
            store_rows(one, "global", there + there.dtype.type(at), rows, instruction)

    return run


@operation("fence.proxy.tensormap::generic", neutral=ORDER)
def _fence(instruction: Instruction, bind: Binder) -> Run:
    """To be reported, of an acquire with where its map begins."""
    addresses = READERS[""](instruction.operands[0], bind) if instruction.operands else None

    def run(frame: LaneFrame) -> None:
        space, where = frame.batch.space, None
        if addresses is not None:
            where = np.broadcast_to(addresses(frame), frame.count)
            for position, address in enumerate(where.tolist()):
                with blamed(position):
                    space.resolve_stretches(rank_of(frame, position), address, [(0, MAP_BYTES)], "load")
        if space.events.fence:
            tell(
                space.events.fence, Fence(frame.view.launched, frame.view.lanes, space.events.step, instruction, where)
            )

    return run
