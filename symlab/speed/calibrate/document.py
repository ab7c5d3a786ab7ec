"""Floors as the section of a file of conf/gpu, and into such a file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from memory.atomic_file import replacing
from runner.gpu.gpu_type import FLOOR_NAMES, Floors, GpuType
from runner.gpu.names import CONF
from runner.gpu.reading import gpu_type
from runner.request_error import RequestError

_SECTION = re.compile(r"^(?:# Of symlab calibrate[^\n]*\n)?floors:\n(?:[ #][^\n]*\n|\n(?=[ ]))*", re.MULTILINE)


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


def without_floors(path: Path, folders: Sequence[Path] = (CONF,)) -> GpuType:
    """Return the type of GPU in a file that gets floors, without those that it has.

    RequestError, naming the file, if it is no type of GPU; OSError or UnicodeDecodeError if it can't be read.
    """
    return _read_as(path, _SECTION.sub("", path.read_text(encoding="utf-8")), folders)


def written_into(path: Path, floors: Floors, name: str, folders: Sequence[Path] = (CONF,)) -> None:
    """Put floors into a file: in place of those that it has, or into a new one that is like the type of that name.

    The file's name ends in .yaml; folders: of configurations, as gpu_type takes them. Raises ValueError, with the file
    as it was, if the result would not be read with these floors; OSError if it can't be written.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else None
    if before is None:
        title = gpu_type(name, folders).title
        text = f"# {title}, as calibrated here\nlike: {name}\nname: {name}\n\n{section_of(floors)}"
    else:
        kept = _SECTION.sub("", before).rstrip("\n")
        text = f"{kept}\n\n{section_of(floors)}"
    if _read_as(path, text, folders).floors != floors:
        raise ValueError(f"{path}: its floors are not those that were written into it, write into a new file")
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _read_as(path: Path, text: str, folders: Sequence[Path]) -> GpuType:
    """The type that a file would describe if it had this text. RequestError names the file and -o."""
    with tempfile.TemporaryDirectory(prefix="symlab-calibrate-") as folder:
        trial = Path(folder) / path.name
        trial.write_text(text, encoding="utf-8")
        try:
            return gpu_type(str(trial), folders)
        except RequestError as error:
            raise RequestError(f"{str(error).replace(str(trial), str(path))} (-o)") from None
