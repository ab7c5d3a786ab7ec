"""Figures as people see them: they are drawn again from their records, and their texts and curves are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cases.record.record import Record
from reports.audit.items import Ground, Outcome, Point, verified_or
from reports.drawn_by import PREFIX, drawn_by
from reports.record import bundle

POINTS_APART = 0.75
"""Maximum distance, in points of 1/72 inch, of two drawings of one curve by two versions of matplotlib."""

SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_SHAPE = re.compile(r'\s(?:d|x|y|points|transform|width|height|viewBox)="([^"]*)"')
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAMED = re.compile(r'(\b(?:id|class)="|href="#|url\(#)([^")]*)')


def far_apart(shown: str, made: str) -> float | None:
    """Return the largest distance of two drawings' shapes, in points; None if anything but numbers of shapes and ids
    differs."""
    sides = [[number for shape in _SHAPE.findall(svg) for number in _NUMBER.findall(shape)] for svg in (shown, made)]
    if _outline(shown) != _outline(made) or len(sides[0]) != len(sides[1]):
        return None
    pairs = zip(*sides, strict=True)
    return max((abs(float(one) - float(other)) for one, other in pairs), default=0.0)


def _outline(svg: str) -> str:
    """Return a drawing without the numbers of its shapes and what drew it, with ids in order of appearance."""
    names: dict[str, str] = {}
    text = _SHAPE.sub(lambda match: _NUMBER.sub("#", match[0]), re.sub(f"{PREFIX}{_DIGEST.pattern}", "", svg))
    return _NAMED.sub(lambda match: f"{match[1]}{names.setdefault(match[2], str(len(names)))}", text)


def figure_points(name: str, text: str, records: Sequence[Record]) -> Iterator[Point]:
    """Yield what comes of a figure when it is drawn again from the records that it names: all of these, or those of one
    of their commands."""
    named = _DIGEST.findall(text)
    if not named:
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: names no records that it was drawn from")
        return
    drawn = next((some for some in _sets(records) if bundle.digest(some) in named), None)
    if drawn is None:
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: drawn from other records than those beside it")
        return
    made = _drawings(drawn)
    distances = [one for svg in made.values() if (one := far_apart(text, svg)) is not None]
    if distances:
        nearest = min(distances)
        odd = [f"{name} is {nearest:.1f} points from what these records draw"] if nearest > POINTS_APART else []
        yield verified_or(odd, f"{name}: drawn again", 1, "pictures differ", Ground.RECOMPUTED)
    elif drawn_by() in text:
        odd = [f"{name} has other lines, texts or colours than these records draw"]
        yield verified_or(odd, "", 1, "pictures differ", Ground.RECOMPUTED)
    else:
        says = f"{name}: another version's, of other shapes, texts or colours than are drawn today; not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)


def _sets(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yield all records, then those of each command."""
    commands: dict[str, list[Record]] = {}
    for record in records:
        commands.setdefault(record.request.command, []).append(record)
    yield records
    if len(commands) > 1:
        yield from commands.values()


def _drawings(records: Sequence[Record]) -> Mapping[str, str]:
    """All figures that these records give, by kind."""
    from reports.figures import KINDS, drawing, study_drawing
    from reports.numerics.study import studied

    found = {}
    for kind in KINDS:
        try:
            found[kind] = drawing(records, "svg", kind).decode("utf-8")
        except ValueError:  # these records give no such figure
            continue
    if curves := studied(records, least=2):
        found["study"] = study_drawing(curves, records, "svg").decode("utf-8")
    return found
