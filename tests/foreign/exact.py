"""What instructions must give, in exact arithmetic: an oracle of its own for CUDA's intrinsics."""

import math
from fractions import Fraction

FLOAT32, FLOAT16, BFLOAT16 = (24, -126), (11, -14), (8, -126)
"""Number of significant bits, and exponent of the smallest normal number."""
ROUNDINGS = {
    "nearest": round,  # of a Fraction: to even
    "zero": math.trunc,
    "up": math.ceil,
    "down": math.floor,
}


def rounded(value, format, how="nearest"):
    """Return the number of a format that a value is rounded to. Values beyond its range are not expected."""
    if not value:
        return 0.0
    precision, lowest = format
    exponent = math.frexp(float(abs(value)))[1] - 1
    if Fraction(2) ** exponent > abs(value):  # float() rounded up to a power of two
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    return float(ROUNDINGS[how](value / unit) * unit)


def signed(value, bits=32):
    """Return the number that the lowest bits are in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def parts(value, bits, is_signed):
    """Return the parts of a 32-bit word, the lowest first."""
    found = [value >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [signed(one, bits) for one in found] if is_signed else found


def joined(found, bits):
    """Return the word of these parts, the lowest first."""
    return sum((one & ((1 << bits) - 1)) << (bits * at) for at, one in enumerate(found))
