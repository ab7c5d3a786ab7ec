"""The views that experiments get: what MLflow must find in their tags. That MLflow opens them is test_dashboards'."""

import base64
import json
import zlib
from dataclasses import replace

import pytest

from reports.sent import metrics_of
from runner.track.pages import NOTE_TAG, view_key
from runner.track.views import (
    MOST_SECTIONS,
    MOST_VIEWS,
    VERSION,
    VERSION_TAG,
    VIEW_TAG,
    VIEWS,
    Drawn,
    command_tags,
    command_views,
    experiment_tags,
    saved,
)
from tests.reports.synthetic import record

LONGEST_TAG = 5000
"""Characters of an experiment's tag that every MLflow server takes."""


def state_of(view):
    method, _, packed = json.loads(saved(view, 0))["state"].partition(";")
    assert method == "deflate"
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def known_metrics():
    check = replace(record().check, max_relative_error=0.0, rms_relative_error=0.0)
    return set(metrics_of(record(check=check, counters={"steps": 1})))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
def test_a_view_shows_metrics_that_there_are_in_sections_that_it_has(view):
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


def test_every_metric_of_an_open_section_has_a_chart_of_ours():
    for view in VIEWS:
        shown = {chart.metric for chart in view.charts}
        assert {name for name in known_metrics() if name.partition("/")[0] in view.sections} == shown


def test_series_are_listed_flat():
    for view in VIEWS:
        is_of_commands = view.key == "symlab-commands"
        assert ("start_time" in state_of(view)["orderByKey"]) == is_of_commands


def test_an_experiment_is_given_what_it_lacks_once():
    given = experiment_tags({}, 5)
    assert len(given) == len(VIEWS) + 3
    assert given["mlflow.experimentKind"] == "custom_model_development"
    assert experiment_tags(given, 6) == {}
    assert NOTE_TAG not in experiment_tags({NOTE_TAG: "mine"}, 5)
    assert len(experiment_tags({NOTE_TAG: "mine", VERSION_TAG: "0"}, 5)) == len(VIEWS) + 2
    assert given[VERSION_TAG] == VERSION


SECTIONS = {"all_reduce bfloat16 n4": True, "all_reduce float32 n4": True}


def test_a_command_has_a_view_and_one_a_section():
    views = command_views(Drawn("c1", "allreduce_gpus", SECTIONS))
    key = view_key("c1")
    assert [view.key for view in views] == [key, f"{key}-1", f"{key}-2"]
    assert views[0].search == "tags.`symlab.command` = 'c1' and metrics.`latency/time_us` > 0"
    assert views[1].name == "allreduce_gpus: all_reduce bfloat16 n4"
    assert views[1].search == "tags.`symlab.command` = 'c1' and tags.`symlab.section` = 'all_reduce bfloat16 n4'"
    assert {state_of(view)["orderByKey"] for view in views} == {"tags.`symlab.place`"}
    assert {state_of(view)["runsHiddenMode"] for view in views} == {"FIRST_20_RUNS"}


def test_a_command_of_one_section_has_one_view():
    assert len(command_views(Drawn("c1", "one", {"all_reduce bfloat16 n4": True}))) == 1


def test_without_times_the_view_is_of_errors():
    (untimed,) = command_views(Drawn("c1", "one", {"all_reduce bfloat16 n4": False}))
    assert {chart.metric.partition("/")[0] for chart in untimed.charts} == {"errors"}


def test_views_of_many_sections_are_few_and_fit_a_tag():
    views = command_views(Drawn("c" * 200, "t" * 100, {f"all_reduce bfloat16 n{size}": True for size in range(2, 72)}))
    assert len(views) == MOST_SECTIONS + 1
    assert all(len(saved(view, 1_800_000_000_000)) <= LONGEST_TAG for view in views)


def test_views_of_the_oldest_commands_make_room():
    present = {f"{VIEW_TAG}symlab-time": "{}", f"{VIEW_TAG}mine": saved(VIEWS[0], 0)}
    for number in range(MOST_VIEWS):
        for tag, value in command_tags(present, command_views(Drawn(f"c{number}", "one", SECTIONS)), number).items():
            if value is None:
                del present[tag]
            else:
                present[tag] = value
    assert len(present) == MOST_VIEWS + 2
    assert f"{VIEW_TAG}{view_key('c0')}" not in present
    assert f"{VIEW_TAG}{view_key(f'c{MOST_VIEWS - 1}')}" in present
    assert {f"{VIEW_TAG}symlab-time", f"{VIEW_TAG}mine"} <= set(present), "what is not a command's stays"


def test_views_that_are_there_are_not_written_again():
    views = command_views(Drawn("c1", "one", SECTIONS))
    present = {tag: str(value) for tag, value in command_tags({}, views, 5).items()}
    assert command_tags(present, views, 6) == {}
