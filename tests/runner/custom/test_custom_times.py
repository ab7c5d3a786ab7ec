"""Jobs of op=custom on GPUs: what passed its check is timed, and the record, the table and MLflow show it."""

import dataclasses

import pytest

from cases.record.record import Status, from_json
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.record.timing import Timing
from memory.fabric import Traits
from reports.figures import curves
from reports.mlflow_values import _timing_metrics
from reports.table.compare import rows, split
from reports.table.timed_table import captions, wide
from runner.command.job import run_job
from runner.command.means import usual_means
from runner.command.plan import Job, prepare
from runner.command.unused_keys import unused_keys
from runner.request.compose import compose_jobs, hydra_over
from runner.timing.combine import TimedResult
from runner.world.fabrics import FabricName
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.golden import same_text
from tests.runner.custom.own_ptx import write_experiment
from tests.runner.shelf import Shelf

WAY = {"mode": "graph", "window": "kernel", "l2": "rotate", "slots": 4, "slot_bytes": 8000, "bus_factor": 1.0}
CALLS = {"warmup_calls": 12, "calls_per_sample": 4, "checked_before": 64, "checked_after": 128, "moved_bytes": 0}
TIMING = Timing(**WAY, **CALLS, samples_us=((5.0, 6.0),) * 4)


class PassingForGpus(ThreadWorld):
    """A simulated world that says of itself that it is none."""

    def run(self, program, argument, deadline_s):
        found = super().run(program, argument, deadline_s)
        return [dataclasses.replace(one, simulated=False) if isinstance(one, Traits) else one for one in found]


def ran(tmp_path, monkeypatch, outcome, *overrides, **changes):
    """The record of a job whose timing gives an outcome, or raises it."""
    monkeypatch.chdir(tmp_path)
    write_experiment(tmp_path / "conf", **changes)
    asking = ["+exp=mine", "fabric=simulator", "track=none", "check.races=false", *overrides]
    with hydra_over(tmp_path / "conf"):
        composed = compose_jobs(asking, multirun=False)
    (prepared,) = prepare([], composed).jobs
    asked = []

    def measured(world, contestants, request, limit):
        (one,) = contestants
        asked.append((one.job.place, one.executable.name, request.timing.mode, limit))
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome], None

    fabric = dataclasses.replace(prepared.request.fabric, name=FabricName.nvshmem)
    request = dataclasses.replace(prepared.request, fabric=fabric)
    job = Job(request, prepared.cases, {}, RecordedEnvironment, RecordedRequest(), custom=prepared.custom)
    shelf = Shelf(lambda: PassingForGpus(4, SimulatorOptions(heap_bytes=1 << 20)))
    run_job(job, shelf, dataclasses.replace(usual_means(), measured=measured))
    (record,) = shelf.records
    assert len(asked) == (record.timing is not None or "while timing" in record.reason)
    return record


def test_what_passed_is_timed_and_compared_with_nothing(tmp_path, monkeypatch):
    record = ran(tmp_path, monkeypatch, TimedResult(TIMING))
    assert (record.status, record.timing) == (Status.PASSED, TIMING)
    assert from_json(record.to_json()).timing == TIMING
    sections, lone = split([record])
    assert lone == []
    ((row,),) = [rows(section) for section in sections]
    assert (row.figure("median_us"), row.figure("of_limit"), row.ratio) == (5.5, None, None)
    (sheet,) = wide(sections, {})
    assert any("5.50" in cell and "(" not in cell for cell in sheet.groups[0][0].cells.values())
    assert not any(name.startswith("bandwidth/") for name in _timing_metrics(TIMING, 8000))


@pytest.mark.parametrize(("moved_bytes", "bandwidth"), [(0, None), (11_000, 2.0)])
def test_a_bandwidth_is_where_bytes_are_declared_alone(tmp_path, monkeypatch, moved_bytes, bandwidth):
    record = ran(tmp_path, monkeypatch, TimedResult(dataclasses.replace(TIMING, moved_bytes=moved_bytes)))
    sections, _ = split([record])
    (row,) = judged = rows(sections[0])
    assert row.figure("busbw_gbps") == row.figure("algbw_gbps") == bandwidth
    drawn = [len(curves.curves(judged, measure)) for measure in ("median_us", "busbw_gbps")]
    assert drawn == [1, int(bandwidth is not None)]
    assert len(curves.figure(sections).axes) == 2
    said = " ".join(captions(sections))
    assert ("custom.bytes" in said) == ("algbw" in said) == (bandwidth is not None)


def test_a_failure_while_timing_says_that_buffers_are_not_filled_between_calls(tmp_path, monkeypatch):
    record = ran(tmp_path, monkeypatch, WorldFailure("TIMEOUT", None, "no answer within 60 s"))
    assert (record.status, record.timing) == (Status.TIMEOUT, None)
    same_text(record.reason)


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [(["timing.mode=none"], {}), (["check=false"], {}), ([], {"reference": "add_peers.py:off_by_one"})],
)
def test_what_is_not_checked_or_wrong_is_not_timed(tmp_path, monkeypatch, overrides, changes):
    assert ran(tmp_path, monkeypatch, TimedResult(TIMING), *overrides, **changes).timing is None


def test_a_simulated_custom_kernel_says_why_it_has_no_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_experiment(tmp_path / "conf")
    with hydra_over(tmp_path / "conf"):
        composed = compose_jobs(["+exp=mine", "fabric=simulator", "timing.samples=5"], multirun=False)
    assert unused_keys(prepare([], composed)) == ["timing.* has no effect: the simulator has no clock"]
