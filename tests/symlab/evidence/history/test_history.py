"""The history of a set: which records are one series, what is said of times and of data, its tables and JSON."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from cases.record.record import Status
from reports.table import sheet
from symlab.command import main
from symlab.evidence.history.history import history
from symlab.evidence.history.series import series_of
from tests.reports.synthetic import KIB, refused
from tests.symlab.evidence.audit.invented_records import broken
from tests.symlab.evidence.history.history_sets import COMMITS, stepping, with_commit, without_times, world

PUBLISHED = Path(__file__).parents[4] / "reports" / "published"
BAND = 0.02


def history_of(records):
    return history(records, BAND)


def text_of(found):
    return sheet.text(found.sheets(), found.captions)


def kept(folder, records):
    for number, record in enumerate(records):
        place = folder / record.request.command
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.json").write_text(record.to_json(), encoding="utf-8")
    return folder


def test_a_change_is_named_with_its_place_and_with_what_differs():
    found = history_of(stepping(24, 1.1, 12))
    (one,) = found.told
    (change,) = one.changes
    assert change.first <= 12 <= change.last
    assert change.low < 1.1 < change.high
    (times,) = found.change_sheets()
    (line,) = (line for group in times.groups for line in group)
    assert "git.commit: aaaaaaaaaaaa.. to bbbbbbbbbbbb.." in line.cells["what differs"]
    assert "packages.nvidia-nccl-cu13: 2.28.9 to 2.29.0" in line.cells["what differs"]
    assert "2026-01-12" in line.cells["before"]
    assert "bbbbbbbbbbbb (version 2)" in line.cells["after"]
    assert "times changed in 1 of 1 case" in found.verdict
    assert [version.commit for version in found.versions] == [commit[:12] for commit in COMMITS[:2]]


def test_order_of_time_counts_and_not_that_of_the_records():
    records = stepping(24, 1.1, 12)
    assert history_of(records[::-1]).document() == history_of(records).document()


def test_a_series_without_a_change_says_so():
    found = history_of(stepping(24, 1.0, 12))
    assert "no change found; clocks not recorded: states of the machine are unknown" in text_of(found)
    assert "times changed in 0 of 1 case" in found.verdict
    assert found.sheets(is_changed=True) == [found.versions_sheet()]


def test_too_few_worlds_are_said():
    found = history_of(stepping(7, 2.0, 3))
    assert found.told[0].changes == ()
    assert "too few worlds (7 of 8)" in text_of(found)
    assert "too few worlds for change points in 1 case (8 are the minimum)" in found.verdict


def test_simulated_worlds_have_no_times_and_their_data_is_followed():
    found = history_of(without_times(["x", "x", "y", "y", "x"]))
    (one,) = found.told
    assert one.times_text == "simulated: no times"
    assert [step.at for step in one.data_changes] == [2, 4]
    text = text_of(found)
    assert "changed 2 times" in text
    assert "simulated cases have no times" in text
    assert "first (us)" not in text
    (data,) = found.change_sheets()
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
    (data,) = found.change_sheets()
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
    with pytest.raises(ValueError, match="all were refused, and have no history"):
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


def test_the_json_has_every_world(tmp_path, capsys):
    place = kept(tmp_path / "records", stepping(24, 1.1, 12))
    assert main(["history", str(place), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (one,) = document["series"]
    assert len(one["points"]) == 24
    assert one["changes"][0]["worlds"] == ["command011", "command012"]
    assert one["points"][0]["us"] == pytest.approx(10, rel=0.02)


@pytest.mark.slow
def test_all_that_is_published_has_a_history(capsys):
    assert main(["history", str(PUBLISHED)]) == 0
    assert re.search(r"\d+ cases on \d+ machines?, \d+ worlds, \d+ versions?", capsys.readouterr().out)


def test_a_wrong_band_is_one_line(tmp_path, capsys):
    place = kept(tmp_path / "records", stepping(2, 1.0, 1))
    assert main(["history", str(place), "--band", "200%"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "band" in line


def test_an_empty_place_is_said(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["history", str(tmp_path / "empty")]) == 2
    assert "no records here" in capsys.readouterr().err


def test_only_what_changed(tmp_path, capsys):
    records = [*stepping(24, 1.1, 12), *stepping(24, 1.0, 12, seed=1, algorithm="two_shot")]
    place = kept(tmp_path / "records", records)
    assert main(["history", str(place), "--changed", "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert "| one\\_shot" in out or "| one_shot" in out
    assert "two" not in out.partition("changes of times")[0].partition("Invented GPU")[2]
