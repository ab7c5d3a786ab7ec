"""set: a comparison as a number: all bits of an integer, or 1.0 of a float, where it holds; else 0. And setp of two
halves side by side, which gives a predicate of each.

The key of set has the two types alone; the builder reads the comparison, what it is combined with, and .ftz.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.isa.bits import JOINS, comparisons, predicate_reader
from simulator.isa.floats import flush_half
from simulator.isa.registry import TYPES, Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, key_of, operation
from simulator.number import numbers
from simulator.ptx.ir import Instruction, Pair, Register

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
_FUNCTIONS = {(word, name): (function, kind) for word, name, function, kind in comparisons()}
_WORDS = frozenset(word for word, _ in _FUNCTIONS)
_FLUSHES: dict[str, Callable[[Any], Any]] = {"f16": flush_half, "f32": numbers.flush_f32}


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
    known = len(words) == 1 and len(joins) <= 1 and (words[0], element) in _FUNCTIONS
    if not known or (is_flushed and (element not in _FLUSHES or target_name == "bf16")):
        raise UnknownInstruction(f"the simulator has no {'.'.join((key_of(instruction), *words, *joins))}")
    function, kind = _FUNCTIONS[words[0], element]
    flush = _FLUSHES[element] if is_flushed else None
    is_pair = source_name != element
    held = "u4" if is_pair else kind
    target = bind.write(instruction.operands[0])
    left, right = (bind.read(one, held) for one in instruction.operands[1:3])
    assert len(instruction.operands) == (4 if joins else 3)
    given = predicate_reader(instruction.operands[3], bind) if joins else None
    true = _true(target_name, is_pair)

    def run(frame: LaneFrame) -> None:
        values = [frame.regs[slot].view(held) for slot in (left, right)]
        if is_pair:
            values = [_halves(one) for one in values]
        if flush is not None:
            values = [flush(one) for one in values]
        found = function(*values)
        if given is not None:
            other = given(frame)
            found = JOINS[joins[0]](found, other[:, np.newaxis] if is_pair else other)
        out = np.where(found, true, true.dtype.type(0))
        fill(frame.regs[target], np.ascontiguousarray(out).view("u4")[:, 0] if is_pair else out)

    return run


def _compared_halves(function: Any, word: str, flush: Any) -> Any:
    """A builder of setp p|q: p of the lower halves, q of the upper ones."""

    def build(instruction: Instruction, bind: Binder) -> Run:
        first = instruction.operands[0]
        pair = (first.first, first.second) if isinstance(first, Pair) else (first, Register("_"))
        targets = [None if one == Register("_") else bind.write(one) for one in pair]
        slots = [bind.read(one, "u4") for one in instruction.operands[1:3]]
        assert len(instruction.operands) == (4 if word else 3)
        given = predicate_reader(instruction.operands[3], bind) if word else None

        def run(frame: LaneFrame) -> None:
            found = function(*(flush(_halves(frame.regs[slot])) for slot in slots))
            if given is not None:
                found = JOINS[word](found, given(frame)[:, np.newaxis])
            for slot, half in zip(targets, (0, 1), strict=True):
                if slot is not None:
                    fill(frame.regs[slot], np.broadcast_to(found[:, half], frame.count))

        return run

    return build


def _register_pairs() -> None:
    for (word, name), (function, _) in _FUNCTIONS.items():
        if name not in ("f16", "bf16"):
            continue
        for join in ("", *JOINS):
            form = f"setp.{word}.{join}".rstrip(".")
            operation(f"{form}.{name}x2")(_compared_halves(function, join, lambda halves: halves))
            if name == "f16":
                operation(f"{form}.ftz.f16x2")(_compared_halves(function, join, flush_half))


def _true(target: str, is_pair: bool) -> Lanes:
    """What stands for true in a result; of pairs, in each half."""
    bits = _ONES[target.removesuffix("x2")]
    size = 2 if is_pair or target in ("u16", "s16", "f16", "bf16") else 4
    return np.array(bits & ((1 << (8 * size)) - 1), f"u{size}")


def _halves(values: Lanes) -> Lanes:
    return np.ascontiguousarray(values).view(np.uint16).reshape(-1, 2)


_register_pairs()
