"""Pictures: time and bus bandwidth over bytes, the spread of samples, errors over bytes and over ranks.

An algorithm has one colour, marker and line style everywhere. The same records give the same SVG, byte for byte, under
one version of matplotlib, and it names their digest (bundle.digest) as its identifier.

Importing this package imports matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cases.record.record import Record
from reports.figures import curves, distribution, errors
from reports.figures.curves import drawable as drawable
from reports.figures.style import look as look
from reports.figures.style import rendered
from reports.numerics import accuracy
from reports.numerics.study import Series
from reports.record.bundle import digest
from reports.record.writing import write_file

SUFFIXES = (".svg", ".png")


def draw(records: Sequence[Record], path: Path | str, what: str = "curves") -> None:
    """Write the picture of all timed sections among records; the suffix, .svg or .png, says how.

    what: curves (time and bus bandwidth over bytes), distribution (samples against their median) or numerics (errors
    over bytes, which simulated records have, too). ValueError, in one line, for another suffix, for records without
    what it cannot draw, and where it cannot write.
    """
    path = Path(path)
    write_file(path, drawing(records, kind_of(path), what))


def drawing(records: Sequence[Record], kind: str, what: str) -> bytes:
    """The picture as a file's bytes; what as for draw, kind is "svg" or "png". ValueError as for draw."""
    if what == "numerics":
        groups = [group for group in accuracy.groups(records) if not all(curve.is_exact for curve in group.curves)]
        if not groups:
            raise ValueError("none of these records is of a sum of floats with an error, so there is nothing to draw")
        return rendered(lambda: errors.over_bytes(groups), kind, digest(records))
    if what == "distribution":
        sections = drawable(records)
        return rendered(lambda: distribution.figure(sections), kind, digest(records))
    return picture(records, kind)


def draw_study(series: Sequence[Series], records: Sequence[Record], path: Path | str) -> None:
    """Write the picture of a study, made of these records. ValueError as for draw."""
    path = Path(path)
    write_file(path, study_drawing(series, records, kind_of(path)))


def study_drawing(series: Sequence[Series], records: Sequence[Record], kind: str) -> bytes:
    """The picture of a study as a file's bytes; kind is "svg" or "png"."""
    return rendered(lambda: errors.over_ranks(series), kind, digest(records))


def kind_of(path: Path) -> str:
    """A picture's kind by its name. Raises ValueError for an unknown name."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: a picture's name ends in {' or '.join(SUFFIXES)}")
    return path.suffix.removeprefix(".")


def picture(records: Sequence[Record], kind: str = "svg") -> bytes:
    """The picture as a file's bytes; kind is "svg" or "png". ValueError for records without timings."""
    sections = drawable(records)
    return rendered(lambda: curves.figure(sections), kind, digest(records))
