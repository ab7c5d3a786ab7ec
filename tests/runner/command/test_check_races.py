"""check.races: what the race checker finds decides how a case ends, and stands in its record and in the tables."""

import shutil

import pytest

from cases.record.record import load
from runner.world.world import WorldFailure
from tests.rooms import needs
from tests.runner.conftest import BAD, record_files
from tests.runner.found import finding

RACES = "check.races=true"
FORMAL = finding("formal", "an acquire")


def findings_of(outcome):
    return {record["case"]["algorithm"]: record.get("findings", "not checked") for record in outcome.records}


@needs("checks")
def test_no_finding_and_races_that_were_not_looked_for(symlab, script):
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


@needs("checks")
@pytest.mark.parametrize(("severity", "missing"), [("race", "a release"), ("proxy", "fence.proxy.alias")])
def test_a_case_with_a_race_is_wrong(symlab, script, severity, missing):
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


@needs("checks")
def test_wrong_results_come_first(symlab, script):
    script.outcomes["one_shot"] = BAD
    script.findings["one_shot"] = (finding(), finding("proxy", "fence.proxy.async"))
    done = symlab("sizes=[8]", RACES)
    (wrong,) = (record for record in done.records if record["status"] == "WRONG")
    assert wrong["reason"].startswith("3 of 64 elements are wrong")
    assert "; race: a release is missing" in wrong["reason"]
    assert wrong["reason"].endswith(", and 1 more")


@needs("checks")
def test_a_case_that_failed_keeps_what_was_found(symlab, script):
    script.outcomes["one_shot"] = WorldFailure("DEADLOCK", 0, "rank 0: every thread waits")
    script.findings["one_shot"] = (finding(),)
    done = symlab("sizes=[8]", RACES)
    (failed,) = (record for record in done.records if record["status"] == "DEADLOCK")
    assert failed["findings"][0]["severity"] == "race"


@needs("checks")
def test_a_world_without_a_checker_passes_nothing(symlab, script):
    script.findings["one_shot"] = None
    done = symlab("sizes=[8]", RACES)
    assert done.code == 1
    assert done.statuses == ["FAILED", "PASSED"]
    assert "this world has none" in done.err


@pytest.mark.parametrize("multirun", [False, True])
def test_gpus_are_refused(symlab, multirun):
    done = symlab(*(["-m", "fabric=simulator,nvshmem"] if multirun else ["fabric=nvshmem"]), "sizes=[8]", RACES)
    assert done.code == 2
    assert done.records == []
    assert "GPUs do not show the order of their accesses (check.races), leave it out, or use fabric=simul" in done.err
    assert ("in job 2 of 2" in done.err) == multirun
