"""Pictures of what was timed: time and bus bandwidth over bytes, all contenders, the measured limit of the link. And of
studies: errors over ranks, for each accumulator.

A row of two axes for each section (op, dtype, world size, setup). An algorithm has one colour, marker and line style
everywhere; ours are solid, baselines dashed. Where there are several worlds, lines are their median and bands reach
from the lowest to the highest. The same records give the same SVG, byte for byte, under one version of matplotlib, and
it names their digest (bundle.digest) as its identifier.

Importing this module imports matplotlib.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from reports.bundle import digest, write_file
from reports.compare import Row, Section, device_text, limits, rows, setup_text, split
from reports.record import Record
from reports.study import MEASURES, Measure, Series
from reports.text import size_text

SUFFIXES = (".svg", ".png")

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, which people who see no red or no green can tell apart; without its yellow, too pale."""

_MARKERS = "osD^vP*X<>ph"

_KNOWN = {
    "one_shot": (0, "o"),
    "two_shot": (1, "s"),
    "multimem_one_shot": (3, "D"),
    "multimem_two_shot": (4, "P"),
    "nccl": (6, "^"),
    "torch/one_shot": (5, "o"),
    "torch/two_shot": (4, "s"),
    "torch/multimem": (3, "X"),
    "nvshmem": (2, "v"),
}
"""Colour and marker of the algorithms that most pictures hold, chosen to differ; others draw theirs from their name."""

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "symlab",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw(records: Sequence[Record], path: Path | str) -> None:
    """Write the picture of all timed sections among records; the suffix, .svg or .png, says how.

    ValueError, in one line, for another suffix, for records without timings, and where it can't be written.
    """
    path = Path(path)
    write_file(path, picture(records, kind_of(path)))


def draw_study(curves: Sequence[Series], records: Sequence[Record], path: Path | str) -> None:
    """Write the picture of a study, made of these records. ValueError as for draw."""
    path = Path(path)
    write_file(path, _file(lambda: _study(curves), kind_of(path), digest(records)))


def kind_of(path: Path) -> str:
    """A picture's kind by its name. ValueError for a name that is none's."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: a picture's name ends in {' or '.join(SUFFIXES)}")
    return path.suffix.removeprefix(".")


def picture(records: Sequence[Record], kind: str = "svg") -> bytes:
    """The picture as a file's bytes; kind is "svg" or "png". ValueError for records without timings."""
    sections = drawable(records)
    return _file(lambda: _figure(sections), kind, digest(records))


def _file(make: Callable[[], Figure], kind: str, identifier: str) -> bytes:
    """The file of a figure that is made in our style."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        parameters: Any = matplotlib.rcParams
        parameters.update(_STYLE)
        figure = make()
        file = io.BytesIO()
        # Without a date: the same records give the same file.
        metadata: dict[str, str | None] = {"Software": "symlab"}
        if kind == "svg":
            metadata = {"Date": None, "Creator": "symlab", "Identifier": identifier}
        figure.savefig(file, format=kind, dpi=130, metadata=metadata)
    return file.getvalue()


def drawable(records: Sequence[Record]) -> list[Section]:
    """The timed sections, without empty messages, which have no place on a logarithmic axis. ValueError where there is
    none, saying what to do."""
    sections, _ = split([record for record in records if record.case["size_bytes"]])
    if not sections:
        raise ValueError(
            "none of these records has a timing, so there is nothing to draw; only real hardware gives one"
        )
    return sections


def look(algorithm: str) -> dict[str, Any]:
    """Colour and marker of an algorithm: the same in every picture."""
    colour, marker = _KNOWN.get(algorithm, (None, None))
    if colour is None or marker is None:
        drawn = int.from_bytes(hashlib.sha256(algorithm.encode()).digest()[:4], "big")
        colour, marker = drawn % len(_COLOURS), _MARKERS[drawn // len(_COLOURS) % len(_MARKERS)]
    return {"color": _COLOURS[colour], "marker": marker}


def _figure(sections: Sequence[Section]) -> Figure:
    figure = Figure(figsize=(11, 1.1 + 3.7 * len(sections)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(sections), 2, squeeze=False)
    shown: dict[str, Any] = {}
    for section, (left, right) in zip(sections, axes, strict=True):
        shown |= _section(section, left, right)
    figure.suptitle(_title(sections), fontsize=11, fontweight="bold")
    # Outside of the axes, where there is no data to cover; in as many lines of equal length as it needs.
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=-(-len(shown) // -(-len(shown) // 5)))
    return figure


def _title(sections: Sequence[Section]) -> str:
    """Device, world size, how it was timed: of the first section, and of all where they agree."""
    records = [record for section in sections for record in section.records if record.timing is not None]
    devices = dict.fromkeys(map(device_text, records))
    sizes = sorted({int(record.case["world_size"]) for record in records})
    setups = dict.fromkeys(map(setup_text, records))
    return f"{' and '.join(map(str, sizes))} x {', '.join(devices)}: {'; '.join(setups)}"


def _section(section: Section, left: Axes, right: Axes) -> dict[str, Any]:
    """Both axes of a section. Gives the legend: a handle by label."""
    judged = [row for row in rows(section) if row.timings]
    handles: dict[str, Any] = {}
    for algorithm in dict.fromkeys(row.algorithm for row in judged):
        own = [row for row in judged if row.algorithm == algorithm]
        for axes, figure in ((left, "median_us"), (right, "busbw_gbps")):
            handles[algorithm] = _series(axes, own, figure)
    if found := limits(section.records):
        limit = sorted(one.gbps for one in found)[len(found) // 2]
        label = "limit of the link (peer copy, measured)"
        handles[label] = right.axhline(limit, color="#666666", linestyle=":", linewidth=1.4)
    for axes in (left, right):
        _binary_ticks(axes, sorted({row.size_bytes for row in judged}))
        axes.set_xlabel("size")
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    left.yaxis.set_minor_locator(NullLocator())
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.set_ylabel("time (us)")
    right.set_ylabel("bus bandwidth (GB/s)")
    right.set_ylim(bottom=0)
    left.set_title(section.heading, loc="left", fontsize=9)
    return handles


def _series(axes: Axes, own: Sequence[Row], figure: str) -> Any:
    """The line of one algorithm, with a band where there are several worlds. Gives its handle."""
    sizes = [row.size_bytes for row in own]
    values = [[_value(timing, figure, row.size_bytes) for timing in row.timings] for row in own]
    middle = [row.figure(figure) or 0.0 for row in own]
    style = look(own[0].algorithm)
    if any(len(some) > 1 for some in values):
        axes.fill_between(sizes, list(map(min, values)), list(map(max, values)), color=style["color"], alpha=0.18, lw=0)
    (line,) = axes.plot(
        sizes,
        middle,
        **style,
        linestyle="-" if own[0].is_ours else (0, (4, 2)),
        linewidth=1.9 if own[0].is_ours else 1.3,
        markersize=4.5,
        markerfacecolor=style["color"] if own[0].is_ours else "white",
        zorder=3 if own[0].is_ours else 2.5,
        clip_on=False,
    )
    return line


def _value(timing: Any, figure: str, size_bytes: int) -> float:
    value = getattr(timing, figure)
    return float(value(size_bytes) if callable(value) else value)


def _binary_ticks(axes: Axes, sizes: Sequence[int]) -> None:
    """Log axis of bytes, with ticks at powers of 4 at most, named in binary units."""
    axes.set_xscale("log", base=2)
    first, last = max(sizes[0], 1).bit_length() - 1, max(sizes[-1], 1).bit_length()
    step = max(2, -(-(last - first) // 10))
    axes.xaxis.set_major_locator(FixedLocator([1 << power for power in range(first, last + 1, step)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(round(value))))
    axes.tick_params(axis="x", labelsize=7)


_ACCUMULATOR_COLOURS = {"native": _COLOURS[1], "float16": _COLOURS[2], "float32": _COLOURS[0]}
_DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
"""A study's curves: an accumulator has a colour, an algorithm a marker and the next of these dashes."""


def _study(curves: Sequence[Series]) -> Figure:
    """A row for each op, reduction and data type, an axis for each measure that is there."""
    rows = dict.fromkeys((one.op, one.reduction, one.inputs, one.dtype) for one in curves)
    measures = [
        one for one in MEASURES if any(one.value(point) is not None for line in curves for point in line.points)
    ]
    figure = Figure(figsize=(4.2 * len(measures), 1.1 + 2.9 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), len(measures), squeeze=False)
    shown: dict[str, Any] = {}
    for row, line in zip(rows, axes, strict=True):
        own = [one for one in curves if (one.op, one.reduction, one.inputs, one.dtype) == row]
        for measure, place in zip(measures, line, strict=True):
            shown |= _errors(place, own, measure)
        line[0].set_title(f"{row[0]} {row[3]}, {row[1]}, {row[2]} inputs", loc="left", fontsize=9)
    figure.suptitle("errors against the exact sum rounded once, over ranks", fontsize=11, fontweight="bold")
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=min(len(shown), 4))
    return figure


def _errors(axes: Axes, curves: Sequence[Series], measure: Measure) -> dict[str, Any]:
    """The curves of one measure. Gives the legend. Ulps, which may be many, are on a logarithmic axis with 0."""
    handles: dict[str, Any] = {}
    algorithms = list(dict.fromkeys(one.algorithm for one in curves))
    for one in curves:
        points = [(point.world_size, value) for point in one.points if (value := measure.value(point)) is not None]
        (handles[f"{one.algorithm}, {one.accumulator}"],) = axes.plot(
            [size for size, _ in points],
            [value for _, value in points],
            color=_ACCUMULATOR_COLOURS.get(one.accumulator, _COLOURS[-1]),
            marker=look(one.algorithm)["marker"],
            linestyle=_DASHES[algorithms.index(one.algorithm) % len(_DASHES)],
            linewidth=1.5,
            markersize=4,
            clip_on=False,
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted({size for one in curves for size in one.world_sizes})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if measure.key.endswith("ulp_error"):
        axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ranks")
    axes.set_ylabel(measure.title, fontsize=8)
    return handles
