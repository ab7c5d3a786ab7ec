"""The part of the page on hardware measurements: a summary, then curves, table, percentiles of each section."""

from __future__ import annotations

from collections.abc import Sequence

from cases.record.record import Record, Status
from reports.html.blocks import Block, Fold, Heading, Notes, Part, Table
from reports.html.pictures import HOW_TO_READ, Album
from reports.table import refusals, spread, timed_table
from reports.table.compare import Row, Section, contestants, limit_gbps, rows, split
from reports.table.sheet import Line, Sheet, line_of
from reports.table.text import counted

_GLANCE = (
    *("section", "sizes", "contestants", "faster at", "best ours/base", "worst ours/base", "peak busbw (GB/s)"),
    *("link %", "by"),
)


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
    blocks: list[Block] = [_glance(sections, judged)] if len(sections) > 1 else []
    said = [f"[{index}] {reason}" for reason, index in numbers.items()]
    blocks.append(Notes((*said, *timed_table.captions(sections))))
    blocks.append(Fold("How to read the pictures", (Notes(HOW_TO_READ),)))
    for number, (section, some, sheet) in enumerate(zip(sections, judged, sheets, strict=True), start=1):
        blocks.append(Heading(anchor(number), section.heading))
        blocks += album.curves(section.heading, some, limit_gbps(section.records))
        blocks.append(Table(sheet, heading=False))
        percentiles = Table(spread.sheet(section), heading=False)
        blocks.append(Fold("Percentiles of the samples", (percentiles, Notes((spread.CAPTION,)))))
    return Part("measured", "Measured on hardware", tuple(blocks))


def anchor(number: int) -> str:
    """The anchor of a section, by its number from 1."""
    return f"section-{number}"


def _glance(sections: Sequence[Section], judged: Sequence[Sequence[Row]]) -> Table:
    """Return a table with a line for each section, linked to it."""
    lines = [_line(section, some) for section, some in zip(sections, judged, strict=True)]
    numeric = frozenset(_GLANCE) - {"section", "by"}
    links = {number: anchor(number + 1) for number in range(len(lines))}
    return Table(Sheet("At a glance", _GLANCE, (tuple(lines),), numeric), links)


def _line(section: Section, some: Sequence[Row]) -> Line:
    timed_rows = [row for row in some if row.timings]
    ratios = [row.ratio for row in some if row.ratio is not None]
    ours = [(value, row) for row in timed_rows if row.is_ours and (value := row.figure("busbw_gbps"))]
    peak = max(ours, key=lambda pair: pair[0], default=None)
    share = peak[1].figure("of_limit") if peak else None
    faster = sum(ratio < 1 for ratio in ratios)
    values = {
        "section": section.heading,
        "sizes": len({row.size_bytes for row in timed_rows}),
        "contestants": len(contestants(timed_rows)),
        "faster at": faster / len(ratios) if ratios else None,
        "best ours/base": min(ratios, default=None),
        "worst ours/base": max(ratios, default=None),
        "peak busbw (GB/s)": peak[0] if peak else None,
        "link %": share * 100 if share is not None else None,
        "by": peak[1].algorithm if peak else None,
    }
    formats = dict.fromkeys(("best ours/base", "worst ours/base"), "{:.2f}".format)
    formats |= dict.fromkeys(("peak busbw (GB/s)", "link %"), "{:.1f}".format)
    return line_of(
        values, {**formats, "faster at": lambda _: f"{faster} of {counted(len(ratios), 'size')}"}, {"section": "text"}
    )
