"""check.races: what the race checker finds decides how a case ends, and stands in its record and in the tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from cases.record.record import load
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from runner.world.fabrics import FabricName, HostOffer, resolve
from runner.world.world import WorldFailure
from tests.runner.conftest import BAD, Outcome, Script, record_files
from tests.runner.found import finding

RACES = "check.races=true"
FORMAL = finding("formal", "an acquire")


def findings_of(outcome: Outcome) -> dict[str, Any]:
    return {record["case"]["algorithm"]: record.get("findings", "not checked") for record in outcome.records}


def test_no_finding_and_races_that_were_not_looked_for(symlab: Callable[..., Outcome], script: Script) -> None:
    done = symlab("sizes=[8]", RACES)
    assert done.code == 0
    assert script.worlds[0].fabric.races
    assert findings_of(done) == {"one_shot": [], "two_shot": []}
    assert "races" in done.out
    assert " none" in done.out
    assert all(load(path).verified for path in record_files(done.folder))
    script.findings["shot"] = (finding(),)
    shutil.rmtree(done.folder / "records")
    done = symlab("sizes=[8]")
    assert done.code == 0
    assert findings_of(done) == {"one_shot": "not checked", "two_shot": "not checked"}
    assert done.out.count("races") == 1
    assert "passed; races: not looked for\n" in done.out


@pytest.mark.parametrize(("severity", "missing"), [("race", "a release"), ("proxy", "fence.proxy.alias")])
def test_a_case_with_a_race_is_wrong(
    symlab: Callable[..., Outcome], script: Script, severity: str, missing: str
) -> None:
    script.findings["one_shot"] = (FORMAL, finding(severity, missing, count=3))
    done = symlab("sizes=[8]", RACES)
    assert done.code == 1
    assert done.statuses == ["PASSED", "WRONG"]
    (wrong,) = (record for record in done.records if record["status"] == "WRONG")
    assert [one["severity"] for one in wrong["findings"]] == [severity, "formal"], "the gravest first"
    assert wrong["findings"][0]["first"]["source"] == "push.py:12"
    assert wrong["findings"][0]["second"]["rank"] == 1
    says = f"{severity}: {missing} is missing between `st.global.u32 [%rd1], %r2;` (push.py:12) of byte 7 of data"
    assert wrong["reason"].startswith(says)
    assert wrong["reason"].endswith("(3 pairs)")
    assert says in done.err
    assert f"1 {severity}, 1 formal" in done.out
    assert "0 of 64 elements" not in done.out + done.err


def test_other_findings_are_shown_and_do_not_fail(symlab: Callable[..., Outcome], script: Script) -> None:
    advisory = finding("advisory", "a release", assumption="vector_16")
    script.findings["one_shot"] = (advisory, FORMAL)
    done = symlab("sizes=[8]", RACES)
    assert done.code == 0
    assert done.statuses == ["PASSED"] * 2
    assert "1 formal, 1 advisory" in done.out
    assert "all_reduce/one_shot, 1 case: advisory: a release is missing, which the assumption" in done.out


def test_wrong_results_come_first(symlab: Callable[..., Outcome], script: Script) -> None:
    script.outcomes["one_shot"] = BAD
    script.findings["one_shot"] = (finding(), finding("proxy", "fence.proxy.async"))
    done = symlab("sizes=[8]", RACES)
    (wrong,) = (record for record in done.records if record["status"] == "WRONG")
    assert wrong["reason"].startswith("3 of 64 elements are wrong")
    assert "; race: a release is missing" in wrong["reason"]
    assert wrong["reason"].endswith(", and 1 more")


def test_unchecked_results_can_be_checked_for_races(symlab: Callable[..., Outcome], script: Script) -> None:
    script.findings["one_shot"] = (finding(),)
    done = symlab("sizes=[8]", "check=false", RACES)
    assert done.statuses == ["PASSED", "WRONG"]
    assert {record.get("check") for record in done.records} == {None}


def test_a_case_that_failed_keeps_what_was_found(symlab: Callable[..., Outcome], script: Script) -> None:
    script.outcomes["one_shot"] = WorldFailure("DEADLOCK", 0, "rank 0: every thread waits")
    script.findings["one_shot"] = (finding(),)
    done = symlab("sizes=[8]", RACES)
    (failed,) = (record for record in done.records if record["status"] == "DEADLOCK")
    assert failed["findings"][0]["severity"] == "race"


def test_a_world_without_a_checker_passes_nothing(symlab: Callable[..., Outcome], script: Script) -> None:
    script.findings["one_shot"] = None
    done = symlab("sizes=[8]", RACES)
    assert done.code == 1
    assert done.statuses == ["FAILED", "PASSED"]
    assert "this world has none" in done.err


def test_a_refused_case_was_not_checked(symlab: Callable[..., Outcome]) -> None:
    done = symlab("sizes=[8]", RACES, "fabric.multicast=false", "algorithms=[one_shot,multimem_one_shot]")
    assert findings_of(done) == {"one_shot": [], "multimem_one_shot": "not checked"}


@pytest.mark.parametrize("multirun", [False, True])
def test_gpus_are_refused(symlab: Callable[..., Outcome], multirun: bool) -> None:
    done = symlab(*(["-m", "fabric=simulator,nvshmem"] if multirun else ["fabric=nvshmem"]), "sizes=[8]", RACES)
    assert done.code == 2
    assert done.records == []
    assert "GPUs do not show the order of their accesses (check.races), leave it out, or use fabric=simul" in done.err
    assert ("in job 2 of 2" in done.err) == multirun


def test_auto_becomes_the_simulator_even_beside_gpus() -> None:
    with hydra_over():
        (job,) = compose_jobs([RACES], multirun=False)
    fabric, why = resolve(job.request.fabric, 2, machine=lambda: HostOffer(8, "", True))
    assert (fabric.name, why) == (FabricName.simulator, "check.races asked for")


def test_the_wrong_kind_of_value_is_refused() -> None:
    with hydra_over(), pytest.raises(RequestError, match=r"'maybe' is not true or false \(check.races\)"):
        compose_jobs(["check.races=maybe"], multirun=False)
