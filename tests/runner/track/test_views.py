"""The views that experiments get: what MLflow must find in their tags. That MLflow opens them is test_dashboards'."""

import base64
import json
import zlib
from dataclasses import replace

import pytest

from reports.mlflow_values import metrics_of
from runner.track import views
from runner.track.pages import NOTE_TAG, view_key
from tests.golden import same_text
from tests.reports.synthetic import record

LONGEST_TAG = 5000
"""Characters of an experiment's tag that every MLflow server takes."""


def state_of(view):
    method, _, packed = json.loads(views.saved(view, 0))["state"].partition(";")
    assert method == "deflate"
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def known_metrics():
    check = replace(record().check, max_relative_error=0.0, rms_relative_error=0.0)
    return set(metrics_of(record(check=check, counters={"steps": 1})))


@pytest.mark.parametrize("view", views.VIEWS, ids=lambda view: view.key)
def test_a_view_shows_metrics_that_there_are_in_sections_that_it_has(view):
    envelope = json.loads(views.saved(view, 123))
    assert (envelope["name"], envelope["createdAt"], envelope["updatedAt"]) == (view.name, 123, 123)
    state = state_of(view)
    sections = {section["uuid"]: section["name"] for section in state["compareRunSections"]}
    assert len(set(sections.values())) == len(state["compareRunSections"])
    for chart in state["compareRunCharts"]:
        assert chart["metricKey"] in known_metrics()
        assert sections[chart["metricSectionId"]] == chart["metricKey"].partition("/")[0]
        assert chart["xAxisScaleType"] == "log"
    assert ("start_time" in state["orderByKey"]) == (view.key == "symlab-commands"), "series are listed flat"
    opened = {section["name"] for section in state["compareRunSections"] if section["display"]}
    shown = {chart.metric for chart in view.charts}
    assert {name for name in known_metrics() if name.partition("/")[0] in view.sections} == shown
    assert opened == set(view.sections)
    prefixes = {name.partition("/")[0] for name in known_metrics()}
    assert opened | set(view.closed) <= prefixes
    assert len(views.saved(view, 1_800_000_000_000)) <= LONGEST_TAG


def test_an_experiment_is_given_what_it_lacks_once():
    given = views.experiment_tags({}, 5)
    assert len(given) == len(views.VIEWS) + 3
    assert given["mlflow.experimentKind"] == "custom_model_development"
    assert views.experiment_tags(given, 6) == {}
    assert NOTE_TAG not in views.experiment_tags({NOTE_TAG: "mine"}, 5)
    assert len(views.experiment_tags({NOTE_TAG: "mine", views.VERSION_TAG: "0"}, 5)) == len(views.VIEWS) + 2
    assert given[views.VERSION_TAG] == views.VERSION


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_command_has_a_view_of_its_times_or_else_of_its_errors(is_timed):
    view = views.command_view("c1", "allreduce_gpus", is_timed)
    assert view.key == view_key("c1")
    kept = ("orderByKey", "orderByAsc", "runsHiddenMode")
    charts = sorted({chart.metric.partition("/")[0] for chart in view.charts})
    state = {key: value for key, value in state_of(view).items() if key in kept}
    same_text(json.dumps([view.key, view.name, view.search, charts, state], indent=1))
    assert len(views.saved(views.command_view("c" * 200, "t" * 100, is_timed), 1_800_000_000_000)) <= LONGEST_TAG


def test_views_of_the_oldest_commands_make_room():
    present = {f"{views.VIEW_TAG}symlab-time": "{}", f"{views.VIEW_TAG}mine": views.saved(views.VIEWS[0], 0)}
    for number in range(views.MOST_VIEWS + 5):
        for tag, value in views.command_tags(present, views.command_view(f"c{number}", "one", True), number).items():
            if value is None:
                del present[tag]
            else:
                present[tag] = value
    assert len(present) == views.MOST_VIEWS + 2
    assert f"{views.VIEW_TAG}{view_key('c4')}" not in present
    assert {f"{views.VIEW_TAG}{view_key(f'c{number}')}" for number in (5, views.MOST_VIEWS + 4)} <= set(present)
    assert {f"{views.VIEW_TAG}symlab-time", f"{views.VIEW_TAG}mine"} <= set(present), "what is not a command's stays"


def test_a_view_that_is_there_is_not_written_again():
    view = views.command_view("c1", "one", True)
    present = {tag: str(value) for tag, value in views.command_tags({}, view, 5).items()}
    assert views.command_tags(present, view, 6) == {}
