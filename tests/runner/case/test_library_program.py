"""A library's program, with a library of the test's own in the simulator: what it checks, takes and brings home."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cases.case import Case
from kernels.baselines import find_baseline
from runner.case import program
from runner.case.check import merge
from runner.case.inputs import make_inputs
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.patience import NEVER_S, PATIENCE_S

CASE = Case("all_reduce", "nccl", "float32", "library", "sum", 32, 2, placement="in_place")


class Library:
    """Adds what the ranks wrote; with error, to its result of the second launch on."""

    def __init__(self, error: float) -> None:
        self.error = error
        self.written: dict[int, torch.Tensor] = {}
        self.meeting = threading.Barrier(2)

    @contextlib.contextmanager
    def open(self, name: str, fabric: Any, pool: Any, case: Case, slots: int) -> Iterator[Any]:
        library = self

        class Opened:
            launches = 0

            def write(self, slot: int, data: torch.Tensor) -> None:
                library.written[fabric.rank] = data.clone()

            def launch(self, slot: int) -> None:
                library.meeting.wait(PATIENCE_S)
                self.result = library.written[0] + library.written[1] + library.error * (self.launches > 0)
                self.launches += 1
                library.meeting.wait(PATIENCE_S)

            def output(self, slot: int) -> torch.Tensor:
                return self.result

        yield Opened()


def outcomes(monkeypatch: pytest.MonkeyPatch, error: float = 0.0, **plan: Any) -> list[Any]:
    baseline = find_baseline("nccl")
    assert baseline is not None
    monkeypatch.setattr(program, "open_baseline", Library(error).open)
    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 16))
    found: list[Any] = world.run(run_case, Plan(CASE, baseline, **plan), NEVER_S)
    world.close()
    return found


def faults(found: list[Any]) -> tuple[str, ...]:
    baseline = find_baseline("nccl")
    assert baseline is not None
    return merge(CASE, baseline, [one.check for one in found]).faults


def test_it_is_checked_and_brings_home_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    total = sum(make_inputs(CASE, range(2), 8))
    assert faults(outcomes(monkeypatch)) == ()
    assert "wrong" in faults(outcomes(monkeypatch, error=1.0))[0]
    assert [one.output for one in outcomes(monkeypatch)] == [None, None]
    for check in (True, False):
        found = outcomes(monkeypatch, error=1.0, brings_output=True, check=check)
        assert all(torch.equal(one.output, total + 1.0) for one in found), "of the last launch"
        assert all((one.check is not None) is check for one in found)


def test_inputs_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = (torch.arange(8.0), torch.ones(8))
    found = outcomes(monkeypatch, inputs=inputs, brings_output=True)
    assert faults(found) == ()
    assert all(torch.equal(one.output, inputs[0] + 1) for one in found)
