"""Items 16 and 18 to 20: what is missing, changed, or can't be run again; command.json against the records."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from reports.audit.completeness import whole
from reports.audit.items import Outcome
from reports.audit.material import Material
from reports.record.bundle import read
from reports.record.record import Status
from reports.record.seal import MANIFEST, seal
from tests.reports.audit.complete_set import audited, evidence, item, kept, outcomes, records, with_request, without
from tests.reports.audit.invented_records import broken


@pytest.mark.parametrize(
    ("part", "says"),
    [("missing", "all_reduce-x of command0 is missing"), ("unexpected", "all_reduce-x of command0 was not requested")],
)
def test_16_cases_that_are_not_those_that_were_asked_for(part: str, says: str) -> None:
    audit = audited(cases={part: [["command0", 0, "all_reduce-x"]]})
    assert says in evidence(audit, 16, Outcome.FINDING)


def test_16_what_can_not_be_worked_out() -> None:
    audit = audited(cases={"not_comparable": [["command0", 0, "no configuration"]]})
    assert "job 1 of command0: no configuration" in evidence(audit, 16, Outcome.NOT_COMPARABLE)


def test_16_a_record_that_was_taken_away(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    gone = sorted((place / "command2").glob("all_reduce*.json"))[0]
    gone.unlink()
    said = evidence(audited(place=place), 16, Outcome.FINDING)
    assert f"{gone.stem} of command2 is not there" in said
    assert "command2 ended with {'PASSED': 2}, and there are {'PASSED': 1}" in said


def test_16_a_record_that_was_put_in(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    other = broken(Status.FAILED, size_bytes=4096, request={"command": "command2", "job": 0})
    (place / "command2" / "other.json").write_text(other.to_json(), encoding="utf-8")
    assert f"{other.id} of command2 was not requested" in evidence(audited(place=place), 16, Outcome.FINDING)


def test_16_one_file_of_a_command_is_no_finding(tmp_path: Path) -> None:
    """It never was the whole command; the folder that lacks the same cases is a finding."""
    place = kept(tmp_path / "records")
    path = sorted((place / "command2").glob("all_reduce*.json"))[0]
    missing = {"expected": 4, "missing": [["command2", 0, f"all_reduce-{one}"] for one in range(3)]}
    alone = audited(read([path]), place=path, cases=missing)
    assert f"one file of a command, {path.name}: 3 of 4 cases" in evidence(alone, 16, Outcome.NOT_COMPARABLE)
    assert alone.level.findings == ()
    other = {**missing, "unexpected": [["command2", 0, "all_reduce-x"]]}
    assert Outcome.FINDING in outcomes(audited(read([path]), place=path, cases=other), 16)
    assert Outcome.FINDING in outcomes(audited(place=place, cases=missing), 16)


def test_16_failures_with_reasons_are_counted_and_are_no_finding() -> None:
    audit = audited([*records(), broken(Status.FAILED, size_bytes=4096)])
    assert "8 PASSED, 1 FAILED; each that did not pass says why" in evidence(audit, 16, Outcome.CAPTURED)
    assert Outcome.FINDING not in outcomes(audit, 16)
    assert "no command.json" in evidence(audit, 16, Outcome.NOT_CAPTURED)


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
    assert f"{files[0].name}: changed" in evidence(audited(place=files[0]), 18, Outcome.FINDING)
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
        assert f"{path.name}: changed" in evidence(audited(place=looked_at), 18, Outcome.FINDING)


def test_18_without_a_manifest(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    (place / "command0" / MANIFEST).unlink()
    audit = audited(place=place)
    assert f"records: no {MANIFEST} covers 2 files of records" in evidence(audit, 18, Outcome.NOT_CAPTURED)
    assert Outcome.CAPTURED in outcomes(audit, 18)
    assert evidence(audited(), 18, Outcome.NOT_CAPTURED) == "no files, so no manifest"


def test_19_what_can_not_be_run_again() -> None:
    assert "symlab replay RECORDS: " in evidence(audited(), 19, Outcome.CAPTURED)
    audit = audited([with_request(record, configuration=None) for record in records()])
    assert "8 records without a configuration" in evidence(audit, 19, Outcome.NOT_CAPTURED)


def test_19_the_command_can_be_pasted(tmp_path: Path) -> None:
    place = kept(tmp_path / "my records", records(1))
    assert f"symlab replay '{place}': " in evidence(audited(place=place), 19, Outcome.CAPTURED)


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
    assert "verdict.json" in evidence(audited(place=place), 19, outcome)


def test_20_what_is_missing_is_named() -> None:
    audit = audited(without(records(), "not_captured", "python"))
    assert evidence(audit, 20, Outcome.NOT_CAPTURED) == "the records do not say what they lack"
    assert "not captured is something of item 3, 4, 16, 17, 18" in evidence(audit, 20, Outcome.CAPTURED)


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
    assert "command.json of 4 commands: 8 cases asked for, all there" in evidence(audit, 16, Outcome.CAPTURED)
    assert "4 jobs of 4 commands, each with records" in evidence(audit, 16, Outcome.CAPTURED)
    assert "exit code of 4 commands: 0; as the cases ended" in evidence(audit, 17, Outcome.CAPTURED)


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([1], "jobs of command0: entry 0 is 1, not a job"),
        ([{"number": 0}], "jobs of command0: entry 0 is {'number': 0}, not a job"),
        ([{"number": "0", "cases": []}], "not a job with its number and cases"),
        ([{"number": 0, "cases": [3]}], "not a job with its number and cases"),
        ("all", "jobs of command0 is 'all', which no command writes"),
    ],
)
def test_jobs_that_are_none_are_a_finding(jobs: Any, says: str, tmp_path: Path) -> None:
    assert says in evidence(audited(place=with_command(kept(tmp_path), jobs=jobs)), 16, Outcome.FINDING)


@pytest.mark.parametrize("counts", [{"PASSED": 3}, [2], "2", {}])
def test_counts_that_do_not_agree_are_a_finding(counts: Any, tmp_path: Path) -> None:
    assert Outcome.FINDING in outcomes(audited(place=with_command(kept(tmp_path), counts=counts)), 16)


@pytest.mark.parametrize("key", ["jobs", "counts"])
def test_what_is_missing_is_named(key: str, tmp_path: Path) -> None:
    audit = audited(place=with_command(kept(tmp_path), **{key: None}))
    assert f"command.json has no {key} of command0" in evidence(audit, 16, Outcome.NOT_CAPTURED)
    assert Outcome.FINDING not in outcomes(audit, 16)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, "command0 ended with exit code 1, and its cases are PASSED"),
        (2, "a command that ran cases ends with 0, 1 or above 128"),
        ("0", "exit code of command0 is '0', which is not a number"),
        (True, "which is not a number"),
        (130, ""),
    ],
)
def test_exit_codes(code: Any, says: str, tmp_path: Path) -> None:
    audit = audited(place=with_command(kept(tmp_path), exit_code=code))
    assert says in evidence(audit, 17, Outcome.FINDING)
    assert (Outcome.FINDING in outcomes(audit, 17)) == bool(says)


def test_an_exit_code_of_0_needs_cases_that_passed(tmp_path: Path) -> None:
    members = [*records(1), broken(Status.FAILED, size_bytes=4096, request={"command": "command0", "job": 0})]
    place = with_command(kept(tmp_path / "failed", members), counts={"PASSED": 2, "FAILED": 1})
    assert "command0 ended with exit code 0, and its cases are FAILED, PASSED" in evidence(
        audited(place=place), 17, Outcome.FINDING
    )
    place = with_command(place, exit_code=1)
    assert Outcome.FINDING not in outcomes(audited(place=place), 17)
    stopped = with_command(kept(tmp_path / "stopped", records(1)), exit_code=1, outcome="stopped", cases_not_run=[1])
    assert Outcome.FINDING not in outcomes(audited(place=stopped), 17)


def test_a_library_that_did_not_finish_is_in_no_exit_code(tmp_path: Path) -> None:
    late = broken(
        Status.TIMEOUT, size_bytes=4096, kernel=None, library="NVSHMEM 0.0.0", request={"command": "command0", "job": 0}
    )
    place = with_command(kept(tmp_path, [*records(1), late]), counts={"PASSED": 2, "TIMEOUT": 1})
    for code in (0, 1):  # 1: of commands of before
        assert Outcome.FINDING not in outcomes(audited(place=with_command(place, exit_code=code)), 17)


def test_a_job_without_any_record_is_missed(tmp_path: Path) -> None:
    """In a bundle, too, where there is no command.json."""
    members = [with_request(record, jobs=3) for record in records(1)]
    assert "2 of 3 jobs: job 2 of command0 has no record; job 3 of" in evidence(audited(members), 16, Outcome.FINDING)
    nonsense = [with_request(record, jobs=10**12) for record in records(1)]
    assert "100 of 1000000000000 jobs: job 2 of" in evidence(audited(nonsense), 16, Outcome.FINDING)
    silent = [with_request(record, jobs=None) for record in records()]
    assert "how many jobs there were" in evidence(audited(silent), 16, Outcome.NOT_CAPTURED)


def test_a_job_that_is_none_names_its_record(tmp_path: Path) -> None:
    place = kept(tmp_path, records(1))
    first, *others = read([place])
    audit = audited([with_request(first, job=7), *others], place)
    assert f"{first.id}: job 8 is out of range, the command has 1" in evidence(audit, 16, Outcome.FINDING)


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
    assert "1 of 2 cases of command0 did not run: " in evidence(audit, 16, Outcome.NOT_CAPTURED)
    assert "; interrupted, 1 case not run; " in audit.verdict


def test_what_did_not_run_must_be_said_to(tmp_path: Path) -> None:
    place = interrupted(kept(tmp_path, records(1)), "interrupted")
    with_command(place, cases_not_run=[])
    assert "is not there" in evidence(audited(place=place), 16, Outcome.FINDING)
    path = next((place / "command0").glob("all_reduce*.json"))
    with_command(place, cases_not_run=[{"job": 0, "case": path.stem}])
    assert "is said not to have run, and has a record" in evidence(audited(place=place), 16, Outcome.FINDING)


def test_a_command_that_never_ended_has_no_manifest(tmp_path: Path) -> None:
    """Who takes the end of command.json away, and seals the folder again, does what no command does."""
    place = interrupted(kept(tmp_path, records(1)), None)
    seal(place / "command0")
    assert "never ended, and have a manifest" in evidence(audited(place=place), 17, Outcome.FINDING)
