"""Races in MLflow: a metric for each severity, and a tag that says whether cases were checked."""

import dataclasses

from reports.mlflow_values import metrics_of
from runner.track.names import series_tags
from tests.reports.raced import checked, finding, unchecked
from tests.reports.synthetic import record, refused

RACES = ("races/race", "races/proxy", "races/formal", "races/advisory")


def test_metrics_by_severity():
    found = metrics_of(checked(finding(), finding("formal"), finding("formal", "a barrier")))
    assert [found[name] for name in RACES] == [1.0, 0.0, 2.0, 0.0]
    assert [metrics_of(checked())[name] for name in RACES] == [0.0] * 4


def test_an_unchecked_case_has_no_such_metric():
    assert not set(RACES) & set(metrics_of(unchecked()))


def test_the_tags():
    gone = dataclasses.replace(refused(), fabric=checked().fabric)
    series = ([checked(), gone], [unchecked()], [record()], [gone], [checked(), unchecked(size_bytes=64)])
    said = ["checked", "not checked", "not checked", "not checked", "checked in 1 of 2"]
    assert [series_tags(one)["races"] for one in series] == said
    assert series_tags([checked(finding())])["reason"].startswith("race: a release is missing")
