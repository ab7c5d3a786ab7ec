"""Item "figures": of a published machine its table, sections of READMEs and figure, made again from the records.

Reports, tables and pictures elsewhere are views: the records beside them make them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reports.record import bundle
from symlab.evidence import published
from symlab.evidence.audit.items import Point, contradicted, recomputed
from symlab.evidence.audit.material import Material


def figures(material: Material) -> Iterator[Point]:
    """What is published of each machine among the places, against what its records give."""
    for place in material.places:
        machine = _published(place)
        if machine is not None:
            yield from _published_again(*machine)


def _published(place: Path) -> tuple[Path, str] | None:
    """Return the project's folder and the machine's name if a place is a folder of reports/published/, else None."""
    place = place.resolve()
    root = place.parents[2] if len(place.parents) > 2 else None
    if root is None or place.parent != root / published.PLACE or not (root / "README.md").is_file():
        return None
    return (root, place.name) if any(place.glob(f"*{bundle.SUFFIX}")) else None


def _published_again(root: Path, machine: str) -> Iterator[Point]:
    """Compare a published machine's texts with those that its records give, and the digest that its figure names."""
    records = bundle.read([root / published.PLACE / machine])
    texts = published.machine_texts(root, machine, records)
    odd = [(name, "it is not what the records give") for name, (there, wanted) in texts.items() if there != wanted]
    yield from recomputed(len(texts) - len(odd), odd, (), "texts made again from the samples that are stated")
    outdated = published.outdated(published.figures(root, {machine: records}))
    yield from contradicted(f"{path.name} was not drawn from these records" for path in outdated)
