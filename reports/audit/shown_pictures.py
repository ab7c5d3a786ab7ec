"""Pictures as people see them: their curves, texts and styles are compared with what the records draw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reports.audit.items import Ground, Outcome, Point, verified_or
from reports.drawn_by import drawn_by
from reports.record import bundle
from reports.record.record import Record
from reports.table.text import counted

POINTS_APART = 0.75
"""Maximum distance, in points of 1/72 inch, of two drawings of one curve by two versions of matplotlib."""

SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_SHAPE = re.compile(r'\s(?:d|x|y|points|transform|width|height|viewBox)="([^"]*)"')
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAMED = re.compile(r'(\b(?:id|class)="|href="#|url\(#)([^")]*)')
_LABEL = re.compile(r'aria-label="([^"]*)"')
_COMMENT = re.compile("<!--(.*?)-->", re.DOTALL)
_METADATA = re.compile("<metadata>(.*?)</metadata>", re.DOTALL)
_IN_METADATA = re.compile(r"<(?!/?(?:rdf|cc|dc):)|http://www\.w3\.org/2000/svg")
"""What metadata may not have: elements but those that nothing draws."""

_UNSEEN = re.compile(
    r"<metadata>.*?</metadata>|<!--(?!-?>)(?:(?!--).)*-->|<\?xml [^?>]*\?>|<!DOCTYPE[^>\[]*>", re.DOTALL
)
"""What nothing draws. Comments end where they seem to, in HTML, too; instructions such as xml-stylesheet are seen."""


def far_apart(shown: str, made: str) -> float | None:
    """Return the largest distance of two drawings' shapes, in points; None if anything but numbers differs: elements,
    their order, texts, colours, dashes."""
    if any(_IN_METADATA.search(inner) for inner in _METADATA.findall(shown)) or _outline(shown) != _outline(made):
        return None
    seen = (_UNSEEN.sub("", svg) for svg in (shown, made))
    sides = [[number for shape in _SHAPE.findall(svg) for number in _NUMBER.findall(shape)] for svg in seen]
    if len(sides[0]) != len(sides[1]):
        return None
    pairs = zip(*sides, strict=True)
    return max((abs(float(one) - float(other)) for one, other in pairs), default=0.0)


def _outline(svg: str) -> str:
    """Return a drawing without the numbers of its shapes, with ids in order of appearance and single blanks."""
    names: dict[str, str] = {}
    text = _SHAPE.sub(lambda match: _NUMBER.sub("#", match[0]), _UNSEEN.sub("", svg))
    text = _NAMED.sub(lambda match: f"{match[1]}{names.setdefault(match[2], str(len(names)))}", text)
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Matched:
    """A drawing's distance from the one that has its label, in points. None: drawn otherwise; or no such picture."""

    label: str
    distance: float | None
    is_known: bool = True


def matched(shown: Sequence[str], made: Sequence[str]) -> Iterator[Matched]:
    """Yield what comes of each drawing of a page, compared with the one of its label, or place where it has none."""
    left: dict[str, list[str]] = {}
    for svg in made:
        left.setdefault(_label(svg), []).append(svg)
    for svg in shown:
        label = _label(svg)
        wanted = left.get(label, [])
        if not wanted:
            yield Matched(label, None, is_known=False)
            continue
        distances = {one: far_apart(svg, one) for one in wanted}
        nearest = min(wanted, key=lambda one: (distances[one] is None, distances[one] or 0.0))
        wanted.remove(nearest)
        yield Matched(label, distances[nearest])


def _label(svg: str) -> str:
    found = _LABEL.search(svg)
    return found[1] if found else ""


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
    is_todays = drawn_by() in text
    if is_todays and not any(_COMMENT.findall(text) == _COMMENT.findall(svg) for svg in made.values()):
        distances = []  # a comment of it names each text for whom does not see it
    if distances:
        nearest = min(distances)
        odd = [f"{name} is {nearest:.1f} points from what these records draw"] if nearest > POINTS_APART else []
        yield verified_or(odd, f"{name}: drawn again", 1, "pictures differ", Ground.RECOMPUTED)
    elif is_todays:
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


def page_pictures(name: str, shown: Sequence[str], made: Sequence[str]) -> Iterator[Point]:
    """Yield what comes of a page's pictures that another version drew."""
    found = list(matched(shown, made))
    odd = [
        f"picture '{one.label}' of {name} is {one.distance:.1f} points from what these records draw"
        for one in found
        if one.distance is not None and one.distance > POINTS_APART
    ]
    known = [one for one in found if one.distance is not None]
    if known:
        good = f"{name}: {counted(len(known), 'picture')} drawn again"
        yield verified_or(odd, good, len(known), "pictures differ", Ground.RECOMPUTED)
    if others := len(found) - len(known):
        says = (
            f"{name}: {counted(others, 'picture')} of other shapes, texts or colours than are drawn today; not compared"
        )
        yield Point(Outcome.NOT_COMPARABLE, says)
