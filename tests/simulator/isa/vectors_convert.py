"""Vectors of conversions. Integers by Python, floats by fractions; torch, ml_dtypes and struct beside them (test_numbers)."""

import math
import random
from functools import cache
from itertools import product

import numpy as np

import tests.simulator.isa.oracle as oracle
from tests.simulator.bench import SAMPLES, Vector
from tests.simulator.isa.oracle import BF16, F16, F32, F64, cleared, is_infinite, is_nan, signed, wrap
from tests.simulator.isa.vectors_float import DIRECTIONS, column, shaped
from tests.simulator.isa.vectors_integer import GUARD, alone, samples, vectors_of, width

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def register(bits):
    """Registers are at least 16 bits wide."""
    return max(bits, 16)


def integers():
    """A narrow source takes its register's low bits; a destination wider than its type is extended by the type's sign."""
    for source in INTEGERS:
        for target in INTEGERS:
            from_bits, to_bits = width(source), width(target)
            for home in sorted({register(to_bits), 32 if to_bits <= 32 else 64, 64}):

                def function(a, s=source, t=target, f=from_bits, n=to_bits, h=home):
                    number = signed(a, f) if s[0] == "s" else wrap(a, f)
                    return wrap(signed(number, n) if t[0] == "s" else wrap(number, n), h)

                for origin in sorted({register(from_bits), 32 if from_bits <= 32 else 64, 64}):
                    key = f"cvt.{target}.{source}"
                    literals = {0: [("100", 100), ("-3", wrap(-3, origin))]} if origin == register(from_bits) else {}
                    for one in vectors_of(key, function, home, (origin,), [samples(origin, 0)], literals):
                        if one.name != "plain" and home != register(to_bits):
                            continue  # the other dresses once a target
                        yield Vector(key, f"{one.name}_r{origin}_to_r{home}", one.text, one.inputs, one.outputs)


def near_ties(narrow, wide):
    """Anything, and patterns on, just below and just above the middle between two neighbours of a narrower format."""
    rng = random.Random(f"ties {narrow.name} {wide.name}")
    values = column(wide, 0).copy()
    ends = [0, 1, 2, narrow.infinity - 1, (1 << narrow.mantissa_bits) - 1, 1 << narrow.mantissa_bits]
    for number in range(0, SAMPLES, 2):
        here = rng.getrandbits(narrow.bits - 1)
        if here >= narrow.infinity or number % 5 == 0:
            here = rng.choice(ends)
        middle = (oracle.value(here, narrow) + oracle.value(here + 1, narrow)) / 2
        near = max(0, oracle.nearest(middle, wide) + rng.choice((-1, 0, 0, 1)))
        values[number] = near | (wide.sign if rng.random() < 0.5 else 0)
    return values


def floats():
    """From format to format: wider, narrower, the same; plain ones in all dresses."""
    narrowing = ((F32, F64), (F16, F64), (BF16, F64), (F16, F32), (BF16, F32))
    widening = ((F32, F16), (F32, BF16), (F64, F32), (F64, F16), (F64, BF16), (F32, F32), (F64, F64), (F16, F16))
    forms = [(*pair, direction) for pair in narrowing for direction in DIRECTIONS] + [(*pair, "") for pair in widening]
    for (target, source, direction), flush, last in product(forms, ("", ".ftz"), ("", ".sat", ".relu")):
        if (flush and F32 not in (target, source)) or (last == ".sat" and BF16 in (target, source)):
            continue
        if last == ".relu" and (flush or target is F32 or source is not F32 or direction not in ("rn", "rz")):
            continue
        key = f"cvt{'.' * bool(direction)}{direction}{flush}{last}.{target.name}.{source.name}"
        function = conversion(source, target, direction or "rn", flush, last)
        values, bits = near_ties(target, source) if direction else column(source, 0), (target.bits, (source.bits,))
        is_plain = not flush and not last and target is not source and direction in ("", "rn")
        yield from vectors_of(key, function, *bits, [values]) if is_plain else [alone(key, function, *bits, [values])]
    for kind, direction, last in product((F16, BF16), ("rn", "rz"), ("", ".relu")):
        one = conversion(F32, kind, direction, "", last)
        columns = [column(F32, 0), near_ties(kind, F32)]
        constants = {1: [("0f3FC00000", 0x3FC00000)], 0: [("0f7FC00001", 0x7FC00001)]}
        key = f"cvt.{direction}{last}.{kind.name}x2.f32"
        yield from vectors_of(
            key, lambda high, low, one=one: one(high) << 16 | one(low), 32, (32, 32), columns, constants
        )


def conversion(source, target, direction, flush, last):
    """.ftz is about f32, before and after."""

    def function(bits):
        bits = cleared(bits, source) if flush and source is F32 else bits
        found = oracle.convert(bits, source, target, direction)
        return shaped(found, target, bool(flush) and target is F32, last)

    return function


WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def limits(kind):
    bits = width(kind)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


@cache
def as_large_as_integers(kind):
    """Anything, and numbers with fractions up to those of more than 64 bits."""
    rng = random.Random(f"integers {kind.name}")
    values = column(kind, 1).copy()
    for number in range(0, SAMPLES, 2):
        exponent = min(kind.bias + rng.randrange(-2, 68 if number % 4 else 36), 2 * kind.bias)
        drawn = rng.getrandbits(1) << (kind.bits - 1) | rng.getrandbits(kind.mantissa_bits)
        values[number] = drawn | exponent << kind.mantissa_bits
    return values


def to_integers():
    """To integers, saturating; and to whole numbers of the same format."""
    forms = product(INTEGERS, (F16, BF16, F32, F64), WHOLE, ("", ".ftz"), ("", ".sat"))
    for target, kind, word, flush, last in forms:
        if (flush and kind is not F32) or (kind is BF16 and (last or target.endswith("8"))):
            continue
        bits, home = width(target), register(width(target))
        nothing = 0 if kind is not F64 and bits <= 32 else 1 << (bits - 1)
        nothing = signed(nothing, bits) if target[0] == "s" else nothing

        ends = (*limits(target), nothing)

        def whole(one, k=kind, flush=flush, word=word, ends=ends):
            low, high, nothing = ends
            one = cleared(one, k) if flush else one
            if is_nan(one, k):
                return nothing
            if is_infinite(one, k):
                return low if one & k.sign else high
            return max(low, min(high, WHOLE[word](oracle.value(one, k))))

        key = f"cvt.{word}{flush}{last}.{target}.{kind.name}"
        yield alone(key, whole, home, (kind.bits,), [as_large_as_integers(kind)])
    for kind, word, flush, last in product((F16, F32, F64), WHOLE, ("", ".ftz"), ("", ".sat")):

        def same(bits, kind=kind, word=word, flush=flush, last=last):
            bits = cleared(bits, kind) if flush else bits
            if is_nan(bits, kind) or is_infinite(bits, kind):
                return shaped(oracle.convert(bits, kind, kind), kind, False, last)
            found = oracle.rounded(WHOLE[word](oracle.value(bits, kind)), 0, kind, "rn")
            return shaped(found | bits & kind.sign, kind, False, last)

        if not flush or kind is F32:
            yield alone(
                f"cvt.{word}{flush}{last}.{kind.name}.{kind.name}", same, kind.bits, (kind.bits,), [column(kind, 0)]
            )


@cache
def near_ties_of_integers(bits, target):
    """Anything, and integers on ties of the format, just below and just above."""
    rng = random.Random(f"{bits}")
    values, kept = samples(bits, 0).copy(), target.precision
    for number in range(0, SAMPLES, 2) if bits > kept else ():
        size = rng.randrange(kept + 1, bits + 1)
        top = rng.getrandbits(kept) | 1 << (kept - 1)
        near = (top << (size - kept)) + (1 << (size - kept - 1)) + rng.choice((-1, 0, 1))
        values[number] = wrap(-near if rng.random() < 0.3 else near, bits)
    return values


def from_integers():
    """Rounded once, however many bits the integer has."""
    forms = product((F16, BF16, F32, F64), INTEGERS, DIRECTIONS, ("", ".ftz"), ("", ".sat"))
    for target, source, direction, flush, last in forms:
        if (target is BF16 and (source.endswith("8") or last)) or (flush and target is not F32):
            continue
        bits = width(source)

        def function(one, how=(source, bits, target, direction, last)):
            source, bits, target, direction, last = how
            number = signed(one, bits) if source[0] == "s" else one
            return shaped(oracle.rounded(number, 0, target, direction), target, False, last)

        key = f"cvt.{direction}{flush}{last}.{target.name}.{source}"
        values = near_ties_of_integers(bits, target).astype(f"u{register(bits) // 8}")
        how = (target.bits, (register(bits),), [values])
        is_plain = bits > 16 and target.bits > 16 and direction == "rn" and not flush and not last
        literal = {0: [("16777217", 16777217)]}
        yield from vectors_of(key, function, *how, literal) if is_plain else [alone(key, function, *how)]


def saturating():
    for target, source in product(INTEGERS, INTEGERS):
        bits = width(source)
        fits = bits < width(target) and (target[0] == "s" or source[0] == "u")
        if fits or target == source:
            continue

        ends = limits(target)

        def function(x, source=source, bits=bits, ends=ends):
            low, high = ends
            return max(low, min(high, signed(x, bits) if source[0] == "s" else x))

        values = samples(bits, 0).astype(f"u{register(bits) // 8}")
        yield alone(f"cvt.sat.{target}.{source}", function, register(width(target)), (register(bits),), [values])


def addresses():
    for key in ("cvta.global.u64", "cvta.to.global.u64"):
        yield from vectors_of(key, lambda a: a, 64, (64,))


def canonical_only_where_seen():
    """A NaN that float arithmetic hands on to float arithmetic and that is looked at in the end."""
    nan = np.full(SAMPLES, 0xFFC12345, np.uint32)
    text = "add.f32 x, a, b; mul.f32 x, x, b; cvt.rn.bf16.f32 d, x; mov.b32 e, x;"
    outputs = (("d", "b16", np.full(SAMPLES, 0x7FFF)), ("e", "b32", np.full(SAMPLES, 0x7FFFFFFF)))
    inputs = (("a", "b32", nan), ("b", "b32", column(F32, 1)))
    yield Vector("cvt.rn.bf16.f32", "nan_chain", text, inputs, outputs, registers=".reg .f32 x;")
    guarded = "mov.b32 x, a; @g add.f32 x, a, b; add.f32 x, x, 0f3F800000; mov.b32 e, x;"
    text, given = guarded + "cvt.rn.bf16.f32 d, x;", (*inputs, ("g", "pred", GUARD))
    yield Vector("cvt.rn.bf16.f32", "nan_chain_guarded", text, given, outputs, registers=".reg .f32 x;")


def family():
    return [*integers(), *floats(), *addresses(), *canonical_only_where_seen()]


def family_of_numbers():
    return [*to_integers(), *from_integers(), *saturating()]
