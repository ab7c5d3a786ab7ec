"""The part of the page on hardware measurements: curves, table and percentiles of each section."""

from __future__ import annotations

from collections.abc import Sequence

from cases.record.record import Record, Status
from reports.html.blocks import Block, Fold, Heading, Notes, Part, Table
from reports.html.pictures import HOW_TO_READ, Album
from reports.table import refusals, spread, timed_table
from reports.table.compare import limit_gbps, rows, split


def part(records: Sequence[Record], album: Album) -> Part | None:
    """Return the part, None if no record has a timing."""
    sections, _ = split(records)
    if not sections:
        return None
    judged = [rows(section) for section in sections]
    numbers = refusals.notes(
        [record for section in sections for record in section.records if record.status is not Status.REFUSED]
    )
    sheets = timed_table.long(sections, numbers)
    said = [f"[{index}] {reason}" for reason, index in numbers.items()]
    blocks: list[Block] = [Notes((*said, *timed_table.captions(sections)))]
    blocks.append(Fold("How to read the pictures", (Notes(HOW_TO_READ),)))
    for number, (section, some, sheet) in enumerate(zip(sections, judged, sheets, strict=True), start=1):
        blocks.append(Heading(f"section-{number}", section.heading))
        blocks += album.curves(section.heading, some, limit_gbps(section.records))
        blocks.append(Table(sheet, heading=False))
        percentiles = Table(spread.sheet(section), heading=False)
        blocks.append(Fold("Percentiles of the samples", (percentiles, Notes((spread.CAPTION,)))))
    return Part("measured", "Measured on hardware", tuple(blocks))
