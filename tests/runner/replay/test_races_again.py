"""Cases that were checked for races run again: the same findings, others, and what can't be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from cases.record.record import Record
from reports.record.bundle import read
from runner.audit_worker import races
from runner.replay.races_again import UP_TO_BYTES, races_again
from runner.world.world import WorldFailure
from tests.reports.synthetic import with_request
from tests.runner.conftest import Outcome, Script
from tests.runner.found import LOAD, finding

FORMAL = finding("formal", "an acquire")


@pytest.fixture
def again(symlab: Callable[..., Outcome], script: Script) -> Callable[..., dict[str, Any]]:
    """again(*records): what a second run on stub worlds gives; the script says what it finds."""

    def run(*records: Record, **how: Any) -> dict[str, Any]:
        tools = script.tools()
        return races_again(records, lambda text: None, make=tools.make_world, means=tools.means, **how)

    return run


@pytest.fixture
def made(symlab: Callable[..., Outcome], script: Script) -> Callable[..., list[Record]]:
    """made(*arguments): the records of a command with check.races."""

    def make(*arguments: str) -> list[Record]:
        folder = symlab("check.races=true", *arguments).folder
        return read([folder / "records"])

    return make


def test_the_same_findings(made: Any, again: Any, script: Script) -> None:
    script.findings["one_shot"] = (FORMAL,)
    records = made("sizes=[8,64]", "world_size=3")
    found = again(*records)
    assert found == {"again": 4, "different": [], "left_out": [], "not_comparable": []}
    assert script.worlds[-1].world_size == 3
    assert all(world.closed for world in script.worlds), "no world is left open"


def test_records_that_were_not_checked_do_not_run(made: Any, again: Any, script: Script) -> None:
    records = [dataclasses.replace(one, findings=None) for one in made("sizes=[8]")]
    before = len(script.ran)
    assert again(*records)["again"] == 0
    assert len(script.ran) == before
    assert races(records, lambda text: None)["again"] == 0


def test_large_cases_and_late_ones_are_named(made: Any, again: Any) -> None:
    small, large = made("sizes=[8]", "algorithms=[one_shot]"), made(f"sizes=[{2 * UP_TO_BYTES}]")
    found = again(*large)
    assert (found["again"], len(found["left_out"])) == (1, 2), "the small one lies there, too"
    assert "larger than 65,536 bytes" in str(found["left_out"])
    late = again(*small, patience_s=-1.0)
    assert late["again"] == 0
    assert late["left_out"][0][1] == "not begun within -1 s"


def test_a_case_that_does_not_get_so_far_is_not_compared(made: Any, again: Any, script: Script) -> None:
    record, *_ = made("sizes=[8]")
    without = with_request(record, configuration={**record.request.configuration, "check": True})
    ((_, why),) = again(without)["not_comparable"]
    assert why == "PASSED here: its configuration does not ask for check.races"
    script.findings["shot"] = None
    ((_, why),) = again(record)["not_comparable"]
    assert why.startswith("FAILED here: check.races asked for a race checker")
    script.outcomes["shot"] = WorldFailure("DEADLOCK", 0, "rank 0: stuck")
    ((_, why),) = again(record)["not_comparable"]
    assert why == "DEADLOCK here: rank 0: stuck"


def test_a_record_without_findings_whose_case_has_some_or_others(made: Any, again: Any, script: Script) -> None:
    records = made("sizes=[8]")
    script.findings["two_shot"] = (finding(),)
    found = again(*records)
    assert found["again"] == 2
    ((case, what),) = found["different"]
    assert "two_shot" in case
    assert what.startswith("only after: race: a release is missing between")
    script.findings["two_shot"] = (FORMAL,)
    records = made("sizes=[8]")
    script.findings["two_shot"] = (dataclasses.replace(FORMAL, second=dataclasses.replace(LOAD, line=56)),)
    whats = [what for _, what in again(*records)["different"]]
    assert any("only after: " in what and "only before: " in what for what in whats)


def test_other_code_and_what_has_no_configuration_are_not_compared(made: Any, again: Any, script: Script) -> None:
    record, *_ = made("sizes=[8]")
    script.findings["shot"] = (finding(),)
    kernel = dataclasses.replace(record.kernel, code_digest="sha256:other")
    found = again(dataclasses.replace(record, kernel=kernel))
    assert (found["different"], found["not_comparable"]) == ([], [[record.id, "its kernel is other code today"]])
    ((case, why),) = again(with_request(record, configuration=None))["not_comparable"]
    assert (case, "holds no configuration" in why) == (record.id, True)
