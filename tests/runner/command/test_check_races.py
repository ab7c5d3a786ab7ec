"""check.races: what the race checker finds decides how a case ends, and stands in its record and in the tables."""

import re
import shutil

import pytest

from cases.record.record import load
from runner.world.world import WorldFailure
from tests.golden import same_text
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


ENDS = {
    "a race": (None, (FORMAL, finding("race", "a release", count=3))),
    "a proxy": (None, (FORMAL, finding("proxy", "fence.proxy.alias", count=3))),
    "wrong, too": (BAD, (finding(), finding("proxy", "fence.proxy.async"))),
    "failed": (WorldFailure("DEADLOCK", 0, "rank 0: every thread waits"), (finding(),)),
    "no checker": (None, None),
}
"""What happens to a case, and what is found of it."""


@needs("checks")
@pytest.mark.parametrize("name", ENDS)
def test_how_a_case_ends(symlab, script, name):
    """The gravest finding comes first, wrong results before it; a world without a checker passes nothing."""
    happens, script.findings["one_shot"] = ENDS[name]
    script.outcomes |= {"one_shot": happens} if happens else {}
    done = symlab("sizes=[8]", RACES)
    said = [f"{record['status']}: {record['reason']}" for record in done.records]
    counted = re.findall(r"\d \w+, \d formal", done.out)
    same_text("\n".join([str(done.code), *said, *counted, str(findings_of(done)), done.err]))


@pytest.mark.parametrize("multirun", [False, True])
def test_gpus_are_refused(symlab, multirun):
    done = symlab(*(["-m", "fabric=simulator,nvshmem"] if multirun else ["fabric=nvshmem"]), "sizes=[8]", RACES)
    assert done.code == 2
    assert done.records == []
    assert "GPUs do not show the order of their accesses (check.races), leave it out, or use fabric=simul" in done.err
    assert ("in job 2 of 2" in done.err) == multirun
