"""What honest commands leave has no finding: real commands of many kinds, run here and audited."""

import shlex

import pytest

from reports.record.bundle import read
from runner.__main__ import main
from tests.symlab.evidence.audit.complete_set import audited

PUSH = "op=send_recv algorithms=[push]"
ONE_SHOT = "algorithms=[one_shot] sizes=[64]"

FEW = (
    f"{PUSH} sizes=[64,128] check=false",
    f"{PUSH} sizes=256",
    f"{PUSH} 'sizes={{list: [64]}}' check=true seed=7 launches=3",
    f"-m {PUSH} 'sizes=[64],[128]' world_size=2,3",
    f"-m {PUSH} sizes=64 'seed=range(1,3)'",
    f"{PUSH} sizes=64 stress=no_host_barrier stress_seeds=1",
    f"{ONE_SHOT} stress=alternating_sizes+late_rank stress_seeds=2 fabric.seed=4",
    f"{PUSH} sizes=64 hydra.mode=MULTIRUN 'world_size=choice(2)'",
    f"{ONE_SHOT} stress=dead_rank",
    f"{ONE_SHOT} placement=both dtype=bfloat16/native",
    f"{ONE_SHOT} 'fabric={{memory: weak}}' fabric.schedule=adversarial",
)
"""In `make test`: the forms of which an audit once said that they contradict themselves, and their like."""


def ran(line, folder):
    """The records of a command, which ran in the simulator."""
    words = ["-q", "fabric=simulator", "track=none", *shlex.split(line), f"records={folder}"]
    assert main(words) == 0
    return read([folder])


@pytest.mark.parametrize("line", FEW)
def test_an_honest_command_does_not_contradict_itself(line, tmp_path):
    assert audited(ran(line, tmp_path), tmp_path).level.findings == ()
