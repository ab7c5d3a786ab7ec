"""Vectors of 8-bit floats' conversions: by the fractions of oracle.py, which test_float8 holds against ml_dtypes."""

import random
from itertools import pairwise

import numpy as np

import tests.simulator.isa.oracle as oracle
from tests.simulator.bench import SAMPLES
from tests.simulator.isa.oracle import F16, F32, FORMATS8
from tests.simulator.isa.vectors_float import column
from tests.simulator.isa.vectors_integer import vectors_of


def near_codes(source, kind, salt):
    """Patterns on, just below and just above codes and the middles between them, the largest and what lies beyond."""
    rng = random.Random(f"{source.name} {kind.name} {salt}")
    values = oracle.finite8(kind)
    beyond = [values[-1] + (values[-1] - values[-2]) * step / 2 for step in range(1, 5)]
    middles = [(low + high) / 2 for low, high in pairwise(values)]
    out = []
    for number in range(SAMPLES):
        pool = (values, middles, middles, beyond)[number % 4]
        bits = oracle.nearest(rng.choice(pool), source) + rng.choice((-1, 0, 0, 1))
        out.append(max(bits, 0) | (source.sign if rng.random() < 0.5 else 0))
    special = column(source, salt)
    for number in range(0, SAMPLES, 5):
        out[number] = int(special[number])
    return np.array(out, np.uint64).astype(f"u{source.bits // 8}")


def widening():
    """All codes, in both places."""
    lanes = np.arange(SAMPLES)
    pairs = ((lanes & 255) | (lanes * 37 + lanes // 256 & 255) << 8).astype(np.uint16)
    for kind in FORMATS8.values():

        def function(a, kind=kind):
            return oracle.widened(a & 255, kind, F16) | oracle.widened(a >> 8, kind, F16) << 16

        key = f"cvt.rn.f16x2.{kind.name}x2"
        yield from vectors_of(key, function, 32, (16,), [pairs], {0: [("0x7E81", 0x7E81)]})


def narrowing():
    for kind in FORMATS8.values():

        def from_f32(high, low, kind=kind):
            return oracle.narrowed(high, F32, kind) << 8 | oracle.narrowed(low, F32, kind)

        def from_f16(word, kind=kind):
            return oracle.narrowed(word >> 16, F16, kind) << 8 | oracle.narrowed(word & 0xFFFF, F16, kind)

        key = f"cvt.rn.satfinite.{kind.name}x2.f32"
        columns = [near_codes(F32, kind, 0), near_codes(F32, kind, 1)]
        constants = {0: [("0fFF800000", 0xFF800000)], 1: [("0f7FC00001", 0x7FC00001)]}
        yield from vectors_of(key, from_f32, 16, (32, 32), columns, constants)
        halves = [near_codes(F16, kind, salt).astype(np.uint32) for salt in (0, 1)]
        key = f"cvt.rn.satfinite.{kind.name}x2.f16x2"
        yield from vectors_of(key, from_f16, 16, (32,), [halves[0] | halves[1] << 16])


def family():
    return [vector for part in (widening(), narrowing()) for vector in part]
