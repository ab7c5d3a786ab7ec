"""Items "configuration" and "command": how commands were started, resumed and ended, against their records."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import Record, Status
from reports.record.bundle import read
from reports.record.seal import seal
from symlab.evidence.audit.configuration import _code
from symlab.evidence.audit.items import Outcome
from tests.reports.table.test_average import timed
from tests.symlab.evidence.audit.complete_set import (
    audited,
    changed,
    evidence,
    kept,
    records,
    tells,
    with_command,
    with_environment,
    with_request,
    without,
)
from tests.symlab.evidence.audit.invented_records import broken

FINDING, NOT_CAPTURED, CAPTURED = Outcome.FINDING, Outcome.NOT_CAPTURED, Outcome.CAPTURED


def test_what_is_missing_is_named() -> None:
    tells(audited([with_request(one, configuration=None) for one in records()]), "configuration", NOT_CAPTURED)
    silent = [with_request(record, command_line=()) for record in without(records(), "launch")]
    tells(audited(silent), "command", NOT_CAPTURED, CAPTURED, NOT_CAPTURED)


@pytest.mark.parametrize(
    ("times", "is_found"),
    [
        ({"ended": "2025-12-31T00:00:00Z"}, True),
        ({"duration_s": 9.0}, True),
        ({"duration_s": 1.9}, False),
        ({"started": "2099-01-01T00:00:00Z", "ended": "2099-01-01T00:00:01Z"}, True),
    ],
)
def test_times_that_can_not_be(times: dict[str, Any], is_found: bool) -> None:
    members = records()
    members[0] = dataclasses.replace(members[0], **times)
    tells(audited(members), "command", *([FINDING] if is_found else []))


def test_what_a_command_leaves_agrees(tmp_path: Path) -> None:
    tells(audited(place=kept(tmp_path)), "command", CAPTURED)


def test_a_command_that_never_ended(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    path = place / "command1" / "command.json"
    path.write_text(path.read_text().replace('"exit_code": 0, ', ""), encoding="utf-8")
    tells(audited(place=place), "command", FINDING, FINDING, CAPTURED)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"command\.json: can't be read"):
        audited(read([place / "command0"]), place=place)


@pytest.mark.parametrize("code", [1, 2, "0", True, 130])
def test_exit_codes(code: Any, tmp_path: Path) -> None:
    audit = audited(place=with_command(kept(tmp_path), exit_code=code))
    tells(audit, "command", *([] if code == 130 else [FINDING]), CAPTURED)


def test_an_exit_code_of_0_needs_cases_that_passed(tmp_path: Path) -> None:
    members = [*records(1), broken(Status.FAILED, size_bytes=4096, request={"command": "command0", "job": 0})]
    place = with_command(kept(tmp_path / "failed", members), counts={"PASSED": 2, "FAILED": 1})
    assert "command" in audited(place=place).level.findings
    assert "command" not in audited(place=with_command(place, exit_code=1)).level.findings
    stopped = with_command(kept(tmp_path / "stopped", records(1)), exit_code=1, outcome="stopped", cases_not_run=[1])
    assert "command" not in audited(place=stopped).level.findings


def test_a_library_that_did_not_finish_is_in_no_exit_code(tmp_path: Path) -> None:
    asked = {"command": "command0", "job": 0}
    late = broken(Status.TIMEOUT, size_bytes=4096, kernel=None, library="NVSHMEM 0.0.0", request=asked)
    place = with_command(kept(tmp_path, [*records(1), late]), counts={"PASSED": 2, "TIMEOUT": 1})
    for code in (0, 1):  # 1: of commands of before
        assert "command" not in audited(place=with_command(place, exit_code=code)).level.findings


@pytest.mark.parametrize("part", [{"started": "later"}, {"ended": 5}, {"plan": None}, {"cases_requested": 9}])
def test_what_no_command_writes_is_found(part: dict[str, Any], tmp_path: Path) -> None:
    place = with_command(kept(tmp_path), **part)
    tells(audited(place=place), "command", *([] if part == {"ended": 5} else [FINDING]), CAPTURED)


def resumed(place: Path, *entries: Any) -> Path:
    """The set on disk with resumptions in the command.json of command0, sealed again."""
    with_command(place, resumed=list(entries))
    seal(place / "command0")
    return place


def in_two_parts(**environment: Any) -> list[Record]:
    """The last record of command0 is of a resumption; its environment has these parts."""
    members = records()
    last = max(place for place, one in enumerate(members) if one.request.command == "command0")
    later = changed(members[last], started="2026-01-01T00:00:00.5Z", ended="2026-01-01T00:00:01.5Z")
    (members[last],) = with_environment([with_request(later, resumed=1)], **environment)
    return members


ENTRY = {"at": "2026-11-22T06:00:00.000+00:00", "after": "killed", "commit": "0" * 40, "changed": [], "set_aside": []}


@pytest.mark.parametrize(
    ("entries", "is_found"),
    [([ENTRY], False), ([], True), ([{**ENTRY, "commit": "f" * 40}], True), ([{"at": 5}], True), (["no"], True)],
)
def test_resumptions_are_held_to_the_records(entries: list[Any], is_found: bool, tmp_path: Path) -> None:
    place = resumed(kept(tmp_path, in_two_parts()), *entries)
    tells(audited(place=place), "command", *([FINDING] if is_found else []), CAPTURED, CAPTURED)


def test_what_changed_before_a_resumption_is_told(tmp_path: Path) -> None:
    place = resumed(kept(tmp_path, in_two_parts()), {**ENTRY, "changed": ["sources of kernels"]})
    told = evidence(audited(place=place), "command", Outcome.CAPTURED)
    assert "1 record came later; changed before that: sources of kernels" in told


def test_records_of_a_resumption_without_their_command_json() -> None:
    tells(audited(in_two_parts()), "command", CAPTURED)


def test_a_code_that_hides_a_bandwidth_below_the_one_asked_for_is_seen() -> None:
    slow = [timed("one_shot", 20.0, 75.5), timed("nccl", 25.0, 75.5)]
    document = {"outcome": "complete"}
    assert list(_code({**document, "exit_code": 1}, slow)) == []
    assert list(_code({**document, "exit_code": 0}, slow))
