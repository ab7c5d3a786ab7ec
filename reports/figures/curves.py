"""Time and bus bandwidth over bytes: all contestants of a section, and the measured limit of the link.

A row of two axes for each section (op, dtype, world size, setup). Ours are solid, baselines dashed. Where there are
several worlds, lines are their median and bands reach from the lowest to the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon

from cases.record.record import Record
from reports.figures import style
from reports.table.compare import (
    LIMIT_LABEL,
    Row,
    Section,
    contestants,
    device_text,
    is_second,
    limit_gbps,
    limits,
    rows,
    setup_text,
    split,
)

WIDTH_IN, ROW_IN = 11.0, 3.7

BAND = 0.18
"""How much of its colour a band has."""

MEASURES = {"median_us": "time (us)", "busbw_gbps": "bus bandwidth (GB/s)"}
"""What is drawn over sizes, as Row.figure knows it, and what stands at its axis."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A contestant's values over sizes: the median over its worlds, the lowest and the highest.

    label: its name in a legend. is_second: see compare.is_second.
    """

    label: str
    algorithm: str
    is_ours: bool
    sizes: tuple[int, ...]
    middle: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    has_worlds: bool
    is_second: bool = False


def drawable(records: Sequence[Record]) -> list[Section]:
    """The timed sections, without empty messages, which have no place on a logarithmic axis. ValueError where there is
    none, saying what to do."""
    sections, _ = split([record for record in records if record.case.size_bytes])
    if not sections:
        raise ValueError(
            "none of these records has a timing, so there is nothing to draw; only real hardware gives one"
        )
    return sections


def curves(judged: Sequence[Row], measure: str) -> list[Curve]:
    """The curves of a section's rows, in order of appearance; a measure is one of MEASURES."""
    found = []
    timed = [row for row in judged if row.timings and row.size_bytes and row.figure(measure) is not None]
    for label, own in contestants(timed).items():
        values = [[_value(timing, measure, row.size_bytes) for timing in row.timings] for row in own]
        found.append(
            Curve(
                label,
                own[0].algorithm,
                own[0].is_ours,
                tuple(row.size_bytes for row in own),
                tuple(row.figure(measure) or 0.0 for row in own),
                tuple(map(min, values)),
                tuple(map(max, values)),
                any(len(some) > 1 for some in values),
                is_second(own, timed),
            )
        )
    return found


def figure(sections: Sequence[Section]) -> Figure:
    """All sections on one sheet: a row each below a title, the legend below."""
    judged = [rows(section) for section in sections]
    names = dict.fromkeys(name for some in judged for name in contestants([row for row in some if row.timings]))
    labels = [*names, *([LIMIT_LABEL] if any(limits(section.records) for section in sections) else [])]

    height_in = style.TITLE_IN + ROW_IN * len(sections) + style.legend_height_in(labels, WIDTH_IN)
    sheet, shown = style.sheet(WIDTH_IN, height_in), dict[str, Any]()
    for number, (section, some) in enumerate(zip(sections, judged, strict=True)):
        top_in = style.TITLE_IN + ROW_IN * number + 0.25
        left = style.place(sheet, 0.7, top_in, 4.65, ROW_IN - 0.75)
        right = style.place(sheet, 6.2, top_in, 4.65, ROW_IN - 0.75)
        left.set_title(section.heading, loc="left", fontsize=9)
        shown |= draw(left, some, "median_us") | draw(right, some, "busbw_gbps", limit_gbps(section.records))
    sheet.suptitle(_title(sections), fontsize=11, fontweight="bold", y=1 - 0.12 / height_in, va="top")
    style.add_legend(sheet, {label: shown[label] for label in labels if label in shown})
    return sheet


def single(judged: Sequence[Row], measure: str, limit: float | None = None) -> Figure:
    """One measure of one section, without title and legend: for a page, which has them."""
    sheet = style.sheet(5.4, 3.4)
    draw(style.place(sheet, 0.7, 0.12, 4.6, 2.75), judged, measure, limit)
    return sheet


def draw(axes: Axes, judged: Sequence[Row], measure: str, limit: float | None = None) -> dict[str, Any]:
    """Draw all curves of a measure, and the limit. Gives the legend: a handle by label."""
    found = curves(judged, measure)
    handles = {one.label: _line(axes, one) for one in found}
    if limit is not None:
        handles[LIMIT_LABEL] = axes.axhline(limit, **style.OF_LIMIT)
    style.sizes_axis(axes, sorted({row.size_bytes for row in judged if row.timings and row.size_bytes}), most=8)
    values = [value for one in found for value in (*one.lowest, *one.highest)]
    if measure == "median_us":
        style.log_axis(axes, min(values), max(values))
    else:
        style.linear_axis(axes, max([*values, limit or 0.0]) or 1.0)  # 1: nothing has a bandwidth
    style.name(axes.yaxis, MEASURES[measure])
    return handles


def _line(axes: Axes, curve: Curve) -> Any:
    """The line of one algorithm, with a band where there are several worlds. Gives its handle."""
    look = style.line_style(curve.algorithm, curve.is_ours, curve.is_second)
    if curve.has_worlds:
        around = [
            *zip(curve.sizes, curve.lowest, strict=True),
            *reversed([*zip(curve.sizes, curve.highest, strict=True)]),
        ]
        axes.add_artist(Polygon(around, closed=True, facecolor=look["color"], alpha=BAND, lw=0))
    line = Line2D(curve.sizes, curve.middle, **look, clip_on=False)
    axes.add_artist(line)  # neither plot nor fill_between: the axes' limits are known, and these look for them
    return line


def _title(sections: Sequence[Section]) -> str:
    """Device, world size, how it was timed: of the first section, and of all where they agree."""
    records = [record for section in sections for record in section.records if record.timing is not None]
    devices = dict.fromkeys(map(device_text, records))
    sizes = sorted({record.case.world_size for record in records})
    setups = dict.fromkeys(map(setup_text, records))
    return f"{' and '.join(map(str, sizes))} x {', '.join(devices)}: {'; '.join(setups)}"


def _value(timing: Any, measure: str, size_bytes: int) -> float:
    value = getattr(timing, measure)
    return float(value(size_bytes) if callable(value) else value)
