"""Counters of our own kernels: their totals, counted a second time here."""

import numpy as np
import pytest

from cases.case import Case
from kernels import catalogue
from kernels.compile import executable
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.observe.counters import KINDS
from simulator.observe.events import Listener
from simulator.world import SimulatedWorld, SimulatorOptions

CASES = (
    Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 4096, 4),
    Case("all_reduce", "two_shot", "float32", "float32", "sum", 20_000, 3),
    Case("all_reduce", "multimem_two_shot", "bfloat16", "float32", "sum", 8192, 4),
    Case("all_reduce", "lamport", "bfloat16", "float32", "sum", 4096, 4),
    Case("broadcast", "bulk", "uint8", "none", "none", 65_536, 3),
)
SCHEDULES = [{}, {"schedule": "random", "seed": 3}]


class Simply(Listener):
    """Totals lane by lane."""

    def __init__(self, world_size):
        self.instructions = 0
        self.accesses = {kind: {"count": 0, "bytes": 0} for kind in KINDS}
        self.links = np.zeros((world_size, world_size), np.int64)

    def stepped(self, event):
        self.instructions += event.instructions * len(event.lanes)

    def access(self, event):
        signal = event.order in ("acquire", "release", "acq_rel") or event.kind in ("atomic", "red", "multimem_red")
        targets = np.broadcast_to(event.target, event.count)
        for viewer, target in zip(event.ranks.tolist(), targets.tolist(), strict=True):
            if target < 0:
                plain = "multicast_reduce" if event.kind == "multimem_reduce" else "multicast_store"
            else:
                self.links[viewer, target] += event.width_bytes
                plain = self._plain(viewer == target, event.kind == "load")
            self._count("signal" if signal else plain, event.width_bytes)

    def copy(self, event):
        if event.moment == "written":
            viewer = int(event.ranks[0])
            self.links[viewer, event.target] += event.size_bytes
            self._count(self._plain(viewer == event.target, event.is_load), event.size_bytes)

    @staticmethod
    def _plain(is_own, is_load):
        return f"{'own' if is_own else 'peer'}_{'read' if is_load else 'write'}"

    def _count(self, kind, size_bytes):
        self.accesses[kind]["count"] += 1
        self.accesses[kind]["bytes"] += size_bytes


def plan_of(case, compile_cache):
    spec = catalogue.find(case.name)
    return Plan(case, spec, executable(spec, case, "sm_90a", compile_cache))


@pytest.mark.parametrize("options", SCHEDULES, ids=["fair", "random"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_totals(compile_cache, case, options):
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
