"""An oracle of matrix products: one element of D at a time, from integers and fractions of Python."""

from dataclasses import dataclass
from fractions import Fraction

from tests.simulator.isa.products import BITS, FLOATS, IMAGE_A, LEADING, STRIDE

NAN = {"f16": 0x7FFF, "f32": 0x7FFFFFFF}
INFINITY = {"f16": 0x7C00, "f32": 0x7F800000}
SMALL = {"e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}
"""Formats that have finite numbers alone."""
FORMATS = {**FLOATS, "tf32": (8, 10), **SMALL}


def number_of(kind, code):
    """A value and its exponent, None of zero; or "nan", or an infinity as a float. Of subnormals the least exponent."""
    exponents, bits = FORMATS[kind]
    code >>= 13 if kind == "tf32" else 0
    sign = -1 if code >> exponents + bits else 1
    field, fraction = code >> bits & (1 << exponents) - 1, code & (1 << bits) - 1
    if kind == "e4m3":
        if field == 15 and fraction == 7:
            return "nan", None
    elif field == (1 << exponents) - 1 and kind not in SMALL:
        return ("nan" if fraction else sign * float("inf")), None
    exponent = max(field, 1) - (1 << exponents - 1) + 1
    whole = fraction | (1 << bits if field else 0)
    return sign * Fraction(whole) * Fraction(2) ** (exponent - bits), (exponent if whole else None)


def cut(value, unit):
    """Toward zero to a multiple of two to the power of unit."""
    scale = Fraction(2) ** unit
    whole = abs(value) // scale
    return (whole if value >= 0 else -whole) * scale


def decided(terms):
    """What infinities and NaNs among products and C decide, None without any. terms: pairs of factors."""
    infinite = set()
    for factors in terms:
        if "nan" in factors:
            return "nan"
        if any(isinstance(one, float) for one in factors):
            if 0 in factors:
                return "nan"
            infinite.add(sum(one < 0 for one in factors) % 2)
    if len(infinite) > 1:
        return "nan"
    return infinite.pop() if infinite else None


def summed(pairs, c, kinds, fraction, kept, divides=0):
    """The bits of D: pairs of codes of A and B, and the code of C, which is divided by two to the power of divides."""
    d, left, right = kinds
    numbers = [(number_of(left, a), number_of(right, b)) for a, b in pairs]
    rest = number_of(d, c)
    found = decided([(one[0], other[0]) for one, other in numbers] + [(rest[0],)])
    if found == "nan":
        return NAN[d]
    if found is not None:
        return INFINITY[d] | found << BITS[d] - 1
    rest = (rest[0] / 2**divides, None if rest[1] is None else rest[1] - divides)
    terms = [(a * b, None if i is None or j is None else i + j) for (a, i), (b, j) in numbers] + [rest]
    return cut_and_added(terms, d, fraction, kept)


def cut_and_added(terms, d, fraction, kept):
    largest = max((exponent for _, exponent in terms if exponent is not None), default=None)
    if largest is None:
        return 0
    return encoded(sum(cut(value, largest - fraction) for value, _ in terms), d, kept)


def scale_of(kind, code):
    """A scale factor and its exponent."""
    if kind == "ue4m3":
        return number_of("e4m3", code)
    return ("nan", None) if code == 255 else (Fraction(2) ** (code - 127), code - 127)


def summed_scaled(pairs, scales, c, kinds, scale):
    """The bits of D: pairs of codes of A and B, pairs of codes of their scale factors, one for each block of elements,
    and the code of C. Of several blocks 16 products are one exact number, which has its factors' exponents."""
    numbers = [(number_of(kinds[1], a), number_of(kinds[2], b)) for a, b in pairs]
    factors = [(scale_of(scale, a), scale_of(scale, b)) for a, b in scales]
    rest = number_of(kinds[0], c)
    every = [(one[0], other[0]) for one, other in numbers] + [(rest[0],)]
    found = "nan" if any("nan" in (one[0], other[0]) for one, other in factors) else decided(every)
    if found is not None:
        return NAN["f32"] if found == "nan" else INFINITY["f32"] | found << 31
    each, terms = len(numbers) // len(factors), [rest]
    for block, ((sa, i), (sb, j)) in enumerate(factors):
        some = numbers[block * each : (block + 1) * each]
        if len(factors) == 1:
            terms += [(a * b * sa * sb, ea + eb + i + j) for (a, ea), (b, eb) in some if a * b]
            continue
        for low in range(0, each, 16):
            value = sum(a * b for (a, _), (b, _) in some[low : low + 16]) * sa * sb
            terms.append((value, i + j if value else None))
    return cut_and_added(terms, "f32", 25 if len(factors) == 1 else 35, 23)


def summed_as_halves(pairs, c, kinds):
    """mma.sync of 8-bit floats: of each four elements the first two are summed as float16, then the others; C comes
    last, by an addition of its own."""
    d, code = kinds[0], 0
    halves = [tuple(half_of(kind, one) for kind, one in zip(kinds[1:], pair, strict=True)) for pair in pairs]
    for some in ((0, 1), (2, 3)):
        chosen = [pair for at, pair in enumerate(halves) if at % 4 in some]
        code = summed(chosen, code, (d, "f16", "f16"), 25, 23)
    return added(code, c, d)


def half_of(kind, code):
    """An 8-bit float as float16, which has all of them."""
    value, _ = number_of(kind, code)
    if value == "nan":
        return NAN["f16"]
    if isinstance(value, float):
        return INFINITY["f16"] | (value < 0) << 15
    return encoded(value, "f16", 10) | code >> 7 << 15


def added(one, other, kind):
    """The bits of a sum, rounded to the nearest, ties to even."""
    values = [number_of(kind, code)[0] for code in (one, other)]
    found = decided([(value,) for value in values])
    if found == "nan":
        return NAN[kind]
    if found is not None:
        return INFINITY[kind] | found << BITS[kind] - 1
    if one == other == 1 << BITS[kind] - 1:
        return one
    return encoded(sum(values), kind, FORMATS[kind][1], is_nearest=True)


def encoded(value, kind, kept, is_nearest=False):
    """The bits of a number: of f32 toward zero, unless is_nearest; of f16 to the nearest, ties to even."""
    exponents, bits = FORMATS[kind]
    least = 2 - (1 << exponents - 1)
    size = Fraction(abs(value))
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, least)
    exponent += size >= Fraction(2) ** (exponent + 1)
    unit = exponent - (min(bits, kept) if kind == "f32" else bits)
    whole = cut(size, unit)
    if kind == "f16" or is_nearest:
        rest, half = size - whole, Fraction(2) ** (unit - 1)
        whole += Fraction(2) ** unit * (rest > half or (rest == half and whole / Fraction(2) ** unit % 2 == 1))
    code = int(whole / Fraction(2) ** (least - bits))
    top, shift = 1 << bits + 1, 0
    while code >= top:
        code, shift = code // 2, shift + 1
    code += shift << bits
    code = min(code, INFINITY.get(kind, code))
    return code | (value < 0) << BITS[kind] - 1


def whole_of(kind, code):
    """The value of an integer."""
    bits = BITS[kind]
    return code - (1 << bits) if kind[0] == "s" and code >> bits - 1 else code


def summed_integers(pairs, c, kinds, saturates):
    total = sum(whole_of(kinds[1], a) * whole_of(kinds[2], b) for a, b in pairs) + whole_of("s32", c)
    if saturates:
        total = max(-(1 << 31), min((1 << 31) - 1, total))
    return total % (1 << 32)


# Where elements are


def element_of_lanes(bits, row, column, rows, beside=1):
    """Lane, register and shift of an element. rows: of the matrix that one warp holds; beside: registers that follow
    each other along a row."""
    each = 32 // bits
    warp, row = divmod(row, rows)
    lane = 32 * warp + row % 8 * 4 + column // (each * beside) % 4
    block = column // (4 * each * beside) * (rows // 8) + row // 8
    register = block * beside + column // each % beside
    return lane, register, column % each * bits


def element_of_image(image, kind, start, row, depth, is_transposed=False):
    """An element of a matrix without a swizzle in shared memory: bytes of an image."""
    size = BITS[kind] // 8
    if is_transposed:
        at = start + row // 8 * STRIDE + depth // 8 * LEADING + depth % 8 * 16 + row % 8 * size
    else:
        at = start + row // 8 * STRIDE + depth * size // 16 * LEADING + row % 8 * 16 + depth * size % 16
    return int.from_bytes(bytes(image[at : at + size]), "little")


@dataclass(frozen=True)
class Operands:
    """What one tile of a form gets: the image of shared memory, and the words of each lane behind the descriptors."""

    form: object
    image: object
    words: object

    @property
    def rows(self):
        """Rows that one warp holds."""
        return 8 if ".m8n8" in self.form.name else 16

    def held(self, register, row, column, rows, beside=1):
        """An element in a lane's registers of a name; None if the form has none."""
        at = 4 * self.form.descriptors
        for name, count, kind in self.form.given:
            if name == register:
                lane, word, shift = element_of_lanes(BITS[kind], row, column, rows, beside)
                return int(self.words[lane, at + word]) >> shift & (1 << BITS[kind]) - 1
            at += count
        return None

    def factors(self, row, column):
        """Codes of A and B along the depth."""
        form = self.form
        for k in range(form.depth):
            pair = [self.held("a", row, k, self.rows), self.held("b", column, k, 8)]
            starts, lines = (0, IMAGE_A), (row, column)
            for side, code in enumerate(pair):
                if code is None:
                    how = (form.kinds[1 + side], starts[side], lines[side], k, form.turned[side])
                    pair[side] = element_of_image(self.image, *how)
                if form.signs[side] < 0:
                    pair[side] ^= 1 << BITS[form.kinds[1 + side]] - 1
            yield tuple(pair)

    def result(self, row, column):
        """The bits of an element of D."""
        d, form, pairs = self.form.kinds[0], self.form, list(self.factors(row, column))
        code = self.held("c", row, column, self.rows, BITS[d] // 16) if form.keeps else 0
        is_8 = form.kinds[1] in ("e4m3", "e5m2")
        for _ in range(form.times):
            if d == "s32":
                code = summed_integers(pairs, code, form.kinds, form.saturates)
                continue
            if is_8 and form.lanes == 32:
                code = summed_as_halves(pairs, code, form.kinds)
            else:
                code = summed(pairs, code, form.kinds, *((13, 13) if is_8 else (25, 23)))
        return code


def result_in(out, form, row, column):
    """An element of D in the words that a tile left."""
    bits, rows = BITS[form.kinds[0]], 8 if ".m8n8" in form.name else 16
    lane, word, shift = element_of_lanes(bits, row, column, rows, bits // 16)
    return int(out[lane, word]) >> shift & (1 << bits) - 1
