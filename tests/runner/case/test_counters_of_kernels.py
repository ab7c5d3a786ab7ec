"""Counters of our own kernels: their totals, counted a second time here, and their phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases.case import Case
from kernels import catalogue
from kernels.compile import executable
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.observe.counters import KINDS
from simulator.observe.events import Access, CopyMoment, Listener, Stepped
from simulator.world import SimulatedWorld, SimulatorOptions

CASES = (
    Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 4096, 4),
    Case("all_reduce", "two_shot", "float32", "float32", "sum", 20_000, 3),
    Case("all_reduce", "multimem_two_shot", "bfloat16", "float32", "sum", 8192, 4),
    Case("all_reduce", "lamport", "bfloat16", "float32", "sum", 4096, 4),
    Case("broadcast", "bulk", "uint8", "none", "none", 65_536, 3),
)
SCHEDULES: list[dict[str, Any]] = [{}, {"schedule": "random", "seed": 3}]


class Simply(Listener):
    """Totals lane by lane: no shapes, no phases, no launches."""

    def __init__(self, world_size: int) -> None:
        self.instructions = 0
        self.accesses = {kind: {"count": 0, "bytes": 0} for kind in KINDS}
        self.links = np.zeros((world_size, world_size), np.int64)

    def stepped(self, event: Stepped) -> None:
        self.instructions += event.instructions * len(event.lanes)

    def access(self, event: Access) -> None:
        signal = event.order in ("acquire", "release", "acq_rel") or event.kind in ("atomic", "red", "multimem_red")
        targets = np.broadcast_to(event.target, event.count)
        for viewer, target in zip(event.ranks.tolist(), targets.tolist(), strict=True):
            if target < 0:
                plain = "multicast_reduce" if event.kind == "multimem_reduce" else "multicast_store"
            else:
                self.links[viewer, target] += event.width_bytes
                plain = self._plain(viewer == target, event.kind == "load")
            self._count("signal" if signal else plain, event.width_bytes)

    def copy(self, event: CopyMoment) -> None:
        if event.moment == "written":
            viewer = int(event.ranks[0])
            self.links[viewer, event.target] += event.size_bytes
            self._count(self._plain(viewer == event.target, event.is_load), event.size_bytes)

    @staticmethod
    def _plain(is_own: bool, is_load: bool) -> str:
        return f"{'own' if is_own else 'peer'}_{'read' if is_load else 'write'}"

    def _count(self, kind: str, size_bytes: int) -> None:
        self.accesses[kind]["count"] += 1
        self.accesses[kind]["bytes"] += size_bytes


def plan_of(case: Case, compile_cache: Path, **options: Any) -> Plan:
    spec = catalogue.find(case.name)
    return Plan(case, spec, executable(spec, case, "sm_90a", compile_cache), **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", SCHEDULES, ids=["fair", "random"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_totals(compile_cache: Path, case: Case, options: dict[str, Any]) -> None:
    machine = SimulatedWorld(case.world_size, SimulatorOptions(**options))
    simply = Simply(case.world_size)
    machine.space.events.add(simply)
    ThreadWorld(case.world_size, machine=machine).run(run_case, plan_of(case, compile_cache), 120)
    counters = machine.counters()
    assert counters["instructions"] == simply.instructions
    assert counters["accesses"] == simply.accesses
    ranks = range(case.world_size)
    links = {f"{a}->{b}": int(simply.links[a, b]) for a in ranks for b in ranks if a != b and simply.links[a, b]}
    assert counters["links"] == links
    assert counters["of"] == {"launches": 5 if case.size_bytes <= 65_536 else 3, "ranks": case.world_size}


@pytest.mark.parametrize("options", SCHEDULES, ids=["fair", "random"])
def test_one_shots_launches_have_an_entry_and_a_body(compile_cache: Path, options: dict[str, Any]) -> None:
    """The entry barrier ends phase 0; the body and the exit barrier are phase 1, whichever rank came first."""
    case, blocks = CASES[0], catalogue.find("all_reduce/one_shot").launch(CASES[0]).blocks
    n, vectors = case.world_size, case.size_bytes // 16
    world = ThreadWorld(n, SimulatorOptions(**options))
    world.run(run_case, plan_of(case, compile_cache, launches=2, between=3), 120)
    (entry,) = world.counters()["launches"]
    assert (entry["launches"], entry["ranks"]) == ("0-4", "0-3")
    first, body = entry["phases"]
    signals = {"count": n * n * blocks, "bytes": n * n * blocks * 4}
    assert first["signal"] == body["signal"] == signals, "each block tells each rank, at entry and at exit"
    assert set(first) == {"own_read", "signal"}
    assert body["peer_read"] == {"count": n * (n - 1) * vectors, "bytes": n * (n - 1) * case.size_bytes}
    assert body["own_read"] == {"count": n * vectors, "bytes": n * case.size_bytes}
    assert body["own_write"] == {"count": n * (vectors + blocks), "bytes": n * (case.size_bytes + 4 * blocks)}
    assert entry["waits"]["min"] >= 2 * n * n * blocks, "who finds its flag set has looked once"


def test_a_launch_that_does_less_is_told_apart(compile_cache: Path) -> None:
    """Inboxes are set back by the next launch: the first one of lamport has nothing to set back."""
    case = CASES[3]
    world = ThreadWorld(case.world_size)
    world.run(run_case, plan_of(case, compile_cache, launches=3, between=0), 120)
    first, later = world.counters()["launches"]
    assert (first["launches"], later["launches"]) == ("0", "1-2")
    stores = [sum(phase["own_write"]["bytes"] for phase in one["phases"]) for one in (first, later)]
    assert stores[1] - stores[0] == case.world_size * case.world_size * case.size_bytes
