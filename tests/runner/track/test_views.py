"""The views that experiments get: what MLflow must find in their tags. That MLflow opens them is test_dashboards'."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from reports.numerics.study import MEASURES
from reports.sent import metrics_of
from runner.track.views import NOTE_TAG, VERSION, VERSION_TAG, VIEWS, View, experiment_tags, saved
from tests.reports.synthetic import record

LONGEST_TAG = 5000
"""Characters of an experiment's tag that every MLflow server takes."""


def state_of(view: View) -> dict[str, Any]:
    method, _, packed = json.loads(saved(view, 0))["state"].partition(";")
    assert method == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def known_metrics() -> set[str]:
    check = replace(record().check, max_relative_error=0.0, rms_relative_error=0.0)  # type: ignore[type-var]
    studies = {f"study/{name}" for name in (*(measure.key for measure in MEASURES), "ranks_agree", "results")}
    return set(metrics_of(record(check=check, counters={"steps": 1}))) | studies


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
def test_a_view_shows_metrics_that_there_are_in_sections_that_it_has(view: View) -> None:
    envelope = json.loads(saved(view, 123))
    assert (envelope["name"], envelope["createdAt"], envelope["updatedAt"]) == (view.name, 123, 123)
    state = state_of(view)
    sections = {section["uuid"]: section["name"] for section in state["compareRunSections"]}
    assert len(set(sections.values())) == len(state["compareRunSections"])
    for chart in state["compareRunCharts"]:
        assert chart["metricKey"] in known_metrics()
        assert sections[chart["metricSectionId"]] == chart["metricKey"].partition("/")[0]
        assert chart["xAxisScaleType"] == "log"
    opened = {section["name"] for section in state["compareRunSections"] if section["display"]}
    assert opened == set(view.sections)
    prefixes = {name.partition("/")[0] for name in known_metrics()}
    assert opened | set(view.closed) <= prefixes
    assert len(saved(view, 1_800_000_000_000)) <= LONGEST_TAG


def test_every_metric_of_an_open_section_has_a_chart_of_ours() -> None:
    for view in VIEWS:
        shown = {chart.metric for chart in view.charts}
        assert {name for name in known_metrics() if name.partition("/")[0] in view.sections} == shown


def test_series_are_listed_flat() -> None:
    for view in VIEWS:
        assert "start_time" not in state_of(view)["orderByKey"]


def test_an_experiment_is_given_what_it_lacks_once() -> None:
    given = experiment_tags({}, 5)
    assert len(given) == len(VIEWS) + 2
    assert experiment_tags(given, 6) == {}
    assert NOTE_TAG not in experiment_tags({NOTE_TAG: "mine"}, 5)
    assert len(experiment_tags({NOTE_TAG: "mine", VERSION_TAG: "0"}, 5)) == len(VIEWS) + 1
    assert given[VERSION_TAG] == VERSION
