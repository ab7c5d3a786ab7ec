"""Vectors of conversions. Integers by Python, floats by fractions; torch, ml_dtypes and struct beside them (test_numbers)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import simulator_oracle as oracle
from simulator_bench import SAMPLES, Array, Vector
from simulator_oracle import BF16, F16, F32, F64, Format, signed, wrap
from simulator_vectors_float import column, random_bits
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
                    for one in vectors_of(key, key, function, home, (origin,), [samples(origin, 0)], literals):
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
            yield from vectors_of(key, key, function, target.bits, (bits,), [values], literal)


def to_integers() -> Iterator[Vector]:
    """Towards zero, clamped; NaN gives 0, where either type has 64 bits the top bit."""
    for source in (F32, F64):
        rng = random.Random(f"rzi {source.name}")
        values = column(source, 0).copy()
        for number in range(0, SAMPLES, 2):
            exponent = source.bias + rng.randrange(-2, 68 if number % 4 else 36)
            mantissa = rng.getrandbits(source.mantissa_bits)
            values[number] = rng.getrandbits(1) << (source.bits - 1) | exponent << source.mantissa_bits | mantissa
        for target in ("u32", "s32", "u64", "s64"):
            bits = width(target)
            low, high = (0, (1 << bits) - 1) if target[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)

            def function(a: int, low: int = low, high: int = high, bits: int = bits, source: Format = source) -> int:
                if oracle.is_nan(a, source):
                    return 0 if source is F32 and bits == 32 else 1 << (bits - 1)
                if oracle.is_infinite(a, source):
                    return low if a & source.sign else high
                return max(low, min(high, int(oracle.value(a, source))))

            key = f"cvt.rzi.{target}.{source.name}"
            yield from vectors_of(key, key, function, bits, (source.bits,), [values])


def near_ties(kind: oracle.Format) -> Array:
    """float32 patterns on, just below and just above the middle between two neighbours of a narrower format."""
    rng = random.Random(f"ties {kind.name}")
    out = []
    for number in range(SAMPLES):
        bits = rng.getrandbits(kind.bits) & ~kind.sign
        if bits >= kind.infinity or number % 5 == 0:
            bits = rng.choice([0, 1, 2, kind.infinity - 1, (1 << kind.mantissa_bits) - 1, 1 << kind.mantissa_bits])
        here = oracle.value(bits, kind)
        above = (
            oracle.value(bits + 1, kind) if bits + 1 < kind.infinity else here + (here - oracle.value(bits - 1, kind))
        )
        middle = oracle.nearest((here + above) / 2, F32)
        out.append(max(0, middle + rng.choice((-1, 0, 0, 1))) | rng.getrandbits(1) << 31)
    return np.array(out, np.uint32)


def floats() -> Iterator[Vector]:
    for source, target in ((F16, F32), (BF16, F32), (F32, F64), (F16, F64), (BF16, F64)):
        key = f"cvt.{target.name}.{source.name}"
        yield from vectors_of(
            key,
            key,
            lambda a, source=source, target=target: oracle.convert(a, source, target),
            target.bits,
            (source.bits,),
            [column(source, 0)],
        )
    for target in (F32, F16, BF16):
        key = f"cvt.rn.{target.name}.f64"
        yield from vectors_of(
            key, key, lambda a, target=target: oracle.convert(a, F64, target), target.bits, (64,), [_doubles(target)]
        )
    for kind in (F16, BF16):

        def narrow(a: int, kind: oracle.Format = kind) -> int:
            return oracle.convert(a, F32, kind)

        key = f"cvt.rn.{kind.name}.f32"
        for name, values in (("", column(F32, 0)), ("ties_", near_ties(kind))):
            for one in vectors_of(key, key, narrow, 16, (32,), [values]):
                yield Vector(key, name + one.name, one.text, one.inputs, one.outputs)
        yield from vectors_of(
            f"cvt.rn.{kind.name}x2.f32",
            f"cvt.rn.{kind.name}x2.f32",
            lambda high, low, narrow=narrow: narrow(high) << 16 | narrow(low),
            32,
            (32, 32),
            [column(F32, 0), near_ties(kind)],
            {1: [("0f3FC00000", 0x3FC00000)], 0: [("0f7FC00001", 0x7FC00001)]},
        )


def _doubles(kind: Format) -> Array:
    """Random doubles, and doubles at the ties of a narrower format, subnormal ones too."""
    rng = random.Random(f"doubles {kind.name}")
    values = column(F64, 0).copy()
    for number in range(0, SAMPLES, 2):
        here = random_bits(kind, rng) & ~kind.sign
        if here >= kind.infinity - 1:
            here = rng.getrandbits(kind.mantissa_bits - 3)
        middle = (oracle.value(here, kind) + oracle.value(here + 1, kind)) / 2
        values[number] = (oracle.nearest(middle, F64) + rng.choice((-1, 0, 1))) | rng.getrandbits(1) << 63
    return values


def addresses() -> Iterator[Vector]:
    for key in ("cvta.global.u64", "cvta.to.global.u64"):
        yield from vectors_of(key, key, lambda a: a, 64, (64,))


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
    parts = (integers(), from_integers(), to_integers(), floats(), addresses(), canonical_only_where_seen())
    return [vector for part in parts for vector in part]
