"""Runs litmus programs on a simulated world: what final state one run has, and what the checker finds in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from memory.fabric import Deadlock, Executable
from simulator.fabric import SimulatorFabric
from simulator.litmus.program import Program, Seen
from tests.simulator import harness
from tests.simulator.litmus.as_kernel import ENTRY, Kernels, kernels_of

STEP_BUDGET = 20_000


@dataclass(frozen=True, slots=True)
class Run:
    """Final values of registers and of words of memory (a deadlock leaves none), and the checker's findings."""

    values: dict[Seen, int]
    is_deadlock: bool
    findings: tuple[Any, ...]

    def state(self, seen: tuple[Seen, ...]) -> tuple[int, ...]:
        """Return the values in the order of a judgement's."""
        return tuple(self.values[one] for one in seen)


def run(program: Program, kernels: Kernels | None = None, **options: Any) -> Run:
    """Run a program once. Raises ValueError for what simulated GPUs cannot run."""
    made = kernels_of(program) if kernels is None else kernels
    world = harness.make_world(made.world_size, **{"heap_bytes": 1 << 16, "step_budget": STEP_BUDGET, **options})
    compiled = harness.executable(made.ptx, f"litmus/{program.name}")
    executable = Executable(compiled.name, ENTRY, compiled.arch, compiled.ptx, compiled.digest)

    def rank_program(fabric: SimulatorFabric) -> tuple[Any, Any]:
        memory = harness.put(fabric, "memory", np.array(made.memory[fabric.rank], np.uint32))
        results = harness.put(fabric, "results", np.zeros(made.results_bytes // 8, np.uint64))
        fabric.barrier()
        values = [fabric.peer_address(memory, rank) for rank in range(made.world_size)]
        if made.has_multicast:
            values.append(fabric.multicast_address(memory))
        harness.start(fabric, executable, made.grid, made.block, [*values, results.address, fabric.rank])
        fabric.synchronize()
        fabric.barrier()
        return harness.get(fabric, memory, "u4"), harness.get(fabric, results, "u8")

    outcome = harness.run(world, rank_program)
    findings = tuple(getattr(world, "findings", ()))
    if any(outcome.errors):
        if isinstance(outcome.error(), Deadlock):
            return Run({}, True, findings)
        raise outcome.error()
    values = {one: int(outcome.results[rank][1][start // 8]) for one, (rank, start) in made.results.items()}
    for name, (rank, start) in made.locations.items():
        words = outcome.results[rank][0][start // 4 : start // 4 + 8]
        values |= {Seen("", name, at): int(word) for at, word in enumerate(words)}
    return Run(values, False, findings)
