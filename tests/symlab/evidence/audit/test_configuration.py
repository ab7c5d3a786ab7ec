"""Items "configuration" and "command": how commands were started, resumed and ended, against their records."""

import dataclasses

import pytest

from reports.record.bundle import read
from reports.record.seal import seal
from symlab.evidence.audit.items import Outcome
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

FINDING, NOT_CAPTURED, CAPTURED = Outcome.FINDING, Outcome.NOT_CAPTURED, Outcome.CAPTURED


def test_what_is_missing_is_named():
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
def test_times_that_can_not_be(times, is_found):
    members = records()
    members[0] = dataclasses.replace(members[0], **times)
    tells(audited(members), "command", *([FINDING] if is_found else []))


def test_what_a_command_leaves_agrees(tmp_path):
    tells(audited(place=kept(tmp_path)), "command", CAPTURED)


def test_a_command_that_never_ended(tmp_path):
    place = kept(tmp_path / "records")
    path = place / "command1" / "command.json"
    path.write_text(path.read_text().replace('"exit_code": 0, ', ""), encoding="utf-8")
    tells(audited(place=place), "command", FINDING, CAPTURED)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"command\.json: can't be read"):
        audited(read([place / "command0"]), place=place)


def resumed(place, *entries):
    """The set on disk with resumptions in the command.json of command0, sealed again."""
    with_command(place, resumed=list(entries))
    seal(place / "command0")
    return place


def in_two_parts(**environment):
    """The last record of command0 is of a resumption; its environment has these parts."""
    members = records()
    last = max(place for place, one in enumerate(members) if one.request.command == "command0")
    later = changed(members[last], started="2026-01-01T00:00:00.5Z", ended="2026-01-01T00:00:01.5Z")
    (members[last],) = with_environment([with_request(later, resumed=1)], **environment)
    return members


ENTRY = {
    "at": "2026-11-22T06:00:00.000+00:00",
    "after": "killed",
    "commit": "0" * 40,
    "changed": [],
    "cases_left": 1,
    "set_aside": [],
}


def test_what_changed_before_a_resumption_is_told(tmp_path):
    place = resumed(kept(tmp_path, in_two_parts()), {**ENTRY, "changed": ["sources of kernels"]})
    told = evidence(audited(place=place), "command", Outcome.CAPTURED)
    assert "1 record came later; changed before that: sources of kernels" in told


def test_records_of_a_resumption_without_their_command_json():
    tells(audited(in_two_parts()), "command", CAPTURED)
