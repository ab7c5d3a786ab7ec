"""Vectors of conversions. Integers by Python, floats by fractions; torch, ml_dtypes and struct beside them (test_numbers)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import simulator_oracle as oracle
from simulator_bench import SAMPLES, Array, Vector
from simulator_oracle import BF16, F16, F32, F64, Format, signed, wrap
from simulator_vectors_float import column
from simulator_vectors_integer import GUARD, samples, vectors_of, width

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def register(bits: int) -> int:
    """Registers are at least 16 bits wide."""
    return max(bits, 16)


def integers() -> Iterator[Vector]:
    """A narrow source takes its register's low bits; a destination wider than its type is extended by the type's sign."""
    for source in INTEGERS:
        for target in INTEGERS:
            from_bits, to_bits = width(source), width(target)
            for home in sorted({register(to_bits), 32 if to_bits <= 32 else 64, 64}):

                def function(
                    a: int, s: str = source, t: str = target, f: int = from_bits, n: int = to_bits, h: int = home
                ) -> int:
                    number = signed(a, f) if s[0] == "s" else wrap(a, f)
                    return wrap(signed(number, n) if t[0] == "s" else wrap(number, n), h)

                for origin in sorted({register(from_bits), 32 if from_bits <= 32 else 64, 64}):
                    key = f"cvt.{target}.{source}"
                    literals = {0: [("100", 100), ("-3", wrap(-3, origin))]} if origin == register(from_bits) else {}
                    for one in vectors_of(key, function, home, (origin,), [samples(origin, 0)], literals):
                        if one.name != "plain" and home != register(to_bits):
                            continue  # the other dresses once a target
                        yield Vector(key, f"{one.name}_r{origin}_to_r{home}", one.text, one.inputs, one.outputs)


def from_integers() -> Iterator[Vector]:
    """Rounded once, however many bits the integer has: ties and near-ties around the last bit kept among them."""
    for source in ("u32", "s32", "u64", "s64"):
        bits = width(source)
        for target in (F32, F64):
            rng = random.Random(source)
            values = samples(bits, 0).copy()
            kept = target.precision
            for number in range(0, SAMPLES, 2) if bits > kept else ():
                size = rng.randrange(kept + 1, bits + 1)
                top = rng.getrandbits(kept) | 1 << (kept - 1)
                half = 1 << (size - kept - 1)
                near = (top << (size - kept)) + half + rng.choice((-1, 0, 1))
                values[number] = wrap(-near if rng.random() < 0.3 else near, bits)

            def function(a: int, source: str = source, bits: int = bits, target: Format = target) -> int:
                return oracle.nearest(oracle.Fraction(signed(a, bits) if source[0] == "s" else a), target)

            key = f"cvt.rn.{target.name}.{source}"
            literal = {0: [("16777217", 16777217)]}
            yield from vectors_of(key, function, target.bits, (bits,), [values], literal)


def near_ties(narrow: Format, wide: Format) -> Array:
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


def floats() -> Iterator[Vector]:
    forms = [
        (f"cvt.{to.name}", to, source) for to, source in ((F32, F16), (F32, BF16), (F64, F32), (F64, F16), (F64, BF16))
    ]
    narrowing = ((F32, F64), (F16, F64), (BF16, F64), (F16, F32), (BF16, F32))
    forms += [(f"cvt.rn.{to.name}", to, source) for to, source in narrowing]
    for form, target, source in forms:

        def converted(a: int, source: Format = source, target: Format = target) -> int:
            return oracle.convert(a, source, target)

        values = near_ties(target, source) if ".rn" in form else column(source, 0)
        yield from vectors_of(f"{form}.{source.name}", converted, target.bits, (source.bits,), [values])
    for kind in (F16, BF16):

        def two(high: int, low: int, kind: Format = kind) -> int:
            return oracle.convert(high, F32, kind) << 16 | oracle.convert(low, F32, kind)

        columns = [column(F32, 0), near_ties(kind, F32)]
        literals = {1: [("0f3FC00000", 0x3FC00000)], 0: [("0f7FC00001", 0x7FC00001)]}
        yield from vectors_of(f"cvt.rn.{kind.name}x2.f32", two, 32, (32, 32), columns, literals)


def addresses() -> Iterator[Vector]:
    for key in ("cvta.global.u64", "cvta.to.global.u64"):
        yield from vectors_of(key, lambda a: a, 64, (64,))


def canonical_only_where_seen() -> Iterator[Vector]:
    """A NaN that float arithmetic hands on to float arithmetic and that is looked at in the end."""
    nan = np.full(SAMPLES, 0xFFC12345, np.uint32)
    text = "add.f32 x, a, b; mul.f32 x, x, b; cvt.rn.bf16.f32 d, x; mov.b32 e, x;"
    outputs = (("d", "b16", np.full(SAMPLES, 0x7FFF)), ("e", "b32", np.full(SAMPLES, 0x7FFFFFFF)))
    inputs = (("a", "b32", nan), ("b", "b32", column(F32, 1)))
    yield Vector("cvt.rn.bf16.f32", "nan_chain", text, inputs, outputs, registers=".reg .f32 x;")
    guarded = "mov.b32 x, a; @g add.f32 x, a, b; add.f32 x, x, 0f3F800000; mov.b32 e, x;"
    yield Vector(
        "cvt.rn.bf16.f32",
        "nan_chain_guarded",
        guarded + "cvt.rn.bf16.f32 d, x;",
        (*inputs, ("g", "pred", GUARD)),
        outputs,
        registers=".reg .f32 x;",
    )


def family() -> list[Vector]:
    parts = (integers(), from_integers(), floats(), addresses(), canonical_only_where_seen())
    return [vector for part in parts for vector in part]
