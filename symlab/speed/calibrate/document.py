"""Floors as the section of a file of conf/gpu, and as a file of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.gpu.gpu_type import FLOOR_NAMES, Floors
from runner.gpu.names import CONF
from runner.gpu.reading import gpu_type


def section_of(floors: Floors) -> str:
    """Return the section `floors` as YAML, with a line of comment before it."""
    lines = [
        "# Of symlab calibrate; times in microseconds, bandwidths in GB/s (runner/gpu/gpu_type.py).",
        "floors:",
        f"  source: '{floors.source}'",
        f"  ranks: {floors.ranks}",
        f"  records: [{', '.join(repr(one) for one in floors.records)}]",
    ]
    for name in FLOOR_NAMES:
        value = getattr(floors, name)
        if isinstance(value, Mapping):
            if value:
                lines.append(f"  {name}: {{{', '.join(f'{count}: {one:g}' for count, one in value.items())}}}")
        elif value is not None:
            lines.append(f"  {name}: {value:g}")
    return "\n".join(lines) + "\n"


def file_of(floors: Floors, name: str, folders: Sequence[Path] = (CONF,)) -> str:
    """Return the text of a file that is like the type of that name, with these floors. folders: of configurations, as
    gpu_type takes them."""
    title = gpu_type(name, folders).title
    return f"# {title}, as calibrated here\nlike: {name}\nname: {name}\n\n{section_of(floors)}"
