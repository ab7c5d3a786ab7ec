"""Jobs of op=custom on GPUs: what passed its check is timed, and the record, the table and MLflow show it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from memory.fabric import Traits
from reports.figures import curves
from reports.record.record import Record, RecordedEnvironment, RecordedRequest, Status, Timing, from_json
from reports.sent import _timing_metrics
from reports.table.compare import rows, split
from reports.table.timed_table import captions, wide
from runner.command.job import Job, run_job, usual_means
from runner.command.plan import prepare
from runner.command.unused_keys import unused_keys
from runner.request.compose import compose_jobs, hydra_over
from runner.timing.measure import TimedResult
from runner.world.fabrics import FabricName
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.runner.custom.own_ptx import write_experiment

TIMING = Timing(
    mode="graph",
    window="kernel",
    l2="rotate",
    slots=4,
    slot_bytes=8000,
    warmup_calls=12,
    calls_per_sample=4,
    bus_factor=1.0,
    samples_us=((5.0, 6.0),) * 4,
    checked_before=64,
    checked_after=128,
    moved_bytes=0,
)


class PassingForGpus:
    """A simulated world that says of itself that it is none."""

    world_size = 4

    def __init__(self) -> None:
        self.inner = ThreadWorld(4, SimulatorOptions(heap_bytes=1 << 20))
        self.healthy = True

    def run(self, program: Any, argument: Any, deadline_s: float | None) -> list[Any]:
        found = self.inner.run(program, argument, deadline_s)
        return [dataclasses.replace(one, simulated=False) if isinstance(one, Traits) else one for one in found]

    def counters(self) -> dict[str, Any]:
        return {}

    def findings(self) -> None:
        return None


class Shelf:
    """job.Keeper of one world."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._world: Any = PassingForGpus()

    def world(self) -> Any:
        return self._world

    def starting(self, case: Any) -> None:
        pass

    def keep(self, record: Record, executable: Any) -> None:
        self.records.append(record)


def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any, *overrides: str, **changes: Any) -> Record:
    """The record of a job whose timing gives an outcome, or raises it."""
    monkeypatch.chdir(tmp_path)
    write_experiment(tmp_path / "conf", **changes)
    with hydra_over(tmp_path / "conf"):
        composed = compose_jobs(
            ["+exp=mine", "fabric=simulator", "track=none", "check.races=false", *overrides], multirun=False
        )
    (prepared,) = prepare([], composed).jobs
    asked: list[Any] = []

    def measured(world: Any, custom: Any, compiled: Any, request: Any, limit: Any) -> Any:
        asked.append((custom.place, compiled.executable.name, request.timing.mode, limit))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome, None

    fabric = dataclasses.replace(prepared.request.fabric, name=FabricName.nvshmem)
    request = dataclasses.replace(prepared.request, fabric=fabric)
    job = Job(request, prepared.cases, {}, RecordedEnvironment, RecordedRequest(), custom=prepared.custom)
    shelf = Shelf()
    run_job(job, shelf, dataclasses.replace(usual_means(), measured_custom=measured))
    (record,) = shelf.records
    assert len(asked) == (record.timing is not None or "while timing" in record.reason)
    return record


def test_what_passed_is_timed_and_compared_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = ran(tmp_path, monkeypatch, TimedResult(TIMING))
    assert (record.status, record.timing) == (Status.PASSED, TIMING)
    again = from_json(record.to_json())
    assert again.timing == TIMING
    sections, lone = split([record])
    assert lone == []
    ((row,),) = [rows(section) for section in sections]
    assert row.figure("median_us") == 5.5
    assert [row.figure(name) for name in ("algbw_gbps", "busbw_gbps", "of_limit")] == [None] * 3
    assert row.ratio is None
    said = " ".join(captions(sections))
    assert "algbw" not in said
    (sheet,) = wide(sections, {})
    assert any("5.50" in cell and "(" not in cell for cell in sheet.groups[0][0].cells.values())
    assert not any(name.startswith("bandwidth/") for name in _timing_metrics(TIMING, 8000))


@pytest.mark.parametrize(("moved_bytes", "curves_drawn"), [(0, 0), (11_000, 1)])
def test_a_picture_has_a_bandwidth_only_where_one_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved_bytes: int, curves_drawn: int
) -> None:
    record = ran(tmp_path, monkeypatch, TimedResult(dataclasses.replace(TIMING, moved_bytes=moved_bytes)))
    sections, _ = split([record])
    judged = rows(sections[0])
    assert [len(curves.curves(judged, measure)) for measure in ("median_us", "busbw_gbps")] == [1, curves_drawn]
    assert len(curves.figure(sections).axes) == 2


def test_declared_bytes_are_the_bandwidth_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = ran(tmp_path, monkeypatch, TimedResult(dataclasses.replace(TIMING, moved_bytes=11_000)))
    sections, _ = split([record])
    (row,) = rows(sections[0])
    assert row.figure("busbw_gbps") == row.figure("algbw_gbps") == 2.0
    assert "custom.bytes" in " ".join(captions(sections))


def test_a_failure_while_timing_says_that_buffers_are_not_filled_between_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ran(tmp_path, monkeypatch, WorldFailure("TIMEOUT", None, "no answer within 60 s"))
    assert record.status is Status.TIMEOUT
    assert record.timing is None
    assert record.reason.startswith("while timing: no answer within 60 s; a kernel that is timed is launched again")
    assert "timing.mode=none" in record.reason


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [(["timing.mode=none"], {}), (["check=false"], {}), ([], {"reference": "add_peers.py:off_by_one"})],
)
def test_what_is_not_checked_or_wrong_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], changes: dict[str, Any]
) -> None:
    assert ran(tmp_path, monkeypatch, TimedResult(TIMING), *overrides, **changes).timing is None


def test_a_simulated_custom_kernel_says_why_it_has_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_experiment(tmp_path / "conf")
    with hydra_over(tmp_path / "conf"):
        composed = compose_jobs(["+exp=mine", "fabric=simulator", "timing.samples=5"], multirun=False)
    assert unused_keys(prepare([], composed)) == ["timing.* has no effect: the simulator has no clock"]
