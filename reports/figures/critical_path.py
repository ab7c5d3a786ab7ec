"""The critical path of a launch: who does what, and who waits for whom, over time.

A row is a block of a rank, a bar a step of the path, an arrow a wait for another rank. It reads the JSON form of a
launch's profile (simulator/clock/README.md): times are a model's, and the picture says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from reports.figures import style

WIDTH_IN, ROW_IN = 11.0, 0.3
MOST_ROWS = 40
"""Blocks with a row of their own; the path's other blocks are left out, and the title says how many."""

LOOKS = {
    "load": (style.BLUE, ("own_load", "look", "lane_copy", "own_atomic")),
    "load from another rank": (style.SKY, ("remote_load", "remote_atomic")),
    "flight of a store": (style.VERMILION, ("hop", "own_hop")),
    "through the switch": (style.PURPLE, ("switch_load", "switch_hop", "switch_store", "bulk_switch_store")),
    "fence": (style.ORANGE, ("fence", "fence_after_stores", "block_fence")),
    "bulk copy": (style.GREEN, ("bulk_own_load", "bulk_remote_load", "bulk_store", "bulk_read")),
    "wait in a block": (style.BLACK, ("barrier", "cluster_barrier", "mbarrier", "store")),
}
"""By what the legend says: colour, and kinds of steps."""
_COLOUR = {kind: colour for colour, kinds in LOOKS.values() for kind in kinds}
_NAME = {kind: name for name, (_, kinds) in LOOKS.items() for kind in kinds}


def figure(launch: Mapping[str, Any]) -> Figure:
    """Draw the path of one launch, from LaunchProfile.document(). Raises ValueError for a path without steps."""
    steps = [one for one in launch["path"]["segments"] if one["to_us"] > one["from_us"]]
    if not steps:
        raise ValueError(f"{launch['kernel']}: the path has no step that takes time; there is nothing to draw")
    places = sorted({(one["rank"], one["block"]) for one in steps})
    rows = {place: number for number, place in enumerate(places[:MOST_ROWS])}
    names = list(dict.fromkeys(_NAME.get(one["kind"], one["kind"]) for one in steps))
    below_in = style.legend_height_in(names, WIDTH_IN)
    sheet = style.sheet(WIDTH_IN, 1.15 + ROW_IN * len(rows) + below_in)
    axes = style.place(sheet, 1.25, 0.5, WIDTH_IN - 1.5, ROW_IN * len(rows))
    _draw(axes, steps, rows)
    _axes(axes, float(launch["clock_us"]), places[:MOST_ROWS])
    title = f"{launch['kernel']}: critical path of launch {launch['number']}, {launch['clock_us']:.2f} us (a model's)"
    if len(places) > MOST_ROWS:
        title += f"; {len(places) - MOST_ROWS} more blocks are not shown"
    sheet.suptitle(title, fontsize=10, y=1 - 0.12 / sheet.get_size_inches()[1], va="top")
    colours = {name: colour for name, (colour, _) in LOOKS.items()}
    style.add_legend(sheet, {name: Patch(color=colours.get(name, "#888888")) for name in names})
    return sheet


def inline(launch: Mapping[str, Any], key: str) -> str:
    """Return the picture as an <svg> element for a page; its ids begin with key."""
    label = f"critical path of {launch['kernel']}: who waits for whom over {launch['clock_us']:.2f} us"
    return style.inline(lambda: figure(launch), key, label)


def _draw(axes: Axes, steps: Sequence[Mapping[str, Any]], rows: Mapping[tuple[int, int], int]) -> None:
    for one in steps:
        row = rows.get((one["rank"], one["block"]))
        if row is None:
            continue
        colour = _COLOUR.get(one["kind"], "#888888")
        start, size = one["from_us"], one["to_us"] - one["from_us"]
        axes.add_patch(Rectangle((start, row - 0.32), size, 0.64, facecolor=colour, edgecolor="white", linewidth=0.5))
        awaited = one["awaited"]
        there = None if awaited is None else rows.get((awaited[0], awaited[1]))
        if there is not None and there != row:
            ends = ((start, there), (one["to_us"], row))
            arrow: dict[str, Any] = {
                "arrowstyle": "-|>",
                "mutation_scale": 8,
                "color": "#222222",
                "linewidth": 0.8,
                "shrinkA": 0,
            }
            axes.add_patch(FancyArrowPatch(*ends, shrinkB=0, zorder=4, **arrow))


def _axes(axes: Axes, end_us: float, places: Sequence[tuple[int, int]]) -> None:
    axes.set_xlim(0, end_us * 1.01)
    axes.set_ylim(len(places) - 0.5, -0.5)
    labels = [f"rank {rank}, block {block}" for rank, block in places]
    style.fixed_ticks(axes.yaxis, list(range(len(places))), labels, has_grid=False)
    step = next(one for one in _STEPS_US if end_us / one <= 14)
    ticks = [step * number for number in range(int(end_us / step) + 1)]
    style.fixed_ticks(axes.xaxis, ticks, [f"{tick:.6g}" for tick in ticks])
    style.name(axes.xaxis, "microseconds since the launch began, by the model")


_STEPS_US = [part * 10.0**power for power in range(-2, 9) for part in (1, 2, 5)]
