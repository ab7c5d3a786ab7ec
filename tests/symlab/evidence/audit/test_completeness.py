"""Items "cases" and "manifest": what is missing or changed."""

import pytest

from reports.record.bundle import read, write
from reports.record.seal import MANIFEST, seal
from symlab.evidence.audit.items import Outcome
from tests.symlab.evidence.audit.complete_set import audited, evidence, kept, records, tells, with_command, with_request


def test_one_file_of_a_command_is_no_finding(tmp_path):
    """It never was the whole command."""
    place = kept(tmp_path / "records", [with_request(record, jobs=2) for record in records(1)])
    path = sorted((place / "command0").glob("all_reduce*.json"))[0]
    assert audited(read([path]), place=path).level.findings == ()
    assert audited(place=place).level.findings == ("cases",)


def interrupted(place, outcome):
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
def test_an_interrupted_command_is_no_finding(outcome, tmp_path):
    place = interrupted(kept(tmp_path, records(1)), outcome)
    audit = audited(place=place)
    assert audit.level.findings == ()
    tells(audit, "cases")
    assert "; interrupted, 1 case not run; " in audit.verdict


def test_a_bundle_of_an_interrupted_command_is_no_finding(tmp_path):
    """It has no command.json that says so."""
    place = interrupted(kept(tmp_path / "records", records(1)), "interrupted")
    write(read([place]), tmp_path / "one.jsonl.xz", is_quick=True)
    assert audited(place=tmp_path / "one.jsonl.xz").level.findings == ()


def test_what_did_not_run_must_be_said_to(tmp_path):
    place = interrupted(kept(tmp_path, records(1)), "interrupted")
    path = next((place / "command0").glob("all_reduce*.json"))
    for left in ([], [{"job": 0, "case": path.stem}]):
        assert "cases" in audited(place=with_command(place, cases_not_run=left)).level.findings


def findings(place, item):
    return evidence(audited(place=place), item, Outcome.FINDING)


def test_a_single_file_or_command_is_looked_at_alone(tmp_path):
    place = kept(tmp_path / "records")
    files = sorted((place / "command0").glob("all_reduce*.json"))
    files[0].write_bytes(files[0].read_bytes() + b"\n")
    assert files[0].name in findings(files[0], "manifest")
    assert findings(files[1], "manifest") == findings(place / "command1", "manifest") == ""


def test_a_name_with_a_colon_is_looked_at(tmp_path):
    place = kept(tmp_path / "records", records(1))
    folder = place / "a: b, line 1: c"
    (place / "command0").rename(folder)
    (folder / MANIFEST).unlink()
    seal(place)
    path = sorted(folder.glob("all_reduce*.json"))[0]
    assert findings(folder, "manifest") == ""
    path.write_bytes(path.read_bytes() + b" ")
    for looked_at in (place, folder, path):
        assert path.name in findings(looked_at, "manifest")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"jobs": ' + "[" * 900 + "]" * 900 + "}", f'{{"counts": 1{"0" * 400}}}']
)
def test_absurd_json_of_a_command_is_named_in_one_line(tmp_path, text):
    place = kept(tmp_path / "records", records())
    path = place / "command0" / "command.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"command0/command\.json: can't be read") as caught:
        audited(place=place)
    assert "\n" not in str(caught.value)
