"""+exp=races: every kernel under the race checker, and none has a race. bench_listeners.py measures what it costs."""

import pytest

import symlab
from kernels.catalogue import NAMES
from runner.request.compose import compose_jobs, hydra_over
from runner.request.experiments import CONF
from simulator.world import SimulatedWorld, SimulatorOptions


def has_checker():
    try:
        SimulatedWorld(1, SimulatorOptions(races=True)).close()
    except ValueError:
        return False
    return True


def test_it_asks_for_every_op_and_algorithm_on_two_and_four_ranks():
    with hydra_over():
        jobs = compose_jobs(["+exp=races"], multirun=False)
    assert {job.request.op for job in jobs} == {name.partition("/")[0] for name in NAMES}
    assert {job.request.world_size for job in jobs} == {2, 4}
    assert {job.request.algorithms for job in jobs} == {"all"}
    assert {job.request.fabric.races for job in jobs} == {True}
    assert "18 jobs" in (CONF / "exp" / "races.yaml").read_text()
    assert len(jobs) == 18


@pytest.mark.slow
@pytest.mark.skipif(not has_checker(), reason="the simulator has no race checker so far")
def test_every_kernel_is_clean(tmp_path):
    done = symlab.experiment("+exp=races", "track=none", f"records={tmp_path}", quiet=True)
    assert done.exit_code == 0
    assert {record.case.name for record in done.records} == set(NAMES)
    assert {str(record.status) for record in done.records} == {"PASSED"}
    assert [record.id for record in done.records if record.findings is None] == []
    assert [record.id for record in done.records if record.race is not None] == []
