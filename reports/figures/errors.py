"""Errors of sums of floats, over bytes or over ranks: a curve for each algorithm and accumulator, an axis a measure.

An algorithm has the colour and the marker that it has everywhere; an accumulator has its own dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.numerics.accuracy import Curve, Group
from reports.numerics.study import Measure, Series, measures_of

Curves = Sequence[Curve] | Sequence[Series]


def over_bytes(groups: Sequence[Group]) -> Figure:
    """All groups on one sheet: a row each, the legend below."""
    rows = [(group.heading, group.curves, group.measures) for group in groups]
    return _stacked(rows, "sizes", 11.0, 5.5, (0.75, 4.6, 3.3))


def over_ranks(curves: Sequence[Series]) -> Figure:
    """A row for each op, reduction and data type, an axis for each measure that is there."""
    measures = measures_of(curves)
    kinds = dict.fromkeys(one.picture for one in curves)
    rows = [(", ".join(kind), [one for one in curves if one.picture == kind], measures) for kind in kinds]
    return _stacked(rows, "ranks", 4.2 * len(measures), 4.2, (0.65, 3.4, 2.9))


def _stacked(
    rows: Sequence[tuple[str, Curves, Sequence[Measure]]],
    over: str,
    width_in: float,
    column_in: float,
    place: tuple[float, float, float],
) -> Figure:
    """Rows, each with a heading, its curves and what is drawn of them. place: left and width of axes, height of a
    row, in inches."""
    left_in, axes_in, row_in = place

    def row(sheet: Figure, number: int, top_in: float) -> dict[str, Any]:
        heading, curves, measures = rows[number]
        shown: dict[str, Any] = {}
        for column, measure in enumerate(measures):
            axes = style.place(sheet, left_in + column_in * column, top_in, axes_in, row_in - 0.75)
            shown |= _draw(axes, curves, measure)
            if not column:
                axes.set_title(heading, loc="left", fontsize=9)
        return shown

    labels = list(dict.fromkeys(curve.label for _, curves, _ in rows for curve in curves))
    title = f"errors against the exact sum rounded once, over {over}"
    return style.stacked(width_in, row_in, len(rows), row, title, labels)


def single(curves: Curves, measure: Measure) -> Figure:
    """One measure of curves that belong in one axis, without title and legend: for a page, which has them."""
    sheet = style.sheet(5.4, 3.15)
    _draw(style.place(sheet, 0.7, 0.12, 4.6, 2.5), curves, measure)
    return sheet


def _draw(axes: Axes, curves: Curves, measure: Measure) -> dict[str, Any]:
    """The curves of one measure. Gives the legend. Ulps, which may be many, are on a logarithmic axis with 0."""
    handles: dict[str, Any] = {}
    highest = 0.0
    for curve in curves:
        pairs = zip(curve.sizes, map(measure.value, curve.points), strict=True)
        known = [(size, value) for size, value in pairs if value is not None]
        if known:
            sizes, values = zip(*known, strict=True)
            look = style.error_style(curve.algorithm, curve.accumulator)
            (handles[curve.label],) = axes.plot(sizes, values, **look, clip_on=False)
            highest = max(highest, *values)
    all_sizes = sorted({size for curve in curves for size in curve.sizes})
    if isinstance(curves[0], Series):
        style.ranks_axis(axes, all_sizes)
    else:
        style.sizes_axis(axes, all_sizes, most=8)
    if measure.key.endswith("ulp_error"):
        style.ulps_axis(axes, highest)
    else:
        style.linear_axis(axes, highest)
    style.name(axes.yaxis, measure.title)
    return handles
