"""The schema of a file of conf/gpu: every key and its type, made of the nouns (gpu_type.py); reading.py has the values
that are allowed.

A value stands with its source: `multiprocessors: {value: 132, source: attributes}`. A source is a name in the section
`sources`, or a text: "datasheet: ..", "measured: .. (with the date)", "assumed: why". Sections and values that a file
leaves out are those of the type that it is `like`.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import field, make_dataclass

from omegaconf import MISSING

from runner.gpu.gpu_type import FLOOR_NAMES, Clocks, Floors, Links, Memory, Switch
from simulator.gpu import Gpu

SECTIONS: Mapping[str, type] = {"limits": Gpu, "clocks": Clocks, "memory": Memory, "links": Links, "switch": Switch}
"""The sections of a file whose values have a source each, and the nouns that they become."""

_SOURCED = {
    kind: make_dataclass(f"{kind.__name__}_and_source", [("value", kind, MISSING), ("source", str, MISSING)])
    for kind in (int, float, bool, str)
}


def _section(noun: type) -> type:
    """The values of a noun but its name, each with a source."""
    kinds = typing.get_type_hints(noun)
    return make_dataclass(
        noun.__name__, [(name, _SOURCED[kind] | None, None) for name, kind in kinds.items() if name != "name"]
    )


def _floor(name: str, kind: typing.Any) -> tuple[typing.Any, ...]:
    """A floor: a number, or numbers by count."""
    if typing.get_origin(kind) is Mapping:
        return name, dict[int, float], field(default_factory=dict)
    return name, float | None, None


_FLOORS = make_dataclass(
    "Floors",
    [
        ("source", str, MISSING),
        ("ranks", int, MISSING),
        ("records", list[str], field(default_factory=list)),
        *(_floor(name, kind) for name, kind in typing.get_type_hints(Floors).items() if name in FLOOR_NAMES),
    ],
)

GpuTypeSchema = make_dataclass(
    "GpuTypeSchema",
    [
        *((name, str | None, None) for name in ("like", "name", "title")),
        ("devices", list[str] | None, None),
        ("sources", dict[str, str], field(default_factory=dict)),
        *((name, (made := _section(noun)), field(default_factory=made)) for name, noun in SECTIONS.items()),
        ("floors", _FLOORS | None, None),
    ],
)
"""A file of gpu/."""
