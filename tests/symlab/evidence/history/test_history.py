"""The history of a set: which records are one series, what is said of times and of data, its tables."""

import dataclasses
import re
from pathlib import Path

import pytest

from cases.record.record import Status
from reports.table import sheet
from symlab.command import main
from symlab.evidence.history.history import history
from symlab.evidence.history.series import series_of
from tests.golden import same_text
from tests.reports.synthetic import KIB, refused
from tests.symlab.evidence.audit.invented_records import broken
from tests.symlab.evidence.history.history_sets import COMMITS, stepping, with_commit, without_times, world

PUBLISHED = Path(__file__).parents[4] / "reports" / "published"
BAND = 0.02


def history_of(records):
    return history(records, BAND)


def kept(folder, records):
    for number, record in enumerate(records):
        place = folder / record.request.command
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.json").write_text(record.to_json(), encoding="utf-8")
    return folder


def unchecked(record):
    return dataclasses.replace(record, check=None, reason="check was off")


def undigested(record):
    return dataclasses.replace(record, check=dataclasses.replace(record.check, output_digests=None, input_digests=None))


def broke(record, fabric=None):
    """The world of a record, in which the case failed."""
    fields = {name: getattr(record, name) for name in ("request", "started", "ended")}
    return broken(Status.FAILED, fabric=fabric, **fields)


def changed_at(records, *places):
    """Records, of which those at these places are of worlds in which the case failed."""
    return [broke(record) if at in places else record for at, record in enumerate(records)]


FIRST, MIDDLE, LAST = without_times(["x", "x", "y"])
AGAIN = world(0, 20.0, started="2026-01-01T01:00:00Z", ended="2026-01-01T01:00:01Z")
SAME_DAY = {"started": "2026-01-01T02:00:00Z", "ended": "2026-01-01T02:00:01Z"}
HISTORIES = {
    "a change": stepping(),
    "a change for one day": [world(at, 13.0 if at == 2 else 10.0) for at in range(5)],
    "none": stepping(12, 1.0, 6),
    "drift that no day shows": [world(at, 10 * 1.012**at) for at in range(5)],
    "one version on one day": [world(0, 10.0), world(1, 13.0, **SAME_DAY)],
    "two versions on one day": [world(0, 10.0), world(1, 13.0, COMMITS[1], **SAME_DAY)],
    "data": without_times(["x", "x", "y", "y", "x"]),
    "the same data": without_times(["x"] * 4),
    "an unchecked world before other data": [FIRST, unchecked(MIDDLE), LAST],
    "an unchecked world before a broken one": [FIRST, unchecked(MIDDLE), broke(LAST, LAST.fabric)],
    "a world without digests": [FIRST, undigested(MIDDLE), LAST],
    "unchecked": [unchecked(record) for record in (FIRST, MIDDLE, LAST)],
    "one unchecked": [*map(unchecked, without_times(["x", "x"])), *stepping(3, 1.0, 1, algorithm="two_shot")],
    "broken for two worlds": changed_at(stepping(6, 1.0, 3), 3, 4),
    "broken for one": changed_at(stepping(6, 1.0, 3), 4),
    "a case twice in a world": [*stepping(10, 1.0, 5), AGAIN],
    "a changed checkout": [world(0, 10.0), with_commit(world(1, 10.0), dirty=True, diff_digest="sha256:1")],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_is_said(name):
    found = history_of(HISTORIES[name])
    said = [found.verdict]
    for one in found.told:
        said.append(
            f"{len(one.series.points)} worlds, {len(one.series.timed)} timed, {one.times_text}, {one.data_text}"
        )
        said += [f"times: {one.before[-1].world} to {one.after[0].world}, {one.ratio:.3f}" for one in one.changes]
        said += [f"data: {step.before} to {step.at}, compared: {step.is_compared}" for step in one.data]
    tables = sheet.text(found.sheets(), found.captions), sheet.text(found.sheets(is_changed=True), ())
    same_text("\n".join([*said, *tables]))


def test_order_of_time_counts_and_not_that_of_the_records():
    records = stepping()
    assert history_of(records[::-1]).text(False) == history_of(records).text(False)


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


@pytest.mark.slow
def test_all_that_is_published_has_a_history(capsys):
    assert main(["history", str(PUBLISHED)]) == 0
    assert re.search(r"\d+ cases on \d+ machines?, \d+ worlds, \d+ versions?", capsys.readouterr().out)


@pytest.mark.parametrize(("words", "said"), [(["--band", "200%"], "band"), ([], "no records here")])
def test_a_wrong_request_is_one_line(words, said, tmp_path, capsys):
    assert main(["history", str(kept(tmp_path, stepping(2, 1.0, 1) if words else [])), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_only_what_changed(tmp_path, capsys):
    records = [*stepping(), *stepping(step=1.0, seed=1, algorithm="two_shot")]
    place = kept(tmp_path / "records", records)
    assert main(["history", str(place), "--changed"]) == 0
    out = capsys.readouterr().out
    assert "one_shot" in out
    assert "two" not in out.partition("changes of times")[0].partition("Invented GPU")[2]
