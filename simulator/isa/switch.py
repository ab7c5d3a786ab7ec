"""What a switch makes of the replicas' values: the arithmetic of multimem, in the two models that a world can have.

How a switch adds floats is not specified. "exact" sums exactly and rounds once, as was measured on hardware; "stated"
folds in rank order in the precision that the instruction names: .acc, or the type itself, rounded to after every
addition. Both end with -0 in no sum. Sums of 8-bit floats saturate: at every rounding to the type, what lies beyond
the largest finite value, infinity included, becomes that value, and NaN stays NaN. min and max hand out one of the
values as it is; NaN counts for nothing unless all are NaN, -0 is below +0, and e5m2's infinities are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.isa.floats import INFINITY
from simulator.isa.registry import DTYPES, INTEGER, Lanes
from simulator.number import numbers

if TYPE_CHECKING:
    from simulator.number.float8 import Float8


def element_of(name: str) -> str:
    """What a packed type holds: f16 of f16x2, e4m3 of e4m3x4; other types themselves."""
    return name.removesuffix("x2").removesuffix("x4")


def combine(parts: list[Lanes], name: str, word: str, accumulator: str, model: str) -> Lanes:
    """The reduction of the replicas' matrices (lanes, registers), in rank order, as bits of the PTX type name.

    word: add, min, ..; accumulator: the type that .acc names, or "".
    """
    if name in ("f32", "f64"):
        return _floats(parts, name, model)
    element = element_of(name)
    if element not in ("f16", "bf16", *numbers.NAMES8):
        return _fold(parts, INTEGER[word])
    bits = [np.ascontiguousarray(part).view(DTYPES[element]) for part in parts]
    if word in ("min", "max"):
        total = _extreme(bits, element, word == "max")
    elif element in numbers.NAMES8:
        from simulator.number.float8 import FLOATS8

        total = _codes(bits, FLOATS8[element], bool(accumulator), model)
    else:
        total = _halves(bits, element, bool(accumulator), model)
    return total.view(DTYPES[name])


def add_once(name: str) -> Callable[[Lanes, Lanes], Lanes]:
    """How one float type's red.add adds to a cell (one element): rounded to the type, to nearest even."""
    if name == "f32":
        return lambda old, new: numbers.canonical_f32(old + new)
    if name == "f64":
        return lambda old, new: numbers.canonical_f64(old + new)
    widen, narrow = numbers.HALVES[name]
    return lambda old, new: narrow(widen(old) + widen(new))


def _fold(parts: list[Lanes], function: Any) -> Lanes:
    total = parts[0]
    for part in parts[1:]:
        total = function(total, part)
    return total


def _extreme(parts: list[Lanes], element: str, larger: bool) -> Lanes:
    if element in numbers.NAMES8:
        from simulator.number.float8 import FLOATS8

        infinity = FLOATS8[element].infinity
    else:
        infinity = INFINITY[element]
    return _fold([parts[0], *parts], lambda a, b: numbers.pick_bits(a, b, infinity, larger, propagate=False))


def _floats(parts: list[Lanes], name: str, model: str) -> Lanes:
    if name == "f64" and model == "exact":
        return numbers.canonical_f64(numbers.exact_sum_f64(parts))
    if model == "stated":
        total = _fold([parts[0] + parts[0].dtype.type(0), *parts[1:]], np.add)
        return numbers.canonical_f64(total) if name == "f64" else numbers.canonical_f32(total)
    return numbers.canonical_f32(numbers.exact_sum(parts).astype(np.float32))


def _halves(parts: list[Lanes], element: str, accumulate: bool, model: str) -> Lanes:
    widen, narrow = numbers.HALVES[element]
    values = [widen(part) for part in parts]
    if model == "exact":
        exact: Lanes = narrow(numbers.to_odd_f32(numbers.exact_sum(values, 8 if element == "bf16" else 11)))
        return exact
    total = values[0] + np.float32(0)
    for value in values[1:]:
        total = total + value if accumulate else widen(narrow(total + value))
    stated: Lanes = narrow(total)
    return stated


def _codes(parts: list[Lanes], kind: Float8, accumulate: bool, model: str) -> Lanes:
    """8-bit floats. float64 holds all their sums exactly: e5m2's values lie within 32 binades, of 3 bits each. In a
    fold, float32's rounding of a sum of two does no harm to one that follows, to 11 bits or fewer."""
    if model == "exact":
        if len(parts) <= kind.exact_f32:
            return kind.from_f32(_fold([kind.to_f32(parts[0]) + np.float32(0), *map(kind.to_f32, parts[1:])], np.add))
        return kind.from_f64(_fold([kind.to_f64(parts[0]) + 0.0, *map(kind.to_f64, parts[1:])], np.add))
    total = kind.to_f32(parts[0]) + np.float32(0)
    for part in parts[1:]:
        total = total + kind.to_f32(part)
        total = numbers.f16_to_f32(numbers.f32_to_f16(total)) if accumulate else kind.to_f32(kind.from_f32(total))
    return kind.from_f32(total)
