"""Item 12: figures that somebody derived from raw samples, in a report, a table or MLflow, computed again."""

from __future__ import annotations

from pathlib import Path

from reports import publish
from reports.audit.items import Outcome, Point, counted, verified_or
from reports.audit.material import Material


def points_of(material: Material) -> tuple[Point, ...]:
    """What became of every place where derived figures of these records are to be found."""
    points: list[Point] = []
    for place in material.places:
        if machine := _published(place):
            points += _texts(*machine)
    return tuple(points) or (
        Point(
            Outcome.DOES_NOT_APPLY,
            "no table or report beside the records: figures are computed whenever they are shown",
        ),
    )


def _published(place: Path) -> tuple[Path, str] | None:
    """The project's folder and the machine's name, if a place is what publish makes tables of."""
    place = place.resolve()
    root = place.parents[2] if len(place.parents) > 2 else None
    if root is None or place.parent != (root / publish.PLACE) or not (root / "README.md").is_file():
        return None
    return (root, place.name) if place.name in publish.machines(root) else None


def _texts(root: Path, machine: str) -> list[Point]:
    """Tables and pictures of a published machine, made again."""
    published = publish.machines(root)
    wanted = publish.texts(root, published)
    ours = {path: text for path, text in wanted.items() if machine in path.parts or path.parent == root}
    changed = [f"{path.relative_to(root)} is not what the records give" for path in publish.stale(ours)]
    points = [
        verified_or(changed, f"{counted(len(ours), 'text')} made again from raw samples; 0 differ", len(ours), "texts")
    ]
    drawn = {path: records for path, records in publish.drawings(root, published).items() if machine in path.parts}
    other = [f"{path.relative_to(root)} was not drawn from these records" for path in publish.other_pictures(drawn)]
    says = f"{counted(len(drawn), 'picture')} say that they were drawn from these records"
    points.append(verified_or(other, says, len(drawn), "pictures"))
    return points
