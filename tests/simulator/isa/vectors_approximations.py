"""Vectors of the GPU's approximations: the value nearest to the exact one, which is within every bound of the PTX ISA.

The oracle is Python's math in float64, whose functions are not NumPy's, with which the simulator computes.
"""

import math
import random

import ml_dtypes
import numpy as np

from tests.simulator.bench import SAMPLES, Vector
from tests.simulator.isa.oracle import FORMATS
from tests.simulator.isa.vectors_float import column

TINY = 2.0**-126
"""The smallest normal f32 and bf16."""
EDGES = [0.0, math.inf, math.nan, 1e-40, 2.0**127, 2.0**126, 2.0**126 * 1.5, 2.0**-127, 130.0, 149.0, 1.0, 0.5, 2.0]
RANGES = ((-7, 7), (0.5, 2), (-150, 150), (-320, 320))
"""Where the functions have their interesting parts."""
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def quotient(x, y):
    if y == 0:
        return math.copysign(math.inf, x) * math.copysign(1, y) if x and not math.isnan(x) else math.nan
    return x / y


def total(function):
    """The function as IEEE has it where Python raises."""

    def found(x):
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return found


EXACT = {
    "rcp": lambda x: quotient(1.0, x),
    "sqrt": total(math.sqrt),
    "rsqrt": lambda x: quotient(1.0, total(math.sqrt)(x)),
    "sin": total(math.sin),
    "cos": total(math.cos),
    "lg2": lambda x: -math.inf if x == 0 else total(math.log2)(x),
    "ex2": total(lambda x: math.exp2(x)),
    "tanh": math.tanh,
}


def flushed(values):
    return np.where(np.abs(values) < TINY, np.copysign(0, values), values)


def nearest(exact, name, flush):
    """The bits of the values nearest to these; NaN is the canonical one."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.array(exact) if name != "f32" else np.array(exact).astype(np.float32)
        found = (flushed(found) if flush else found).astype(DTYPES[name])
    quiet = FORMATS[name].quiet
    return np.where(np.isnan(exact), quiet, found.view("u4" if name == "f32" else "u2"))


def drawn(name, role):
    """Bits of anything, of edges, and of numbers in RANGES."""
    rng = random.Random(f"approximations {name} {role}")
    numbers = [sign * one for one in EDGES for sign in (1, -1)]
    numbers += [rng.uniform(*RANGES[at % len(RANGES)]) for at in range(SAMPLES // 2)]
    bits = column(FORMATS[name], role).copy()
    with np.errstate(over="ignore"):
        bits[: len(numbers)] = np.array(numbers).astype(DTYPES[name]).view(bits.dtype)
    return bits


def values(bits, name, flush):
    with np.errstate(invalid="ignore"):  # signalling NaN
        numbers = bits.view(DTYPES[name]).astype(np.float64)
    return flushed(numbers) if flush else numbers


def functions():
    forms = [(word, "f32", flush) for word in EXACT for flush in ("", ".ftz") if word != "tanh" or not flush]
    forms += [("ex2", "f16", ""), ("ex2", "bf16", ".ftz"), ("tanh", "f16", ""), ("tanh", "bf16", "")]
    for word, name, flush in forms:
        key, home = f"{word}.approx{flush}.{name}", f"b{FORMATS[name].bits}"
        for role in range(3):
            given = drawn(name, role)
            found = nearest([EXACT[word](x) for x in values(given, name, bool(flush)).tolist()], name, bool(flush))
            yield Vector(key, f"{role}", f"{key} d, a;", (("a", home, given),), (("d", home, found),))
            if name != "f32":
                both = [one.astype(np.uint32) | np.roll(one, 1).astype(np.uint32) << 16 for one in (given, found)]
                inputs, outputs = (("a", "b32", both[0]),), (("d", "b32", both[1]),)
                yield Vector(f"{key}x2", f"{role}", f"{key}x2 d, a;", inputs, outputs)


def quotients():
    """div.approx multiplies by 1 / b, which is 0 where |b| is above 2**126, as an H200 had it on 2026-11-22."""
    for word in ("approx", "full"):
        for flush in ("", ".ftz"):
            key, bits = f"div.{word}{flush}.f32", (drawn("f32", 3), np.roll(drawn("f32", 4), 5))
            a, b = (values(one, "f32", bool(flush)) for one in bits)
            if word == "approx":
                b = np.where(np.abs(b) > 2.0**126, np.copysign(np.inf, b), b)
            found = nearest([quotient(*row) for row in zip(a.tolist(), b.tolist(), strict=True)], "f32", bool(flush))
            inputs = tuple(zip("ab", ("b32", "b32"), bits, strict=True))
            yield Vector(key, "drawn", f"{key} d, a, b;", inputs, (("d", "b32", found),))


def doubles():
    """Of the .ftz forms the upper 32 bits of the operand count, and the lower ones of the result are zeros, NaN's too."""

    def upper(numbers):
        return (numbers.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

    given = column(FORMATS["f64"], 0)
    numbers = given.view(np.float64)
    for word, flush in (("rcp", ".ftz"), ("rsqrt", ".ftz"), ("rsqrt", "")):
        used = upper(np.where(np.abs(numbers) < 2.0**-1022, np.copysign(0, numbers), numbers)) if flush else numbers
        used = np.where(np.isnan(numbers), np.nan, used)
        exact = np.array([EXACT[word](x) for x in used.tolist()])
        if flush:
            exact = np.where(np.abs(exact) < 2.0**-1022, np.copysign(0, exact), exact)
        found = upper(exact) if flush else exact
        quiet = np.uint64(0x7FFFFFFF00000000 if flush else 0x7FFFFFFFFFFFFFFF)
        bits = np.where(np.isnan(exact), quiet, found.view(np.uint64))
        key = f"{word}.approx{flush}.f64"
        yield Vector(key, "drawn", f"{key} d, a;", (("a", "b64", given),), (("d", "b64", bits),))


def family():
    return [*functions(), *quotients(), *doubles()]
