"""Tensor copies (TMA by tensor maps), and matrices from registers to shared memory: the instructions.

A tensor map describes a matrix in global memory and a box of it; host code encodes it, and the kernel takes it as a
parameter. A copy moves a box between global and shared memory. Coordinates outside the matrix are read as zeros and not
written. Boxes here have 64 columns of 2 bytes, rows of 128 bytes that lie swizzled in shared memory: bits 4 to 6 of an
address are XORed with bits 7 to 9.

Coordinates are Int32, the innermost dimension first. Shared addresses are Int32. Order: as for bulk copies
(kernels/dsl/bulk.py).
"""

from __future__ import annotations

from typing import Any

from cutlass import Int16, Int32, Int64
from cutlass._mlir import ir
from cutlass._mlir.dialects import cute_nvgpu, llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from kernels.dsl.device import Vector, assemble, four_words, four_words_type


@dsl_user_op
def address_of(atom: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """The generic address of a copy atom's tensor map, as an Int64."""
    kind = ir.Type.parse("!cute.ptr<!cute_nvgpu.tma_descriptor_tiled, generic, align<64>>")
    pointer = cute_nvgpu.get_tma_desc_addr(
        kind, cute_nvgpu.atom_make_exec_tma(atom._trait.value, loc=loc, ip=ip), loc=loc, ip=ip
    )
    return Int64(pointer.toint(loc=loc, ip=ip))


@dsl_user_op
def prefetch(tensor_map: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Bring a tensor map into the cache that copies read it from."""
    assemble("prefetch.tensormap [$0];", "l", [Int64(tensor_map)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def load(
    stage: Any,
    tensor_map: Any,
    place: tuple[Any, ...],
    barrier: Any,
    blocks: int = 1,
    *,
    loc: Any = None,
    ip: Any = None,
) -> None:
    """Start the copy of a box into shared memory, of this block or of the first `blocks` of its cluster (at the same
    address of each); each of them counts the bytes on its own mbarrier."""
    form = f"cp.async.bulk.tensor.{len(place)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    operands = [Int32(stage), Int64(tensor_map), Int32(barrier), *map(Int32, place)]
    text, constraints = f"{form} [$0], [$1, {_coordinates(place, 3)}], [$2];", "r,l,r" + ",r" * len(place)
    if blocks > 1:
        text = text.replace("bytes [", "bytes.multicast::cluster [").replace(";", f", ${len(operands)};")
        operands.append(Int16((1 << blocks) - 1))
        constraints += ",h"
    assemble(text, constraints, operands, None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def store(
    tensor_map: Any, place: tuple[Any, ...], stage: Any, adds: bool = False, *, loc: Any = None, ip: Any = None
) -> None:
    """Start the copy of a box from shared memory, or (adds) its addition to what is there, which rounds to the matrix's
    type and comes in any order among others; of the thread's next group."""
    start, form = ("cp.reduce", ".add") if adds else ("cp", "")
    text = f"{start}.async.bulk.tensor.{len(place)}d.global.shared::cta{form}.tile.bulk_group"
    text += f" [$0, {_coordinates(place, 2)}], [$1];"
    operands = [Int64(tensor_map), Int32(stage), *map(Int32, place)]
    assemble(text, "l,r" + ",r" * len(place), operands, None, memory=True, loc=loc, ip=ip)


def _coordinates(place: tuple[Any, ...], first: int) -> str:
    return "{" + ", ".join(f"${first + at}" for at in range(len(place))) + "}"


@dsl_user_op
def store_matrices(address: Any, words: list[Any], *, loc: Any = None, ip: Any = None) -> None:
    """Store four 8 x 8 matrices of 2-byte elements, a word a thread of each; lane l has the address of row l % 8 of
    matrix l // 8."""
    text = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
    assemble(text, "r,r,r,r,r", [Int32(address), *map(Int32, words)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def store_shared_vector(address: Any, words: list[Any], *, loc: Any = None, ip: Any = None) -> None:
    """Store 16 bytes to shared memory, at a 16-byte aligned address."""
    text = "st.shared.v4.b32 [$0], {$1, $2, $3, $4};"
    assemble(text, "r,r,r,r,r", [Int32(address), *map(Int32, words)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def load_shared_vector(address: Any, *, loc: Any = None, ip: Any = None) -> Vector:
    """Load 16 bytes from shared memory, at a 16-byte aligned address."""
    text = "ld.shared.v4.b32 {$0, $1, $2, $3}, [$4];"
    constraints = "=r,=r,=r,=r,r"
    result = assemble(text, constraints, [Int32(address)], four_words_type(), memory=True, loc=loc, ip=ip)
    return four_words(result, loc, ip)


@dsl_user_op
def fence_shared(*, loc: Any = None, ip: Any = None) -> None:
    """Orders this thread's ordinary stores to shared memory before copies from there that follow."""
    assemble("fence.proxy.async.shared::cta;", "", [], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def word_of_float(value: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """The bits of a float32."""
    return Int32(llvm.bitcast(T.i32(), value.ir_value(loc=loc, ip=ip), loc=loc, ip=ip))
