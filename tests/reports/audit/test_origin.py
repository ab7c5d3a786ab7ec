"""Items 1 to 6, 8 and 17: each finds what contradicts the records, and names what they do not hold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import Record, RecordedEnvironment
from reports.audit.checklist import check
from reports.audit.material import Material
from reports.record.bundle import read
from reports.record.seal import seal
from tests.reports.audit.complete_set import (
    ENVIRONMENT,
    PTX,
    audited,
    changed,
    kept,
    kernel,
    records,
    tells,
    with_environment,
    with_request,
    with_timing,
    without,
)
from tests.reports.audit.invented_records import digest


def test_1_a_configuration_that_composes_differently() -> None:
    audit = audited(configurations={"different": [["command0", 0, "seed: recorded 1, composed 0"]]})
    tells(audit, 1)
    other = audited(configurations={"not_comparable": [["command0", 0, "conf/ was another"]]})
    tells(other, 1)


def test_1_a_missing_configuration() -> None:
    members = [with_request(record, configuration=None) for record in records()]
    tells(audited(members), 1)


def dirty(**changes: Any) -> dict[str, Any]:
    git = ENVIRONMENT["git"] | {"dirty": True, "changed_files": 2}
    return (
        git
        | {"kept_diff": {"file": "changes.diff", "digest": f"sha256:{digest('diff')}", "left_out_bytes": 0}}
        | changes
    )


def test_2_changes_to_the_commit(tmp_path: Path) -> None:
    members = with_environment(records(), git=dirty())
    place = kept(tmp_path / "records", members)
    tells(audited(place=place), 2)
    path = place / "command0" / "changes.diff"
    path.write_text("diff", encoding="utf-8")
    tells(audited(place=place), 2)
    path.write_text("tampered", encoding="utf-8")
    tells(audited(place=place), 2)
    lost = audited(with_environment(records(), git=dirty(kept_diff=None)))
    tells(lost, 2)


def test_2_untracked_files_are_named() -> None:
    names = ["report.html", *(f"notes/{number}.txt" for number in range(50))]
    git = ENVIRONMENT["git"] | {"dirty": True, "changed_files": 0, "untracked_files": 1234, "untracked": names[:50]}
    audit = audited(with_environment(records(), git=git))
    tells(audit, 2)
    both = audited(with_environment(records(), git=dirty(untracked_files=1, untracked=["x.py"])))
    tells(both, 2)
    unnamed = audited(with_environment(records(), git=dirty(untracked_files=2)))
    tells(unnamed, 2)


@pytest.mark.parametrize("value", [5, "x", [1], [["x"]], {"a": 1}, True])
def test_readings_and_lists_of_another_kind_end_no_audit(value: Any) -> None:
    devices = tuple({"before": value, "after": {"uuid": value, "throttle": value}} for _ in range(4))
    git = {"commit": value, "dirty": True, "changed_files": value, "untracked_files": value, "untracked": value}
    strange = with_environment(records(), git=git, gpus=[{"uuid": value}])
    members = [with_timing(one, devices=devices) if one.timing else one for one in strange]
    audit = audited(members)
    assert audit.verdict
    assert audited(with_environment(records(), git={"commit": "0" * 40, "dirty": True})).verdict


@pytest.mark.parametrize("git", [None, {"commit": ""}, {"commit": "0" * 40, "dirty": None}])
def test_2_a_missing_commit(git: Any) -> None:
    missing = {"git": "not a git repository"}
    audit = audited(with_environment(records(), git=git, not_captured=missing))
    tells(audit, 2)


def test_3_other_ptx_in_one_of_the_worlds() -> None:
    first, *others = records()
    audit = audited([changed(first, kernel=kernel("another")), *others])
    tells(audit, 3)


def with_kernel(record: Record, **changes: Any) -> Record:
    assert record.kernel is not None
    return changed(record, kernel=dataclasses.replace(record.kernel, **changes))


@pytest.fixture
def worlds() -> list[Record]:
    """Two worlds of one case with different PTX of different sources, and equal code."""
    one, two = (record for record in records(2) if record.kernel is not None)
    moved = {"ptx_digest": f"sha256:{'2' * 64}", "source_digest": f"sha256:{'3' * 64}"}
    return [with_kernel(one, code_digest="sha256:1"), with_kernel(two, code_digest="sha256:1", **moved)]


def test_3_moved_lines_are_no_other_code(worlds: list[Record]) -> None:
    audit = audited(worlds)
    tells(audit, 3)


def test_3_other_code_in_one_of_the_worlds(worlds: list[Record]) -> None:
    one, two = worlds
    audit = audited([one, with_kernel(two, code_digest="sha256:2")])
    tells(audit, 3)


def test_3_worlds_of_before_and_after_code_digests_cannot_be_compared(worlds: list[Record]) -> None:
    older, newer = changed(with_kernel(worlds[0], code_digest=None), schema=2), worlds[1]
    audit = audited([older, newer])
    tells(audit, 3)
    assert older.kernel is not None
    same_sources = with_kernel(newer, source_digest=older.kernel.source_digest)
    tells(audited([older, same_sources]), 3)


def test_3_stored_ptx_that_was_changed_or_is_gone(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    tells(audited(place=place), 3)
    paths = sorted(place.rglob("*.ptx"))
    paths[0].write_text(PTX + " ", encoding="utf-8")
    tells(audited(place=place), 3)
    for path in paths:
        path.unlink()
    tells(audited(place=place), 3)


def test_3_sources_that_changed_since_are_told_and_are_no_finding() -> None:
    audit = audited(sources={"same": [], "changed": ["all_reduce/one_shot"], "gone": ["all_reduce/old"]})
    tells(audit, 3)
    older = audited(sources={"same": [], "older": ["all_reduce/one_shot"]})
    tells(older, 3)
    elsewhere = audited(sources={"same": [], "not_comparable": [["all_reduce/one_shot", "no compiler"]]})
    tells(elsewhere, 3)
    assert "not comparable in item 3" in elsewhere.summary


def test_3_sources_that_moved_with_the_same_code_are_verified() -> None:
    audit = audited(sources={"same": [], "same_code": ["all_reduce/one_shot"]})
    tells(audit, 3)


def test_3_missing_digests() -> None:
    members = [
        changed(record, kernel=dataclasses.replace(record.kernel, source_digest="")) if record.kernel else record
        for record in records()
    ]
    tells(audited(members), 3)


@pytest.mark.parametrize("what", ["packages", "python", "gpus"])
def test_4_worlds_on_different_software(what: str) -> None:
    others = {
        "packages": {**ENVIRONMENT["packages"], "torch": "2.12.0"},
        "python": {"version": "3.11.1"},
        "gpus": [{**gpu, "driver": "570"} for gpu in ENVIRONMENT["gpus"]],
    }
    members = records()
    audit = audited([*members[:-2], *with_environment(members[-2:], **{what: others[what]})])
    tells(audit, 4)


def test_4_a_library_of_another_version() -> None:
    members = records()
    audit = audited([*members[:-1], changed(members[-1], library="NCCL 9.9.9")])
    tells(audit, 4)


def test_4_worlds_of_other_cases_may_have_other_software() -> None:
    members = records(2)
    only = [record for record in members if record.kernel][:1] + [record for record in members if not record.kernel][1:]
    audit = audited([only[0], *with_environment(only[1:], python={"version": "3.11.1"})])
    tells(audit, 4)


def test_4_and_5_what_is_missing_is_named_with_its_reason() -> None:
    gone = without(records(), "python", "cuda_driver", "host")
    members = with_environment(gone, not_captured={"cuda_driver": "no NVML", "host": "not asked"})
    audit = audited(members)
    tells(audit, 4)
    tells(audit, 5)


def test_5_gpus_that_are_not_listed() -> None:
    members = with_environment(records(), gpus=ENVIRONMENT["gpus"][:3])
    tells(audited(members), 5)
    silent = [with_timing(record, devices=()) for record in records()]
    tells(audited(silent), 5)


def test_6_an_address_with_a_password() -> None:
    members = records()
    leak = {"allowed": {"NCCL_SOCKET": "http://user:secret@host"}, "withheld": 0}
    audit = check([*members[:-1], *with_environment(members[-1:], variables=leak)], ask=lambda *_: (None, "no torch"))
    tells(audit, 6)
    audit = check(members, ask=lambda *_: (None, "no torch"))
    tells(audit, 6)
    tells(audited(without(members, "variables")), 6)


def test_6_what_the_worker_finds() -> None:
    audit = audited(secrets={"found": [["a case", "environment.variables.allowed.X"]]})
    tells(audit, 6)
    empty = audited(secrets={"looked_at": 0})
    tells(empty, 6)


def test_8_inputs_that_come_out_differently() -> None:
    audit = audited(inputs={"different": [["a case", 2]]})
    tells(audit, 8)


def test_8_inputs_that_were_not_made_again_are_counted() -> None:
    audit = audited(inputs={"too_large": 3, "not_recorded": 2, "not_comparable": [["a case", "no such op"]]})
    tells(audit, 8)


def test_17_a_command_that_never_ended(tmp_path: Path) -> None:
    place = kept(tmp_path / "records")
    tells(audited(place=place), 17)
    path = place / "command1" / "command.json"
    path.write_text(path.read_text().replace('"exit_code": 0, ', ""), encoding="utf-8")
    tells(audited(place=place), 17)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"command\.json: can't be read"):
        audited(read([place / "command0"]), place=place)


def test_17_what_is_missing() -> None:
    members = [with_request(record, command_line=()) for record in without(records(), "launch")]
    tells(audited(members), 17)


def test_3_another_architecture_has_other_ptx() -> None:
    members = [record for record in records(4) if record.kernel is not None]
    for place in (2, 3):
        fabric = members[place].fabric
        assert fabric is not None
        members[place] = changed(
            members[place],
            kernel=dataclasses.replace(kernel("for another"), arch="sm_100a"),
            fabric=dataclasses.replace(fabric, arch="sm_100a"),
        )
    tells(audited(members), 3)


def test_3_what_can_not_be_compared_is_not_verified() -> None:
    tells(audited(records(1)), 3)
    silent = [
        changed(record, kernel=dataclasses.replace(record.kernel, ptx_digest="")) if record.kernel else record
        for record in records()
    ]
    tells(audited(silent), 3)


def test_4_and_5_worlds_that_name_nothing_are_not_the_same() -> None:
    bare = [changed(one, environment=RecordedEnvironment(), library="") for one in records()]
    audit = audited(bare)
    tells(audit, 4)
    tells(audit, 5)


def resumed(place: Path, *entries: dict[str, Any]) -> Path:
    """The set on disk with resumptions in the command.json of command0, sealed again."""
    path = place / "command0" / "command.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"resumed": list(entries)}))
    seal(path.parent)
    return place


def entry(**changes: Any) -> dict[str, Any]:
    found = {"at": "2026-11-22T06:00:00.000+00:00", "after": "killed", "commit": "0" * 40, "cases_left": 1}
    return {**found, "changed": [], "set_aside": [], **changes}


def in_two_parts(**environment: Any) -> list[Record]:
    """The last record of command0 is of a resumption; its environment has these parts."""
    members = records()
    last = max(place for place, one in enumerate(members) if one.request.command == "command0")
    later = changed(members[last], started="2026-01-01T00:30:00Z", ended="2026-01-01T00:30:01Z")
    (members[last],) = with_environment([with_request(later, resumed=1)], **environment)
    return members


OTHER_TORCH = {"packages": {**ENVIRONMENT["packages"], "torch": "3.0"}}


def test_17_a_resumed_command_is_named(tmp_path: Path) -> None:
    lines = ["package torch: 3.0, was 2.13.0", "kernel all_reduce/one_shot: its code changed"]
    audit = audited(place=resumed(kept(tmp_path, in_two_parts(**OTHER_TORCH)), entry(changed=lines)))
    tells(audit, 17)


def test_17_the_same_code_is_computed_from_the_records(tmp_path: Path) -> None:
    audit = audited(place=resumed(kept(tmp_path, in_two_parts()), entry()))
    tells(audit, 17)
    assert audit.exit_code == audited(place=kept(tmp_path / "whole")).exit_code == 0
    nothing = [changed(one, environment=RecordedEnvironment()) for one in in_two_parts()]
    audit = audited(place=resumed(kept(tmp_path / "silent", nothing), entry(commit="")))
    tells(audit, 17)


@pytest.mark.parametrize(
    ("environment", "entries"),
    [
        (OTHER_TORCH, [entry()]),
        ({"git": {**ENVIRONMENT["git"], "commit": "f" * 40}}, [entry(commit="f" * 40)]),
        ({}, [entry(changed=["package torch: 2, was 1"])]),
    ],
)
def test_17_records_of_other_code_than_command_json_says(
    environment: dict[str, Any], entries: list[Any], tmp_path: Path
) -> None:
    audit = audited(place=resumed(kept(tmp_path, in_two_parts(**environment)), *entries))
    tells(audit, 17)


def test_17_records_of_one_part_are_of_one_code(tmp_path: Path) -> None:
    members = records()
    numbers = [place for place, one in enumerate(members) if one.request.command == "command0"]
    (members[numbers[1]],) = with_environment([members[numbers[1]]], **OTHER_TORCH)
    audit = audited(place=resumed(kept(tmp_path, members), entry()))
    tells(audit, 17)


def test_4_a_resumption_is_a_world_of_its_own(tmp_path: Path) -> None:
    """Its cases are compared with those of other commands, although the first part does not have them."""
    members = in_two_parts()
    assert len(Material(tuple(members)).worlds) == 5
    tells(audited(members), 4)
    tells(audited(in_two_parts(**OTHER_TORCH)), 4)


def test_17_nothing_is_said_of_a_command_that_was_not_resumed(tmp_path: Path) -> None:
    tells(audited(place=kept(tmp_path)), 17)


@pytest.mark.parametrize("entries", [[], [entry(commit="f" * 40)], [{"at": 5}], ["no"]])
def test_17_resumptions_that_contradict_the_records(entries: list[Any], tmp_path: Path) -> None:
    audit = audited(place=resumed(kept(tmp_path, in_two_parts()), *entries))
    tells(audit, 17)


def test_17_records_of_a_resumption_without_their_command_json() -> None:
    tells(audited(in_two_parts()), 17)
