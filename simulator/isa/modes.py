"""Float arithmetic in other modes than nearest even: .rz, .rm, .rp, .ftz, .sat, and the approximations of the GPU.

Of an approximation (.approx, .full) the PTX ISA gives the largest error, and not the result. The simulator gives the
result that is nearest to the exact one, which is within every such bound; a GPU may give others. Where an approximation
flushes subnormals (.ftz), so does this one, and special values are those of the PTX ISA's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from simulator.isa.floats import INFINITY, flush_half
from simulator.isa.registry import DTYPES, TABLE, Lanes, by_parts, canonical, operation, value_builder
from simulator.number import numbers, rounding

_ODD: dict[str, tuple[Callable[..., Any], int]] = {
    "add": (rounding.sum_odd, 2),
    "sub": (rounding.difference_odd, 2),
    "mul": (rounding.product_odd, 2),
    "fma": (numbers.fused_odd, 3),
    "mad": (numbers.fused_odd, 3),
    "div": (rounding.quotient_odd, 2),
    "rcp": (rounding.reciprocal_odd, 1),
    "sqrt": (rounding.root_odd, 1),
}
_SUMS = (rounding.sum_odd, rounding.difference_odd, numbers.fused_odd)
_SATURATES = ("add", "sub", "mul", "fma", "mad")
_BARE = ("add", "sub", "mul")
"""Rounds to nearest even if no direction is named; the qualifier .rn is then one of those that change nothing."""


def _add(key: str, build: Any) -> None:
    """Register a form that no other file has."""
    if canonical(key.split("."), frozenset()) not in TABLE:
        operation(key)(build)


def _exact(odd: Callable[..., Any], direction: str, given: Sequence[Lanes]) -> Any:
    """The exact result; rounded down, a zero sum of numbers that are not both +0 is -0."""
    if direction == "rm" and odd in _SUMS:
        return -odd(-given[0], *given[1:-1], -given[-1])
    return odd(*given)


def _f32(odd: Callable[..., Any], direction: str, flush: bool, saturate: bool) -> Callable[..., Lanes]:
    def function(*lanes: Lanes) -> Lanes:
        given = [numbers.flush_f32(one) if flush else one for one in lanes]
        out = rounding.to_f32(_exact(odd, direction, given), direction)
        if flush:
            out = numbers.flush_f32(out)
        return rounding.saturate(out) if saturate else out

    return function


def _register_directions() -> None:
    for opcode, (odd, count) in _ODD.items():
        for direction, flush, saturate in product(rounding.DIRECTIONS, ("", ".ftz"), ("", ".sat")):
            if saturate and opcode not in _SATURATES:
                continue
            way = "" if opcode in _BARE and direction == "rn" else f".{direction}"
            build = value_builder(_f32(odd, direction, bool(flush), bool(saturate)), ("f4",) * count)
            _add(f"{opcode}{way}{flush}{saturate}.f32", build)
        for direction in rounding.DIRECTIONS[1:]:
            exact = rounding.of_f64("fma" if opcode == "mad" else opcode, direction)
            operation(f"{opcode}.{direction}.f64")(value_builder(exact, ("f8",) * count))
    operation("mad.rn.f64")(value_builder(numbers.fma_f64, ("f8",) * 3))
    operation("sqrt.rn.f64")(value_builder(lambda a: numbers.canonical_f64(np.sqrt(a)), ("f8",)))


# One operand: signs, minima of flushed numbers


def _register_flushed() -> None:
    for word, function in (("neg", np.negative), ("abs", np.absolute)):
        _add(f"{word}.ftz.f32", value_builder(lambda a, f=function: f(numbers.flush_f32(a)), ("f4",)))
    for word, larger in (("min", False), ("max", True)):
        for nan in ("", ".NaN"):

            def pick(a: Lanes, b: Lanes, larger: bool = larger, nan: str = nan) -> Lanes:
                return numbers.pick_floats(numbers.flush_f32(a), numbers.flush_f32(b), larger, bool(nan))

            _add(f"{word}.ftz{nan}.f32", value_builder(pick, ("f4", "f4")))


# Two f32 side by side


def _register_pairs() -> None:
    for opcode in ("add", "sub", "mul", "fma"):
        odd, count = _ODD[opcode]
        for direction, flush in product(rounding.DIRECTIONS, ("", ".ftz")):
            both = by_parts(_f32(odd, direction, bool(flush), False), "f4", "u8")
            way = "" if opcode in _BARE and direction == "rn" else f".{direction}"
            _add(f"{opcode}{way}{flush}.f32x2", value_builder(both, ("u8",) * count))


# Halves


def shape_half(out: Lanes, brain: bool, flush: bool, last: str) -> Lanes:
    """.sat: into [0, 1]; .relu: negative ones to 0, NaN stays."""
    if flush:
        out = flush_half(out)
    negative = out >> np.uint16(15) != 0
    nan = out & np.uint16(0x7FFF) > np.uint16(INFINITY["bf16" if brain else "f16"])
    one = np.uint16(0x3F80 if brain else 0x3C00)
    if last == ".sat":
        out = np.where(nan | negative, np.uint16(0), np.minimum(out, one))
    elif last == ".relu":
        out = np.where(nan, numbers.NAN16, np.where(negative, np.uint16(0), out))
    return out


def _half(opcode: str, brain: bool, flush: bool, last: str, packed: bool, direction: str = "rn") -> Any:
    odd, count = _ODD[opcode]
    widen, narrow = (numbers.bf16_to_f32, rounding.to_bf16) if brain else (numbers.f16_to_f32, rounding.to_f16)

    def function(*lanes: Lanes) -> Lanes:
        given = [flush_half(one) if flush else one for one in lanes]
        return shape_half(narrow(_exact(odd, direction, [*map(widen, given)]), direction), brain, flush, last)

    return _of_halves(function, packed, count)


def _of_halves(function: Callable[..., Lanes], packed: bool, count: int) -> Any:
    """A builder of a function of 16-bit lanes, alone or two to a word."""
    if packed:
        return value_builder(by_parts(function, "u2", "u4"), ("u4",) * count)
    return value_builder(function, ("u2",) * count)


def _register_halves() -> None:
    for name in ("f16", "f16x2"):
        for flush in ("", ".ftz"):
            for opcode in ("add", "sub", "mul"):
                for last in ("", ".sat"):
                    _add(f"{opcode}{flush}{last}.{name}", _half(opcode, False, bool(flush), last, name.endswith("x2")))
            for last in ("", ".sat", ".relu"):
                _add(f"fma.rn{flush}{last}.{name}", _half("fma", False, bool(flush), last, name.endswith("x2")))
        for word, function in _FLUSHED_HALVES.items():
            _add(f"{word}.{name}", _of_flushed(function, name.endswith("x2")))
    for name, direction, last in product(("bf16", "bf16x2"), rounding.DIRECTIONS, ("", ".relu")):
        _add(f"fma.{direction}{last}.{name}", _half("fma", True, False, last, name.endswith("x2"), direction))


def _picked(larger: bool, propagate: bool) -> Callable[..., Lanes]:
    return lambda a, b: numbers.pick_bits(a, b, INFINITY["f16"], larger, propagate)


_FLUSHED_HALVES: dict[str, Callable[..., Lanes]] = {
    "neg.ftz": lambda a: a ^ np.uint16(0x8000),
    "abs.ftz": lambda a: a & np.uint16(0x7FFF),
    "min.ftz": _picked(False, False),
    "max.ftz": _picked(True, False),
    "min.ftz.NaN": _picked(False, True),
    "max.ftz.NaN": _picked(True, True),
}


def _of_flushed(function: Callable[..., Lanes], packed: bool) -> Any:
    return _of_halves(lambda *lanes: function(*map(flush_half, lanes)), packed, function.__code__.co_argcount)


# Approximations


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def _approximate(function: Callable[..., Any], flush: bool) -> Any:
    def run(*lanes: Lanes) -> Lanes:
        given = [numbers.flush_f32(one) if flush else one for one in lanes]
        out = numbers.canonical_f32(np.asarray(function(*(one.astype(np.float64) for one in given))).astype(np.float32))
        return numbers.flush_f32(out) if flush else out

    return run


def _short_quotient(a: Any, b: Any) -> Any:
    """div.approx multiplies by 1 / b, which is 0 where |b| is above 2**126."""
    size = np.abs(b)
    huge = (size > 2.0**126) & (size < 2.0**128)
    return np.where(huge, a * np.copysign(0.0, b), a / b)


def _register_approximations() -> None:
    for word, function in _FUNCTIONS.items():
        for flush in ("", ".ftz") if word != "tanh" else ("",):
            _add(f"{word}.approx{flush}.f32", value_builder(_approximate(function, bool(flush)), ("f4",)))
    for word, quotient in (("approx", _short_quotient), ("full", np.divide)):
        for flush in ("", ".ftz"):
            divide = _approximate(quotient, bool(flush))
            _add(f"div.{word}{flush}.f32", value_builder(divide, ("f4", "f4")))
    for word in ("rcp", "rsqrt"):
        exact = _FUNCTIONS[word]
        _add(f"{word}.approx.ftz.f64", value_builder(_short_f64(exact), ("f8",)))
    _add("rsqrt.approx.f64", value_builder(lambda a: numbers.canonical_f64(1 / np.sqrt(a)), ("f8",)))
    for name in ("f16", "bf16", "f16x2", "bf16x2"):
        brain, packed = name.startswith("b"), name.endswith("x2")
        for word, flush in (("ex2", ".ftz" if brain else ""), ("tanh", "")):
            _add(f"{word}.approx{flush}.{name}", _half_function(_FUNCTIONS[word], brain, bool(flush), packed))


def _short_f64(function: Callable[[Any], Any]) -> Callable[[Lanes], Lanes]:
    """The GPU looks at the upper 32 bits of its operand only, and gives 32 bits and zeros, also in a NaN; subnormals
    are zeros."""

    def upper(a: Lanes) -> Lanes:
        bits = a.view(np.uint64)
        bits = np.where(bits & np.uint64(0x7FF0000000000000), bits, bits & np.uint64(1 << 63))
        nan = np.isnan(a)
        cut = bits & np.uint64(0xFFFFFFFF00000000)
        return np.where(nan, np.nan, cut.view(np.float64))

    def run(a: Lanes) -> Lanes:
        out = numbers.canonical_f64(upper(function(upper(a))))
        return (out.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

    return run


def _half_function(function: Callable[[Any], Any], brain: bool, flush: bool, packed: bool) -> Any:
    widen, narrow = (numbers.bf16_to_f32, rounding.to_bf16) if brain else (numbers.f16_to_f32, rounding.to_f16)
    smallest = np.float64(2.0**-126)

    def run(a: Lanes) -> Lanes:
        wide = widen(a)
        exact = function((numbers.flush_f32(wide) if flush else wide).astype(np.float64))
        if flush:
            exact = np.where(np.abs(exact) < smallest, 0.0, exact)
        return narrow(exact, "rn")

    return _of_halves(run, packed, 1)


# Questions and signs

_TESTS: dict[str, Callable[[Any], Any]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
    "subnormal": lambda a: (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0),
}


def _register_questions() -> None:
    for name in ("f32", "f64"):
        kind = DTYPES[name]
        for word, function in _TESTS.items():
            operation(f"testp.{word}.{name}")(value_builder(function, (kind,)))
        whole = f"u{kind[1]}"
        sign = np.array(1 << (8 * int(kind[1]) - 1), whole)
        copy = value_builder(lambda a, b, sign=sign: (b & ~sign) | (a & sign), (whole, whole))
        operation(f"copysign.{name}")(copy)


_register_directions()
_register_flushed()
_register_pairs()
_register_halves()
_register_approximations()
_register_questions()
