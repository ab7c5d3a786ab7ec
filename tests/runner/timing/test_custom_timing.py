"""A custom kernel is timed alone, on slots of all its buffers, and nothing wrong is given a time."""

import dataclasses
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from memory.pool import SymmetricPool
from runner.command.case_programs import PATIENCE_S
from runner.command.means import usual_means
from runner.custom.description import custom_job
from runner.custom.running import CompiledJob, plan_of
from runner.timing.combine import combine
from runner.timing.custom import CustomContestant, open_custom
from runner.timing.measure import MeasurePlan, measure
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.patience import NEVER_S
from tests.runner.custom.own_ptx import CUTE_ARGUMENTS, HEAD, section, write_experiment
from tests.runner.measuring import CALL_US, TIMING, RecordingFabric, RecordingStopwatch
from tests.runner.timing.test_measure import stopwatch_with

SUM_IN_PLACE = f"""{HEAD}
.visible .entry add_one(.param .u64 data)
{{
	.reg .f32 %f<3>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
	ld.global.f32 %f1, [%rd1]; add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%rd1], %f2;
	ret;
}}
"""


@pytest.fixture
def job(tmp_path):
    """job(**changes of the section): the job of add_peers.ptx on two ranks."""
    write_experiment(tmp_path)
    (tmp_path / "exp" / "add_one.ptx").write_text(SUM_IN_PLACE)
    text = "def one_more(inputs):\n    return [{'data': contents['data'] + 1} for contents in inputs]\n"
    (tmp_path / "exp" / "more.py").write_text(text)

    def made(**changes):
        return custom_job(section(**changes), 2, 0, True, tmp_path / "exp")

    return made


IN_PLACE = {
    "kernel": "add_one.ptx:add_one",
    "launch": {"grid": 1, "block": 32},
    "buffers": {"data": {"dtype": "float32", "shape": [32], "fill": "normal"}},
    "arguments": [{"address": "data"}],
    "reference": "more.py:one_more",
}


def plan_for(job, **changes):
    compiled = job.kernel.compiled(job.spec, 2, "sm_90a")
    run = plan_of(job, compiled, seed=0, launches=1, is_checked=True)
    return MeasurePlan((CustomContestant(run, job.expected),), dataclasses.replace(TIMING, **changes))


def measured(job, spoil=lambda fabric, stopwatch: None, link=False, **changes):
    """What ranks found, what it comes to, what was queued on each rank, and the links' limit."""
    plan = dataclasses.replace(plan_for(job, **changes), link=link)
    rows, logs = rows_of(plan, spoil)
    (timed,), limit = combine(plan, rows, None, job)
    return [row.contestants[0] for row in rows], timed, logs, limit


def rows_of(plan, spoil=lambda fabric, stopwatch: None):
    logs: list[list[str]] = [[], []]

    def program(fabric, sent):
        log = logs[fabric.rank]
        recording, stopwatch = RecordingFabric(fabric, log, 1 << 14), RecordingStopwatch(log)
        spoil(recording, stopwatch)
        return measure(recording, sent, stopwatch)  # type: ignore[arg-type]

    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 23))
    return world.run(program, pickle.loads(pickle.dumps(plan)), NEVER_S), logs


def test_samples_are_microseconds_a_call_and_all_slots_are_compared(job):
    rows, timed, logs, limit = measured(job())
    timing = timed.timing
    assert timing.samples_us == tuple(row.samples_us for row in rows)
    for row in rows:
        assert row.samples_us == pytest.approx([(4 + 1) * CALL_US / 4] * 3), "four launches and the replay"
        assert row.slots == 4, "as many as calls: each has 8000 bytes, and the cache 16 KiB"
        assert row.elements == (4 * 1000, 2 * 4 * 1000)
    assert (timing.slots, timing.slot_bytes, timing.calls_per_sample, timing.interleaved_with) == (4, 8000, 4, ())
    assert (timing.checked_before, timing.checked_after) == (8000, 16000)
    assert [line for line in logs[0] if line in ("capture", "replay")] == ["capture"] + ["replay"] * 5
    assert (timing.moved_bytes, timing.has_bandwidth, timing.of_limit(8000), limit) == (0, False, None, None)


@pytest.mark.parametrize("inputs", [{"peers": "input"}, {"pointer": [{"addresses": "input"}]}], ids=["table", "struct"])
def test_slots_fit_the_heap_with_guards_tables_and_structs(job, inputs):
    plan = plan_for(job(arguments=[inputs, "output", "world_size", {"u32": 1000}]))
    (contestant,) = plan.contestants
    assert isinstance(contestant, CustomContestant)

    def program(fabric, two_slots_bytes):
        recording: Any = RecordingFabric(fabric, [], 1 << 14)
        with SymmetricPool(recording) as pool:
            return open_custom(recording, pool, contestant, plan.timing, two_slots_bytes).slots

    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 17))
    two_slots_bytes = 2 * (2 * (4000 + 608) + 512)
    assert world.run(program, two_slots_bytes, NEVER_S) == [2, 2]
    assert world.run(program, two_slots_bytes - 1, NEVER_S) == [1, 1]


def test_with_declared_bytes_there_is_a_bandwidth_and_the_links_are_measured_where_asked(job):
    _, timed, _, limit = measured(job(bytes="4K"), link=True)
    timing = timed.timing
    assert (timing.moved_bytes, timing.has_bandwidth, timing.limit) == (4096, True, limit)
    assert limit is not None
    assert timing.busbw_gbps(8000) == timing.algbw_gbps(8000) == pytest.approx(4096 / timing.median_us / 1e3)


def test_calls_that_go_on_from_the_last_are_compared_afterwards(job):
    """data + 1 in place: a second call gives + 2, so that only what follows new inputs is compared."""
    rows, timed, logs, _ = measured(job(**IN_PLACE))
    assert timed.timing.checked_after == 2 * 4 * 32
    assert [line for line in logs[0] if line == "capture"] == ["capture"] * 2, "calls to be compared are from a graph"
    assert len(rows[0].samples_us) == 3


def test_graphs_of_a_custom_kernel_that_do_nothing_are_found_out(job):
    timed = measured(job(), stopwatch_with(empty_graphs=True))[1]
    assert timed.timing is None
    assert timed.wrong.wrong == timed.wrong.elements == 2 * 1000, "the first wrong slot of each rank"
    timed = measured(job(**IN_PLACE), stopwatch_with(empty_graphs=True))[1]
    assert timed.timing is None
    assert timed.problem.endswith("the timed calls changed nothing")
    timed = measured(job(**IN_PLACE), stopwatch_with(doubled_graphs=True))[1]
    assert timed.timing is None
    assert timed.wrong is not None


def test_what_is_wrong_before_is_timed_on_no_rank(job):
    one = job()
    off = {"output": one.expected[1]["output"] + 1}
    spoilt = dataclasses.replace(one, expected=(one.expected[0], off))
    rows, timed, _, _ = measured(spoilt)
    assert [row.samples_us for row in rows] == [(), ()]
    assert timed.timing is None
    assert timed.wrong.first_mismatch.rank == 1


def test_a_rank_of_which_nothing_is_compared_has_a_time(job):
    one = job()
    rows, timed, _, _ = measured(dataclasses.replace(one, expected=(one.expected[0], {})))
    assert [row.elements[0] for row in rows] == [4000, 0]
    assert all(len(row) == 3 for row in timed.timing.samples_us)


def test_a_function_s_launch_is_bound_to_each_slot(job):
    rows, timed, logs, _ = measured(job(kernel="cute.py:add", arguments=CUTE_ARGUMENTS))
    assert timed.timing is not None
    assert rows[0].slots == 4
    assert torch.isfinite(torch.tensor(rows[1].samples_us)).all()
    assert "launch custom/add" in logs[1]


def test_a_job_times_what_was_compiled_of_it_with_its_seed(job):
    asked: list[MeasurePlan] = []

    class World:
        def run(self, program, plan, deadline_s):
            assert program is measure
            asked.append(plan)
            return rows_of(plan)[0]

    made = job(bytes="4K")
    one = CompiledJob(made, made.kernel.compiled(made.spec, 2, "sm_90a"))
    request: Any = SimpleNamespace(seed=0, timing=TIMING, deadline_s=NEVER_S)
    means = usual_means()
    (timed,), _ = means.measured(World(), [one], request, None)  # type: ignore[arg-type]
    assert timed.timing.moved_bytes == 4096
    request.seed = 1
    (wrong,), _ = means.measured(World(), [one], request, None)  # type: ignore[arg-type]
    assert wrong.wrong is not None, "other data than the reference is of"
    assert asked[0].patience_s == PATIENCE_S


def test_a_timed_call_moves_the_declared_bytes_of_each_launch_in_a_row(job):
    _, timed, _, _ = measured(job(bytes="4K", launches=3))
    assert timed.timing.moved_bytes == 3 * 4096
