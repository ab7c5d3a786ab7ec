"""Saved views of MLflow's experiment page: which runs, in which order, with which charts on which axes.

MLflow keeps a view that a user saves as a tag of the experiment, and lists them all under "Views". Its own charts of a
metric have linear axes, on which sizes from 1 KiB to 256 MiB lie on one another: views can say logarithmic. Runs that
are not sorted by time are listed flat, so that series stand beside one another whichever command they are of.

The format of the tag is MLflow's own (3.17) and undocumented: where it changes, a view is not listed and nothing
else is hurt. A browser test opens every view.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports.tracked import SERIES_TAG
from runner.track.descriptions import NOTE_TAG

VERSION_TAG, VERSION = "symlab.views", "1"
"""Tag of an experiment that these views were written to. Raised when a view changes: what a user has taken away since
does not come back before that."""

LINEAR, LOGARITHMIC = "linear", "log"


@dataclass(frozen=True, slots=True)
class Chart:
    """A metric over its steps; x and y say how the axes go. Of a metric without a chart MLflow would make one."""

    metric: str
    y: str = LINEAR
    x: str = LOGARITHMIC
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

    @property
    def sections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chart.metric.partition("/")[0] for chart in self.charts))


_PARAMETERS = tuple(f"params.`{name}`" for name in ("op", "algorithm", "dtype", "accumulator", "world_size"))
_OUTCOME = ("tags.`status`", "tags.`passed`")

VIEWS = (
    View(
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
    ),
    View(
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
    ),
    View(
        "symlab-study",
        "Errors over ranks, by accumulator",
        "metrics.`study/max_ulp_error` >= 0",
        (
            *(Chart(f"study/{name}") for name in ("rms_relative_error", "max_relative_error")),
            *(Chart(f"study/{name}") for name in ("rms_ulp_error", "ranks_agree")),
            *(Chart(f"study/{name}", is_shown=False) for name in ("max_ulp_error", "results")),
        ),
        _PARAMETERS[:4],
    ),
)

NOTE = (
    "Every run without a parent is a command of symlab; its children are series (one algorithm of one job), and curves "
    "of studies. A command's run holds the report: Artifacts, report.html.\n\n"
    "Under **Views** (above, on the page of runs) stand charts of all series: "
    + "; ".join(view.name for view in VIEWS)
    + ". There, narrow the search: `params.dtype = 'bfloat16' and params.world_size = '4'`.\n"
)


def experiment_tags(present: Mapping[str, str], created_ms: int) -> dict[str, str]:
    """The tags that an experiment lacks, given those it has: its views and its description. A user's stay."""
    found = {} if NOTE_TAG in present else {NOTE_TAG: NOTE}
    if present.get(VERSION_TAG) != VERSION:
        found |= {f"mlflow.sharedViewState.{view.key}": saved(view, created_ms) for view in VIEWS}
        found[VERSION_TAG] = VERSION
    return found


def saved(view: View, created_ms: int) -> str:
    """A view as the value of its tag: its state packed, as MLflow's own pages do it."""
    packed = zlib.compress(json.dumps(_state(view), separators=(",", ":")).encode("utf-8"))
    state = f"deflate;{base64.b64encode(packed).decode('ascii')}"
    return json.dumps({"name": view.name, "createdAt": created_ms, "updatedAt": created_ms, "state": state})


def _state(view: View) -> dict[str, Any]:
    others = ("Model metrics", "System metrics")
    return {
        "searchFilter": view.search,
        "orderByKey": "tags.`mlflow.runName`",  # by time, MLflow would list commands and hide their series
        "orderByAsc": True,
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
        "xAxisScaleType": chart.x,
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
