"""The 8-bit floats of PTX: e4m3 (4 bits exponent, 3 mantissa, no infinity) and e5m2 (IEEE's layout) as their codes.

Widening is exact. Narrowing is what cvt.rn.satfinite does: to nearest even; what is larger than the largest finite
value (448, or 57344), and infinity, becomes that value with its sign; NaN stays NaN, as the canonical code 0x7f.
All are tables. A float32 is looked up by its upper 16 bits, with their last one set where the lower 16 are not zero:
that is enough, for a result has 4 significant bits at most. No index is out of range; take is fastest in mode "clip".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.number import numbers
from simulator.number.numbers import Bits, Doubles, Floats, Words

Codes = npt.NDArray[np.uint8]

NAN8 = np.uint8(0x7F)


@dataclass(frozen=True, slots=True, eq=False)
class Float8:
    """A format. Codes beyond infinity (sign aside) are NaN. exact_f32: number of values whose sums float32 holds."""

    name: str
    infinity: int
    exact_f32: int
    f32: Floats
    f64: Doubles
    f16: Bits
    from_words: Codes
    from_halves: Codes

    def to_f16(self, codes: Codes) -> Bits:
        """Exact; NaN becomes f16's canonical one."""
        out: Bits = self.f16.take(codes, mode="clip")
        return out

    def to_f32(self, codes: Codes) -> Floats:
        """Exact."""
        out: Floats = self.f32.take(codes, mode="clip")
        return out

    def to_f64(self, codes: Codes) -> Doubles:
        """Exact."""
        out: Doubles = self.f64.take(codes, mode="clip")
        return out

    def from_f32(self, values: Floats) -> Codes:
        """Nearest even, saturating (cvt.rn.satfinite)."""
        out: Codes = self.from_words.take(_upper(values), mode="clip")
        return out

    def from_f16(self, bits: Bits) -> Codes:
        """Nearest even, saturating (cvt.rn.satfinite)."""
        out: Codes = self.from_halves.take(bits, mode="clip")
        return out

    def from_f64(self, values: Doubles) -> Codes:
        """Rounded once, saturating."""
        return self.from_f32(numbers.to_odd_f32(values))


def _upper(values: Floats) -> Words:
    """The upper half of float32 patterns, its last bit set where the lower half was not zero."""
    words = values.view(np.uint32)
    upper: Words = words >> np.uint32(16)
    upper |= (words & np.uint32(0xFFFF)) != 0
    return upper


def _format(name: str, mantissa_bits: int, finite: int, infinity: int) -> Float8:
    """finite: how many codes of either sign are."""
    exponent_bits = 7 - mantissa_bits
    codes = np.arange(finite)
    field, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    whole = np.where(field > 0, mantissa | 1 << mantissa_bits, mantissa)
    bias = (1 << (exponent_bits - 1)) - 1
    positive = np.ldexp(whole.astype(np.float64), np.maximum(field, 1) - bias - mantissa_bits)
    half = np.full(128, np.nan)
    half[:finite] = positive
    half[finite : infinity + 1] = np.inf
    f64 = numbers.canonical_f64(np.concatenate([half, -half]))
    f32 = numbers.canonical_f32(f64.astype(np.float32))
    from_words = _narrowing((np.arange(65536, dtype=np.uint32) << np.uint32(16)).view(np.float32), positive)
    halves = numbers.f16_to_f32(np.arange(65536, dtype=np.uint16))
    exact = int(2**24 * positive[1] / positive[-1])  # from the smallest step up to the largest sum: 24 bits
    return Float8(name, infinity, exact, f32, f64, numbers.f32_to_f16(f32), from_words, from_words.take(_upper(halves)))


def _narrowing(values: Floats, positive: Doubles) -> Codes:
    """The code of each value: of the finite ones the nearest, at a middle the even one."""
    middles = (positive[:-1] + positive[1:]) / 2
    size = np.abs(values).astype(np.float64)
    below = np.searchsorted(middles, size)  # the number of smaller middles
    tie = np.append(middles, np.inf)[below] == size
    code = np.where(tie & np.isfinite(size), below + below % 2, below).astype(np.uint8)
    code |= np.signbit(values).astype(np.uint8) << np.uint8(7)
    return np.where(np.isnan(values), NAN8, code)


with np.errstate(invalid="ignore"):
    E4M3 = _format("e4m3", 3, 0x7F, 0x7E)
    E5M2 = _format("e5m2", 2, 0x7C, 0x7C)
FLOATS8 = {"e4m3": E4M3, "e5m2": E5M2}
"""By PTX's name of the element."""
