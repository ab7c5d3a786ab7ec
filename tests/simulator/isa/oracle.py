"""Numbers from first principles: IEEE formats as Python integers and fractions. Nothing of the simulator is used."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property


@dataclass(frozen=True, eq=False)
class Format:
    """A binary IEEE format: precision counts the hidden bit. quiet is PTX's canonical NaN."""

    name: str
    bits: int
    precision: int
    quiet: int

    @cached_property
    def mantissa_bits(self):
        return self.precision - 1

    @cached_property
    def exponent_bits(self):
        return self.bits - self.precision

    @cached_property
    def bias(self):
        return (1 << (self.exponent_bits - 1)) - 1

    @cached_property
    def infinity(self):
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @cached_property
    def sign(self):
        return 1 << (self.bits - 1)

    @cached_property
    def one(self):
        return self.bias << self.mantissa_bits


F16 = Format("f16", 16, 11, 0x7FFF)
BF16 = Format("bf16", 16, 8, 0x7FFF)
F32 = Format("f32", 32, 24, 0x7FFFFFFF)
F64 = Format("f64", 64, 53, 0x7FFFFFFFFFFFFFFF)
FORMATS = {one.name: one for one in (F16, BF16, F32, F64)}


def is_nan(bits, kind):
    return bits & ~kind.sign > kind.infinity


def cleared(bits, kind):
    """A subnormal as a zero of its sign."""
    return bits if bits & kind.infinity else bits & kind.sign


def is_infinite(bits, kind):
    return bits & ~kind.sign == kind.infinity


@cache
def value(bits, kind):
    """The exact value of a finite pattern."""
    mantissa, power = dyadic(bits, kind)
    return Fraction(mantissa << power) if power >= 0 else Fraction(mantissa, 1 << -power)


def nearest(number, kind):
    """The pattern nearest to number, whose denominator is a power of two."""
    assert number.denominator & (number.denominator - 1) == 0
    return rounded(number.numerator, 1 - number.denominator.bit_length(), kind)


def rounded(mantissa, power, kind, direction="rn", negative_zero=False):
    """The pattern that mantissa * 2**power is rounded to: rn to the nearest, ties to even, rz to zero, rm down, rp up.
    negative_zero: whether an exact zero is -0."""
    if mantissa == 0:
        return kind.sign if negative_zero else 0
    sign = kind.sign if mantissa < 0 else 0
    away = direction == ("rm" if sign else "rp")
    whole = abs(mantissa)
    exponent = max(whole.bit_length() - 1 + power, 1 - kind.bias)
    drop = exponent - kind.mantissa_bits - power  # so many low bits lie below the last place
    if drop > 0:
        rest, half = whole & ((1 << drop) - 1), 1 << (drop - 1)
        whole >>= drop
        is_nearer = rest > half or (rest == half and whole & 1)
        whole += bool(is_nearer if direction == "rn" else rest and away)
    else:
        whole <<= -drop
    if whole >> kind.precision:
        whole, exponent = whole >> 1, exponent + 1
    if exponent > kind.bias:
        return sign | (kind.infinity if away or direction == "rn" else kind.infinity - 1)
    if whole >> kind.mantissa_bits == 0:
        return sign | whole  # subnormal or zero
    return sign | (exponent + kind.bias) << kind.mantissa_bits | (whole & ((1 << kind.mantissa_bits) - 1))


def dyadic(bits, kind):
    """A finite pattern as mantissa and power of two."""
    mantissa = bits & ((1 << kind.mantissa_bits) - 1)
    exponent = (bits & ~kind.sign) >> kind.mantissa_bits
    if exponent:
        mantissa |= 1 << kind.mantissa_bits
    return (-mantissa if bits & kind.sign else mantissa), max(exponent, 1) - kind.bias - kind.mantissa_bits


def plus(a, b):
    low = min(a[1], b[1])
    return (a[0] << (a[1] - low)) + (b[0] << (b[1] - low)), low


def zero_sum(a, b, kind, direction):
    """Whether a sum that is exactly zero is -0, by the signs of what is added."""
    return direction == "rm" if (a ^ b) & kind.sign else bool(a & kind.sign)


@cache
def add(a, b, kind, direction="rn"):
    if is_nan(a, kind) or is_nan(b, kind):
        return kind.quiet
    if is_infinite(a, kind) or is_infinite(b, kind):
        if is_infinite(a, kind) and is_infinite(b, kind) and a != b:
            return kind.quiet
        return a if is_infinite(a, kind) else b
    return rounded(*plus(dyadic(a, kind), dyadic(b, kind)), kind, direction, zero_sum(a, b, kind, direction))


def subtract(a, b, kind, direction="rn"):
    return add(a, b if is_nan(b, kind) else b ^ kind.sign, kind, direction)


@cache
def multiply(a, b, kind, direction="rn"):
    if is_nan(a, kind) or is_nan(b, kind):
        return kind.quiet
    sign = (a ^ b) & kind.sign
    if is_infinite(a, kind) or is_infinite(b, kind):
        return kind.quiet if 0 in (a & ~kind.sign, b & ~kind.sign) else sign | kind.infinity
    (x, x_power), (y, y_power) = dyadic(a, kind), dyadic(b, kind)
    return rounded(x * y, x_power + y_power, kind, direction) | sign


def of_hardware(found, a, b, kind):
    """The result of add.f64 or mul.f64 as an H100 gives it: a NaN has the bits of the operand that is one, quiet, and
    0xfff8000000000000 where none is. Other types' NaNs are canonical."""
    if kind is not F64 or not is_nan(found, kind):
        return found
    operand = a if is_nan(a, kind) else b if is_nan(b, kind) else kind.sign | kind.infinity
    return operand | 1 << kind.mantissa_bits - 1


def fused(a, b, c, kind, direction="rn"):
    """a * b + c, rounded once."""
    if any(is_nan(one, kind) for one in (a, b, c)):
        return kind.quiet
    sign = (a ^ b) & kind.sign
    if is_infinite(a, kind) or is_infinite(b, kind):
        product = kind.infinity | sign
        is_nothing = 0 in (a & ~kind.sign, b & ~kind.sign) or (is_infinite(c, kind) and c != product)
        return kind.quiet if is_nothing else product
    if is_infinite(c, kind):
        return c
    (x, x_power), (y, y_power) = dyadic(a, kind), dyadic(b, kind)
    total = plus((x * y, x_power + y_power), dyadic(c, kind))
    return rounded(*total, kind, direction, zero_sum(sign, c, kind, direction))


def quotient(a, b, kind, direction="rn"):
    """a / b, rounded once: so many bits of the quotient that the last, which says whether there were more, is below
    every bit that counts."""
    if is_nan(a, kind) or is_nan(b, kind):
        return kind.quiet
    sign = (a ^ b) & kind.sign
    zero_a, zero_b = not a & ~kind.sign, not b & ~kind.sign
    if is_infinite(a, kind) or is_infinite(b, kind):
        if is_infinite(a, kind) and is_infinite(b, kind):
            return kind.quiet
        return sign | (kind.infinity if is_infinite(a, kind) else 0)
    if zero_b:
        return kind.quiet if zero_a else sign | kind.infinity
    (x, x_power), (y, y_power) = dyadic(a, kind), dyadic(b, kind)
    shift = 2 * kind.precision + 4
    whole, rest = divmod(abs(x) << shift, abs(y))
    size = 2 * whole + bool(rest)
    return rounded(-size if sign else size, x_power - y_power - shift - 1, kind, direction) | sign


def reciprocal(a, kind, direction="rn"):
    return quotient(kind.one, a, kind, direction)


def root(a, kind, direction="rn"):
    """A square root, rounded once, as quotient does it."""
    if is_nan(a, kind) or (a & kind.sign and a != kind.sign):
        return kind.quiet
    if is_infinite(a, kind) or a == kind.sign:
        return a
    mantissa, power = dyadic(a, kind)
    shift = 4 * kind.precision + power % 2
    whole = math.isqrt(mantissa << shift)
    return rounded(2 * whole + (whole * whole != mantissa << shift), (power - shift) // 2 - 1, kind, direction)


def extreme(a, b, kind, larger, propagate):
    """min, or max if larger: -0 below +0; NaN wins (propagate) or counts for nothing beside a number."""
    if is_nan(a, kind) or is_nan(b, kind):
        if propagate or (is_nan(a, kind) and is_nan(b, kind)):
            return kind.quiet
        return b if is_nan(a, kind) else a

    def place(bits):
        return -(bits ^ kind.sign) - 1 if bits & kind.sign else bits

    return (max if larger else min)(a, b, key=place)


def convert(bits, source, target, direction="rn"):
    """Float to float; NaN becomes canonical."""
    if is_nan(bits, source):
        return target.quiet
    sign = bool(bits & source.sign)
    if is_infinite(bits, source):
        return target.infinity | (target.sign if sign else 0)
    return rounded(*dyadic(bits, source), target, direction) | (target.sign if sign else 0)


def exact_sum(parts, source, target):
    """The sum of all, rounded once; never -0 (what is measured of the switch)."""
    if any(is_nan(one, source) for one in parts):
        return target.quiet
    infinite = {one for one in parts if is_infinite(one, source)}
    if infinite:
        if len(infinite) > 1:
            return target.quiet
        return target.infinity | (target.sign if infinite.pop() & source.sign else 0)
    total = (0, 0)
    for one in parts:
        total = plus(total, dyadic(one, source))
    return rounded(*total, target)


def signed(bits, width):
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


def wrap(number, width):
    return number & ((1 << width) - 1)


def divide(a, b):
    """Towards zero."""
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


@dataclass(frozen=True, slots=True)
class Format8:
    """An 8-bit float: finite, how many codes of either sign are; infinity: its code, if it has one."""

    name: str
    mantissa_bits: int
    finite: int
    infinity: int | None


E4M3 = Format8("e4m3", 3, 0x7F, None)
E5M2 = Format8("e5m2", 2, 0x7C, 0x7C)
FORMATS8 = {one.name: one for one in (E4M3, E5M2)}
QUIET8 = 0x7F


def is_nan8(code, kind):
    return code & 0x7F >= kind.finite and code & 0x7F != kind.infinity


def value8(code, kind):
    """The value of a finite code."""
    field, mantissa = (code & 0x7F) >> kind.mantissa_bits, code & ((1 << kind.mantissa_bits) - 1)
    bias = (1 << (6 - kind.mantissa_bits)) - 1
    whole = mantissa + (1 << kind.mantissa_bits if field else 0)
    size = whole * Fraction(2) ** (max(field, 1) - bias - kind.mantissa_bits)
    return -size if code & 0x80 else size


@cache
def finite8(kind):
    return tuple(value8(code, kind) for code in range(kind.finite))


def saturated(number, kind, negative):
    """The code nearest to |number|, ties to the even one, never beyond the largest finite, with a sign."""
    values = finite8(kind)
    size = abs(number)
    above = min(bisect_left(values, size), kind.finite - 1)
    code = above
    if above and size < values[above]:
        low, high = size - values[above - 1], values[above] - size
        code = above - 1 if low < high or (low == high and above % 2) else above
    return code | (0x80 if negative else 0)


@cache
def widened(code, kind, target):
    """An 8-bit float as a wider one, exactly; NaN becomes canonical."""
    if is_nan8(code, kind):
        return target.quiet
    sign = target.sign if code & 0x80 else 0
    return sign | (target.infinity if code & 0x7F == kind.infinity else nearest(abs(value8(code, kind)), target))


@cache
def narrowed(bits, source, kind):
    """cvt.rn.satfinite."""
    if is_nan(bits, source):
        return QUIET8
    negative = bool(bits & source.sign)
    if is_infinite(bits, source):
        return (kind.finite - 1) | (0x80 if negative else 0)
    return saturated(value(bits, source), kind, negative)
