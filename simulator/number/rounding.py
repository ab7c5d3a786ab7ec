"""Rounding in all four directions, flushing and saturation, and float operations whose exact results are known to the
last bit: a float64 that is rounded to odd stands for the exact value of a float32 operation.

Directions: "rn" nearest even, "rz" to zero, "rm" down, "rp" up.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from simulator.number.numbers import (
    NAN16,
    Doubles,
    Floats,
    Lanes,
    canonical_f32,
    canonical_f64,
    f32_to_bf16,
    f32_to_f16,
    odd_f64,
    once,
    to_odd_f32,
    two_product,
    two_sum,
)

DIRECTIONS = ("rn", "rz", "rm", "rp")


def saturate(values: Lanes) -> Lanes:
    """Into [0, 1]; NaN and -0 become +0."""
    out: Lanes = np.where(values > 0, np.minimum(values, values.dtype.type(1)), values.dtype.type(0))
    return out


def stepped(out: Lanes, exact: Lanes, direction: str) -> Lanes:
    """The nearest value, moved by one place where it lies on the wrong side of the exact one."""
    back = out.astype(exact.dtype)
    zero = out.dtype.type(0)
    if direction == "rz":
        wrong, way = np.abs(back) > np.abs(exact), zero
    elif direction == "rm":
        wrong, way = back > exact, out.dtype.type(-np.inf)
    else:
        wrong, way = back < exact, out.dtype.type(np.inf)
    moved: Lanes = np.where(wrong, np.nextafter(out, way), out)
    return moved


def to_f32(exact: Doubles, direction: str) -> Floats:
    """float64, rounded to odd where it is not exact, to float32."""
    out = exact.astype(np.float32)
    return canonical_f32(out if direction == "rn" else stepped(out, exact, direction))


def to_f16(values: Doubles, direction: str) -> Lanes:
    """float64 to the bits of float16."""
    nearest = f32_to_f16(to_odd_f32(values))
    if direction == "rn":
        return nearest
    out = stepped(nearest.view(np.float16), values, direction).view(np.uint16)
    out[np.isnan(values)] = NAN16
    return out


def to_bf16(values: Doubles, direction: str) -> Lanes:
    """float64 to the bits of bfloat16."""
    if direction == "rn":
        return f32_to_bf16(to_odd_f32(values))
    cut = to_f32(values, "rz")
    words = cut.view(np.uint32)
    out: Lanes = (words >> np.uint32(16)).astype(np.uint16)
    if direction != "rz":
        is_cut = (words & np.uint32(0xFFFF) != 0) | (cut != values)
        out += is_cut & (np.signbit(values) == (direction == "rm"))
    out[np.isnan(values)] = NAN16
    return out


# Exact results of float32 operations, as float64 rounded to odd


def sum_odd(a: Floats, b: Floats) -> Doubles:
    return odd_f64(*two_sum(a.astype(np.float64), b.astype(np.float64)))


def difference_odd(a: Floats, b: Floats) -> Doubles:
    return sum_odd(a, -b)


def product_odd(a: Floats, b: Floats) -> Doubles:
    """Exact: 48 bits."""
    out: Doubles = a.astype(np.float64) * b.astype(np.float64)
    return out


def quotient_odd(a: Floats, b: Floats) -> Doubles:
    x, y = a.astype(np.float64), b.astype(np.float64)
    quotient = x / y
    product, low = two_product(quotient, y)
    rest = (x - product) - low
    return odd_f64(quotient, np.where(y < 0, -rest, rest))


def reciprocal_odd(a: Floats) -> Doubles:
    return quotient_odd(np.ones_like(a), a)


def root_odd(a: Floats) -> Doubles:
    x = a.astype(np.float64)
    root = np.sqrt(x)
    product, low = two_product(root, root)
    return odd_f64(root, (x - product) - low)


# float64: the sign of the error decides; Python's fractions where float64 can't tell it


def of_f64(word: str, direction: str) -> Callable[..., Doubles]:
    """Return add, sub, mul, fma, div, rcp or sqrt of float64 lanes, rounded in a direction."""

    def function(*lanes: Doubles) -> Doubles:
        columns = np.broadcast_arrays(*lanes)
        out = np.empty(columns[0].shape, np.float64)
        for index, row in enumerate(zip(*(one.tolist() for one in columns), strict=True)):
            out[index] = _one_f64(word, direction, row)
        return canonical_f64(out)

    return function


def _one_f64(word: str, direction: str, row: tuple[float, ...]) -> float:
    with np.errstate(all="ignore"):
        plain = float(_PLAIN[word](*(np.float64(one) for one in row)))
    if not all(map(math.isfinite, row)) or math.isnan(plain) or (word in ("div", "rcp") and row[-1] == 0):
        return plain
    if word == "sqrt":
        if row[0] == 0:
            return plain
        return _directed(plain, Fraction(row[0]) - Fraction(plain) ** 2, direction)
    exact = _EXACT[word](*(Fraction(one) for one in row))
    if exact == 0:
        if word in ("add", "sub", "fma") and not _is_signed_zero(word, row):
            return -0.0 if direction == "rm" else 0.0
        return plain
    if math.isinf(plain):
        return _directed(plain, Fraction(-1 if plain > 0 else 1), direction)
    return _directed(plain, exact - Fraction(plain), direction)


def _is_signed_zero(word: str, row: tuple[float, ...]) -> bool:
    """Whether a zero sum comes of zeros of the same sign, which it then keeps."""
    if word == "fma":
        if row[0] * row[1] != 0 or row[2] != 0 or (row[0] != 0 and row[1] != 0):
            return False
        signs = {math.copysign(1, row[0]) * math.copysign(1, row[1]), math.copysign(1, row[2])}
    else:
        if row[0] != 0 or row[1] != 0:
            return False
        signs = {math.copysign(1, row[0]), math.copysign(1, row[1]) * (-1 if word == "sub" else 1)}
    return len(signs) == 1


def _directed(nearest: float, error: Fraction, direction: str) -> float:
    """The neighbour that the direction asks for, where exact = nearest + error."""
    if error == 0:
        return nearest
    below = error < 0
    if direction == "rm":
        return math.nextafter(nearest, -math.inf) if below else nearest
    if direction == "rp":
        return nearest if below else math.nextafter(nearest, math.inf)
    if direction == "rz" and (nearest > 0 or (nearest == 0 and not below)) == below:
        return math.nextafter(nearest, 0.0)
    return nearest


_PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "fma": lambda a, b, c: _fused(a, b, c),
}
_EXACT: dict[str, Callable[..., Fraction]] = {**_PLAIN, "fma": lambda a, b, c: a * b + c}


def _fused(a: Any, b: Any, c: Any) -> float:
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return float(a * b + c) if not (np.isfinite(a) and np.isfinite(b)) else float(c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return once(exact) if exact else float(a * b + c)
