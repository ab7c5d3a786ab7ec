"""Numbers from first principles: IEEE formats as Python integers and fractions. Nothing of the simulator is used here."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Format:
    """A binary IEEE format: precision counts the hidden bit. quiet is PTX's canonical NaN."""

    name: str
    bits: int
    precision: int
    quiet: int

    @property
    def mantissa_bits(self) -> int:
        return self.precision - 1

    @property
    def exponent_bits(self) -> int:
        return self.bits - self.precision

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


F16 = Format("f16", 16, 11, 0x7FFF)
BF16 = Format("bf16", 16, 8, 0x7FFF)
F32 = Format("f32", 32, 24, 0x7FFFFFFF)
F64 = Format("f64", 64, 53, 0x7FFFFFFFFFFFFFFF)
FORMATS = {one.name: one for one in (F16, BF16, F32, F64)}


def is_nan(bits: int, kind: Format) -> bool:
    return bits & ~kind.sign > kind.infinity


def is_infinite(bits: int, kind: Format) -> bool:
    return bits & ~kind.sign == kind.infinity


def value(bits: int, kind: Format) -> Fraction:
    """The exact value of a finite pattern."""
    mantissa = bits & ((1 << kind.mantissa_bits) - 1)
    exponent = (bits & ~kind.sign) >> kind.mantissa_bits
    if exponent:
        mantissa |= 1 << kind.mantissa_bits
    else:
        exponent = 1
    power = exponent - kind.bias - kind.mantissa_bits
    size = Fraction(mantissa << power) if power >= 0 else Fraction(mantissa, 1 << -power)
    return -size if bits & kind.sign else size


def nearest(number: Fraction, kind: Format, zero_sign: bool = False) -> int:
    """The pattern nearest to number, ties to even, overflow to infinity. zero_sign: what an exact zero gets."""
    if number == 0:
        return kind.sign if zero_sign else 0
    sign = kind.sign if number < 0 else 0
    number = abs(number)
    exponent = number.numerator.bit_length() - number.denominator.bit_length()
    if number < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, 1 - kind.bias)
    unit = exponent - kind.mantissa_bits  # of the last place
    scaled = number / Fraction(2) ** unit
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest
    if twice > scaled.denominator or (twice == scaled.denominator and whole & 1):
        whole += 1
    if whole >> kind.precision:
        whole, exponent = whole >> 1, exponent + 1
    if exponent > kind.bias:
        return sign | kind.infinity
    if whole >> kind.mantissa_bits == 0:
        return sign | whole  # subnormal or zero
    return sign | (exponent + kind.bias) << kind.mantissa_bits | (whole & ((1 << kind.mantissa_bits) - 1))


def add(a: int, b: int, kind: Format) -> int:
    if is_nan(a, kind) or is_nan(b, kind):
        return kind.quiet
    if is_infinite(a, kind) or is_infinite(b, kind):
        if is_infinite(a, kind) and is_infinite(b, kind) and a != b:
            return kind.quiet
        return a if is_infinite(a, kind) else b
    both_negative_zero = a == kind.sign and b == kind.sign
    return nearest(value(a, kind) + value(b, kind), kind, zero_sign=both_negative_zero)


def subtract(a: int, b: int, kind: Format) -> int:
    return add(a, b if is_nan(b, kind) else b ^ kind.sign, kind)


def multiply(a: int, b: int, kind: Format) -> int:
    if is_nan(a, kind) or is_nan(b, kind):
        return kind.quiet
    sign = (a ^ b) & kind.sign
    if is_infinite(a, kind) or is_infinite(b, kind):
        return kind.quiet if 0 in (a & ~kind.sign, b & ~kind.sign) else sign | kind.infinity
    rounded = nearest(value(a, kind) * value(b, kind), kind)
    return rounded & ~kind.sign | sign


def fused(a: int, b: int, c: int, kind: Format) -> int:
    """a * b + c, rounded once."""
    if any(is_nan(one, kind) for one in (a, b, c)):
        return kind.quiet
    sign = bool((a ^ b) & kind.sign)
    if is_infinite(a, kind) or is_infinite(b, kind):
        if 0 in (a & ~kind.sign, b & ~kind.sign):
            return kind.quiet
        product = kind.infinity | (kind.sign if sign else 0)
        return kind.quiet if is_infinite(c, kind) and c != product else product
    if is_infinite(c, kind):
        return c
    product_value = value(a, kind) * value(b, kind)
    total = product_value + value(c, kind)
    return nearest(total, kind, zero_sign=product_value == 0 and sign and c == kind.sign)


def convert(bits: int, source: Format, target: Format) -> int:
    """Float to float; NaN becomes canonical."""
    if is_nan(bits, source):
        return target.quiet
    sign = bool(bits & source.sign)
    if is_infinite(bits, source):
        return target.infinity | (target.sign if sign else 0)
    return nearest(value(bits, source), target, zero_sign=sign) | (target.sign if sign else 0)


def exact_sum(parts: list[int], source: Format, target: Format) -> int:
    """The sum of all, rounded once; never -0 (what is measured of the switch)."""
    if any(is_nan(one, source) for one in parts):
        return target.quiet
    infinite = {one for one in parts if is_infinite(one, source)}
    if infinite:
        if len(infinite) > 1:
            return target.quiet
        return target.infinity | (target.sign if infinite.pop() & source.sign else 0)
    total = sum((value(one, source) for one in parts), Fraction(0))
    rounded = nearest(total, target)
    return 0 if rounded == target.sign else rounded


def signed(bits: int, width: int) -> int:
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


def wrap(number: int, width: int) -> int:
    return number & ((1 << width) - 1)


def divide(a: int, b: int) -> int:
    """Towards zero."""
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient
