"""Vectors of floats in all modes: exact results as Python's fractions, rounded here in the direction that is asked for."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import simulator_oracle as oracle
from simulator_bench import SAMPLES, Array, Vector
from simulator_oracle import FORMATS, Format, is_infinite, is_nan, value
from simulator_vectors_float import column as whole_column
from simulator_vectors_integer import samples as whole_samples
from simulator_vectors_integer import signed, wrap

DIFFERENT = 256
"""Fractions are slow: so many samples are different, and repeated."""
DIRECTIONS = ("rn", "rz", "rm", "rp")


def column(kind: Format, role: int) -> Array:
    return np.tile(whole_column(kind, role)[:DIFFERENT], SAMPLES // DIFFERENT)


def samples(bits: int, role: int) -> Array:
    return np.tile(whole_samples(bits, role)[-DIFFERENT:], SAMPLES // DIFFERENT)


def each(function: Callable[..., int], *columns: Array) -> Array:
    """The function of every sample."""
    rows = zip(*(one[:DIFFERENT].tolist() for one in columns), strict=True)
    return np.tile(np.array([function(*row) for row in rows], np.uint64), SAMPLES // DIFFERENT)


def toward(number: Fraction, kind: Format, direction: str, negative_zero: bool = False) -> int:
    """The pattern that a number is rounded to."""
    if number == 0:
        return kind.sign if negative_zero else 0
    negative, size = number < 0, abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    exponent = max(exponent, 1 - kind.bias)
    whole, rest = divmod(size, Fraction(2) ** (exponent - kind.mantissa_bits))
    rest /= Fraction(2) ** (exponent - kind.mantissa_bits)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rz": False,
        "rm": rest > 0 and negative,
        "rp": rest > 0 and not negative,
    }[direction]
    whole = int(whole) + up
    if whole >> kind.precision:
        whole, exponent = whole >> 1, exponent + 1
    sign = kind.sign if negative else 0
    if exponent > kind.bias:
        goes_on = direction == "rn" or (direction == "rm" and negative) or (direction == "rp" and not negative)
        return sign | (kind.infinity if goes_on else kind.infinity - 1)
    if whole >> kind.mantissa_bits == 0:
        return sign | whole
    return sign | (exponent + kind.bias) << kind.mantissa_bits | (whole & ((1 << kind.mantissa_bits) - 1))


def cleared(bits: int, kind: Format) -> int:
    return bits if bits & kind.infinity else bits & kind.sign


def root(number: Fraction) -> Fraction:
    """A square root, with far more bits than any format has, and a last one that says whether there were more."""
    shift = 400
    whole = math.isqrt(number.numerator * number.denominator << 2 * shift)
    exact = whole * whole == number.numerator * number.denominator << 2 * shift
    return Fraction(2 * whole + (not exact), 2 * number.denominator << shift)


ONE = {name: kind.bias << kind.mantissa_bits for name, kind in FORMATS.items()}


def nearest(word: str, row: tuple[int, ...], kind: Format) -> int:
    """Nearest even; special values are the same in all directions."""
    if word == "sub":
        return oracle.subtract(*row, kind)
    if word in ("fma", "mad"):
        return oracle.fused(*row, kind)
    if word == "rcp":
        return oracle.quotient(ONE[kind.name], row[0], kind)
    if word == "sqrt":
        if is_nan(row[0], kind) or (row[0] & kind.sign and row[0] != kind.sign):
            return kind.quiet
        if is_infinite(row[0], kind) or row[0] == kind.sign:
            return row[0]
        return toward(root(value(row[0], kind)), kind, "rn")
    functions = {"add": oracle.add, "mul": oracle.multiply, "div": oracle.quotient}
    return functions[word](*row, kind)


def computed(word: str, row: tuple[int, ...], kind: Format, direction: str, flush: bool, last: str) -> int:
    row = tuple(cleared(one, kind) if flush else one for one in row)
    found = nearest(word, row, kind)
    if direction == "rn" and word in ("add", "mul"):
        found = oracle.of_hardware(found, row[0], row[1], kind)
    special = any(is_nan(one, kind) or is_infinite(one, kind) for one in row) or is_nan(found, kind)
    if not special and not (word in ("div", "rcp") and row[-1] & ~kind.sign == 0):
        x, *rest = (value(one, kind) for one in row)
        exact = {
            "add": lambda: x + rest[0],
            "sub": lambda: x - rest[0],
            "mul": lambda: x * rest[0],
            "fma": lambda: x * rest[0] + rest[1],
            "mad": lambda: x * rest[0] + rest[1],
            "div": lambda: x / rest[0],
            "rcp": lambda: 1 / x,
            "sqrt": lambda: root(x),
        }[word]()
        negative_zero = found == kind.sign
        cancels = word in ("add", "sub", "fma", "mad") and exact == 0 and found == 0
        if cancels and direction == "rm" and not _all_plus(word, row, kind):
            negative_zero = True
        found = toward(exact, kind, direction, negative_zero)
    if flush:
        found = cleared(found, kind)
    if last == ".sat":
        return 0 if is_nan(found, kind) or found & kind.sign else min(found, ONE[kind.name])
    if last == ".relu" and not is_nan(found, kind) and found & kind.sign:
        return 0
    return found


def _all_plus(word: str, row: tuple[int, ...], kind: Format) -> bool:
    """Whether +0 came of +0 alone."""
    if word in ("fma", "mad"):
        zero = not (row[0] & ~kind.sign and row[1] & ~kind.sign)
        return zero and not (row[0] ^ row[1]) & kind.sign and row[2] == 0
    return row[0] == 0 and row[1] == (kind.sign if word == "sub" else 0)


COUNTS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}


def results(word: str, kind: Format, direction: str, flush: str, last: str) -> tuple[list[Array], Array]:
    """Operands of an operation, and what it makes of them."""
    columns = [column(kind, role) for role in range(COUNTS[word])]
    return columns, each(lambda *row: computed(word, row, kind, direction, bool(flush), last), *columns)


def modes() -> Iterator[Vector]:
    forms = product(COUNTS, ("f32", "f64"), DIRECTIONS, ("", ".ftz"), ("", ".sat"))
    for word, name, direction, flush, sat in forms:
        if (name == "f64" and (flush or sat)) or (sat and word in ("div", "rcp", "sqrt")):
            continue
        way = "" if word in ("add", "sub", "mul") and direction == "rn" else f".{direction}"
        columns, found = results(word, FORMATS[name], direction, flush, sat)
        ending = f"{flush}{sat}.{name}"
        yield _vector(f"{word}{way}{ending}", f"{word}.{direction}{ending}", columns, found, f"b{name[1:]}")


def _vector(key: str, spelled: str, columns: list[Array], found: Array, home: str, source: str = "") -> Vector:
    names = "abc"[: len(columns)]
    inputs = tuple((n, source or home, c) for n, c in zip(names, columns, strict=True))
    return Vector(key, "plain", f"{spelled} d, {', '.join(names)};", inputs, (("d", home, found),))


def flushed() -> Iterator[Vector]:
    for name in ("f32", "f16"):
        kind = FORMATS[name]
        a, b = column(kind, 0), column(kind, 1)
        plain = np.where((a & (kind.sign - 1)) > kind.infinity, ONE[name], a).astype(
            a.dtype
        )  # of NaN any bits may come
        made = {
            "neg.ftz": ([plain], each(lambda x, k=kind: cleared(x, k) ^ k.sign, plain)),
            "abs.ftz": ([plain], each(lambda x, k=kind: cleared(x, k) & ~k.sign, plain)),
        }
        for word, nan in product(("min", "max"), ("", ".NaN")):

            def pick(x: int, y: int, kind: Format = kind, word: str = word, nan: str = nan) -> int:
                return oracle.extreme(cleared(x, kind), cleared(y, kind), kind, word == "max", bool(nan))

            made[f"{word}.ftz{nan}"] = [a, b], each(pick, a, b)
        for form, (columns, found) in made.items():
            if name == "f32":
                yield _vector(f"{form}.f32", f"{form}.f32", columns, found, "b32")
            else:
                yield from _halves_of(f"{form}.f16", columns, found)


def _halves_of(key: str, columns: list[Array], found: Array, spelled: str = "") -> Iterator[Vector]:
    """One half, and two side by side."""
    yield _vector(key, spelled or key, columns, found, "b16")
    both = [one.astype(np.uint32) | np.roll(one, 5).astype(np.uint32) << np.uint32(16) for one in columns]
    yield _vector(f"{key}x2", f"{spelled or key}x2", both, found | np.roll(found, 5) << np.uint64(16), "b32")


def halves() -> Iterator[Vector]:
    forms = [*product(("add", "sub", "mul"), ("rn",), ("", ".ftz"), ("", ".sat"), ("f16",))]
    forms += product(("fma",), ("rn",), ("", ".ftz"), ("", ".sat", ".relu"), ("f16",))
    forms = [one for one in forms if one[2] or one[3]] + [("fma", "rn", "", ".relu", "bf16")]
    forms += product(("fma",), ("rz", "rm", "rp"), ("",), ("", ".relu"), ("bf16",))
    for word, direction, flush, last, name in forms:
        way = f".{direction}" if word == "fma" else ""
        ending = f"{flush}{last}.{name}"
        columns, found = results(word, FORMATS[name], direction, flush, last)
        yield from _halves_of(f"{word}{way}{ending}", columns, found, f"{word}.{direction}{ending}")


def side_by_side() -> Iterator[Vector]:
    for word, direction, flush in product(("add", "sub", "mul", "fma"), DIRECTIONS, ("", ".ftz")):
        columns, found = results(word, FORMATS["f32"], direction, flush, "")
        wide = [one.astype(np.uint64) | np.roll(one, 3).astype(np.uint64) << np.uint64(32) for one in columns]
        way = "" if word != "fma" and direction == "rn" else f".{direction}"
        both = found | np.roll(found, 3) << np.uint64(32)
        yield _vector(f"{word}{way}{flush}.f32x2", f"{word}.{direction}{flush}.f32x2", wide, both, "b64")


def questions() -> Iterator[Vector]:
    for name in ("f32", "f64"):
        kind = FORMATS[name]
        a, b = column(kind, 0), column(kind, 1)
        tests: dict[str, Callable[[int], bool]] = {
            "finite": lambda x, kind=kind: not is_nan(x, kind) and not is_infinite(x, kind),  # type: ignore[misc]
            "infinite": lambda x, kind=kind: is_infinite(x, kind),  # type: ignore[misc]
            "number": lambda x, kind=kind: not is_nan(x, kind),  # type: ignore[misc]
            "notanumber": lambda x, kind=kind: is_nan(x, kind),  # type: ignore[misc]
            "normal": lambda x, kind=kind: 0 < x & kind.infinity < kind.infinity,  # type: ignore[misc]
            "subnormal": lambda x, kind=kind: x & kind.infinity == 0 and x & ~kind.sign != 0,  # type: ignore[misc]
        }
        for word, function in tests.items():
            found = np.array([function(x) for x in a.tolist()])
            key = f"testp.{word}.{name}"
            yield Vector(key, "plain", f"{key} d, a;", (("a", f"b{kind.bits}", a),), (("d", "pred", found),))
        found = np.array(
            [(x & kind.sign) | (y & ~kind.sign) for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.uint64
        )
        yield _vector(f"copysign.{name}", f"copysign.{name}", [a, b], found, f"b{kind.bits}")


# Conversions

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
WHOLE: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def home_of(name: str) -> str:
    return f"b{max(16, int(name.lstrip('busf')))}"


def shaped(bits: int, kind: Format, flush: bool, last: str) -> int:
    if flush and kind.name == "f32":
        bits = cleared(bits, kind)
    if last == ".sat":
        return 0 if is_nan(bits, kind) or bits & kind.sign else min(bits, ONE[kind.name])
    if last == ".relu" and not is_nan(bits, kind) and bits & kind.sign:
        return 0
    return bits


def converted(bits: int, source: Format, target: Format, direction: str, flush: bool, last: str) -> int:
    if flush and source.name == "f32":
        bits = cleared(bits, source)
    if is_nan(bits, source) or is_infinite(bits, source):
        found = oracle.convert(bits, source, target)
    else:
        found = toward(value(bits, source), target, direction, bool(bits & source.sign))
    return shaped(found, target, flush, last)


def conversions() -> Iterator[Vector]:
    forms = [(t, s, d, f, last) for (t, s), d, f, last in product(
        [("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64")], DIRECTIONS, ("", ".ftz"), ("", ".sat", ".relu"))]  # fmt: skip
    for target, source, direction, flush, last in forms:
        if (flush and "f32" not in (target, source)) or (last == ".sat" and target == "bf16"):
            continue
        if last == ".relu" and (flush or target == "f32" or source != "f32" or direction not in ("rn", "rz")):
            continue
        yield _conversion(target, source, f".{direction}", direction, flush, last)
    widening = [
        ("f32", "f16"),
        ("f32", "bf16"),
        ("f64", "f32"),
        ("f64", "f16"),
        ("f32", "f32"),
        ("f64", "f64"),
        ("f16", "f16"),
    ]
    for (target, source), flush, last in product(widening, ("", ".ftz"), ("", ".sat")):
        if not (flush and "f32" not in (target, source)) and not (last and source == "bf16"):
            yield _conversion(target, source, "", "rn", flush, last)
    for name, word, flush, last in product(("f16", "f32", "f64"), WHOLE, ("", ".ftz"), ("", ".sat")):
        if flush and name != "f32":
            continue
        kind = FORMATS[name]
        a = column(kind, 0)

        def whole(bits: int, kind: Format = kind, word: str = word, flush: str = flush, last: str = last) -> int:
            bits = cleared(bits, kind) if flush else bits
            if is_nan(bits, kind) or is_infinite(bits, kind):
                rounded = oracle.convert(bits, kind, kind)
            else:
                rounded = toward(Fraction(WHOLE[word](value(bits, kind))), kind, "rn", bool(bits & kind.sign))
            return shaped(rounded, kind, bool(flush), last)

        found = each(whole, a)
        key = f"cvt.{word}{flush}{last}.{name}.{name}"
        yield _vector(key, key, [a], found, f"b{kind.bits}")
    for name, direction, last in product(("f16", "bf16"), ("rn", "rz"), ("", ".relu")):
        if direction == "rn" and not last:
            continue
        columns = [column(FORMATS["f32"], role) for role in (0, 1)]
        high, low = (
            each(lambda x, h=(FORMATS["f32"], FORMATS[name], direction, False, last): converted(x, *h), one)
            for one in columns
        )
        key = f"cvt.{direction}{last}.{name}x2.f32"
        yield _vector(key, key, columns, high << np.uint64(16) | low, "b32")


def _conversion(target: str, source: str, way: str, direction: str, flush: str, last: str) -> Vector:
    a = column(FORMATS[source], 0)
    pair = FORMATS[source], FORMATS[target]
    found = each(lambda x: converted(x, *pair, direction, bool(flush), last), a)
    key = f"cvt{way}{flush}{last}.{target}.{source}"
    return _vector(key, key, [a], found, f"b{FORMATS[target].bits}", f"b{FORMATS[source].bits}")


def as_large_as_integers(kind: Format) -> Array:
    """Anything, and numbers with fractions up to those of more than 64 bits."""
    rng = random.Random(f"integers {kind.name}")
    values = whole_column(kind, 1)[:DIFFERENT].copy()
    for number in range(0, DIFFERENT, 2):
        exponent = min(kind.bias + rng.randrange(-2, 68 if number % 4 else 36), 2 * kind.bias)
        drawn = rng.getrandbits(1) << (kind.bits - 1) | rng.getrandbits(kind.mantissa_bits)
        values[number] = drawn | exponent << kind.mantissa_bits
    return np.tile(values, SAMPLES // DIFFERENT)


def to_integers() -> Iterator[Vector]:
    for target, source, word, flush, last in product(
        INTEGERS, ("f16", "bf16", "f32", "f64"), WHOLE, ("", ".ftz"), ("", ".sat")
    ):
        if (flush and source != "f32") or (source == "bf16" and (last or target.endswith("8"))):
            continue
        bits, kind = int(target[1:]), FORMATS[source]
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
        undefined = 0 if source != "f64" and bits <= 32 else 1 << (bits - 1)
        a = as_large_as_integers(kind)
        home = int(home_of(target)[1:])
        nothing = signed(undefined, bits) if target[0] == "s" else undefined

        def whole(
            one: int,
            k: Format = kind,
            flush: str = flush,
            word: str = word,
            ends: tuple[int, ...] = (low, high, nothing, home),
        ) -> int:
            low, high, nothing, home = ends
            one = cleared(one, k) if flush else one
            if is_nan(one, k):
                return wrap(nothing, home)
            if is_infinite(one, k):
                return wrap(low if one & k.sign else high, home)
            return wrap(max(low, min(high, WHOLE[word](value(one, k)))), home)

        key = f"cvt.{word}{flush}{last}.{target}.{source}"
        yield _vector(key, key, [a], each(whole, a), home_of(target), f"b{kind.bits}")


def from_integers() -> Iterator[Vector]:
    for target, source, direction in product(("f16", "bf16", "f32", "f64"), INTEGERS, DIRECTIONS):
        if target == "bf16" and source.endswith("8"):
            continue
        bits, kind = int(source[1:]), FORMATS[target]
        a = samples(bits, 0)
        given = a.astype(np.uint16) if bits == 8 else a
        for last in ("", ".sat") if target != "bf16" else ("",):

            def rounded(one: int, h: tuple[str, int, Format, str, str] = (source, bits, kind, direction, last)) -> int:
                number = signed(one, h[1]) if h[0][0] == "s" else one
                return shaped(toward(Fraction(number), h[2], h[3]), h[2], False, h[4])

            key = f"cvt.{direction}{last}.{target}.{source}"
            found = each(rounded, a)
            yield _vector(key, key, [given], found, f"b{kind.bits}", home_of(source))
            if target == "f32":
                key = f"cvt.{direction}.ftz{last}.{target}.{source}"
                yield _vector(key, key, [given], found, "b32", home_of(source))


def saturating() -> Iterator[Vector]:
    for target, source in product(INTEGERS, INTEGERS):
        bits, to = int(source[1:]), int(target[1:])
        fits = bits < to and (target[0] == "s" or source[0] == "u")
        if fits or target == source:
            continue
        low, high = (-(1 << (to - 1)), (1 << (to - 1)) - 1) if target[0] == "s" else (0, (1 << to) - 1)
        a = samples(bits, 0)
        home = int(home_of(target)[1:])
        found = [wrap(max(low, min(high, signed(x, bits) if source[0] == "s" else x)), home) for x in a.tolist()]
        key = f"cvt.sat.{target}.{source}"
        given = a.astype(np.uint16) if bits == 8 else a
        yield _vector(key, key, [given], np.array(found, np.uint64), home_of(target), home_of(source))


def family() -> list[Vector]:
    parts = (modes(), flushed(), halves(), side_by_side(), questions())
    return [vector for part in parts for vector in part]


def family_conversions() -> list[Vector]:
    parts = (conversions(), to_integers(), from_integers(), saturating())
    return [vector for part in parts for vector in part]
