"""The probes on the way that times them, with a stand-in clock: calls back to back pass, half a copy gets no time."""

import copy
import dataclasses
import pickle

import pytest

from runner.custom.description import custom_job
from runner.custom.running import plan_of
from runner.timing.combine import combine
from runner.timing.custom import CustomContestant
from runner.timing.measure import MeasurePlan, measure
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from symlab.speed.calibrate.probes import BY_NAME
from tests.patience import NEVER_S
from tests.runner.measuring import TIMING, RecordingFabric, RecordingStopwatch
from tests.symlab.speed.calibrate.test_floors import SIMULATED


def timed(name, section=None):
    """What timing a probe on two simulated ranks comes to, by a clock that counts what is queued."""
    job = custom_job(section or BY_NAME[name].section(SIMULATED), 2, 0, True)
    compiled = job.kernel.compiled(job.spec, 2, "sm_90a")
    assert job.expected is not None
    run = plan_of(job, compiled, seed=0, launches=1, is_checked=True)
    timing = dataclasses.replace(TIMING, l2="hot", samples=2, warmup=1, calls=2)
    plan = MeasurePlan((CustomContestant(run, job.expected),), timing)

    def program(fabric, sent):
        log = []
        stopwatch = RecordingStopwatch(log)
        return measure(RecordingFabric(fabric, log, 1 << 20), sent, stopwatch)

    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 24))
    try:
        rows = world.run(program, pickle.loads(pickle.dumps(plan)), NEVER_S)
    finally:
        world.close()
    return combine(plan, rows, None, job)[0][0]


@pytest.mark.parametrize("name", ["empty_1", "load_remote_hot", "ping_pong_release_1", "pull_1"])
def test_a_probe_gets_a_time(name):
    found = timed(name)
    assert (found.problem, found.wrong) == ("", None)
    assert found.timing.slots == 1
    assert found.timing.checked_after > 0


def test_a_copy_that_did_half_gets_no_time():
    section = copy.deepcopy(BY_NAME["push_1"].section(SIMULATED))
    for one in section["buffers"].values():
        one["shape"] = [2 * count for count in one["shape"]]
    found = timed("push_1", section)
    assert found.timing is None
