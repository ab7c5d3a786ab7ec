"""Items 16 and 18 to 20: what is missing, changed, or can't be run again; command.json against the records."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import Status
from reports.audit.completeness import whole
from reports.audit.items import Outcome
from reports.audit.material import Material
from reports.record.bundle import read
from reports.record.seal import MANIFEST, seal
from tests.reports.audit.complete_set import (
    audited,
    item,
    kept,
    outcomes,
    records,
    tells,
    with_request,
    without,
)
from tests.reports.audit.invented_records import broken


@pytest.mark.parametrize("part", ["missing", "unexpected"])
def test_16_cases_that_are_not_those_that_were_asked_for(part: str) -> None:
    audit = audited(cases={part: [["command0", 0, "all_reduce-x"]]})
    tells(audit, 16)


def test_16_what_can_not_be_worked_out() -> None:
    audit = audited(cases={"not_comparable": [["command0", 0, "no configuration"]]})
    tells(audit, 16)


def test_16_a_record_that_was_taken_away(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    gone = sorted((place / "command2").glob("all_reduce*.json"))[0]
    gone.unlink()
    tells(audited(place=place), 16)


def test_16_a_record_that_was_put_in(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    other = broken(Status.FAILED, size_bytes=4096, request={"command": "command2", "job": 0})
    (place / "command2" / "other.json").write_text(other.to_json(), encoding="utf-8")
    tells(audited(place=place), 16)


def test_16_one_file_of_a_command_is_no_finding(tmp_path: Path) -> None:
    """It never was the whole command; the folder that lacks the same cases is a finding."""
    place = kept(tmp_path / "records")
    path = sorted((place / "command2").glob("all_reduce*.json"))[0]
    missing = {"expected": 4, "missing": [["command2", 0, f"all_reduce-{one}"] for one in range(3)]}
    alone = audited(read([path]), place=path, cases=missing)
    tells(alone, 16)
    assert alone.level.findings == ()
    other = {**missing, "unexpected": [["command2", 0, "all_reduce-x"]]}
    tells(audited(read([path]), place=path, cases=other), 16)
    tells(audited(place=place, cases=missing), 16)


def test_16_failures_with_reasons_are_counted_and_are_no_finding() -> None:
    audit = audited([*records(), broken(Status.FAILED, size_bytes=4096)])
    tells(audit, 16)


@pytest.mark.parametrize("name", ["command.json", "manifest.sha256", "record", "ptx"])
def test_18_a_changed_byte_in_any_file(name: str, tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    assert item(audited(place=place), 18).outcome is Outcome.CAPTURED
    found = {"record": "all_reduce*.json", "ptx": "ptx/*.ptx"}.get(name, name)
    path = sorted((place / "command3").glob(found))[0]
    data = path.read_bytes()
    members = read([place])
    for position in (0, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        found = [
            point for point in whole(Material(tuple(members), (place,))).points if point.outcome is Outcome.FINDING
        ]
        assert len(found) == 1
        assert path.name in found[0].evidence
    path.write_bytes(data)
    assert item(audited(members, place=place), 18).outcome is Outcome.CAPTURED


def test_18_a_single_file_or_command_is_looked_at_alone(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    files = sorted((place / "command0").glob("all_reduce*.json"))
    files[0].write_bytes(files[0].read_bytes() + b"\n")
    tells(audited(place=files[0]), 18)
    assert item(audited(place=files[1]), 18).outcome is Outcome.CAPTURED
    assert item(audited(place=place / "command1"), 18).outcome is Outcome.CAPTURED


def test_18_a_name_with_a_colon_is_looked_at(tmp_path: Path) -> None:
    place = kept(tmp_path / "records", records(1))
    folder = place / "a: b, line 1: c"
    (place / "command0").rename(folder)
    (folder / MANIFEST).unlink()
    seal(place)
    path = sorted(folder.glob("all_reduce*.json"))[0]
    assert item(audited(place=folder), 18).outcome is Outcome.CAPTURED
    path.write_bytes(path.read_bytes() + b" ")
    for looked_at in (place, folder, path):
        tells(audited(place=looked_at), 18)


def test_18_without_a_manifest(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    (place / "command0" / MANIFEST).unlink()
    audit = audited(place=place)
    tells(audit, 18)


def test_19_what_can_not_be_run_again() -> None:
    audit = audited([with_request(record, configuration=None) for record in records()])
    tells(audit, 19)


def test_19_the_command_can_be_pasted(tmp_path: Path) -> None:
    place = kept(tmp_path / "my records", records(1))
    tells(audited(place=place), 19)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"jobs": ' + "[" * 900 + "]" * 900 + "}", f'{{"counts": 1{"0" * 400}}}']
)
def test_absurd_json_of_a_command_is_named_in_one_line(tmp_path: Path, text: str) -> None:
    place = kept(tmp_path / "records", records())
    path = place / "command0" / "command.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"command0/command\.json: can't be read") as caught:
        audited(place=place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"exit_code": 0, "verdict": "VERIFIED: x"}', Outcome.CAPTURED),
        ('{"exit_code": 1, "verdict": "FINDING: x"}', Outcome.FINDING),
        ('{"exit_code": 2, "verdict": "NOT AUDITABLE: x"}', Outcome.NOT_COMPARABLE),
        ('{"exit_code": "0", "verdict": "VERIFIED: x"}', Outcome.FINDING),
        ('{"exit_code": false, "verdict": "VERIFIED: x"}', Outcome.FINDING),
        ("[]", Outcome.FINDING),
        ("{", Outcome.FINDING),
    ],
)
def test_19_a_replays_verdict_is_read(text: str, outcome: Outcome, tmp_path: Path) -> None:
    place = kept(tmp_path / "records", records(1))
    (place / "verdict.json").write_text(text, encoding="utf-8")
    assert item(audited(place=place), 19).outcome is outcome
    tells(audited(place=place), 19)


def test_20_what_is_missing_is_named() -> None:
    audit = audited(without(records(), "not_captured", "python"))
    tells(audit, 20)


def test_the_set_on_disk_is_what_a_command_leaves(tmp_path: Path) -> None:
    document = json.loads((kept(tmp_path) / "command0" / "command.json").read_text())
    assert document["counts"] == {"PASSED": 2}


def with_command(place: Path, **changes: Any) -> Path:
    """The folder with something else in the first command's command.json; None takes it out."""
    path = place / "command0" / "command.json"
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}), encoding="utf-8")
    return place


def test_what_agrees_is_verified(tmp_path: Path) -> None:
    audit = audited(place=kept(tmp_path))
    tells(audit, 16)
    tells(audit, 17)


@pytest.mark.parametrize(
    "jobs", [[1], [{"number": 0}], [{"number": "0", "cases": []}], [{"number": 0, "cases": [3]}], "all"]
)
def test_jobs_that_are_none_are_a_finding(jobs: Any, tmp_path: Path) -> None:
    tells(audited(place=with_command(kept(tmp_path), jobs=jobs)), 16)


@pytest.mark.parametrize("counts", [{"PASSED": 3}, [2], "2", {}])
def test_counts_that_do_not_agree_are_a_finding(counts: Any, tmp_path: Path) -> None:
    tells(audited(place=with_command(kept(tmp_path), counts=counts)), 16)


@pytest.mark.parametrize("key", ["jobs", "counts"])
def test_what_is_missing_is_named(key: str, tmp_path: Path) -> None:
    audit = audited(place=with_command(kept(tmp_path), **{key: None}))
    tells(audit, 16)


@pytest.mark.parametrize("code", [1, 2, "0", True, 130])
def test_exit_codes(code: Any, tmp_path: Path) -> None:
    audit = audited(place=with_command(kept(tmp_path), exit_code=code))
    tells(audit, 17)


def test_an_exit_code_of_0_needs_cases_that_passed(tmp_path: Path) -> None:
    members = [*records(1), broken(Status.FAILED, size_bytes=4096, request={"command": "command0", "job": 0})]
    place = with_command(kept(tmp_path / "failed", members), counts={"PASSED": 2, "FAILED": 1})
    tells(audited(place=place), 17)
    place = with_command(place, exit_code=1)
    tells(audited(place=place), 17)
    stopped = with_command(kept(tmp_path / "stopped", records(1)), exit_code=1, outcome="stopped", cases_not_run=[1])
    tells(audited(place=stopped), 17)


def test_a_library_that_did_not_finish_is_in_no_exit_code(tmp_path: Path) -> None:
    late = broken(
        Status.TIMEOUT, size_bytes=4096, kernel=None, library="NVSHMEM 0.0.0", request={"command": "command0", "job": 0}
    )
    place = with_command(kept(tmp_path, [*records(1), late]), counts={"PASSED": 2, "TIMEOUT": 1})
    for code in (0, 1):  # 1: of commands of before
        tells(audited(place=with_command(place, exit_code=code)), 17)


def test_a_job_without_any_record_is_missed(tmp_path: Path) -> None:
    """In a bundle, too, where there is no command.json."""
    members = [with_request(record, jobs=3) for record in records(1)]
    tells(audited(members), 16)
    nonsense = [with_request(record, jobs=10**12) for record in records(1)]
    tells(audited(nonsense), 16)
    silent = [with_request(record, jobs=None) for record in records()]
    tells(audited(silent), 16)


def test_a_job_that_is_none_names_its_record(tmp_path: Path) -> None:
    place = kept(tmp_path, records(1))
    first, *others = read([place])
    audit = audited([with_request(first, job=7), *others], place)
    tells(audit, 16)


@pytest.mark.parametrize(
    ("reason", "is_known"),
    [("", True), ("interrupted before it was timed", True), ("check was off", False), ("verified on 8 GPUs", False)],
)
def test_16_what_a_record_that_passed_may_give_as_a_reason(reason: str, is_known: bool) -> None:
    """The check of these records was on; a command that is interrupted says what it did not time."""
    first, *others = records()
    changed = [dataclasses.replace(first, timing=None, reason=reason), *others]
    found = outcomes(audited(changed), 16)
    assert (Outcome.FINDING in found) != is_known


def interrupted(place: Path, outcome: str | None) -> Path:
    """The first command without its second record: interrupted, or with None killed."""
    path = sorted((place / "command0").glob("all_reduce*.json"))[1]
    case = path.stem
    path.unlink()
    (place / "command0" / MANIFEST).unlink()
    ends = dict.fromkeys(("ended", "exit_code", "outcome", "why", "counts", "cases_not_run"))
    if outcome is not None:
        ends |= {"ended": records(1)[0].ended, "exit_code": 130, "outcome": outcome, "why": "SIGINT"}
        ends |= {"counts": {"PASSED": 1}, "cases_not_run": [{"job": 0, "case": case}]}
    with_command(place, **ends)
    if outcome is not None:
        seal(place / "command0")
    return place


@pytest.mark.parametrize("outcome", ["interrupted", None])
def test_an_interrupted_command_is_no_finding(outcome: str | None, tmp_path: Path) -> None:
    place = interrupted(kept(tmp_path, records(1)), outcome)
    document = json.loads((place / "command0" / "command.json").read_text())
    (case,) = {one for job in document["jobs"] for one in job["cases"]} - {one.id for one in read([place])}
    missing = {"expected": 2, "missing": [["command0", 0, case]]}
    audit = audited(read([place]), place, cases=missing)
    assert audit.level.findings == ()
    tells(audit, 16)
    assert "; interrupted, 1 case not run; " in audit.verdict


def test_what_did_not_run_must_be_said_to(tmp_path: Path) -> None:
    place = interrupted(kept(tmp_path, records(1)), "interrupted")
    with_command(place, cases_not_run=[])
    tells(audited(place=place), 16)
    path = next((place / "command0").glob("all_reduce*.json"))
    with_command(place, cases_not_run=[{"job": 0, "case": path.stem}])
    tells(audited(place=place), 16)


def test_a_command_that_never_ended_has_no_manifest(tmp_path: Path) -> None:
    """Who takes the end of command.json away, and seals the folder again, does what no command does."""
    place = interrupted(kept(tmp_path, records(1)), None)
    seal(place / "command0")
    tells(audited(place=place), 17)
