"""What a record that passed may give as its reason: what symlab writes there, and where it writes it."""

from __future__ import annotations

import dataclasses

import pytest

from reports.audit.bound_records import contradictions
from reports.record.record import CHECK_WAS_OFF, INTERRUPTED, SCHEMA_VERSION, TIMED_APART, TIMED_WITHOUT
from tests.reports.audit.invented_records import one

WITHOUT = TIMED_WITHOUT.format("all_to_all/nvshmem")


def told(reason: str, us: float | None) -> list[str]:
    """What is said of a reason, beside what is said of the same record without one."""
    plain = one(us=us)
    before = [str(found) for found in contradictions(plain)]
    found = [str(each) for each in contradictions(dataclasses.replace(plain, reason=reason))]
    return [text for text in found if text not in before]


@pytest.mark.parametrize(
    ("reason", "us"),
    [
        ("", 3.0),
        (INTERRUPTED, None),
        (WITHOUT, 3.0),
        (TIMED_APART, 3.0),
        (f"{WITHOUT}; {TIMED_WITHOUT.format('all_to_all/push@threads=512,push=2')}", 3.0),
        (f"{WITHOUT}; {TIMED_APART}", 3.0),
    ],
)
def test_what_symlab_writes_is_no_contradiction(reason: str, us: float | None) -> None:
    assert told(reason, us) == []


@pytest.mark.parametrize(
    ("reason", "us", "word"),
    [
        (INTERRUPTED, 3.0, "it has a time"),
        (WITHOUT, None, "has no time"),
        (TIMED_APART, None, "has no time"),
        (f"{WITHOUT}; also verified on 8 x B200", 3.0, "symlab gives none"),
        (f"{TIMED_APART} on 8 x B200", 3.0, "symlab gives none"),
        (WITHOUT.replace("all_to_all/nvshmem", "all_to_all/nvshmem on 8 x B200"), 3.0, "symlab gives none"),
        (CHECK_WAS_OFF, 3.0, "it was checked"),
    ],
)
def test_anything_else_is(reason: str, us: float | None, word: str) -> None:
    assert any(word in text for text in told(reason, us))


@pytest.mark.parametrize(("schema", "is_held"), [(5, False), (6, True), (SCHEMA_VERSION, True)])
def test_records_from_schema_6_on_are_held_to_what_every_command_writes(schema: int, is_held: bool) -> None:
    """A new schema frees no record of the ones before from a rule."""
    whole = dataclasses.replace(one(), schema=schema)
    assert whole.check is not None
    bare = dataclasses.replace(whole, check=dataclasses.replace(whole.check, input_digests=None, output_digests=None))
    assert any("digests of inputs and outputs" in str(found) for found in contradictions(bare)) is is_held
