"""The spread of samples: every sample against the median of its contestant at that size, beside its percentiles.

A section has one axis, a place for each size, and in it a slot for each contestant, in the order of the legend. A slot
has a short stroke for every sample, a bar from the 5th to the 95th percentile, a thin line from the smallest to the
largest, and the contestant's marker at the median. The axis is linear up to 5 % off the median, logarithmic beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from cases.record.timing import percentile
from reports.figures import style
from reports.table.compare import Row, Section, contestants, is_second, rows
from reports.table.spread import samples_us
from reports.table.text import size_text

WIDTH_IN, ROW_IN = 11.0, 3.1

LINEAR = 0.05
"""Up to so far off the median the axis is linear."""

LEVELS = 120
"""Number of heights of the axis; strokes at the same height cover one another and are drawn once."""

_TICKS = (-0.8, -0.5, -0.2, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def figure(sections: Sequence[Section]) -> Figure:
    """All sections on one sheet: a row each, the legend below."""
    judged = [rows(section) for section in sections]
    labels = list(dict.fromkeys(name for some in judged for name in contestants([row for row in some if row.timings])))

    def row(sheet: Figure, number: int, top_in: float) -> dict[str, Any]:
        axes = style.place(sheet, 0.75, top_in, WIDTH_IN - 0.9, ROW_IN - 0.75)
        axes.set_title(sections[number].heading, loc="left", fontsize=9)
        return draw(axes, judged[number])

    title = "samples against the median of their algorithm and size"
    return style.stacked(WIDTH_IN, ROW_IN, len(sections), row, title, labels)


def single(judged: Sequence[Row]) -> Figure:
    """One section, without title and legend: for a page, which has them."""
    sheet = style.sheet(WIDTH_IN, 2.9)
    draw(style.place(sheet, 0.75, 0.1, WIDTH_IN - 0.85, 2.3), judged)
    return sheet


def draw(axes: Axes, judged: Sequence[Row]) -> dict[str, Any]:
    """All contestants at all sizes. Gives the legend: a handle by label."""
    timed = [row for row in judged if row.timings and row.size_bytes]
    sizes = sorted({row.size_bytes for row in timed})
    found = contestants(timed)
    slot = 0.86 / len(found)
    handles, ends = {}, [0.0]
    for index, (name, own) in enumerate(found.items()):
        places = [sizes.index(row.size_bytes) - 0.43 + slot * (index + 0.5) for row in own]
        handles[name] = _contestant(axes, own, places, slot, ends, is_second(own, timed))
    _axis(axes, min(ends), max(ends))
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    between = [number - 0.5 for number in range(1, len(sizes))]
    style.fixed_ticks(axes.xaxis, between, [""] * len(between))
    style.fixed_ticks(axes.xaxis, list(range(len(sizes))), list(map(size_text, sizes)), has_grid=False)
    style.name(axes.xaxis, "size")
    return handles


def _contestant(
    axes: Axes, own: Sequence[Row], places: Sequence[float], slot: float, ends: list[float], is_dotted: bool
) -> Line2D:
    """One contestant's strokes, bars and markers. Adds to ends how far its samples lie off. Gives its handle."""
    look = style.line_style(own[0].algorithm, own[0].is_ours, is_dotted)
    strokes, bars, lines = _Pieces(), _Pieces(), _Pieces()
    half = min(slot * 0.36, 0.1)
    for row, place in zip(own, places, strict=True):
        middle = row.figure("median_us") or 1.0
        ordered = samples_us(row)
        off = numpy.array(ordered) / middle - 1
        ends += [off[0], off[-1]]
        for value in thinned(off):
            strokes.add(place - half, value, place + half, value)
        low, high = (percentile(ordered, percent, is_sorted=True) / middle - 1 for percent in (5, 95))
        bars.add(place, low, place, high)
        lines.add(place, off[0], place, off[-1])
    colour = look["color"]
    for pieces, width, alpha, order in ((strokes, 0.5, 0.55, 1.0), (lines, 0.7, 1.0, 2.0), (bars, 2.4, 1.0, 3.0)):
        axes.add_artist(pieces.patch(axes, colour, width, alpha, order))
    point = {name: look[name] for name in ("color", "marker", "markersize", "markerfacecolor")}
    axes.plot(places, [0.0] * len(places), **point, linestyle="none", zorder=4)
    return Line2D([], [], **point, linestyle=look["linestyle"])


class _Pieces:
    """Straight pieces as one broken line: far fewer elements in the file than a line each."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def add(self, x0: float, y0: float, x1: float, y1: float) -> None:
        self.points += ((x0, y0), (x1, y1))

    def patch(self, axes: Axes, colour: str, width: float, alpha: float, order: float) -> PathPatch:
        codes = [Path.MOVETO, Path.LINETO] * (len(self.points) // 2)
        return PathPatch(
            Path(self.points, codes),
            transform=axes.transData,
            fill=False,
            edgecolor=colour,
            linewidth=width,
            alpha=alpha,
            capstyle="butt",
            zorder=order,
        )


def thinned(off: Any) -> Any:
    """Shares off the median (an array, ascending), those that would be drawn over one another once: the first of each
    level."""
    size = numpy.abs(off) / LINEAR
    scaled = numpy.copysign(numpy.where(size <= 1, size, 1 + numpy.log10(numpy.maximum(size, 1))), off)
    _, first = numpy.unique(numpy.round(scaled * LEVELS / 4), return_index=True)
    return off[first]


def _axis(axes: Axes, lowest: float, highest: float) -> None:
    low, high = min(lowest * 1.1, -LINEAR / 2), max(highest * 1.15, LINEAR / 2)
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=1)
    axes.set_ylim(low, high)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    if high <= LINEAR and low >= -LINEAR:
        ticks = [tick for tick in (-0.04, -0.02, 0.0, 0.02, 0.04) if low <= tick <= high]
    style.fixed_ticks(axes.yaxis, ticks, [f"{tick * 100:+.4g} %" if tick else "median" for tick in ticks])
    style.name(axes.yaxis, "time, off the median", 0.62)
