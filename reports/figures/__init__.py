"""Pictures: time and bus bandwidth over bytes.

An algorithm has one colour, marker and line style everywhere. The same records give the same SVG, byte for byte, under
one version of matplotlib, and it names their digest (bundle.digest) as its identifier.

Importing this package imports matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cases.record.record import Record
from reports.figures import curves
from reports.figures.curves import drawable as drawable
from reports.figures.style import look as look
from reports.figures.style import rendered
from reports.record.bundle import digest
from reports.record.writing import write_file

SUFFIXES = (".svg", ".png")


def draw(records: Sequence[Record], path: Path | str) -> None:
    """Write the picture of all timed sections among records: time and bus bandwidth over bytes. The suffix, .svg or
    .png, says how. ValueError, in one line, for another suffix, for records without times, and where it cannot write.
    """
    path = Path(path)
    write_file(path, picture(records, kind_of(path)))


def kind_of(path: Path) -> str:
    """A picture's kind by its name. Raises ValueError for an unknown name."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: a picture's name ends in {' or '.join(SUFFIXES)}")
    return path.suffix.removeprefix(".")


def picture(records: Sequence[Record], kind: str = "svg") -> bytes:
    """The picture as a file's bytes; kind is "svg" or "png". ValueError for records without timings."""
    sections = drawable(records)
    return rendered(lambda: curves.figure(sections), kind, digest(records))
