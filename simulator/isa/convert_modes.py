"""Conversions in other modes than those of convert.py: rounded to integers in four directions, .ftz, .sat, .relu."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from simulator.isa.convert import INTEGERS, narrow_builder, to_integer
from simulator.isa.modes import _add, shape_half
from simulator.isa.registry import DTYPES, Lanes, value_builder
from simulator.number import numbers, rounding
from simulator.number.float8 import FLOATS8, Float8

_WHOLE: dict[str, Callable[[Lanes], Lanes]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_WIDEN: dict[str, Callable[[Lanes], Lanes]] = {
    "f16": lambda a: numbers.f16_to_f32(a).astype(np.float64),
    "bf16": lambda a: numbers.bf16_to_f32(a).astype(np.float64),
    "f32": lambda a: a.astype(np.float64),
    "f64": lambda a: a,
}


def _flush_f64(values: Lanes) -> Lanes:
    """What float32 holds as a subnormal, as a zero of its sign."""
    return np.where(np.abs(values) < 2.0**-126, np.copysign(0.0, values), values)


def _narrow(name: str, direction: str, flush: bool, last: str) -> Callable[[Lanes], Lanes]:
    """From float64, exact or rounded to odd, to a type."""

    def function(exact: Lanes) -> Lanes:
        if name == "f64":
            return numbers.canonical_f64(rounding.saturate(exact) if last == ".sat" else np.array(exact))
        if name == "f32":
            out = rounding.to_f32(exact, direction)
            out = numbers.flush_f32(out) if flush else out
            return rounding.saturate(out) if last == ".sat" else out
        to_half = rounding.to_bf16 if name == "bf16" else rounding.to_f16
        return shape_half(to_half(exact, direction), name == "bf16", False, last)

    return function


def _register_narrowing() -> None:
    ways = [("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64")]
    for (target, source), direction, flush in product(ways, rounding.DIRECTIONS, ("", ".ftz")):
        if flush and source != "f32" and target != "f32":
            continue
        for last in ("", ".sat") if target != "bf16" else ("", ".relu"):
            if last == ".relu" and (flush or source != "f32" or direction not in ("rn", "rz")):
                continue
            _convert(
                f".{direction}{flush}{last}", target, source, _narrow(target, direction, bool(flush), last), bool(flush)
            )
        if target == "f16" and source == "f32" and not flush and direction in ("rn", "rz"):
            _convert(f".{direction}.relu", target, source, _narrow(target, direction, False, ".relu"), False)
    for name, direction, last in product(("f16", "bf16"), ("rn", "rz"), ("", ".relu")):
        narrow = _narrow(name, direction, False, last)

        def both(high: Lanes, low: Lanes, narrow: Callable[[Lanes], Lanes] = narrow) -> Lanes:
            return numbers.pack(*(narrow(one.astype(np.float64)) for one in (low, high)))

        _add(f"cvt.{direction}{last}.{name}x2.f32", value_builder(both, ("f4", "f4")))


def _convert(mode: str, target: str, source: str, narrow: Callable[[Lanes], Lanes], flush: bool) -> None:
    widen = _WIDEN[source]

    def function(a: Lanes) -> Lanes:
        exact = widen(a)
        return narrow(_flush_f64(exact) if flush and source == "f32" else exact)

    _add(f"cvt{mode}.{target}.{source}", value_builder(function, (DTYPES[source],)))


def _register_widening() -> None:
    ways = [
        ("f32", "f16"),
        ("f32", "bf16"),
        ("f64", "f32"),
        ("f64", "f16"),
        ("f32", "f32"),
        ("f64", "f64"),
        ("f16", "f16"),
    ]
    for (target, source), flush, last in product(ways, ("", ".ftz"), ("", ".sat")):
        if (flush and "f32" not in (target, source)) or (last and source == "bf16"):
            continue
        _convert(f"{flush}{last}", target, source, _narrow(target, "rn", bool(flush), last), bool(flush))
    for name, word, flush, last in product(("f16", "f32", "f64"), _WHOLE, ("", ".ftz"), ("", ".sat")):
        if flush and name != "f32":
            continue
        narrow = _narrow(name, "rn", bool(flush), last)
        whole = _WHOLE[word]
        _convert(f".{word}{flush}{last}", name, name, lambda a, n=narrow, w=whole: n(w(a)), bool(flush))  # type: ignore[misc]


# Integers


def _whole(source: str, word: str, flush: bool) -> Callable[[Lanes], Lanes]:
    widen, whole = _WIDEN[source], _WHOLE[word]
    return lambda a: whole(_flush_f64(widen(a)) if flush else widen(a))


def _register_to_integers() -> None:
    for target, source, word, flush in product(INTEGERS, ("f16", "bf16", "f32", "f64"), _WHOLE, ("", ".ftz")):
        if flush and source != "f32":
            continue
        if source == "bf16" and target.endswith("8"):
            continue
        for last in ("", ".sat") if source != "bf16" else ("",):
            function = to_integer(target, source, _whole(source, word, bool(flush)))
            _add(f"cvt.{word}{flush}{last}.{target}.{source}", narrow_builder(function, source, target))


def _odd_of_integer(a: Lanes) -> Lanes:
    """Integers as float64, rounded to odd: long double holds them exactly."""
    exact = a.astype(np.longdouble)
    nearest = exact.astype(np.float64)
    return numbers.odd_f64(nearest, (exact - nearest).astype(np.float64))


def _from_integer(target: str, source: str, direction: str, last: str) -> Any:
    narrow = _narrow(target, direction, False, last)

    def function(a: Lanes) -> Lanes:
        if target == "f64":
            exact = a.astype(np.longdouble)
            out = exact.astype(np.float64)
            return narrow(out if direction == "rn" else rounding.stepped(out, exact, direction))
        return narrow(_odd_of_integer(a))

    return narrow_builder(function, source)


def _register_from_integers() -> None:
    for target, source, direction in product(("f16", "bf16", "f32", "f64"), INTEGERS, rounding.DIRECTIONS):
        if target == "bf16" and source.endswith("8"):
            continue
        for last in ("", ".sat") if target != "bf16" else ("",):
            build = _from_integer(target, source, direction, last)
            _add(f"cvt.{direction}{last}.{target}.{source}", build)
            if target == "f32":  # no integer is subnormal
                _add(f"cvt.{direction}.ftz{last}.{target}.{source}", build)


def _saturated(target: str, source: str) -> Callable[[Lanes], Lanes]:
    limits = np.iinfo(DTYPES[target])

    def function(a: Lanes) -> Lanes:
        low, high = max(limits.min, int(np.iinfo(a.dtype).min)), min(limits.max, int(np.iinfo(a.dtype).max))
        clipped: Lanes = np.clip(a, low, high).astype(DTYPES[target])
        return clipped

    return function


def _register_saturating() -> None:
    for target, source in product(INTEGERS, INTEGERS):
        to, given = np.iinfo(DTYPES[target]), np.iinfo(DTYPES[source])
        if to.min <= given.min and given.max <= to.max:
            continue  # nothing could saturate
        _add(f"cvt.sat.{target}.{source}", narrow_builder(_saturated(target, source), source, target))


# 8-bit floats


def _register_float8(name: str, kind: Float8) -> None:
    """Conversions to them exist with .satfinite only: beyond the largest finite value, infinity included, comes that
    value. Pairs lie in 16 bits, of which the first source becomes the upper byte."""

    def pair(high: Lanes, low: Lanes) -> Lanes:
        return np.left_shift(kind.from_f32(high), np.uint16(8), dtype=np.uint16) | kind.from_f32(low)

    wide = value_builder(lambda a: kind.to_f16(np.ascontiguousarray(a).view(np.uint8)).view(np.uint32), ("u2",))
    narrow = value_builder(lambda a: kind.from_f16(np.ascontiguousarray(a).view(np.uint16)).view(np.uint16), ("u4",))
    _add(f"cvt.rn.f16x2.{name}x2", wide)
    _add(f"cvt.rn.satfinite.{name}x2.f32", value_builder(pair, ("f4", "f4")))
    _add(f"cvt.rn.satfinite.{name}x2.f16x2", narrow)


for _name, _kind in FLOATS8.items():
    _register_float8(_name, _kind)
_register_narrowing()
_register_widening()
_register_to_integers()
_register_from_integers()
_register_saturating()
