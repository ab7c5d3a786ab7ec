"""The table of operations: a key such as "add.s32" or "cvt.rn.bf16x2.f32" to a builder.

A builder looks at an instruction once, when a kernel is decoded, asks the binder for slots, and returns the function
that will run it on a frame of lanes. An instruction whose key is in no table stops with its PTX line
(UnknownInstruction).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memory.fabric import DeviceFault
from simulator.memory.space import View
from simulator.ptx.ir import Instruction, Operand, Pair, Register

Lanes = npt.NDArray[Any]
Run = Callable[["LaneFrame"], None]
SINK = Register("_")

_TYPE_NAMES = (
    "pred b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 "
    "e4m3 e5m2 e4m3x2 e5m2x2 e4m3x4 e5m2x4 u16x2 s16x2 f32x2"
)
TYPES = frozenset(_TYPE_NAMES.split())
DTYPES = {
    "pred": "?",
    **{f"{kind}{bits}": f"u{bits // 8}" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    "b128": "u8",
    "f16": "u2",
    "bf16": "u2",
    "f16x2": "u4",
    "u16x2": "u4",
    "s16x2": "u4",
    "f32x2": "u8",
    "bf16x2": "u4",
    "f32": "f4",
    "f64": "f8",
    **{f"{kind}{pack}": f"u{size}" for kind in ("e4m3", "e5m2") for pack, size in (("", 1), ("x2", 2), ("x4", 4))},
}
"""PTX type to the NumPy dtype its lanes are computed in; 16-bit and 8-bit floats stay bits, b128 is two of 64."""


INTEGER: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
"""What operations of several instructions do to integers."""


class UnknownInstruction(DeviceFault):
    """An instruction that the simulator does not support."""


class Binder(Protocol):
    """Gives operands their slots in a frame."""

    target: str  # the module's .target, "sm_90a"

    def read(self, operand: Operand, dtype: str) -> int:
        """The slot of a source; a literal becomes a constant of that dtype."""
        ...

    def write(self, operand: Operand) -> int:
        """The slot of a destination register."""
        ...

    def register_dtype(self, operand: Operand) -> str:
        """The dtype a register's slot is kept in: "?", "u1", "u2", "u4" or "u8"."""
        ...

    def bits_matter(self, operand: Operand) -> bool:
        """Whether anything but float arithmetic reads this register, so that a NaN's bits can be told apart."""
        ...

    def place(self, name: str) -> tuple[str, int]:
        """What a name stands for, and where it lies: "shared" and an offset in shared memory, "frame" and an offset in
        the frame of the thread's function, "parameter" and an offset in the kernel's parameters, "variable" (-1),
        "function" and its address. Raises KeyError for an unknown name."""
        ...

    def parameter(self, name: str) -> tuple[int, int]:
        """The position of a kernel parameter, and its size in bytes."""
        ...


@dataclass(slots=True)
class LaneFrame:
    """The lanes that one step runs together: their registers by slot, and who they are (view).

    regs[slot] holds one value a lane (constants: one in all).
    """

    regs: list[Lanes]
    count: int
    view: View
    batch: Any


@dataclass(frozen=True, slots=True)
class Operation:
    key: str
    build: Callable[[Instruction, Binder], Run]


TABLE: dict[str, Operation] = {}
_NEUTRAL: dict[str, frozenset[str]] = {}


def operation(*keys: str, neutral: str = "") -> Callable[[Callable[[Instruction, Binder], Run]], Callable[..., Run]]:
    """Register a builder for keys.

    neutral: qualifiers of the opcode that change no result here, or that the builder reads itself.
    """

    def register(build: Callable[[Instruction, Binder], Run]) -> Callable[..., Run]:
        for words in keys:
            key = canonical(words.split("."), frozenset())
            assert key not in TABLE, key
            TABLE[key] = Operation(key, build)
            opcode = key.split(".")[0]
            _NEUTRAL[opcode] = _NEUTRAL.get(opcode, frozenset()) | frozenset(neutral.split())
        return build

    return register


def canonical(words: Sequence[str], neutral: frozenset[str]) -> str:
    """Opcode, meaning-changing qualifiers in alphabetical order, types in order: "mul.hi.u32"."""
    kept = sorted(word for word in words[1:] if word not in TYPES and word not in neutral)
    return ".".join([words[0], *kept, *(word for word in words[1:] if word in TYPES)])


def key_of(instruction: Instruction) -> str:
    """The table's key of an instruction; the order of qualifiers in the text does not matter."""
    neutral = _NEUTRAL.get(instruction.opcode, frozenset())
    return canonical((instruction.opcode, *instruction.qualifiers), neutral)


def find(instruction: Instruction) -> Operation:
    """Raises UnknownInstruction naming the PTX line."""
    found = TABLE.get(key_of(instruction))
    if found is not None and "rn" in instruction.qualifiers and not _has_float(instruction):
        found = None
    if found is None:
        raise UnknownInstruction(f"the simulator has no {key_of(instruction)} yet; {instruction.where()}")
    return found


def _has_float(instruction: Instruction) -> bool:
    return any("f" in word and word in TYPES for word in instruction.qualifiers)


def fill(target: Lanes, values: Any) -> None:
    """Copy values into a destination's lanes (their bits, when sizes agree)."""
    target[...] = values if values.dtype == target.dtype else values.view(target.dtype)


def pair_slots(operand: Operand, bind: Binder) -> list[int | None]:
    """The slots of d, or of d|p; None for one that is not wanted."""
    parts = (operand.first, operand.second) if isinstance(operand, Pair) else (operand, SINK)
    return [None if one == SINK else bind.write(one) for one in parts]


def put(frame: LaneFrame, slots: Sequence[int | None], values: Sequence[Lanes]) -> None:
    """Copy values into the destinations that are wanted."""
    for slot, value in zip(slots, values, strict=False):
        if slot is not None:
            fill(frame.regs[slot], value)


def by_parts(function: Callable[..., Any], part: str, whole: str) -> Callable[..., Lanes]:
    """A function of lanes of dtype part as one of words of dtype whole, which hold several side by side."""
    count = np.dtype(whole).itemsize // np.dtype(part).itemsize

    def words(*operands: Any) -> Lanes:
        out = function(*(np.ascontiguousarray(one).view(part).reshape(-1, count) for one in operands))
        found: Lanes = np.ascontiguousarray(out).view(whole).reshape(-1)
        return found

    return words


def ufunc_builder(function: Any, dtype: str, count: int = 2) -> Callable[[Instruction, Binder], Run]:
    """A builder for instructions that are one NumPy ufunc on lanes of dtype."""

    def build(instruction: Instruction, bind: Binder) -> Run:
        target = bind.write(instruction.operands[0])
        sources = [bind.read(operand, dtype) for operand in instruction.operands[1:]]
        assert len(sources) == count, instruction.text
        if count == 1:
            only = sources[0]

            def run_one(frame: LaneFrame) -> None:
                regs = frame.regs
                function(regs[only].view(dtype), out=regs[target].view(dtype))

            return run_one
        left, right = sources
        if dtype in ("u2", "u4", "u8", "?"):

            def run_bare(frame: LaneFrame) -> None:
                regs = frame.regs
                function(regs[left], regs[right], out=regs[target])

            return run_bare

        def run(frame: LaneFrame) -> None:
            regs = frame.regs
            function(regs[left].view(dtype), regs[right].view(dtype), out=regs[target].view(dtype))

        return run

    return build


def value_builder(function: Callable[..., Any], dtypes: tuple[str, ...]) -> Callable[[Instruction, Binder], Run]:
    """A builder for instructions computed by a function of the sources' lanes (of dtypes) that returns new lanes."""

    def build(instruction: Instruction, bind: Binder) -> Run:
        target = bind.write(instruction.operands[0])
        sources = [bind.read(operand, dtype) for operand, dtype in zip(instruction.operands[1:], dtypes, strict=True)]
        pairs = list(zip(sources, dtypes, strict=True))

        def run(frame: LaneFrame) -> None:
            regs = frame.regs
            fill(regs[target], function(*[regs[slot].view(dtype) for slot, dtype in pairs]))

        return run

    return build
