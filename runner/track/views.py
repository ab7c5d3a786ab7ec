"""Saved views of MLflow's experiment page: which runs, in which order, with which charts on which axes.

MLflow keeps a view that a user saves as a tag of the experiment, and lists them all under "Views". Its own charts of a
metric have linear axes, on which sizes from 1 KiB to 256 MiB lie on one another: views can say logarithmic. Runs that
are not sorted by time are listed flat, so that series stand beside one another whichever command they are of. MLflow
draws the first 20 runs of a view: they are sorted by their place (runner.track.standing), so that the fastest and the
baselines are among them. A view's address names its experiment and its key, and opens its charts.

The format of the tag is MLflow's own (3.17) and undocumented: where it changes, a view is not listed and nothing
else is hurt. A browser test opens every view.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.tracking import SERIES_TAG
from runner.track.pages import NOTE_TAG, PLACE_TAG, VIEW_KEYS, command_filter, view_key
from runner.track.standing import WORST_RATIO

VERSION_TAG, VERSION = "symlab.views", "2"
"""Tag of an experiment that these views were written to. Raised when a view changes: what a user has taken away since
does not come back before that."""

KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"
"""So that MLflow opens an experiment on its runs; else it opens on an empty page about language models."""

VIEW_TAG = "mlflow.sharedViewState."
"""How the tag of a view begins; its key follows."""

MOST_VIEWS = 120
"""Views of an experiment's commands: MLflow loads all of them with each of its pages. Those of the oldest commands make
room; `symlab track` makes them again."""

LINEAR, LOGARITHMIC = "linear", "log"


@dataclass(frozen=True, slots=True)
class Chart:
    """A metric over its steps, on a logarithmic axis; y: how the other goes. Of a metric without a chart MLflow would
    make one."""

    metric: str
    y: str = LINEAR
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """What a view shows: the runs that search finds, columns of the list, and charts; one section a prefix."""

    key: str
    name: str
    search: str
    charts: tuple[Chart, ...]
    columns: tuple[str, ...]
    closed: tuple[str, ...] = ()
    """Sections that are there but closed: MLflow makes a chart of every other metric, and these are for them."""
    order: str = f"tags.`{PLACE_TAG}`"
    """By time, MLflow would list commands and hide their series."""
    is_ascending: bool = True

    @property
    def sections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chart.metric.partition("/")[0] for chart in self.charts))


_PARAMETERS = tuple(f"params.`{name}`" for name in ("op", "algorithm", "dtype", "accumulator", "world_size"))
_OUTCOME = ("tags.`status`", "tags.`passed`")

TIME = View(
    "symlab-time",
    "Latency and bus bandwidth over bytes",
    "metrics.`latency/time_us` > 0",
    (
        *(Chart(f"latency/time_us{which}", y=LOGARITHMIC) for which in ("", "_p99")),
        *(Chart(f"latency/time_us{which}", is_shown=False) for which in ("_min", "_p95", "_max")),
        *(Chart(f"bandwidth/{name}") for name in ("busbw_gbps", "of_limit")),
        Chart("bandwidth/algbw_gbps", is_shown=False),
    ),
    (*_PARAMETERS, "metrics.`bandwidth/busbw_gbps`", "metrics.`latency/time_us`"),
    closed=("errors",),
)
ERRORS = View(
    "symlab-errors",
    "Errors over bytes",
    f"metrics.`errors/wrong` >= 0 and tags.`{SERIES_TAG}` != ''",
    (
        *(Chart(f"errors/{name}") for name in ("rms_relative_error", "max_relative_error")),
        *(Chart(f"errors/{name}") for name in ("max_ulp_error", "wrong")),
        *(Chart(f"errors/{name}", is_shown=False) for name in ("rms_ulp_error", "max_absolute_error")),
    ),
    (*_PARAMETERS, *_OUTCOME),
    closed=("bandwidth", "latency", "simulator"),
)
COMMANDS = View(
    "symlab-commands",
    "Commands: status, counts, worst ratio",
    f"tags.`{SERIES_TAG}` = ''",
    (),
    (
        "tags.`status`",
        *(f"metrics.`cases/{name}`" for name in ("requested", "passed", "wrong", "refused", "not_run")),
        f"metrics.`{WORST_RATIO}`",
        "tags.`fabric`",
    ),
    order="attributes.start_time",
    is_ascending=False,
)
VIEWS = (COMMANDS, TIME, ERRORS)
"""The views that each experiment has."""


def command_view(command: str, title: str, is_timed: bool) -> View:
    """The view of one command's series: of their times, or without any of their errors."""
    kind, section = (TIME, TIME.search) if is_timed else (ERRORS, f"tags.`{SERIES_TAG}` != ''")
    return replace(kind, key=view_key(command), name=title, search=f"{command_filter(command)} and {section}")


NOTE = (
    "Every run without a parent is a command of symlab; its children are series (one algorithm of one job). "
    "A command's run holds the report: Artifacts, report.html.\n\n"
    "Under **Views** (above, on the page of runs) stand charts of all series: "
    + "; ".join(view.name for view in VIEWS)
    + ", and those of the latest commands. There, narrow the search: `params.dtype = 'bfloat16' and "
    "params.world_size = '4'`.\n"
)


def experiment_tags(present: Mapping[str, str], created_ms: int) -> dict[str, str]:
    """The tags that an experiment lacks, given those it has: its views, its description and its kind. A user's stay."""
    found = {} if NOTE_TAG in present else {NOTE_TAG: NOTE}
    found |= {} if KIND_TAG in present else {KIND_TAG: KIND}
    if present.get(VERSION_TAG) != VERSION:
        found |= {f"{VIEW_TAG}{view.key}": saved(view, created_ms) for view in VIEWS}
        found[VERSION_TAG] = VERSION
    return found


def command_tags(present: Mapping[str, str], view: View, created_ms: int) -> dict[str, str | None]:
    """The tag that an experiment lacks of a command's view, given those it has; None for a tag to take away."""
    own, value = f"{VIEW_TAG}{view.key}", saved(view, created_ms)
    found: dict[str, str | None] = {own: value} if _told(present.get(own, "")) != _told(value) else {}
    others = [tag for tag in present if tag.startswith(f"{VIEW_TAG}{VIEW_KEYS}") and tag != own]
    others.sort(key=lambda tag: _created(present[tag]))
    return found | dict.fromkeys(others[: max(len(others) + 1 - MOST_VIEWS, 0)])


def _told(value: str) -> tuple[str, str]:
    """A view's name and state; not when it was made."""
    try:
        said = json.loads(value)
        return str(said["name"]), str(said["state"])
    except (ValueError, KeyError, TypeError):
        return "", ""


def _created(value: str) -> int:
    try:
        return int(json.loads(value)["createdAt"])
    except (ValueError, KeyError, TypeError):
        return 0


def saved(view: View, created_ms: int) -> str:
    """A view as the value of its tag: its state packed, as MLflow's own pages do it."""
    packed = zlib.compress(json.dumps(_state(view), separators=(",", ":")).encode("utf-8"))
    state = f"deflate;{base64.b64encode(packed).decode('ascii')}"
    return json.dumps({"name": view.name, "createdAt": created_ms, "updatedAt": created_ms, "state": state})


def _state(view: View) -> dict[str, Any]:
    others = ("Model metrics", "System metrics")
    return {
        "searchFilter": view.search,
        "orderByKey": view.order,
        "orderByAsc": view.is_ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(view.columns),
        "runsHiddenMode": "FIRST_20_RUNS",
        "compareRunCharts": [_chart(view, chart) for chart in view.charts],
        "compareRunSections": [
            *(_section(view, name, True) for name in view.sections),
            *(_section(view, name, False) for name in (*view.closed, *others)),
        ],
        "isAccordionReordered": True,  # else MLflow sorts the sections by name
        "hideEmptyCharts": True,
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }


def _chart(view: View, chart: Chart) -> dict[str, Any]:
    section, _, title = chart.metric.rpartition("/")
    return {
        "uuid": f"{view.key}-{chart.metric}",
        "type": "LINE",
        "metricSectionId": f"{view.key}-{section}",
        "displayName": title,
        "metricKey": chart.metric,
        "xAxisKey": "step",
        "xAxisScaleType": LOGARITHMIC,
        "scaleType": chart.y,
        "lineSmoothness": 0,
        "selectedXAxisMetricKey": "",
        "range": {},
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "displayPoints": True,
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
        "runsCountToCompare": 10,
        "deleted": not chart.is_shown,
        "isGenerated": False,
    }


def _section(view: View, name: str, is_open: bool) -> dict[str, Any]:
    return {
        "uuid": f"{view.key}-{name}",
        "name": name,
        "display": is_open,
        "isReordered": True,
        "deleted": False,
        "isGenerated": False,
        "columns": 2,
        "cardHeight": 360,
    }
