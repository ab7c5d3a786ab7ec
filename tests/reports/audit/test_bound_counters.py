"""Counters whose values are not numbers: a sentence, not an error, and no sum that takes for ever."""

from __future__ import annotations

from typing import Any

import pytest

from reports.audit.bound_counters import counted_apart
from tests.reports.audit.invented_records import one, simulated
from tests.reports.audit.tampering import put

ODD = ["counters are not what the simulator writes"]


def counters() -> dict[str, Any]:
    kinds = ("own_read", "own_write", "peer_read", "peer_write", "multicast_reduce", "multicast_store", "signal")
    accesses = {kind: {"count": 0, "bytes": 0} for kind in kinds}
    accesses["own_read"] = {"count": 6, "bytes": 24}
    part = {
        "launches": "0-2",
        "instructions": {"min": 10, "max": 10},
        "waits": {"min": 0, "max": 0},
        "phases": [{"instructions": 10, "own_read": {"count": 2, "bytes": 8}}],
    }
    of = {"launches": 3, "ranks": 4}
    return {"instructions": 30, "accesses": accesses, "links": {}, "of": of, "launches": [part]}


def told(**changes: Any) -> list[str]:
    found = counters()
    for path, value in changes.items():
        put(path.replace("__", "."), value)(found)
    return list(counted_apart(simulated(one(counters=found))))


def test_counters_that_agree_say_nothing() -> None:
    assert told() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"launches__0__launches": "0-99999999999999999", "launches__0__instructions__min": "a"},
        {"launches__0__launches": "0-99999999999999999"},
        {"launches__0__launches": "9-2"},
        {"launches__0__launches": "0--5"},
        {"launches__0__instructions__min": "a"},
        {"launches__0__instructions__max": None},
        {"launches__0__waits__max": "a"},
        {"launches__0__phases__0__own_read__count": "a"},
        {"accesses__own_read__bytes": []},
        {"accesses__signal": 3},
        {"of__launches": "3"},
        {"instructions": 1.5},
    ],
    ids=str,
)
def test_values_that_are_no_numbers_are_a_sentence(changes: dict[str, Any]) -> None:
    found = told(**changes)
    assert len(found) == 1
    assert found == ODD


def test_a_sum_that_its_parts_contradict_is_told() -> None:
    assert told(instructions=31) == ["31 instructions in all, the launches have 30 to 30"]
