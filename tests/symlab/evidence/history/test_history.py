"""The history of a set: which records are one series, what is said of times and of data, its tables and JSON."""

import dataclasses
import re
from pathlib import Path

import pytest

from cases.record.record import Status
from reports.table import sheet
from symlab.command import main
from symlab.evidence.history.history import history
from symlab.evidence.history.series import series_of
from tests.golden import refused as refusing
from tests.golden import same_text
from tests.reports.synthetic import KIB, refused
from tests.symlab.evidence.audit.invented_records import broken
from tests.symlab.evidence.history.history_sets import COMMITS, stepping, with_commit, without_times, world

PUBLISHED = Path(__file__).parents[4] / "reports" / "published"


def history_of(records):
    return history(records)


def text_of(found):
    return sheet.text(found.sheets(), found.captions)


def test_order_of_time_counts_and_not_that_of_the_records():
    records = stepping(8, 1.1, 4)
    found = history_of(records[::-1])
    assert text_of(found) == text_of(history_of(records))
    (line,) = found.sheets()[1].groups[0]
    assert float(line.cells["last/first"]) == pytest.approx(1.1, rel=0.01)
    assert [version.commit for version in found.versions] == [commit[:12] for commit in COMMITS[:2]]
    same_text(found.text("markdown"))


def test_simulated_worlds_have_no_times_and_their_data_is_followed():
    found = history_of(without_times(["x", "x", "y", "y", "x"]))
    (one,) = found.told
    assert [step.at for step in one.data_changes] == [2, 4]
    text = text_of(found)
    assert "changed 2 times" in text
    assert "first (us)" not in text
    (data,) = found.sheets()[2:]
    first = data.groups[0][0].cells
    assert "222222222222 (version 2)" in first["before"]
    assert "333333333333 (version 3)" in first["after"]
    assert re.search(r"\([0-9a-f]{12} to [0-9a-f]{12}\)", first["what changed"])
    assert "simulated, which have no times" in found.verdict


def test_the_same_data_is_said_to_be_the_same():
    found = history_of(without_times(["x"] * 4))
    assert found.told[0].data_text == "same"
    assert "data changed in 0 of 1 case" in found.verdict


def unchecked(record):
    return dataclasses.replace(record, check=None, reason="check was off")


def test_an_unchecked_world_hides_no_change_of_data():
    first, middle, last = without_times(["x", "x", "y"])
    found = history_of([first, unchecked(middle), last])
    (one,) = found.told
    assert [(step.before, step.at) for step in one.data_changes] == [(0, 2)]
    assert "data changed in 1 of 1 case" in found.verdict
    (data,) = found.sheets()[2:]
    assert "version 1" in data.groups[0][0].cells["before"]
    assert "version 3" in data.groups[0][0].cells["after"]
    broke = broken(Status.FAILED, **{name: getattr(last, name) for name in ("request", "started", "ended", "fabric")})
    (one,) = history_of([first, unchecked(middle), broke]).told
    assert [(step.before, step.at) for step in one.data_changes] == [(0, 2)]


def test_a_world_without_digests_hides_no_change_of_data():
    first, middle, last = without_times(["x", "x", "y"])
    older = dataclasses.replace(
        middle, check=dataclasses.replace(middle.check, output_digests=None, input_digests=None)
    )
    (one,) = history_of([first, older, last]).told
    assert [(step.before, step.at) for step in one.data_changes] == [(0, 2)]


def test_what_was_not_compared_is_not_unchanged():
    found = history_of([unchecked(record) for record in without_times(["x", "x", "y"])])
    assert "data changed" not in found.verdict
    assert found.verdict.endswith("no data could be compared in 1 case")
    both = history_of([*map(unchecked, without_times(["x", "x"])), *stepping(3, 1.0, 1, algorithm="two_shot")])
    assert both.verdict.endswith("data changed in 0 of 1 case; no data could be compared in 1 case")


def test_what_stays_broken_changed_once():
    records = stepping(6, 1.0, 3)
    for at in (3, 4):
        kept = {name: getattr(records[at], name) for name in ("request", "started", "ended")}
        records[at] = broken(Status.FAILED, fabric=None, **kept)
    (one,) = history_of(records).told
    assert [step.at for step in one.data_changes] == [3]
    assert (one.data[-1].before, one.data[-1].at, one.data[-1].is_compared) == (2, 5, True)


def test_what_broke_or_was_wrong_on_the_way_is_a_change_of_data():
    records = stepping(6, 1.0, 3)
    records[4] = broken(
        Status.FAILED, request=records[4].request, started=records[4].started, ended=records[4].ended, fabric=None
    )
    (one,) = history_of(records).told
    assert [step.at for step in one.data_changes] == [4]
    assert len(one.series.points) == 6
    assert len(one.series.timed) == 5


def test_machines_ways_and_cases_are_series_of_their_own():
    records = [
        world(0, 10.0),
        world(1, 10.0, size_bytes=4 * KIB),
        world(2, 10.0, algorithm="two_shot"),
        world(3, 10.0, timing={"window": "both_barriers"}),
        *without_times(["x"]),
        refused(),
    ]
    found = series_of(records)
    assert len(found) == 5
    assert {one.machine for one in found} == {"4 x Invented GPU", "simulator (sm_90a)"}
    with refusing(ValueError):
        history_of([refused()])


def test_a_case_that_one_world_ran_twice_counts_once():
    records = stepping(10, 1.0, 5)
    again = world(0, 20.0, started="2026-01-01T01:00:00Z", ended="2026-01-01T01:00:01Z")
    (one,) = series_of([*records, again])
    assert len(one.points) == 10
    assert one.points[0].us == pytest.approx(15, abs=0.1)


def test_a_changed_checkout_is_a_version_of_its_own():
    clean, dirty = world(0, 10.0), with_commit(world(1, 10.0), dirty=True, diff_digest="sha256:1")
    found = history_of([clean, dirty])
    assert [version.commit for version in found.versions] == ["a" * 12, "a" * 12 + "+"]


@pytest.mark.slow
def test_all_that_is_published_has_a_history(capsys):
    assert main(["history", str(PUBLISHED)]) == 0
    assert re.search(r"\d+ cases on \d+ machines?, \d+ worlds, \d+ versions?", capsys.readouterr().out)


def test_an_empty_place_is_said(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["history", str(tmp_path / "empty")]) == 2
    assert "no records here" in capsys.readouterr().err
