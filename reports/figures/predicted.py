"""Predicted time and bus bandwidth over bytes, with intervals as bands. No picture here has a measured value."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.curves import MEASURES, Curve, draw_curves

MARK = "PREDICTED"
"""What stands in every picture, so that none is taken for a measurement."""


def predicted_curve(
    algorithm: str, sizes: Sequence[int], middle: Sequence[float], lowest: Sequence[float], highest: Sequence[float]
) -> Curve:
    """Return an algorithm's predictions over ascending sizes, and their intervals, as a curve with a band."""
    return Curve(algorithm, algorithm, True, tuple(sizes), tuple(middle), tuple(lowest), tuple(highest), True)


def figure(curves: Sequence[Curve], measure: str) -> Figure:
    """Draw the curves of one of MEASURES, for a page."""
    sheet = style.sheet(5.4, 3.4)
    axes = style.place(sheet, 0.7, 0.12, 4.6, 2.75)
    draw_curves(axes, curves, measure)
    axes.text(0.02, 0.97, MARK, transform=axes.transAxes, ha="left", va="top", fontsize=8, color="#b00020")
    return sheet


def inline(curves: Sequence[Curve], measure: str, key: str) -> str:
    """Return the picture as an <svg> element for a page; its ids begin with key."""
    names = ", ".join(one.label for one in curves)
    label = f"{MARK}, not measured: {MEASURES[measure]} over size of {names}, with intervals"
    return style.inline(lambda: figure(curves, measure), key, label)


def swatch(algorithm: str, key: str) -> str:
    """Return the piece of line of an algorithm for a page's legend."""
    return style.swatch(style.line_style(algorithm, True), key)
