"""Item 12: figures that somebody derived from raw samples, in a report, a table or MLflow, computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports import publish
from reports.audit.items import Outcome, Point, counted, verified_or
from reports.audit.material import Material, verdict_beside
from reports.record import bundle
from reports.table import table

_NAMES = frozenset(
    (
        *("op", "dtype", "reduction", "world_size", "size_bytes", "root", "offset", "accumulator", "inputs"),
        *(
            "algorithm",
            "placement",
            "library",
            "fabric",
            "device",
            "mode",
            "window",
            "l2",
            "section",
            "worlds",
            "status",
        ),
    )
)
"""Keys of a line of figures that say what it is of."""


def points_of(material: Material) -> tuple[Point, ...]:
    """What became of every place where derived figures of these records are to be found."""
    points: list[Point] = []
    for place in material.places:
        points += [_report(path) for path in sorted(place.rglob("*.html"))] if place.is_dir() else []
        if machine := _published(place):
            points += _made_again(*machine)
    if material.source:
        says = f"{material.source}: its metrics are not compared with the records"
        points.append(Point(Outcome.NOT_COMPARABLE, says))
    return tuple(points) or (
        Point(
            Outcome.DOES_NOT_APPLY,
            "no table or report beside the records: figures are computed whenever they are shown",
        ),
    )


def _report(path: Path) -> Point:
    """The figures that an HTML report beside records holds, against what the records give."""
    from reports.html import figures_of

    try:
        shown = figures_of(path.read_text(encoding="utf-8"))
        made = json.loads(json.dumps(table.values(bundle.read([path.parent]))))
    except (OSError, ValueError) as error:
        return Point(Outcome.NOT_COMPARABLE, f"{path.name}: {error}")
    sides = [{_which(one): one for one in values} for values in (shown, made)]
    if verdict_beside(path.parent).is_file():
        says = f"{path.name}: a replay's, of what was replayed and of these records together; not computed again"
        return Point(Outcome.CAPTURED, says)
    if set(sides[0]) != set(sides[1]) or len(sides[0]) != len(shown):
        return Point(Outcome.NOT_COMPARABLE, f"{path.name}: a report of other records than those beside it")
    odd = [
        f"{path.name}, {line['algorithm']} {line['size_bytes']} B: {name} is {line.get(name)}, the samples give {value}"
        for key, line in sides[0].items()
        for name, value in sides[1][key].items()
        if line.get(name) != value
    ]
    figures = sum(map(len, shown))
    of = f"{counted(figures, 'figure')} of {counted(len(shown), 'case')}"
    good = f"{path.name}: {of} computed again, those embedded for programs; 0 differ"
    return verified_or(odd, good, figures, "figures differ")


def _which(line: Mapping[str, Any]) -> str:
    """What tells a line of figures from others: all that is no figure."""
    return json.dumps({key: value for key, value in line.items() if key in _NAMES}, sort_keys=True)


def _published(place: Path) -> tuple[Path, str] | None:
    """The project's folder and the machine's name, if a place is what publish makes tables of."""
    place = place.resolve()
    root = place.parents[2] if len(place.parents) > 2 else None
    if root is None or place.parent != root / publish.PLACE or not (root / "README.md").is_file():
        return None
    return (root, place.name) if any(place.glob(f"*{bundle.SUFFIX}")) else None


def _made_again(root: Path, machine: str) -> list[Point]:
    """Tables of a published machine, made again; and whether its pictures say that they are of these records."""
    records = bundle.read([root / publish.PLACE / machine])
    texts = publish.machine_texts(root, machine, records)
    changed = [f"{name} is not what the records give" for name, (there, wanted) in texts.items() if there != wanted]
    good = f"{counted(len(texts), 'text')} made again from raw samples; 0 differ"
    drawn = publish.drawings(root, {machine: records})
    other = [f"{path.name} was not drawn from these records" for path in publish.other_pictures(drawn)]
    says = f"{counted(len(drawn), 'picture')} say that they were drawn from these records"
    return [verified_or(changed, good, len(texts), "texts"), verified_or(other, says, len(drawn), "pictures")]
