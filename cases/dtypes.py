"""Data types, reductions and accumulators by name, and which belong together: data that specs, checks and tables read.

What the hardware's multimem instructions have of it is another table: kernels/multimem.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cases.refusal import Refusal

if TYPE_CHECKING:
    import torch

ITEMSIZES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int32": 4,
    "int64": 8,
    "uint32": 4,
    "uint64": 8,
    "uint8": 1,
    "int8": 1,
}
"""Bytes of an element, by the names that configurations and records use: PyTorch's."""

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
FLOATS = ("float64", "float32", "float16", "bfloat16", *FLOAT8)
INTEGERS = ("int32", "int64", "uint32", "uint64")
ARITHMETIC = (*FLOATS, *INTEGERS)
"""What can be reduced; uint8 is for pure data movement, int8 for buffers of one's own kernels."""

SIGNIFICAND_BITS = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e5m2": 3,
}
"""Of a normal number, with the one that is not stored. u, the unit roundoff, is 2 to the minus that."""

ALL = (*ARITHMETIC, "uint8")

NONE = "none"
"""The reduction and the accumulator of an op that only moves data."""

FLOAT_REDUCTIONS = ("sum", "min", "max", "avg")
INTEGER_REDUCTIONS = ("sum", "min", "max", "and", "or", "xor", "avg")
REDUCTIONS = INTEGER_REDUCTIONS
SUMS = ("sum", "avg")
"""Reductions that add, so that it matters what is added in."""

ACCUMULATORS: dict[str, tuple[str, ...]] = {
    "float64": ("native",),
    "float32": ("native", "float32"),
    "float16": ("native", "float32"),
    "bfloat16": ("native", "float32"),
    "float8_e4m3fn": ("native", "float16", "float32"),
    "float8_e5m2": ("native", "float16", "float32"),
    **dict.fromkeys(INTEGERS, ("native",)),
}
"""What sums of a data type can be kept in. native: the type itself, rounded to after every addition."""


class _Dtypes(Mapping[str, "torch.dtype"]):
    """Torch's types of those names. Torch, seconds to import, is imported at the first access, not before."""

    def __getitem__(self, name: str) -> torch.dtype:
        if name not in ITEMSIZES:
            raise KeyError(name)
        import torch

        found: torch.dtype = getattr(torch, name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(ITEMSIZES)

    def __len__(self) -> int:
        return len(ITEMSIZES)


DTYPES: Mapping[str, torch.dtype] = _Dtypes()


def reductions_of(dtype: str) -> tuple[str, ...]:
    """The reductions that a data type has; none for one that is only moved."""
    if dtype in FLOATS:
        return FLOAT_REDUCTIONS
    return INTEGER_REDUCTIONS if dtype in INTEGERS else ()


def accumulators_of(dtype: str, reduction: str) -> tuple[str, ...]:
    """The accumulators that a reduction of a data type has; min, max and bitwise ones add nothing: only native."""
    if reduction not in reductions_of(dtype):
        return ()
    return ACCUMULATORS[dtype] if reduction in SUMS else ("native",)


def refuses_types(dtype: str, accumulator: str, reduction: str) -> Refusal | None:
    """Return why the three don't belong together; None if they do."""
    if reduction == NONE and accumulator == NONE:
        return None
    if dtype not in ARITHMETIC:
        reason = f"{dtype} is for moving data, and nothing is reduced in it"
        return Refusal("dtype", reason, f"take one of {', '.join(ARITHMETIC)}")
    if reduction not in reductions_of(dtype):
        known = reductions_of(dtype)
        return Refusal("reduction", f"{dtype} has no reduction {reduction!r}", f"it has {', '.join(known)}")
    known = accumulators_of(dtype, reduction)
    if accumulator not in known:
        if reduction not in SUMS:
            reason = f"{reduction} adds nothing, so it has no accumulator {accumulator!r}"
            return Refusal("accumulator", reason, "give native")
        return Refusal("accumulator", f"{dtype} has no accumulator {accumulator!r}", f"it has {', '.join(known)}")
    return None
