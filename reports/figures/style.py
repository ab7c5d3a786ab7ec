"""How all pictures look: an algorithm's colour and marker, axes in binary units, figures in inches, their files.

Axes are placed by hand, not by matplotlib's solver, so that a picture of many sections takes as long as its parts.
"""

from __future__ import annotations

import functools
import hashlib
import io
import math
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from reports.table.text import size_text

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"),
)
"""Okabe and Ito's palette, which people who see no red or no green can tell apart; without its yellow, too pale."""

_MARKERS = "osD^vP*X<>ph"

KNOWN = {
    "one_shot": (BLUE, "o"),
    "one_shot_rotated": (SKY, ">"),
    "two_shot": (VERMILION, "s"),
    "lamport": (GREEN, "^"),
    "ll": (BLACK, "<"),
    "ll128": (GREEN, "<"),
    "two_shot_lamport": (ORANGE, "v"),
    "multimem_one_shot": (PURPLE, "D"),
    "multimem_two_shot": (ORANGE, "P"),
    "pull": (BLUE, "p"),
    "push": (SKY, "D"),
    "push_rounds": (VERMILION, "p"),
    "multimem": (PURPLE, "s"),
    "bulk": (ORANGE, "h"),
    "peers": (BLUE, "*"),
    "nccl": (BLACK, "^"),
    "nccl/symmetric": (PURPLE, "^"),
    "torch/one_shot": (SKY, "o"),
    "torch/two_shot": (ORANGE, "s"),
    "torch/multimem": (PURPLE, "X"),
    "torch/fused": (ORANGE, "^"),
    "torch/two_shot_staged": (PURPLE, "<"),
    "torch/multimem_staged": (PURPLE, ">"),
    "nvshmem": (GREEN, "v"),
    "flashinfer/vllm_one_shot": (BLUE, "P"),
    "flashinfer/vllm_two_shot": (VERMILION, "P"),
    "flashinfer/trtllm_lamport": (GREEN, "X"),
    "flashinfer/trtllm_two_shot": (VERMILION, "X"),
    "sglang/push": (SKY, "P"),
    "sglang/pull": (ORANGE, "X"),
}
"""Colour and marker of the algorithms that there are, chosen to differ; others draw theirs from their name."""

STYLE: dict[str, Any] = {
    "svg.hashsalt": "symlab",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}

_INLINE: dict[str, Any] = {"svg.fonttype": "none", "figure.facecolor": "none", "axes.facecolor": "none"}
"""Within a page text stays text, which a reader can search and read out."""

OF_LIMIT: dict[str, Any] = {"color": "#555555", "linestyle": (0, (1, 1.5)), "linewidth": 1.6}

TITLE_IN = 0.45
"""Above the first row of a sheet."""

_CHARACTER_IN = 0.078
"""The width of a character of a legend, in inches, on the safe side."""


def look(algorithm: str) -> dict[str, Any]:
    """Colour and marker of an algorithm: the same in every picture, and with dependent launches ("lamport@d")."""
    if (named := algorithm.removesuffix("@d")) in KNOWN:
        colour, marker = KNOWN[named]
        return {"color": colour, "marker": marker}
    drawn = int.from_bytes(hashlib.sha256(algorithm.encode()).digest()[:4], "big")
    return {"color": COLOURS[drawn % len(COLOURS)], "marker": _MARKERS[drawn // len(COLOURS) % len(_MARKERS)]}


def line_style(algorithm: str, is_ours: bool, is_second: bool = False) -> dict[str, Any]:
    """How an algorithm's line is drawn: ours solid with full markers, baselines dashed with hollow ones. is_second: it
    is in place, beside the line of the same algorithm out of place, and dotted."""
    style = look(algorithm)
    return {
        **style,
        "linestyle": (0, (1, 1.5)) if is_second else "-" if is_ours else (0, (4, 2)),
        "linewidth": 1.9 if is_ours else 1.3,
        "markersize": 4.5,
        "markerfacecolor": style["color"] if is_ours else "white",
        "zorder": 3 if is_ours else 2.5,
    }


def rendered(make: Callable[[], Figure], kind: str, identifier: str) -> bytes:
    """The file ("svg" or "png") of a figure that is made in our style. The same figure gives the same bytes."""
    with matplotlib.rc_context():
        _set()
        metadata: dict[str, str | None] = {"Software": "symlab"}
        if kind == "svg":  # without a date: the same records give the same file
            metadata = {"Date": None, "Creator": "symlab", "Identifier": identifier}
        file = io.BytesIO()
        make().savefig(file, format=kind, dpi=130, metadata=metadata)
    return file.getvalue()


def inline(make: Callable[[], Figure], key: str, label: str) -> str:
    """The figure as an <svg> element for a page: its ids begin with key, so that many can stand there; label is read
    out."""
    with matplotlib.rc_context():
        _set(is_inline=True)
        file = io.StringIO()
        empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        make().savefig(file, format="svg", metadata=empty)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>\s*", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = text.replace('xlink:href="#', 'href="#').replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    text = text.replace('href="#', f'href="#{key}-').replace("url(#", f"url(#{key}-")
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1).rstrip()


def _set(is_inline: bool = False) -> None:
    parameters: Any = matplotlib.rcParams
    dict.update(parameters, _parameters(is_inline))  # which are valid, and need no look at each


@functools.cache
def _parameters(is_inline: bool) -> dict[str, Any]:
    """All of matplotlib's parameters, for a picture in a page or a file."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        parameters: Any = matplotlib.rcParams
        parameters.update(STYLE | (_INLINE if is_inline else {}))
        return dict(parameters)


def sheet(width_in: float, height_in: float) -> Figure:
    """An empty figure of this size."""
    figure = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, left_in: float, top_in: float, width_in: float, height_in: float) -> Axes:
    """Axes whose upper left corner is at left_in, top_in from the figure's, both in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes((left_in / width, 1 - (top_in + height_in) / height, width_in / width, height_in / height))


def legend_rows(labels: Sequence[str], width_in: float) -> tuple[int, int]:
    """Columns and rows of a legend with these labels, as even as they can be in such a width."""
    widest = max(map(len, labels), default=0) * _CHARACTER_IN + 0.55
    most = max(1, min(5, int(width_in / widest)))
    rows = -(-len(labels) // most)
    return -(-len(labels) // max(rows, 1)), rows


def legend_height_in(labels: Sequence[str], width_in: float) -> float:
    """What a legend below the axes needs, in inches."""
    return legend_rows(labels, width_in)[1] * 0.2 + 0.12


def add_legend(figure: Figure, handles: dict[str, Any]) -> None:
    """Below all axes, where there is no data to cover; in as many lines as it needs."""
    columns, _ = legend_rows(list(handles), figure.get_size_inches()[0])
    bottom = 0.05 / figure.get_size_inches()[1]
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="lower center",
        ncols=columns,
        bbox_to_anchor=(0.5, bottom),
        borderaxespad=0,
    )


def swatch(style: dict[str, Any], key: str) -> str:
    """A piece of line with its marker, for a legend in a page."""

    def make() -> Figure:
        figure = sheet(0.42, 0.17)
        style_here = {name: value for name, value in style.items() if name != "zorder"}
        figure.add_artist(Line2D([0.04, 0.5, 0.96], [0.5, 0.5, 0.5], markevery=[1], **style_here))
        return figure

    return inline(make, key, "").replace('role="img" aria-label=""', 'aria-hidden="true"')


def sizes_axis(axes: Axes, sizes: Sequence[int], most: int = 10) -> None:
    """A logarithmic axis of bytes, with ticks at powers of 4 at most, named in binary units."""
    axes.set_xscale("log", base=2)
    lowest, highest = max(sizes[0], 1), max(sizes[-1], 1)
    margin = (highest / lowest) ** 0.04 * 1.05
    axes.set_xlim(lowest / margin, highest * margin)
    first, last = lowest.bit_length() - 1, highest.bit_length() - 1
    step = max(2, -(-(last - first) // most))
    ticks = [1 << power for power in range(first, last + 1, step) if lowest / margin <= 1 << power]
    fixed_ticks(axes.xaxis, ticks, list(map(size_text, ticks)))
    name(axes.xaxis, "size")


def log_axis(axes: Axes, lowest: float, highest: float) -> None:
    """A logarithmic y axis from lowest to highest, with ticks at 1, 2 and 5 times powers of ten, or at fewer."""
    span = math.log10(highest / lowest) if lowest > 0 else 1.0
    margin = 10 ** max(0.05 * span, 0.02)
    low, high = lowest / margin, highest * margin
    steps: tuple[float, ...] = (1, 2, 5) if span < 3.3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    if len(ticks) < 2:  # within less than an octave: as many as a linear axis has
        ticks = [float(f"{low + (high - low) * part:.3g}") for part in (0.1, 0.35, 0.6, 0.85)]
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    fixed_ticks(axes.yaxis, ticks, [f"{tick:.10g}" for tick in ticks])


def linear_axis(axes: Axes, highest: float) -> None:
    """A linear y axis from 0 to a little more than highest."""
    top = highest * 1.06 or 1.0
    axes.set_ylim(0, top)
    unit = 10.0 ** math.floor(math.log10(top))
    step = next(unit * part for part in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if top / (unit * part) <= 9)
    ticks = [step * number for number in range(int(top / step) + 1)]
    fixed_ticks(axes.yaxis, ticks, [f"{tick:.6g}" for tick in ticks])


def fixed_ticks(axis: Any, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """These ticks, so named, and no others: a line and a text for each, drawn by us. Matplotlib's own have five parts
    each, and take nine tenths of a picture's time; a caller that asks the axis for them still gets them."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FixedFormatter(labels))
    axis.set_visible(False)
    axes, is_x = axis.axes, axis.axis_name == "x"
    place_on = axes.get_xaxis_transform() if is_x else axes.get_yaxis_transform()
    if ticks:  # Matplotlib takes no path without a point
        points = [(tick, end) if is_x else (end, tick) for tick in ticks for end in (0.0, 1.0)]
        codes = [Path.MOVETO, Path.LINETO] * len(ticks)
        lines = PathPatch(Path(points, codes), transform=place_on, fill=False, edgecolor="#dddddd", lw=0.6, zorder=0.5)
        axes.add_artist(lines)
    across, up = (0.0, -0.06) if is_x else (-0.06, 0.0)
    away = ScaledTranslation(across, up, axes.figure.dpi_scale_trans)
    sides: dict[str, Any] = {"ha": "center", "va": "top"} if is_x else {"ha": "right", "va": "center"}
    for tick, text in zip(ticks, labels, strict=True):
        at = (tick, 0.0) if is_x else (0.0, tick)
        axes.text(*at, text, transform=place_on + away, fontsize=7 if is_x else 8, color="#222222", **sides)


def name(axis: Any, text: str) -> None:
    """What stands at an axis whose ticks are ours."""
    axis.set_label_text(text)
    axes, scale = axis.axes, axis.axes.figure.dpi_scale_trans
    if axis.axis_name == "x":
        moved = axes.transAxes + ScaledTranslation(0, -0.25, scale)
        axes.text(0.5, 0, text, transform=moved, fontsize=8, ha="center", va="top", color="#222222")
    else:
        moved = axes.transAxes + ScaledTranslation(-0.52, 0, scale)
        axes.text(0, 0.5, text, transform=moved, fontsize=8, rotation=90, ha="center", va="center", color="#222222")
