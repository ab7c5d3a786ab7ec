"""What the lanes of a warp, or the threads of a block, do together though they come from several places of a kernel.

PTX asks them for the same instruction with the same qualifiers, not for the same place: each place may name registers
of its own. The instruction then runs once, on columns gathered from all places; each place's lanes take their results
to its own destinations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from simulator.isa import find, key_of
from simulator.isa.registry import Run
from simulator.ptx.ir import Immediate, Instruction, Operand, Pair, Register

_TWO_RESULTS = frozenset({"shfl", "match", "elect"})
"""Opcodes whose destination may be d|p."""


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """An instruction without its place. run takes columns: first the sources, of the dtypes in kinds, then results."""

    run: Run
    kinds: tuple[str, ...]
    results: tuple[str, ...]


class _InOrder:
    """A binder that gives slots in the order in which a builder asks for them, the sources in front."""

    def __init__(self, sources: int) -> None:
        self.sources = sources
        self.kinds: list[str] = []
        self.written = 0

    def read(self, operand: Operand, dtype: str) -> int:
        self.kinds.append(dtype)
        return len(self.kinds) - 1

    def write(self, operand: Operand) -> int:
        self.written += 1
        return self.sources + self.written - 1


def meeting_key(instruction: Instruction) -> str:
    """What instructions must have in common to meet: opcode and qualifiers; bar is barrier.aligned, as in PTX."""
    opcode, _, rest = key_of(instruction).partition(".")
    return f"{'bar' if opcode == 'barrier' else opcode}.{rest}"


def sources_in_order(instruction: Instruction) -> tuple[Operand, ...]:
    """The operands that lanes bring: of a reduction at a barrier of a block only the predicate."""
    return instruction.operands[-1:] if instruction.opcode in ("bar", "barrier") else instruction.operands[1:]


def results_in_order(instruction: Instruction) -> tuple[Operand, ...]:
    """Where the results go; the register "_" takes none."""
    target = instruction.operands[0]
    return (target.first, target.second) if isinstance(target, Pair) else (target,)


def common_of(instruction: Instruction) -> Common:
    """Return the instruction without its place."""
    return _common(instruction.opcode, instruction.qualifiers, len(sources_in_order(instruction)))


@lru_cache(maxsize=256)
def _common(opcode: str, qualifiers: tuple[str, ...], sources: int) -> Common:
    target: Operand = Register("%d")
    if opcode in _TWO_RESULTS:
        target = Pair(Register("%d"), Register("%p"))
    number = (Immediate(0),) if opcode in ("bar", "barrier") else ()
    plain = Instruction(opcode, qualifiers, (target, *number, *[Register("%s")] * sources), 0, "")
    bind: Any = _InOrder(sources)
    run = find(plain).build(plain, bind)
    assert len(bind.kinds) == sources
    first = "?" if "pred" in qualifiers else "u4"
    return Common(run, tuple(bind.kinds), (first, "?") if opcode in _TWO_RESULTS else (first,))
