"""Values of variables of a kernel's module, as a user gives them and as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernels.own.arguments import (
    BroughtArgument,
    argument_of,
    check_buffers,
    check_of_ptx,
    counts_launches,
    of_rank,
    type_of,
)
from runner.custom.nouns import BufferSpec

Variables = Mapping[str, Any]
"""What is written into variables of a kernel's module: by name a value, or by name values by offset in bytes."""


@dataclass(frozen=True, slots=True)
class VariableValue:
    """What is written into a module's variable before the launch, from offset_bytes on."""

    name: str
    offset_bytes: int
    value: BroughtArgument


def variable_values(
    given: Variables | Callable[[int], Variables], ranks: int, specs: Mapping[str, BufferSpec]
) -> tuple[tuple[VariableValue, ...], ...]:
    """Return what is written into variables of the module, by rank. ValueError for what can't be."""
    by_rank = [of_rank("variables", given, rank) for rank in range(ranks)]
    found = tuple(
        tuple(one for name in each for one in _variable(name, each[name], ranks)) for each in map(_named, by_rank)
    )
    for each in found:
        for one in each:
            if counts_launches(one.value):
                raise ValueError(f"variable {one.name} is launch (variables): it is written once, before all launches")
            check_of_ptx(f"variable {one.name}", one.value, "variables")
            check_buffers(f"variable {one.name}", one.value, specs, "variables")
    if len({tuple((one.name, one.offset_bytes, type_of(one.value)) for one in each) for each in found}) > 1:
        raise ValueError("the ranks' variables differ in kind (variables), give the same on all ranks")
    return found


def _named(given: Any) -> Variables:
    if not isinstance(given, Mapping):
        raise ValueError(f"the variables are of type {type(given).__name__} (variables), give a dictionary by name")
    return given


def _variable(name: str, value: Any, ranks: int) -> list[VariableValue]:
    """The parts of a variable's value: bytes, an argument, or a dictionary of them by offset in bytes."""
    parts = value if isinstance(value, Mapping) else {0: value}
    found = []
    for offset, one in parts.items():
        if type(offset) is not int or offset < 0:
            raise ValueError(f"variable {name}: the offset {offset!r} is no number of bytes (variables)")
        given = ("bytes", one) if isinstance(one, bytes) else one
        found.append(VariableValue(name, offset, argument_of(f"variable {name}", given, ranks, "variables")))
    return found
