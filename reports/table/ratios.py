"""Ratios: for each op and size the time of our best kernel over that of the best library, a column for each number of
ranks.

A ratio is that of tables (ours/base): the medians over worlds, one over the other. The same two contestants are also
compared within each world, and the lowest and the highest of these ratios say whether every world agrees.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from cases.record.record import Record
from reports.table import sheet
from reports.table.compare import Row, Section, contestant_text, device_text, rows, setup_text, split
from reports.table.sheet import Line, Sheet
from reports.table.text import counted, size_text

NOTHING = "none of these records has times of a kernel of ours and of a library at one size: there is no ratio"

ROUNDING = 0.1
"""Maximum share by which a size was rounded down where it stands on the line of a larger one: a size is made a multiple
of the ranks' chunks, and differs by 1.6 % at most from 1 KiB of float32 on 7 ranks."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One size of one section: our best row and the rivals' best, ratio of their median times; lowest and highest of
    the ratios within the worlds that timed both (None if no world did), and the number of these worlds."""

    section: Section
    ours: Row
    rival: Row
    kernel: str
    rival_name: str
    ratio: float
    lowest: float | None
    highest: float | None
    worlds: int

    @property
    def size_bytes(self) -> int:
        return self.ours.size_bytes

    @property
    def world_size(self) -> int:
        return self.ours.records[0].case.world_size


def ratios(records: Sequence[Record]) -> list[Ratio]:
    """Return the ratio of each size at which one of our kernels and a library were timed, in order of sections and
    sizes. Raises ValueError if there is none."""
    sections, _ = split(records)
    found = [one for section in sections for one in _of_section(section)]
    if not found:
        raise ValueError(NOTHING)
    return found


def _of_section(section: Section) -> list[Ratio]:
    judged = rows(section)
    found: dict[int, Ratio] = {}
    for ours in judged:
        if ours.ratio is None or ours.size_bytes in found:
            continue
        rivals = [row for row in judged if row.size_bytes == ours.size_bytes and not row.is_ours and row.timings]
        rival = min(rivals, key=lambda row: row.figure("median_us") or 0.0)
        within = _within_worlds(ours, rival)
        found[ours.size_bytes] = Ratio(
            section=section,
            ours=ours,
            rival=rival,
            kernel=contestant_text(ours, judged),
            rival_name=contestant_text(rival, judged),
            ratio=ours.ratio,
            lowest=min(within, default=None),
            highest=max(within, default=None),
            worlds=len(within),
        )
    return list(found.values())


def _within_worlds(ours: Row, rival: Row) -> list[float]:
    """Return the ratio of two rows in each world that timed both; several runs in a world are one, by their median."""
    sides: list[dict[str, list[float]]] = [{}, {}]
    for side, row in zip(sides, (ours, rival), strict=True):
        for record in row.records:
            if record.timing is not None:
                side.setdefault(record.request.command, []).append(record.timing.median_us)
    both = [world for world in sides[0] if world in sides[1]]
    return [statistics.median(sides[0][world]) / statistics.median(sides[1][world]) for world in both]


def text(records: Sequence[Record]) -> str:
    """The ratios as aligned text, no wider than a line here is. ValueError as for ratios."""
    return sheet.text(*_sheets(ratios(records)), width=sheet.room_here())


def markdown(records: Sequence[Record]) -> str:
    """The ratios as Markdown, those below 1 in bold, ending in a newline. ValueError as for ratios."""
    return sheet.markdown(*_sheets(ratios(records))) + "\n"


def values(records: Sequence[Record]) -> list[dict[str, object]]:
    """Raw values, unrounded: a dict for each ratio; times in microseconds. ValueError as for ratios."""
    return [_values(one) for one in ratios(records)]


def _values(one: Ratio) -> dict[str, object]:
    case = one.ours.records[0].case
    first = next(record for record in one.ours.records if record.timing is not None)
    return {
        "op": case.op,
        "dtype": case.dtype,
        "reduction": case.reduction,
        "world_size": case.world_size,
        "size_bytes": case.size_bytes,
        "kernel": one.kernel,
        "kernel_us": one.ours.figure("median_us"),
        "rival": one.rival_name,
        "rival_library": one.rival.records[0].library,
        "rival_us": one.rival.figure("median_us"),
        "ratio": one.ratio,
        "ratio_lowest": one.lowest,
        "ratio_highest": one.highest,
        "worlds": one.worlds,
        "device": device_text(first),
        "setup": setup_text(first),
        "section": one.section.heading,
    }


def _sheets(found: Sequence[Ratio]) -> tuple[list[Sheet], list[str]]:
    """A sheet for all sections that differ in ranks alone, a line a size, a column a number of ranks; and captions."""
    return [_sheet(_without_ranks(some[0]), some) for some in _groups(found)], _captions(found)


def _groups(found: Sequence[Ratio]) -> list[list[Ratio]]:
    """Ratios whose sections differ in ranks alone, together."""
    groups: dict[str, list[Ratio]] = {}
    for one in found:
        groups.setdefault(_without_ranks(one), []).append(one)
    return list(groups.values())


def _without_ranks(one: Ratio) -> str:
    """The section's heading without its number of ranks."""
    return one.section.heading.replace(f", {_ranks(one)}", "", 1)


def _ranks(one: Ratio) -> str:
    return counted(one.world_size, "rank")


def _sheet(heading: str, some: Sequence[Ratio]) -> Sheet:
    by_ranks = sorted(some, key=lambda one: one.world_size)
    columns = ("size", *dict.fromkeys(map(_ranks, by_ranks)))
    lines = []
    for members in _lines(by_ranks):
        size_bytes = max(one.size_bytes for one in members)
        cells = dict.fromkeys(columns, "-") | {"size": size_text(size_bytes)}
        styles: dict[str, str] = {}
        raw: dict[str, float] = {"size": size_bytes}
        for one in members:
            cells[_ranks(one)] = f"{one.ratio:.2f} {one.kernel} : {one.rival_name}"
            styles |= {_ranks(one): "bold"} if one.ratio < 1 else {}
            raw[_ranks(one)] = one.ratio
        lines.append(Line(cells, styles, raw))
    return Sheet(heading, columns, (tuple(lines),), frozenset({"size"}))


def _lines(some: Sequence[Ratio]) -> list[list[Ratio]]:
    """Ratios by line, smallest sizes first: sizes that were rounded down for equal chunks stand with the size that was
    asked for, see ROUNDING. No line has a number of ranks twice."""
    lines: list[list[Ratio]] = []
    for one in sorted(some, key=lambda one: (-one.size_bytes, one.world_size)):
        line = lines[-1] if lines else []
        is_near = bool(line) and one.size_bytes >= (1 - ROUNDING) * line[0].size_bytes
        if is_near and one.world_size not in {other.world_size for other in line}:
            line.append(one)
        else:
            lines.append([one])
    return lines[::-1]


def _captions(found: Sequence[Ratio]) -> list[str]:
    faster = sum(one.ratio < 1 for one in found)
    worst = max(found, key=lambda one: one.ratio)
    lines = [
        "ratio: the time of our best kernel over that of the best library, medians over worlds; below 1 ours is faster",
        f"ours is faster in {faster} of {counted(len(found), 'ratio')}; the highest is {worst.ratio:.2f}, "
        f"{worst.ours.records[0].case.op} {size_text(worst.size_bytes)}, {_ranks(worst)}",
    ]
    if any(len({one.size_bytes for one in line}) > 1 for some in _groups(found) for line in _lines(some)):
        lines.append("size: the largest of its line; others are rounded down so that all ranks have equal chunks")
    worlds = sorted({one.worlds for one in found})
    told = [one for one in found if one.worlds > 1]
    counts = f"{worlds[0]}" if len(worlds) == 1 else f"{worlds[0]} to {worlds[-1]}"
    split_over = [
        one for one in told if one.lowest is not None and one.highest is not None and one.lowest < 1 < one.highest
    ]
    if told:
        lines.append(
            f"worlds: {counts} a ratio; in {len(split_over)} of {counted(len(told), 'ratio')} of several worlds these "
            "disagree on who is faster"
        )
    return lines
