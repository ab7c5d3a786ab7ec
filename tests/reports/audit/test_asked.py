"""command.json and the records' requests against the records: jobs, counts, exit codes, and what is no command.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.audit.items import Outcome
from reports.record.bundle import read
from reports.record.record import Status
from tests.reports.audit.sets import broken
from tests.reports.audit.whole import audited, evidence, kept, outcomes, records, with_request


def with_command(place: Path, **changes: Any) -> Path:
    """The folder with something else in the first command's command.json; None takes it out."""
    path = place / "command0" / "command.json"
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}), encoding="utf-8")
    return place


def test_what_agrees_is_verified(tmp_path: Path) -> None:
    audit = audited(place=kept(tmp_path))
    assert "command.json of 4 commands: 8 cases asked for, all there" in evidence(audit, 16, Outcome.VERIFIED)
    assert "4 jobs of 4 commands, each with records" in evidence(audit, 16, Outcome.VERIFIED)
    assert "exit code of 4 commands: 0; as the cases ended" in evidence(audit, 17, Outcome.VERIFIED)


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([1], "jobs of command0: entry 0 is 1, not a job"),
        ([{"number": 0}], "jobs of command0: entry 0 is {'number': 0}, not a job"),
        ([{"number": "0", "cases": []}], "not a job with its number and cases"),
        ([{"number": 0, "cases": [3]}], "not a job with its number and cases"),
        ("all", "jobs of command0 is 'all', which no command leaves"),
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
        ("0", "exit code of command0 is '0', which is no number"),
        (True, "which is no number"),
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
    stopped = with_command(kept(tmp_path / "stopped", records(1)), exit_code=1, outcome="stopped")
    assert Outcome.FINDING not in outcomes(audited(place=stopped), 17)


def test_a_job_without_any_record_is_missed(tmp_path: Path) -> None:
    """In a bundle, too, where there is no command.json."""
    members = [with_request(record, jobs=3) for record in records(1)]
    assert "2 of 3 jobs: job 1 of command0 has no record; job 2 of" in evidence(audited(members), 16, Outcome.FINDING)
    nonsense = [with_request(record, jobs=10**12) for record in records(1)]
    assert "100 of 1000000000000 jobs: job 1 of" in evidence(audited(nonsense), 16, Outcome.FINDING)
    silent = [with_request(record, jobs=None) for record in records()]
    assert "how many jobs there were" in evidence(audited(silent), 16, Outcome.NOT_CAPTURED)


def test_a_job_that_is_none_names_its_record(tmp_path: Path) -> None:
    place = kept(tmp_path, records(1))
    first, *others = read([place])
    audit = audited([with_request(first, job=7), *others], place)
    assert f"{first.id}: job 7 is none of 1" in evidence(audit, 16, Outcome.FINDING)
