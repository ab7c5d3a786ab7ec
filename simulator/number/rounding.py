"""Rounding in all four directions, flushing and saturation, and float operations whose exact results are known to the
last bit: a float64 that is rounded to odd stands for the exact value of a float32 operation.

Directions: "rn" nearest even, "rz" to zero, "rm" down, "rp" up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from simulator.number.numbers import (
    NAN16,
    Doubles,
    Floats,
    Lanes,
    _odd_f64,
    _two_product,
    canonical_f32,
    canonical_f64,
    f32_to_bf16,
    f32_to_f16,
    to_odd_f32,
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
    nearest = f32_to_bf16(to_odd_f32(values))
    if direction == "rn":
        return nearest
    wide = np.left_shift(nearest, np.uint32(16), dtype=np.uint32).view(np.float32).astype(np.float64)
    bits = nearest.astype(np.int32)
    down, up = (values < wide), (values > wide)
    negative = (bits & 0x8000) != 0
    if direction == "rz":
        bits = np.where(np.abs(wide) > np.abs(values), bits - 1, bits)
    elif direction == "rm":
        bits = np.where(down, np.where(negative, bits + 1, np.where(bits == 0, 0x8001, bits - 1)), bits)
    else:
        bits = np.where(up, np.where(negative, np.where(bits == 0x8000, 1, bits - 1), bits + 1), bits)
    out: Lanes = bits.astype(np.uint16)
    out[np.isnan(values)] = NAN16
    return out


# Exact results of float32 operations, as float64 rounded to odd


def sum_odd(a: Floats, b: Floats) -> Doubles:
    return _odd_f64(*two_sum(a.astype(np.float64), b.astype(np.float64)))


def difference_odd(a: Floats, b: Floats) -> Doubles:
    return sum_odd(a, -b)


def product_odd(a: Floats, b: Floats) -> Doubles:
    """Exact: 48 bits."""
    out: Doubles = a.astype(np.float64) * b.astype(np.float64)
    return out


def fused_odd(a: Floats, b: Floats, c: Floats) -> Doubles:
    return _odd_f64(*two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)))


def quotient_odd(a: Floats, b: Floats) -> Doubles:
    x, y = a.astype(np.float64), b.astype(np.float64)
    quotient = x / y
    product, low = _two_product(quotient, y)
    rest = (x - product) - low
    return _odd_f64(quotient, np.where(y < 0, -rest, rest))


def reciprocal_odd(a: Floats) -> Doubles:
    return quotient_odd(np.ones_like(a), a)


def root_odd(a: Floats) -> Doubles:
    x = a.astype(np.float64)
    root = np.sqrt(x)
    product, low = _two_product(root, root)
    return _odd_f64(root, (x - product) - low)


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


_PLAIN: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: np.float64(1) / a,
    "sqrt": np.sqrt,
    "fma": lambda a, b, c: _fused(a, b, c),
}
_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
}


def _fused(a: Any, b: Any, c: Any) -> float:
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return float(a * b + c) if not (np.isfinite(a) and np.isfinite(b)) else float(c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return float(a * b + c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
