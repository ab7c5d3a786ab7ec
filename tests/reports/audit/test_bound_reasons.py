"""What a record that passed may give as its reason: what symlab writes there, and where it writes it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from cases.record.record import (
    CHECK_WAS_OFF,
    INTERRUPTED,
    PUBLISHED_SCHEMA,
    SCHEMA_VERSION,
    TIMED_APART,
    TIMED_WITHOUT,
    Status,
)
from reports.audit.bound_records import DATA, contradictions
from tests.reports.audit.invented_records import check, one

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


@pytest.mark.parametrize(("schema", "is_held"), [(PUBLISHED_SCHEMA, False), (SCHEMA_VERSION, True)])
def test_records_of_today_are_held_to_what_every_command_writes(schema: int, is_held: bool) -> None:
    whole = dataclasses.replace(one(), schema=schema)
    assert whole.check is not None
    bare = dataclasses.replace(whole, check=dataclasses.replace(whole.check, input_digests=None, output_digests=None))
    assert any("digests of inputs and outputs" in str(found) for found in contradictions(bare)) is is_held


@pytest.mark.parametrize(
    ("asked", "reason", "is_contradiction"),
    [
        ({"results": True}, CHECK_WAS_OFF, True),
        ({"results": False}, CHECK_WAS_OFF, False),
        ({"races": True}, CHECK_WAS_OFF, False),
        (True, CHECK_WAS_OFF, True),
        (False, CHECK_WAS_OFF, False),
        ({"results": True}, "it fell", False),
    ],
)
def test_a_check_that_was_asked_for_was_not_off(asked: object, reason: str, is_contradiction: bool) -> None:
    status = Status.PASSED if reason == CHECK_WAS_OFF else Status.FAILED
    made = one(check=None, reason=reason, status=status)
    configuration = {**(made.request.configuration or {}), "check": asked}
    made = dataclasses.replace(made, request=dataclasses.replace(made.request, configuration=configuration))
    assert ([found for found in contradictions(made) if found.item == DATA] != []) == is_contradiction


@pytest.mark.parametrize(
    ("absolute", "relative", "method", "is_contradiction"),
    [
        (0.0, 0.0, "bitwise_fold", False),
        (0.5, 0.25, "bitwise_fold", False),
        (0.5, 0.0, "bitwise_fold", True),
        (0.0, 0.25, "bitwise_fold", True),
        (math.inf, 0.0, "bitwise_fold", False),  # shares are of elements where all is finite
        (0.5, 0.0, "bound", False),  # of the sum before it is rounded, relative errors of the rounded one
        (0.5, None, "bitwise_fold", False),
    ],
)
def test_an_error_is_there_as_a_number_and_as_a_share(
    absolute: float, relative: float | None, method: str, is_contradiction: bool
) -> None:
    bound = {"bound_value": 1.0} if method == "bound" else {}
    errors: dict[str, Any] = {
        "max_absolute_error": absolute,
        "max_relative_error": relative,
        "rms_relative_error": relative and 0.0,
    }
    made = one(check=check(method=method, **errors, **bound))
    found = [text.sentence for text in contradictions(made) if "as a share" in text.sentence]
    assert (found != []) == is_contradiction
