"""The rules of kernels/numeric/numerics.py once more, number by number, in fractions: what the folds are held to.

Values are Python floats: each holds every number of every format here. Nothing is taken from the code under test.
"""

import math
import struct
from fractions import Fraction
from typing import NamedTuple


class Shape(NamedTuple):
    """bits of significand, exponent of the smallest normal number, the largest number, and whether results saturate."""

    bits: int
    smallest: int
    largest: Fraction
    saturates: bool = False


SHAPES = {
    "float64": Shape(53, -1022, (2 - Fraction(1, 2**52)) * 2**1023),
    "float32": Shape(24, -126, (2 - Fraction(1, 2**23)) * 2**127),
    "float16": Shape(11, -14, Fraction(65504)),
    "bfloat16": Shape(8, -126, (2 - Fraction(1, 2**7)) * 2**127),
    "float8_e4m3fn": Shape(4, -6, Fraction(448), True),
    "float8_e5m2": Shape(3, -14, Fraction(57344), True),
}


def rounded(exact, name, zero=0.0):
    """A fraction to nearest even; zero is what comes out for a true 0."""
    shape = SHAPES[name]
    if exact == 0:
        return zero
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, shape.smallest) - shape.bits + 1)
    size = round(size / step) * step  # Python rounds fractions half to even
    if size > shape.largest:
        size = shape.largest if shape.saturates else None
    found = math.inf if size is None else float(size)
    return math.copysign(found, 1 if exact > 0 else -1)


def stored(value, name):
    """A number, infinity or NaN as a format keeps it."""
    if math.isnan(value):
        return math.nan
    if math.isinf(value):
        return math.copysign(float(SHAPES[name].largest), value) if SHAPES[name].saturates else value
    return rounded(Fraction(value), name, value)


def added(left, right, name):
    if not (math.isfinite(left) and math.isfinite(right)):
        return left + right  # IEEE 754 in float64: the same infinities and NaN
    zero = left if math.copysign(1, left) == math.copysign(1, right) else 0.0
    return rounded(Fraction(left) + Fraction(right), name, math.copysign(0.0, zero) if zero == 0 else 0.0)


def multiplied(left, right, name):
    if not (math.isfinite(left) and math.isfinite(right)):
        return left * right
    sign = math.copysign(1, left) * math.copysign(1, right)
    return rounded(Fraction(left) * Fraction(right), name, math.copysign(0.0, sign))


def factor(count, dtype, accumulator):
    if dtype == "float64":
        return rounded(Fraction(1, count), "float64")
    single = struct.unpack("f", struct.pack("f", 1 / count))[0]
    return stored(single, dtype if accumulator == "native" else accumulator)


def summed(values, dtype, accumulator, reduction):
    """sum and avg of two or more contributions, in their order."""
    small = dtype.startswith("float8") and accumulator == "native"
    wide = ("float16" if small else dtype) if accumulator == "native" else accumulator

    def kept(value):
        return stored(value, dtype) if small else value

    if reduction == "avg":
        constant = factor(len(values), dtype, accumulator)
        values = [kept(multiplied(value, constant, wide)) for value in values]
    total = values[0]
    for value in values[1:]:
        total = kept(added(total, value, wide))
    return stored(total, dtype)


def extreme(values, dtype, reduction):
    """min and max of two or more contributions."""
    if any(math.isnan(value) for value in values):
        return math.nan
    pick = min if reduction == "min" else max
    return stored(pick(values, key=lambda value: (value, math.copysign(1, value))), dtype)


def integer(values, width, signed, reduction):
    """Any reduction of two or more integers of a width."""
    if reduction in ("min", "max"):
        return min(values) if reduction == "min" else max(values)
    if reduction in ("and", "or", "xor"):
        total = values[0]
        for value in values[1:]:
            total = {"and": total & value, "or": total | value, "xor": total ^ value}[reduction]
        return total
    total = sum(values) % (1 << width)
    if signed and total >> (width - 1):
        total -= 1 << width
    if reduction == "avg":
        return -(-total // len(values)) if total < 0 else total // len(values)
    return total
