"""Errors over bytes: how exact sums were, a curve for each algorithm and accumulator.

An algorithm has the colour and the marker that it has everywhere; an accumulator has its own dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.numerics.accuracy import Group
from reports.numerics.study import Measure

WIDTH_IN, ROW_IN = 11.0, 3.3


def figure(groups: Sequence[Group]) -> Figure:
    """All groups on one sheet: a row each, the legend below."""
    labels = list(dict.fromkeys(curve.label for group in groups for curve in group.curves))

    def row(sheet: Figure, number: int, top_in: float) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for column, measure in enumerate(groups[number].measures):
            axes = style.place(sheet, 0.75 + 5.5 * column, top_in, 4.6, ROW_IN - 0.75)
            shown |= draw(axes, groups[number], measure)
            if not column:
                axes.set_title(groups[number].heading, loc="left", fontsize=9)
        return shown

    title = "errors against the exact sum rounded once, over sizes"
    return style.stacked(WIDTH_IN, ROW_IN, len(groups), row, title, labels)


def single(group: Group, measure: Measure) -> Figure:
    """One measure of one group, without title and legend: for a page, which has them."""
    sheet = style.sheet(5.4, 3.1)
    draw(style.place(sheet, 0.7, 0.12, 4.6, 2.45), group, measure)
    return sheet


def draw(axes: Axes, group: Group, measure: Measure) -> dict[str, Any]:
    """The curves of one measure. Gives the legend: a handle by label."""
    handles: dict[str, Any] = {}
    highest = 0.0
    for curve in group.curves:
        pairs = zip(curve.sizes, map(measure.value, curve.points), strict=True)
        known = [(size, value) for size, value in pairs if value is not None]
        if known:
            sizes, values = zip(*known, strict=True)
            look = style.error_style(curve.algorithm, curve.accumulator)
            (handles[curve.label],) = axes.plot(sizes, values, **look, clip_on=False)
            highest = max(highest, *values)
    style.sizes_axis(axes, sorted({size for curve in group.curves for size in curve.sizes}), most=8)
    if measure.key.endswith("ulp_error"):
        style.ulps_axis(axes, highest)
    else:
        style.linear_axis(axes, highest)
    style.name(axes.yaxis, measure.title)
    return handles
