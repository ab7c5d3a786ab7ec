"""The GPU's approximations keep the largest errors that the PTX ISA states, and its tables of special values.

The exact values are fractions, or decimals of 60 digits: nothing of NumPy's functions, with which the simulator computes.
Half floats are tried one and all, f32 at every exponent and densely where the function has its interesting part.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pytest
from simulator_harness import simple

Floats = npt.NDArray[np.float32]
DIGITS = 60
BLOCK = 128
INF, NAN = math.inf, math.nan
TINY = Fraction(1, 1 << 126)
"""The smallest normal f32."""


# Exact functions


def decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


@lru_cache(maxsize=1)
def pi() -> Decimal:
    """Machin's formula."""

    def arctangent_of_inverse(n: int) -> Decimal:
        total, power, k = Decimal(0), Decimal(1) / n, 0
        while abs(power) > Decimal(10) ** -(DIGITS + 5):
            total += power / (2 * k + 1) * (-1 if k % 2 else 1)
            power, k = power / (n * n), k + 1
        return total

    return 16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)


def sine(x: Decimal) -> Decimal:
    x = x - (x / (2 * pi())).to_integral_value() * 2 * pi()
    total, term, k = Decimal(0), x, 1
    while abs(term) > Decimal(10) ** -(DIGITS - 5):
        total += term
        term = -term * x * x / ((k + 1) * (k + 2))
        k += 2
    return total


def hyperbolic_tangent(x: Decimal) -> Decimal:
    """By the series where the quotient of exponentials cancels; 1 where it differs by less than 2**-288."""
    if abs(x) < Decimal("1e-8"):
        return x - x**3 / 3
    if abs(x) > 100:
        return Decimal(1).copy_sign(x)
    return 1 - 2 / ((2 * x).exp() + 1)


EXACT: dict[str, Callable[[Decimal], Decimal]] = {
    "rcp": lambda x: 1 / x,
    "sqrt": Decimal.sqrt,
    "rsqrt": lambda x: 1 / x.sqrt(),
    "sin": sine,
    "cos": lambda x: sine(x + pi() / 2),
    "lg2": lambda x: x.ln() / Decimal(2).ln(),
    "ex2": lambda x: (x * Decimal(2).ln()).exp(),
    "tanh": hyperbolic_tangent,
}


def test_the_exact_functions_are_what_they_are_called() -> None:
    with localcontext() as context:
        context.prec = DIGITS
        for word, function in (("sin", math.sin), ("cos", math.cos), ("lg2", math.log2), ("tanh", math.tanh)):
            for number in (1e-5, 0.3, 1.0, 2.5, 7.0, 250.0):
                assert float(EXACT[word](Decimal(number))) == pytest.approx(function(number), rel=1e-14)
        assert float(EXACT["ex2"](Decimal("0.5"))) == pytest.approx(math.sqrt(2))
        assert str(pi()).startswith("3.14159265358979323846264338327950288419716939937510")


# Bounds


def ulp(exact: Fraction, precision: int = 24, lowest: int = -149) -> Fraction:
    """One unit in the last place of a format at an exact value."""
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    return Fraction(2) ** max(exponent - precision + 1, lowest)


def power(exponent: float) -> Fraction:
    return Fraction(2.0**exponent)


def allowed(word: str, x: Fraction, exact: Fraction) -> Fraction | None:
    """The largest error of an f32 approximation at x; None where the PTX ISA states none."""
    size = abs(x)
    if word in ("sin", "cos"):
        turn = Fraction(math.pi)
        return power(-20.5) if size <= 2 * turn else power(-14.7) if size <= 100 * turn else None
    if word == "lg2":
        return power(-22) if Fraction(1, 2) < x < 2 else abs(exact) * power(-22)
    if word in ("rcp", "ex2"):
        return ulp(exact) * (1 if word == "rcp" else 2)
    return abs(exact) * power({"sqrt": -23, "rsqrt": -22.9, "tanh": -11}[word])


# Inputs


def f32(values: list[float]) -> Floats:
    return np.unique(np.array(values, np.float32))


def at_every_exponent(each: int = 6) -> Iterator[float]:
    rng = random.Random(17)
    for exponent in range(255):
        mantissas = (0, 1, (1 << 23) - 1, *(rng.getrandbits(23) for _ in range(each)))
        for mantissa in mantissas:
            yield float(np.uint32(exponent << 23 | mantissa).view(np.float32))


def around(points: list[float], steps: int = 40) -> Iterator[float]:
    for point in points:
        bits = int(np.float32(abs(point)).view(np.uint32))
        for step in range(-min(steps, bits), steps):
            yield math.copysign(float(np.uint32(bits + step).view(np.float32)), point)


def inputs_of(word: str) -> Floats:
    rng = random.Random(word)
    both = [sign * x for x in at_every_exponent() for sign in (1, -1)]
    positive = [x for x in both if x > 0]
    if word in ("sin", "cos"):
        turn = 2 * math.pi
        near = [k * math.pi / 4 for k in range(-9, 10) if k]
        drawn = [rng.uniform(-turn, turn) for _ in range(1500)] + [
            rng.uniform(-50 * turn, 50 * turn) for _ in range(800)
        ]
        return f32(both + list(around(near, 10)) + drawn)
    if word == "ex2":
        near = [float(k) for k in range(-149, 128, 3)]
        return f32(
            [x for x in both if abs(x) < 150] + list(around(near, 8)) + [rng.uniform(-149, 128) for _ in range(1500)]
        )
    if word == "tanh":
        return f32(both + [rng.uniform(-10, 10) for _ in range(1500)])
    if word == "lg2":
        return f32(positive + list(around([0.5, 1.0, 2.0])) + [rng.uniform(0.5, 2) for _ in range(1500)])
    return f32((both if word == "rcp" else positive) + [rng.uniform(1, 4) for _ in range(1500)])


def run_on(form: str, kind: str, *columns: npt.NDArray[np.uint32 | np.uint16 | np.uint64]) -> npt.NDArray[np.uint8]:
    """The bytes that an instruction gives for columns of operands, bit patterns of a type."""
    count = len(columns[0])
    padded = [np.pad(one, (0, -count % BLOCK), mode="edge") for one in columns]
    size = columns[0].itemsize
    loads = "".join(
        f"mad.lo.u64 %d{at + 1}, %lane64, {size}, %in{at}; ld.global.{kind} x{at}, [%d{at + 1}]; "
        for at in range(len(columns))
    )
    names = ", ".join(f"x{at}" for at in range(len(columns)))
    body = f".reg .{kind} y, {names}; {loads} {form} y, {names}; mad.lo.u64 %d9, %lane64, {size}, %out; st.global.{kind} [%d9], y;"
    found = simple(body, padded, len(padded[0]) * size, len(padded[0]) // BLOCK, BLOCK)
    return found[: count * size]


def results(form: str, *columns: Floats) -> Floats:
    return run_on(form, "b32", *(one.view(np.uint32) for one in columns)).view(np.float32)


def flushed(values: Floats) -> Floats:
    out: Floats = np.where(np.abs(values) < float(TINY), np.copysign(np.float32(0), values), values)
    return out


# The bounds, f32


def beyond(word: str, given: Floats, found: Floats, flush: bool) -> list[str]:
    """Where an approximation is off by more than it may be."""
    wrong = []
    with localcontext() as context:
        context.prec = DIGITS
        for x, y in zip(given.tolist(), found.tolist(), strict=True):
            number = Fraction(x)
            exact = Fraction(EXACT[word](decimal(number)))
            limit = allowed(word, number, exact)
            if limit is None:
                continue
            if math.isinf(y):  # right only where the exact value is as large
                good = abs(exact) >= (Fraction(2) - Fraction(1, 1 << 24)) * Fraction(2) ** 127 and (y > 0) == (
                    exact > 0
                )
            else:
                good = abs(Fraction(y) - exact) <= limit
            if not good and flush and y == 0:
                good = abs(exact) < TINY
            if not good:
                wrong.append(f"{word}({x!r}) = {y!r}, exactly {float(exact)!r}")
    return wrong


FORMS = [f"{word}.approx{flush}.f32" for word in EXACT for flush in (("", ".ftz") if word != "tanh" else ("",))]


@pytest.mark.parametrize("form", FORMS)
def test_no_error_is_larger_than_stated(form: str) -> None:
    word, flush = form.split(".")[0], ".ftz" in form
    given = inputs_of(word)
    if word != "sqrt" and not flush:
        assert (np.abs(given) < float(TINY)).any(), "subnormals are among them"
    given = given[np.abs(given) >= float(TINY)] if flush else given[given != 0]
    assert len(given) > 2000
    assert beyond(word, given, results(form, given), flush) == []


def above(values: list[float]) -> Floats:
    """The next larger f32."""
    out: Floats = np.nextafter(np.array(values, np.float32), np.float32(np.inf))
    return out


@pytest.mark.parametrize("word", EXACT)
def test_an_error_that_is_larger_is_noticed(word: str) -> None:
    """The check itself: results that are a little too large are found wrong at some inputs, and exact ones are not."""
    given = np.array([0.3, 0.77, 1.3, 1.9], np.float32)
    with localcontext() as context:
        context.prec = DIGITS
        exact = [Fraction(EXACT[word](decimal(Fraction(x)))) for x in given.tolist()]
    nearest = np.array([float(one) for one in exact], np.float32)
    assert beyond(word, given, nearest, flush=False) == []
    limits = [allowed(word, Fraction(x), one) for x, one in zip(given.tolist(), exact, strict=True)]
    worse = [float(one + limit * 5 / 4) for one, limit in zip(exact, limits, strict=True) if limit is not None]
    assert len(beyond(word, given, above(worse), flush=False)) == len(given)


def quotients() -> tuple[Floats, Floats]:
    rng = random.Random(23)
    every = list(at_every_exponent(2))
    a = [rng.choice(every) * rng.choice((1, -1)) for _ in range(6000)]
    b = [rng.choice(every) * rng.choice((1, -1)) for _ in range(6000)]
    close = [(x, x * rng.choice((1, 2, 0.5, 3))) for x in (rng.uniform(1, 2) for _ in range(500))]
    return (np.array(column, np.float32) for column in ([*a, *(x for x, _ in close)], [*b, *(y for _, y in close)]))  # type: ignore[return-value]


@pytest.mark.parametrize("flush", ["", ".ftz"])
@pytest.mark.parametrize("way", ["approx", "full"])
def test_quotients_are_off_by_two_units_at_most(way: str, flush: str) -> None:
    a, b = quotients()
    low, high = float(TINY), 2.0**126 if way == "approx" else INF
    keep = (np.abs(b) >= low) & (np.abs(b) <= high) & (a != 0)
    if flush:
        keep &= np.abs(a) >= low
    a, b = a[keep], b[keep]
    assert len(a) > 4000
    found = results(f"div.{way}{flush}.f32", a, b)
    largest = Fraction(float(np.finfo(np.float32).max))
    wrong = []
    for x, y, z in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        exact = Fraction(x) / Fraction(y)
        good = (abs(exact) > largest) if math.isinf(z) else abs(Fraction(z) - exact) <= 2 * ulp(exact)
        good = good or (bool(flush) and z == 0 and abs(exact) < TINY)
        if not good or (math.copysign(1, z) < 0) != (exact < 0):
            wrong.append(f"{x!r} / {y!r} = {z!r}")
    assert wrong == []


# Special values

SPECIAL: dict[str, list[tuple[float, float]]] = {
    "rcp": [(-INF, -0.0), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)],
    "sqrt": [(-INF, NAN), (-1.0, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, INF), (NAN, NAN)],
    "rsqrt": [(-INF, NAN), (-1.0, NAN), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)],
    "sin": [(-INF, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, NAN), (NAN, NAN)],
    "cos": [(-INF, NAN), (-0.0, 1.0), (0.0, 1.0), (INF, NAN), (NAN, NAN)],
    "lg2": [(-INF, NAN), (-1.0, NAN), (-0.0, -INF), (0.0, -INF), (INF, INF), (NAN, NAN)],
    "ex2": [(-INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (NAN, NAN)],
    "tanh": [(-INF, -1.0), (-0.0, -0.0), (0.0, 0.0), (INF, 1.0), (NAN, NAN)],
}
"""The PTX ISA's tables."""
SMALL = 1e-40
FLUSHED: dict[str, list[tuple[float, float]]] = {
    "rcp": [(SMALL, INF), (-SMALL, -INF), (2.0**127, 0.0), (-(2.0**127), -0.0)],
    "sqrt": [(SMALL, 0.0), (-SMALL, -0.0)],
    "rsqrt": [(SMALL, INF), (-SMALL, -INF)],
    "sin": [(SMALL, 0.0), (-SMALL, -0.0)],
    "cos": [(SMALL, 1.0)],
    "lg2": [(SMALL, -INF), (-SMALL, -INF)],
    "ex2": [(SMALL, 1.0), (-130.0, 0.0)],
}
"""With .ftz: subnormals are zeros with their sign, as operands and as results."""
QUOTIENTS: list[tuple[float, float, float]] = [
    (1.0, INF, 0.0), (-1.0, INF, -0.0), (INF, INF, NAN), (INF, 2.0, INF), (0.0, 0.0, NAN), (1.0, 0.0, INF),
    (-1.0, 0.0, -INF), (NAN, 1.0, NAN), (1.0, NAN, NAN), (0.0, -3.0, -0.0),
]  # fmt: skip
HUGE: list[tuple[float, float, float]] = [
    (1.0, 2.0**127, 0.0), (-1.0, 2.0**127, -0.0), (1.0, -1.5 * 2.0**126, -0.0), (INF, 2.0**127, NAN),
    (-INF, 2.0**127, NAN), (NAN, 2.0**127, NAN), (2.0**127, 2.0**126, 2.0),
]  # fmt: skip
"""Of div.approx: where |b| is above 2**126, as an H200 gave it on 2026-11-22 (NaN 0x7FFFFFFF, zeros)."""


def same(found: Floats, wanted: list[float]) -> bool:
    """Bit for bit, NaN as PTX's canonical one."""
    bits = [0x7FFFFFFF if math.isnan(one) else int(np.float32(one).view(np.uint32)) for one in wanted]
    return found.view(np.uint32).tolist() == bits


@pytest.mark.parametrize("form", FORMS)
def test_special_values_are_those_of_the_tables(form: str) -> None:
    word = form.split(".")[0]
    pairs = SPECIAL[word] + (FLUSHED[word] if ".ftz" in form else [])
    found = results(form, np.array([x for x, _ in pairs], np.float32))
    assert same(found, [y for _, y in pairs]), (form, found.tolist())


@pytest.mark.parametrize("form", ["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"])
def test_special_quotients(form: str) -> None:
    rows = QUOTIENTS + (HUGE if "approx" in form else [])
    a, b, wanted = zip(*rows, strict=True)
    found = results(form, np.array(a, np.float32), np.array(b, np.float32))
    assert same(found, list(wanted)), (form, found.tolist())


@pytest.mark.parametrize("word", ["rcp", "rsqrt"])
def test_short_doubles_have_zeros_below(word: str) -> None:
    """Of the .ftz.f64 forms: the upper 32 bits of the operand count, the lower ones of the result are zeros, NaN's too."""
    rng = random.Random(word)
    given = np.array([rng.uniform(0.1, 1000) * 2.0 ** rng.randrange(-300, 300) for _ in range(500)])
    found = run_on(f"{word}.approx.ftz.f64", "b64", given.view(np.uint64)).view(np.uint64)
    assert not (found & np.uint64(0xFFFFFFFF)).any()
    with localcontext() as context:
        context.prec = DIGITS
        for x, y in zip(given.tolist(), found.view(np.float64).tolist(), strict=True):
            exact = Fraction(EXACT[word](decimal(Fraction(x))))
            assert abs(Fraction(y) - exact) <= exact / (1 << 18)
    special = np.array([NAN, -INF, -0.0, 0.0, INF, 1e-310, -1e-310])
    odd = run_on(f"{word}.approx.ftz.f64", "b64", special.view(np.uint64)).view(np.uint64).tolist()
    quiet, minus = 0x7FFFFFFF00000000, -0.0 if word == "rcp" else NAN
    wanted = [
        quiet if math.isnan(one) else int(np.float64(one).view(np.uint64))
        for one in (NAN, minus, -INF, INF, 0.0, INF, -INF)
    ]
    assert odd == wanted


# Halves, all of them


def widened(bits: npt.NDArray[np.uint16], kind: str) -> npt.NDArray[np.float64]:
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def raised(x: float) -> float:
    return math.exp2(x) if x < 1024 else INF


HALVES = {
    ("ex2.approx.f16", "f16"): (raised, 2.0**-9.9, 0.0),
    ("ex2.approx.ftz.bf16", "bf16"): (raised, 2.0**-7, 0.0),
    ("tanh.approx.f16", "f16"): (math.tanh, 0.0, 2.0**-10.987),
    ("tanh.approx.bf16", "bf16"): (math.tanh, 0.0, 2.0**-8),
}
"""Function, largest relative and largest absolute error."""


@pytest.mark.parametrize(("form", "kind"), HALVES)
def test_every_half_is_within_its_bound(form: str, kind: str) -> None:
    function, relative, absolute = HALVES[form, kind]
    every = np.arange(1 << 16, dtype=np.uint16)
    found = run_on(form, "b16", every)
    out = widened(found.view(np.uint16), kind)
    both = np.stack([every, every[::-1]], axis=1).reshape(-1).view(np.uint32)
    packed = run_on(f"{form}x2", "b32", both).view(np.uint16).reshape(-1, 2)
    assert np.array_equal(packed[:, 0], found.view(np.uint16))
    assert np.array_equal(packed[:, 1], found.view(np.uint16)[::-1])
    smallest, unit = (2.0**-14, 2.0**-24) if kind == "f16" else (2.0**-126, 2.0**-133)
    largest = 65504.0 if kind == "f16" else float(np.uint32(0x7F7F0000).view(np.float32))
    wrong = []
    for x, y in zip(widened(every, kind).tolist(), out.tolist(), strict=True):
        if math.isnan(x):
            good = math.isnan(y)
        else:
            exact = function(x)
            if ".ftz" in form and exact < smallest:
                good = y == 0
            elif math.isinf(y):
                good = exact > largest
            else:
                limit = max(exact * relative + absolute, unit / 2 if exact < smallest else 0.0)
                good = not math.isnan(y) and abs(y - exact) <= limit
        if not good:
            wrong.append((x, y))
    assert wrong == []
