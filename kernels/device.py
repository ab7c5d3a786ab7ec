"""Device primitives on global memory: payload, signals, multimem. The only place where kernels write PTX for memory.

Everything is inline PTX with side effects and a memory clobber, so that the text is what is written here: no access
becomes `ld.global.nc` (outside the memory model, never right on symmetric memory), none is hoisted out of a loop or
merged with another, and no scope is lost. Addresses are Int64 byte addresses; a "word" is an Int32 with raw bits, a
"vector" a tuple of four.

Order. Payload accesses are weak: they are ordered by the barriers of kernels/barrier.py around them and by nothing
else. Signals are release stores, release reductions and acquire loads at system scope, the only scope that holds
threads of another GPU. Multimem payload is relaxed at system scope, because an access that reaches all GPUs' replicas
is meant for threads there.
"""

from __future__ import annotations

from typing import Any

from cutlass import Int32, Int64
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

Vector = tuple[Any, Any, Any, Any]

PACKED_TYPES = {"float32": "f32", "float16": "f16x2", "bfloat16": "bf16x2"}
"""The PTX type that fills one 32-bit word with elements of a data type."""


def assemble(
    text: str, constraints: str, operands: list[Any], result: Any, *, memory: bool, loc: Any = None, ip: Any = None
) -> Any:
    """Emit one PTX instruction; memory says that it touches memory, so that it stays where it is."""
    return llvm.inline_asm(
        result,
        [operand.ir_value(loc=loc, ip=ip) for operand in operands],
        text,
        f"{constraints},~{{memory}}" if memory else constraints,
        has_side_effects=memory,
        asm_dialect=0,
        loc=loc,
        ip=ip,
    )


def _four_words(result: Any, loc: Any, ip: Any) -> Vector:
    words = [Int32(llvm.extractvalue(T.i32(), result, [i], loc=loc, ip=ip)) for i in range(4)]
    return words[0], words[1], words[2], words[3]


def _four_words_type() -> Any:
    return ir.Type.parse("!llvm.struct<(i32,i32,i32,i32)>")


# Payload through ordinary addresses, own or a peer's.


PEER_LOADS = {
    "weak": "ld.global.v4.b32",
    "no_allocate": "ld.global.L1::no_allocate.v4.b32",
    "relaxed": "ld.relaxed.sys.global.v4.b32",
}
"""Ways to load 16 bytes: weak; weak, with the advice not to keep the line in L1; relaxed at system scope (past L1)."""


@dsl_user_op
def load_vector(address: Any, kind: str = "weak", *, loc: Any = None, ip: Any = None) -> Vector:
    """Load of 16 bytes at a 16-byte aligned address, in one of the ways of PEER_LOADS."""
    text = f"{PEER_LOADS[kind]} {{$0, $1, $2, $3}}, [$4];"
    constraints = "=r,=r,=r,=r,l"
    result = assemble(text, constraints, [Int64(address)], _four_words_type(), memory=True, loc=loc, ip=ip)
    return _four_words(result, loc, ip)


@dsl_user_op
def store_vector(address: Any, vector: Vector, *, loc: Any = None, ip: Any = None) -> None:
    """Weak store of 16 bytes at a 16-byte aligned address."""
    text = "st.global.v4.b32 [$0], {$1, $2, $3, $4};"
    assemble(text, "l,r,r,r,r", [Int64(address), *vector], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def load_word(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Weak load of 4 bytes at a 4-byte aligned address."""
    return Int32(assemble("ld.global.b32 $0, [$1];", "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def store_word(address: Any, word: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Weak store of 4 bytes at a 4-byte aligned address."""
    assemble("st.global.b32 [$0], $1;", "l,r", [Int64(address), Int32(word)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def load_half_word(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Weak load of 2 bytes at a 2-byte aligned address, as a word whose upper half is zero."""
    return Int32(assemble("ld.global.u16 $0, [$1];", "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def store_half_word(address: Any, word: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Weak store of the lower 2 bytes of a word at a 2-byte aligned address."""
    assemble("st.global.u16 [$0], $1;", "l,r", [Int64(address), Int32(word)], None, memory=True, loc=loc, ip=ip)


def load_element(address: Any, itemsize: int) -> Any:
    """Weak load of one element of 4 or 2 bytes, as a word; aligned to its size."""
    return load_word(address) if itemsize == 4 else load_half_word(address)


def store_element(address: Any, word: Any, itemsize: int) -> None:
    """Weak store of one element of 4 or 2 bytes from a word; aligned to its size."""
    if itemsize == 4:
        store_word(address, word)
    else:
        store_half_word(address, word)


@dsl_user_op
def load_address(table: Any, index: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Weak load of entry index of a table of addresses (int64), which nobody writes while kernels run."""
    entry = Int64(table) + Int64(index) * 8
    return Int64(assemble("ld.global.b64 $0, [$1];", "=l,l", [entry], T.i64(), memory=True, loc=loc, ip=ip))


# Signals.


@dsl_user_op
def signal(address: Any, value: Any, order: str = "release", *, loc: Any = None, ip: Any = None) -> None:
    """Store, system scope, of a flag anywhere.

    release: who acquires it sees what this thread did or saw before. relaxed: promises nothing but the flag.
    """
    text = f"st.{order}.sys.global.u32 [$0], $1;"
    assemble(text, "l,r", [Int64(address), Int32(value)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def observe(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Acquire load, system scope, of a flag: having seen a value, this thread sees what its writer released with it."""
    text = "ld.acquire.sys.global.u32 $0, [$1];"
    return Int32(assemble(text, "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def multimem_signal(address: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Release reduction, system scope: adds 1 to every rank's replica of a counter at a multicast address."""
    text = "multimem.red.release.sys.global.add.u32 [$0], $1;"
    assemble(text, "l,r", [Int64(address), Int32(1)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def claim(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Relaxed compare-and-swap, system scope, of a word from 0 to 1; gives what it held: 0 to one thread only."""
    text = "atom.relaxed.sys.global.cas.b32 $0, [$1], 0, 1;"
    return Int32(assemble(text, "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def clock_ns(*, loc: Any = None, ip: Any = None) -> Any:
    """The GPU's clock in nanoseconds. It moves in steps of up to a microsecond, and reading it is slow."""
    return Int64(assemble("mov.u64 $0, %globaltimer;", "=l", [], T.i64(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def fence_aliases(*, loc: Any = None, ip: Any = None) -> None:
    """Proxy fence: orders this thread's accesses to the same bytes through ordinary and multicast addresses."""
    assemble("fence.proxy.alias;", "", [], None, memory=True, loc=loc, ip=ip)


# Payload through multicast addresses.


def _sum_suffix(accumulate_float32: bool) -> str:
    return "add.acc::f32" if accumulate_float32 else "add"


@dsl_user_op
def multimem_sum_vector(
    address: Any, dtype: str, accumulate_float32: bool, *, loc: Any = None, ip: Any = None
) -> Vector:
    """Relaxed, system scope: the switch's sum over all replicas of 16 bytes at a 16-byte aligned multicast address.

    accumulate_float32 asks for at least float32 inside the sum (16-bit types only); the order of the addends is the
    switch's.
    """
    operation = f"{_sum_suffix(accumulate_float32)}.v4.{PACKED_TYPES[dtype]}"
    text = f"multimem.ld_reduce.relaxed.sys.global.{operation} {{$0, $1, $2, $3}}, [$4];"
    constraints = "=r,=r,=r,=r,l"
    result = assemble(text, constraints, [Int64(address)], _four_words_type(), memory=True, loc=loc, ip=ip)
    return _four_words(result, loc, ip)


@dsl_user_op
def multimem_sum_word(address: Any, dtype: str, accumulate_float32: bool, *, loc: Any = None, ip: Any = None) -> Any:
    """multimem_sum_vector for the 4 bytes at a 4-byte aligned multicast address."""
    operation = f"{_sum_suffix(accumulate_float32)}.{PACKED_TYPES[dtype]}"
    text = f"multimem.ld_reduce.relaxed.sys.global.{operation} $0, [$1];"
    return Int32(assemble(text, "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def multimem_store_vector(address: Any, vector: Vector, dtype: str, *, loc: Any = None, ip: Any = None) -> None:
    """Relaxed, system scope: stores 16 bytes to every replica at a 16-byte aligned multicast address."""
    text = f"multimem.st.relaxed.sys.global.v4.{PACKED_TYPES[dtype]} [$0], {{$1, $2, $3, $4}};"
    assemble(text, "l,r,r,r,r", [Int64(address), *vector], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def multimem_store_word(address: Any, word: Any, dtype: str, *, loc: Any = None, ip: Any = None) -> None:
    """Relaxed, system scope: stores 4 bytes to every replica at a 4-byte aligned multicast address."""
    text = f"multimem.st.relaxed.sys.global.{PACKED_TYPES[dtype]} [$0], $1;"
    assemble(text, "l,r", [Int64(address), Int32(word)], None, memory=True, loc=loc, ip=ip)
