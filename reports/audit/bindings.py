"""All contradictions of a set, and the points that a checklist gets for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reports.audit import (
    bound_gpus,
    bound_machine,
    bound_predictions,
    bound_records,
    bound_repository,
    bound_requests,
    bound_samples,
    bound_workers,
    bound_worlds,
)
from reports.audit.contradiction import Contradiction
from reports.audit.copied import copies
from reports.audit.items import Item, Outcome, Point, listed
from reports.audit.material import Material
from reports.table.text import counted

MOST_TOLD = 4
"""Maximum number of contradictions to tell in full in an item."""


def contradictions(material: Material) -> list[Contradiction]:
    """Return what the parts of a set say against each other, each once."""
    return list(dict.fromkeys(_found(material)))


def _found(material: Material) -> Iterator[Contradiction]:
    for record in material.records:
        yield from bound_records.contradictions(record)
        yield from bound_requests.of_record(record)
    yield from bound_predictions.contradictions(material.records)
    yield from (Contradiction(bound_worlds.WORLDS, sentence) for sentence in copies(material.records))
    yield from bound_worlds.contradictions(material.worlds)
    yield from bound_machine.of_worlds(material.worlds)
    for world in material.worlds.values():
        yield from bound_gpus.contradictions(world)
        yield from bound_machine.contradictions(world)
        yield from bound_samples.contradictions(world)
        if material.file_alone is None:
            not_run = material.not_run.get(world[0].request.command, ())
            yield from bound_machine.strangers(world, [case for _, case in not_run])
        yield from bound_repository.contradictions(world)
    for folder, document in material.commands.items():
        name = str(document.get("command", folder.name))
        members = [record for record in material.records if record.request.command == name]
        yield from bound_requests.of_folder(folder, document, members)
        yield from bound_repository.of_folder(folder, name, members)
        yield from bound_workers.of_folder(document, name, members)


def with_contradictions(items: Iterable[Item], found: Iterable[Contradiction]) -> tuple[Item, ...]:
    """Return the items, each with a point for the contradictions that belong to it."""
    by_item: dict[int, list[str]] = {}
    for one in found:
        by_item.setdefault(one.item, []).append(one.sentence)
    return tuple(_with(item, by_item.get(item.number, [])) for item in items)


def _with(item: Item, sentences: list[str]) -> Item:
    if not sentences:
        return item
    point = Point(Outcome.FINDING, f"{counted(len(sentences), 'contradiction')}: {listed(sentences, MOST_TOLD)}")
    return replace(item, points=(*item.points, point))
