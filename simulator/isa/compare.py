"""setp: comparisons of integers, floats, and two halves side by side, alone or combined with another predicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.isa.floats import flush_half
from simulator.isa.registry import DTYPES, Binder, LaneFrame, Lanes, Run, operation, pair_slots, put
from simulator.number import numbers
from simulator.ptx.ir import Instruction, Negated, Operand, Pair

_COMPARE: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED: dict[str, Any] = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
JOINS: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
FLUSHES: dict[str, Callable[[Any], Any]] = {"f16": flush_half, "f32": numbers.flush_f32}
"""What .ftz does to the operands, by type."""


def _unordered(a: Any, b: Any) -> Any:
    return np.isnan(a) | np.isnan(b)


def _of_floats() -> dict[str, Any]:
    """eq to ge are false where there is a NaN, equ to geu true; num: both are numbers, nan: one isn't."""
    tests: dict[str, Any] = {**_COMPARE, "ne": lambda a, b: (a < b) | (a > b)}
    opposite = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
    for word, other in opposite.items():
        tests[f"{word}u"] = lambda a, b, ordered=tests[other]: ~ordered(a, b)
    return {**tests, "num": lambda a, b: ~_unordered(a, b), "nan": _unordered}


def _widened(function: Any, widen: Any) -> Any:
    return lambda a, b: function(widen(a), widen(b))


def _comparisons() -> dict[tuple[str, str], Any]:
    """The function of each comparison by word and type, of lanes of the type's dtype."""
    found = {
        (word, f"{kind}{bits}"): function
        for kind, words in (("s", _COMPARE), ("u", _COMPARE | _UNSIGNED), ("b", {w: _COMPARE[w] for w in ("eq", "ne")}))
        for bits in (16, 32, 64)
        for word, function in words.items()
    }
    for word, function in _of_floats().items():
        found |= {(word, name): function for name in ("f32", "f64")}
        found[word, "f16"] = _widened(function, numbers.f16_to_f32)
        found[word, "bf16"] = _widened(function, numbers.bf16_to_f32)
    return found


COMPARISONS = _comparisons()


def predicate_reader(operand: Operand, bind: Binder) -> Any:
    if isinstance(operand, Negated):
        inner = bind.read(operand.register, "?")
        return lambda frame: ~frame.regs[inner]
    slot = bind.read(operand, "?")
    return lambda frame: frame.regs[slot]


def compared(frame: LaneFrame, slots: tuple[int, int], name: str, function: Any, flush: Any) -> Any:
    """Return what a comparison says of two registers' values; of words of two 16-bit lanes, rows of two."""
    values: list[Lanes] = [frame.regs[slot].view(DTYPES[name]) for slot in slots]
    if name.endswith("x2"):
        values = [np.ascontiguousarray(one).view(np.uint16).reshape(-1, 2) for one in values]
    if flush is not None:
        values = [flush(one) for one in values]
    return function(*values)


def _setp(function: Any, name: str, join: str, flush: Any = None) -> Any:
    """A builder of setp d|e: a comparison and its opposite, of halves that of the lower and the upper ones; each may be
    combined with a predicate (join)."""
    is_pair = name.endswith("x2")
    kind = DTYPES[name]

    def build(instruction: Instruction, bind: Binder) -> Run:
        first = instruction.operands[0]
        assert not isinstance(first, Pair) or is_pair or not name.endswith("f16")
        left, right = (bind.read(one, kind) for one in instruction.operands[1:3])
        assert len(instruction.operands) == (4 if join else 3)
        given = predicate_reader(instruction.operands[3], bind) if join else None
        targets = pair_slots(first, bind)
        assert isinstance(first, Pair) or targets[0] is not None

        target: Any = targets[0]

        def run(frame: LaneFrame) -> None:
            found = compared(frame, (left, right), name, function, flush)
            answers = [found[:, 0], found[:, 1]] if is_pair else [found, ~found]
            if given is not None:
                other = given(frame)
                answers = [JOINS[join](one, other) for one in answers]
            put(frame, targets, answers)

        def run_plain(frame: LaneFrame) -> None:
            regs = frame.regs
            regs[target][...] = function(regs[left].view(kind), regs[right].view(kind))

        return run_plain if not (join or is_pair or flush or isinstance(first, Pair)) else run

    return build


for (_word, _name), _function in COMPARISONS.items():
    for _join in ("", *JOINS):
        for _packed in ("", "x2") if _name in ("f16", "bf16") else ("",):
            _form = f"setp.{_word}.{_join}".rstrip(".")
            operation(f"{_form}.{_name}{_packed}")(_setp(_function, _name + _packed, _join))
            if _name in FLUSHES:
                operation(f"{_form}.ftz.{_name}{_packed}")(_setp(_function, _name + _packed, _join, FLUSHES[_name]))
