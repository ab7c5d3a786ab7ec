"""Device primitives on global memory: payload, signals, multimem. The only place where kernels write PTX for memory,
beside kernels/dsl/bulk.py.

Everything is inline PTX with side effects and a memory clobber, so that the text is what is written here: no access
becomes `ld.global.nc` (outside the memory model, never right on symmetric memory), none is hoisted out of a loop or
merged with another, and no scope is lost. Addresses are Int64 byte addresses; a "word" is an Int32 with raw bits, a
"vector" a tuple of four.

Order. Payload accesses are weak: they are ordered by the barriers of kernels/dsl/rank_barriers.py around them and by
nothing else. Signals are release stores, release reductions and acquire loads at system scope, the only scope that
holds threads of another GPU. Multimem payload is relaxed at system scope, because an access that reaches all GPUs'
replicas is meant for threads there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from cutlass import Int32, Int64
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from kernels.sources import PACKAGE, is_installed, name_of

Vector = tuple[Any, Any, Any, Any]


def assemble(
    text: str, constraints: str, operands: list[Any], result: Any, *, memory: bool, loc: Any = None, ip: Any = None
) -> Any:
    """Emit one PTX instruction; memory says that it touches memory, so that it stays where it is. In a kernel of a
    user's own a comment names the user's line, as the instruction's .loc names the library's."""
    text = _users_line(sys._getframe(1)) + text
    clobbers = ["~{memory}"] if memory else []
    return llvm.inline_asm(
        result,
        [operand.ir_value(loc=loc, ip=ip) for operand in operands],
        text,
        ",".join([*filter(None, [constraints]), *clobbers]),
        has_side_effects=memory,
        asm_dialect=0,
        loc=loc,
        ip=ip,
    )


def _users_line(frame: FrameType | None) -> str:
    """The comment that names the innermost line of a kernel outside of the package kernels, up to the compiler's call.
    None for the project's own kernels: their code is the same wherever the project lies."""
    while frame is not None and (name := _users_file(frame.f_code.co_filename)) is not None:
        if name:
            return f"/* at {name}:{frame.f_lineno} */ "
        frame = frame.f_back
    return ""


@cache
def _users_file(name: str) -> str | None:
    """How a file is named in the comment if it is a user's, "" if it is not, None for the compiler's call: beyond that
    in a stack is who wants a kernel compiled."""
    file = Path(name).resolve()
    if file in (PACKAGE / "compile.py", PACKAGE / "functions.py"):
        return None
    if file.is_relative_to(PACKAGE) or is_installed(file) or not file.is_file():
        return ""
    return re.sub(r"[^\w./-]", "_", name_of(file))  # inline assembly has meanings for { | } and $


def four_words(result: Any, loc: Any, ip: Any) -> Vector:
    words = [Int32(llvm.extractvalue(T.i32(), result, [i], loc=loc, ip=ip)) for i in range(4)]
    return words[0], words[1], words[2], words[3]


def four_words_type() -> Any:
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
    result = assemble(text, constraints, [Int64(address)], four_words_type(), memory=True, loc=loc, ip=ip)
    return four_words(result, loc, ip)


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


@dsl_user_op
def load_byte(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Weak load of a byte, as a word whose other bytes are zero."""
    return Int32(assemble("ld.global.u8 $0, [$1];", "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def store_byte(address: Any, word: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Weak store of the lowest byte of a word."""
    assemble("st.global.u8 [$0], $1;", "l,r", [Int64(address), Int32(word)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def load_pair(address: Any, *, loc: Any = None, ip: Any = None) -> tuple[Any, Any]:
    """Weak load of 8 bytes at an 8-byte aligned address, as two words."""
    pair = ir.Type.parse("!llvm.struct<(i32,i32)>")
    text = "ld.global.v2.b32 {$0, $1}, [$2];"
    result = assemble(text, "=r,=r,l", [Int64(address)], pair, memory=True, loc=loc, ip=ip)
    lower, upper = (Int32(llvm.extractvalue(T.i32(), result, [i], loc=loc, ip=ip)) for i in range(2))
    return lower, upper


@dsl_user_op
def store_pair(address: Any, pair: Sequence[Any], *, loc: Any = None, ip: Any = None) -> None:
    """Weak store of 8 bytes, two words, at an 8-byte aligned address."""
    text = "st.global.v2.b32 [$0], {$1, $2};"
    assemble(text, "l,r,r", [Int64(address), *pair], None, memory=True, loc=loc, ip=ip)


def load_element(address: Any, itemsize: int) -> list[Any]:
    """Weak load of one element of 8, 4, 2 or 1 bytes, as words (two for 8 bytes); aligned to its size."""
    if itemsize == 8:
        return list(load_pair(address))
    return [{4: load_word, 2: load_half_word, 1: load_byte}[itemsize](address)]


def store_element(address: Any, words: Sequence[Any], itemsize: int) -> None:
    """Weak store of one element of 8, 4, 2 or 1 bytes from its words; aligned to its size."""
    if itemsize == 8:
        store_pair(address, words)
    else:
        {4: store_word, 2: store_half_word, 1: store_byte}[itemsize](address, words[0])


def load_elements(address: Any, itemsize: int) -> Vector:
    """16 bytes at an address that is aligned to an element only, element by element."""
    if itemsize >= 4:
        words = [word for at in range(0, 16, itemsize) for word in load_element(address + at, itemsize)]
    else:
        words = [_packed(address + at, itemsize) for at in range(0, 16, 4)]
    return words[0], words[1], words[2], words[3]


def _packed(address: Any, itemsize: int) -> Any:
    word = load_element(address, itemsize)[0]
    for at in range(itemsize, 4, itemsize):
        word = word | (load_element(address + at, itemsize)[0] << (8 * at))
    return word


def store_elements(address: Any, vector: Sequence[Any], itemsize: int) -> None:
    """16 bytes to an address that is aligned to an element only, element by element."""
    if itemsize == 8:
        for at in range(2):
            store_pair(address + 8 * at, vector[2 * at : 2 * at + 2])
        return
    for at in range(0, 16, itemsize):
        shift = 8 * (at % 4)
        word = vector[at // 4]
        store_element(address + at, [word >> shift if shift else word], itemsize)


@dsl_user_op
def load_address(table: Any, index: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Weak load of entry index of a table of addresses (int64), which no kernel writes."""
    entry = Int64(table) + Int64(index) * 8
    return Int64(assemble("ld.global.b64 $0, [$1];", "=l,l", [entry], T.i64(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def load_long(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Weak load of 8 bytes, an Int64, at an 8-byte aligned address."""
    return Int64(assemble("ld.global.b64 $0, [$1];", "=l,l", [Int64(address)], T.i64(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def store_long(address: Any, value: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Weak store of 8 bytes, an Int64, at an 8-byte aligned address."""
    assemble("st.global.b64 [$0], $1;", "l,l", [Int64(address), Int64(value)], None, memory=True, loc=loc, ip=ip)


# Payload that is its own flag: kernels/dsl/inbox.py says why this is sound.


@dsl_user_op
def load_halves(address: Any, *, loc: Any = None, ip: Any = None) -> tuple[Any, Any]:
    """Relaxed load, system scope, of 16 bytes at a 16-byte aligned address: two Int64, each of them atomic."""
    pair = ir.Type.parse("!llvm.struct<(i64,i64)>")
    text = "ld.relaxed.sys.global.v2.b64 {$0, $1}, [$2];"
    result = assemble(text, "=l,=l,l", [Int64(address)], pair, memory=True, loc=loc, ip=ip)
    lower, upper = (Int64(llvm.extractvalue(T.i64(), result, [i], loc=loc, ip=ip)) for i in range(2))
    return lower, upper


@dsl_user_op
def store_halves(address: Any, halves: Sequence[Any], *, loc: Any = None, ip: Any = None) -> None:
    """Relaxed store, system scope, of 16 bytes at a 16-byte aligned address: two Int64, each of them atomic."""
    text = "st.relaxed.sys.global.v2.b64 [$0], {$1, $2};"
    assemble(text, "l,l,l", [Int64(address), *map(Int64, halves)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def store_halves_weak(address: Any, halves: Sequence[Any], *, loc: Any = None, ip: Any = None) -> None:
    """Weak store of 16 bytes at a 16-byte aligned address: two Int64."""
    text = "st.global.v2.b64 [$0], {$1, $2};"
    assemble(text, "l,l,l", [Int64(address), *map(Int64, halves)], None, memory=True, loc=loc, ip=ip)


# Signals.


@dsl_user_op
def store_half(address: Any, half: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Relaxed store, system scope, of 8 bytes, an Int64, at an 8-byte aligned address."""
    text = "st.relaxed.sys.global.b64 [$0], $1;"
    assemble(text, "l,l", [Int64(address), Int64(half)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def observe_half(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Acquire load, system scope, of 8 bytes, an Int64, at an 8-byte aligned address."""
    text = "ld.acquire.sys.global.b64 $0, [$1];"
    return Int64(assemble(text, "=l,l", [Int64(address)], T.i64(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def fence_system(*, loc: Any = None, ip: Any = None) -> None:
    """Fence, system scope: with a relaxed store after it, a release."""
    assemble("fence.acq_rel.sys;", "", [], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def signal(address: Any, value: Any, order: str = "release", *, loc: Any = None, ip: Any = None) -> None:
    """Store, system scope, of a flag anywhere.

    release: who acquires it sees what this thread did or saw before. relaxed: promises nothing but the flag.
    """
    text = f"st.{order}.sys.global.u32 [$0], $1;"
    assemble(text, "l,r", [Int64(address), Int32(value)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def observe(address: Any, order: str = "acquire", *, loc: Any = None, ip: Any = None) -> Any:
    """Load, system scope, of a flag anywhere.

    acquire: having seen a value, this thread sees what its writer released with it. relaxed: it sees the flag alone.
    """
    text = f"ld.{order}.sys.global.u32 $0, [$1];"
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


# Payload through multicast addresses: what there is for which type is data, see kernels/multimem.py.


@dsl_user_op
def multimem_load_vector(address: Any, instruction: str, *, loc: Any = None, ip: Any = None) -> Vector:
    """The switch's reduction over all replicas of 16 bytes at a 16-byte aligned multicast address.

    instruction: a multimem.ld_reduce of four 32-bit words, without operands.
    """
    text = f"{instruction} {{$0, $1, $2, $3}}, [$4];"
    constraints = "=r,=r,=r,=r,l"
    result = assemble(text, constraints, [Int64(address)], four_words_type(), memory=True, loc=loc, ip=ip)
    return four_words(result, loc, ip)


@dsl_user_op
def multimem_load_word(address: Any, instruction: str, *, loc: Any = None, ip: Any = None) -> Any:
    """The same for the 4 bytes at a 4-byte aligned multicast address, by an instruction of one word."""
    return Int32(assemble(f"{instruction} $0, [$1];", "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def multimem_load_pair(address: Any, instruction: str, *, loc: Any = None, ip: Any = None) -> tuple[Any, Any]:
    """The same for the 8 bytes at an 8-byte aligned multicast address, by an instruction of 64 bits; two words."""
    value = Int64(assemble(f"{instruction} $0, [$1];", "=l,l", [Int64(address)], T.i64(), memory=True, loc=loc, ip=ip))
    return Int32(value), Int32(value >> 32)


@dsl_user_op
def multimem_store_vector(address: Any, vector: Vector, *, loc: Any = None, ip: Any = None) -> None:
    """Relaxed, system scope: stores 16 bytes to every replica at a 16-byte aligned multicast address."""
    text = "multimem.st.relaxed.sys.global.v4.f32 [$0], {$1, $2, $3, $4};"
    assemble(text, "l,r,r,r,r", [Int64(address), *vector], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def multimem_store_word(address: Any, word: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Relaxed, system scope: stores 4 bytes to every replica at a 4-byte aligned multicast address."""
    text = "multimem.st.relaxed.sys.global.b32 [$0], $1;"
    assemble(text, "l,r", [Int64(address), Int32(word)], None, memory=True, loc=loc, ip=ip)


# Launches that follow each other.


@dsl_user_op
def let_next_begin(*, loc: Any = None, ip: Any = None) -> None:
    """Let the stream's next launch begin before this one ends, if it was made to wait in await_launches_before."""
    assemble("griddepcontrol.launch_dependents;", "", [], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def await_launches_before(*, loc: Any = None, ip: Any = None) -> None:
    """Wait until the stream's launches before this one are over, and see what they stored."""
    assemble("griddepcontrol.wait;", "", [], None, memory=True, loc=loc, ip=ip)
