"""The worlds of a command: kept between jobs, new where a job wants its own, not tried for ever where none starts."""

import pytest

from runner.command import plan
from runner.command.running import MAX_FAILED_STARTS
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from runner.world.fabrics import HostOffer
from runner.world.launcher import Outer
from runner.world.world import WorldFailure
from tests.runner.conftest import Script


class Startless(Script):
    """No world starts, but for those whose number (from 0) is listed."""

    def __init__(self, *starting):
        super().__init__()
        self.starting = starting
        self.tried = 0

    def _world(self, fabric, world_size, say):
        self.tried += 1
        if self.tried - 1 not in self.starting:
            say(f"starting {world_size} rank processes ...")
            raise WorldFailure("FAILED", 1, f"rank 1: no device, try {self.tried}")
        return super()._world(fabric, world_size, say)


@pytest.fixture
def script():
    return Startless()


def test_a_world_that_does_not_start_is_tried_twice_a_job(symlab, script):
    done = symlab("-m", "world_size=2,3", "sizes=[8,16,32]", "algorithms=[one_shot]")
    assert done.code == 1
    assert script.tried == 2 * MAX_FAILED_STARTS
    assert [record["status"] for record in done.records] == ["FAILED"] * 6
    assert [record["reason"] for record in done.records] == [
        f"rank 1: no device, try {number}" for number in (1, 2, 2, 3, 4, 4)
    ]
    assert "starting 3 rank processes ..." in done.out
    assert script.ran == []


def test_a_start_that_failed_once_is_forgotten_after_one_that_did_not(symlab, script):
    script.starting = (1, 3)
    script.outcomes = {"-16B-": WorldFailure("DEADLOCK", None, "no rank can go on")}
    done = symlab("world_size=2", "sizes=[8,16,32,64]", "algorithms=[one_shot]")
    # 8: no start; 16: a start, and the world is hurt; 32: no start; 64: a start.
    assert [record["status"] for record in done.records] == ["FAILED", "DEADLOCK", "FAILED", "PASSED"]
    assert script.tried == 4


def test_what_a_launchers_world_cannot_give(monkeypatch):
    with hydra_over():
        first, second = compose_jobs(["world_size=8", "fabric.heap_bytes=256M,512M"], True)
    outer = Outer("srun", 0, 8, 0, "gpu01", 29500)
    machine = HostOffer(8, "", True)
    monkeypatch.setattr(plan, "look", lambda: machine)
    joined = plan.prepare([], [first], outer)
    assert [job.request.fabric.name for job in joined.jobs] == ["nvshmem"]
    assert joined.fabric_lines == ("fabric: nvshmem (8 GPUs and the gpu extra found; srun started 8 ranks)",)
    with pytest.raises(RequestError, match="srun's world has one fabric for all jobs .fabric."):
        plan.prepare([], [first, second], outer)
    assert len(plan.prepare([], [first, second]).jobs) == 2
