"""set: a comparison as a number: all bits of an integer, or 1.0 of a float, where it holds; else 0.

The key of set has the two types alone; the builder reads the comparison, what it is combined with, and .ftz.
"""

from __future__ import annotations

import numpy as np

from simulator.isa.compare import COMPARISONS, FLUSHES, JOINS, compared, predicate_reader
from simulator.isa.registry import (
    DTYPES,
    TYPES,
    Binder,
    LaneFrame,
    Lanes,
    Run,
    UnknownInstruction,
    fill,
    key_of,
    operation,
)
from simulator.ptx.ir import Instruction

_ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF}
_ONES["s16"] = _ONES["u16"]
"""What stands for true, of each type of result."""
_ANYWHERE = ("u32", "s32", "f16", "bf16", "f32")
_TARGETS = {
    **dict.fromkeys(("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"), _ANYWHERE),
    "f16": ("u16", "u32", "s16", "s32", "f16", "bf16"),
    "bf16": ("u16", "u32", "s16", "s32", "bf16"),
    "f16x2": ("u32", "s32", "f16x2"),
    "bf16x2": ("u32", "s32", "bf16x2"),
}
"""Types of results by the types that are compared, as ptxas has them."""
_WORDS = frozenset(word for word, _ in COMPARISONS)


@operation(
    *(f"set.{target}.{source}" for source, targets in _TARGETS.items() for target in targets),
    neutral=" ".join(sorted({*_WORDS, *JOINS, "ftz"})),
)
def _set(instruction: Instruction, bind: Binder) -> Run:
    target_name, source_name = (word for word in instruction.qualifiers if word in TYPES)
    element = source_name.removesuffix("x2")
    words = [word for word in instruction.qualifiers if word in _WORDS]
    joins = [word for word in instruction.qualifiers if word in JOINS]
    is_flushed = "ftz" in instruction.qualifiers
    known = len(words) == 1 and len(joins) <= 1 and (words[0], element) in COMPARISONS
    if not known or (is_flushed and (element not in FLUSHES or target_name == "bf16")):
        raise UnknownInstruction(f"the simulator has no {'.'.join((key_of(instruction), *words, *joins))}")
    function = COMPARISONS[words[0], element]
    flush = FLUSHES[element] if is_flushed else None
    is_pair = source_name != element
    held = DTYPES[source_name]
    target = bind.write(instruction.operands[0])
    left, right = (bind.read(one, held) for one in instruction.operands[1:3])
    assert len(instruction.operands) == (4 if joins else 3)
    given = predicate_reader(instruction.operands[3], bind) if joins else None
    true = _true(target_name, is_pair)

    def run(frame: LaneFrame) -> None:
        found = compared(frame, (left, right), source_name, function, flush)
        if given is not None:
            other = given(frame)
            found = JOINS[joins[0]](found, other[:, np.newaxis] if is_pair else other)
        out = np.where(found, true, true.dtype.type(0))
        fill(frame.regs[target], np.ascontiguousarray(out).view("u4")[:, 0] if is_pair else out)

    return run


def _true(target: str, is_pair: bool) -> Lanes:
    """What stands for true in a result; of pairs, in each half."""
    bits = _ONES[target.removesuffix("x2")]
    size = 2 if is_pair or target in ("u16", "s16", "f16", "bf16") else 4
    return np.array(bits & ((1 << (8 * size)) - 1), f"u{size}")
