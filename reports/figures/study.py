"""Studies: errors over ranks, for each accumulator. A row for each op, reduction and data type.

An algorithm has the colour and the marker that it has everywhere; an accumulator has its own dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.numerics.study import Measure, Series, measures_of

COLUMN_IN, ROW_IN = 4.2, 2.9


def figure(curves: Sequence[Series]) -> Figure:
    """A row for each op, reduction and data type, an axis for each measure that is there."""
    kinds = list(dict.fromkeys(one.picture for one in curves))
    measures = measures_of(curves)
    labels = list(dict.fromkeys(f"{one.algorithm}, {one.accumulator}" for one in curves))

    def row(sheet: Figure, number: int, top_in: float) -> dict[str, Any]:
        own = [one for one in curves if one.picture == kinds[number]]
        shown: dict[str, Any] = {}
        for column, measure in enumerate(measures):
            axes = style.place(sheet, COLUMN_IN * column + 0.65, top_in, COLUMN_IN - 0.8, ROW_IN - 0.75)
            shown |= draw(axes, own, measure)
            if not column:
                axes.set_title(", ".join(kinds[number]), loc="left", fontsize=9)
        return shown

    title = "errors against the exact sum rounded once, over ranks"
    return style.stacked(COLUMN_IN * len(measures), ROW_IN, len(kinds), row, title, labels)


def single(curves: Sequence[Series], measure: Measure) -> Figure:
    """One measure of curves that belong in one axis, without title and legend: for a page, which has them."""
    sheet = style.sheet(5.4, 3.2)
    draw(style.place(sheet, 0.65, 0.12, 4.6, 2.55), curves, measure)
    return sheet


def draw(axes: Axes, curves: Sequence[Series], measure: Measure) -> dict[str, Any]:
    """The curves of one measure. Gives the legend. Ulps, which may be many, are on a logarithmic axis with 0."""
    handles: dict[str, Any] = {}
    values: list[float] = []
    for one in curves:
        points = [(point.world_size, value) for point in one.points if (value := measure.value(point)) is not None]
        look = style.error_style(one.algorithm, one.accumulator)
        (handles[f"{one.algorithm}, {one.accumulator}"],) = axes.plot(
            [size for size, _ in points], [value for _, value in points], **look, clip_on=False
        )
        values += [value for _, value in points]
    style.ranks_axis(axes, sorted({size for one in curves for size in one.world_sizes}))
    if measure.key.endswith("ulp_error"):
        style.ulps_axis(axes, max(values, default=1.0))
    else:
        style.linear_axis(axes, max(values, default=0.0))
    style.name(axes.yaxis, measure.title)
    return handles
