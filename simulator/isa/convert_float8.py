"""Conversions of 8-bit floats.

Those to them exist with .satfinite only: beyond the largest finite value, infinity included, comes that value
(simulator/number/float8.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.registry import operation, value_builder
from simulator.number.float8 import FLOATS8, Float8


def _widen_pair(kind: Float8) -> Any:
    """Both codes of a 16-bit register; the first lies lowest on both sides."""
    return lambda a: kind.to_f16(np.ascontiguousarray(a).view(np.uint8)).view(np.uint32)


def _narrow_pair(kind: Float8) -> Any:
    """The first source becomes the upper byte."""
    return lambda high, low: np.left_shift(kind.from_f32(high), np.uint16(8), dtype=np.uint16) | kind.from_f32(low)


def _narrow_word(kind: Float8) -> Any:
    return lambda a: kind.from_f16(np.ascontiguousarray(a).view(np.uint16)).view(np.uint16)


for _name, _kind in FLOATS8.items():
    operation(f"cvt.rn.f16x2.{_name}x2")(value_builder(_widen_pair(_kind), ("u2",)))
    operation(f"cvt.rn.satfinite.{_name}x2.f32")(value_builder(_narrow_pair(_kind), ("f4", "f4")))
    operation(f"cvt.rn.satfinite.{_name}x2.f16x2")(value_builder(_narrow_word(_kind), ("u4",)))
