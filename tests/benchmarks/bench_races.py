"""What the race checker costs: CPU time of a launch on 8 ranks x 1 MiB with and without it. Prints a table; no test."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from kernels.catalogue import find
from kernels.compile import executable
from kernels.spec import Case
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.run import schedule
from simulator.world import SimulatedWorld, SimulatorOptions

RANKS = 8
REPEATS = 5
KERNELS = (
    "all_reduce/one_shot",
    "all_reduce/two_shot",
    "all_reduce/multimem_two_shot",
    "all_reduce/ll",
    "all_gather/bulk",
)


def seconds(name: str, size_bytes: int, races: bool) -> float:
    """Return the median CPU seconds of a launch on all ranks."""
    spent: list[float] = []
    original = schedule.Scheduler.run

    def timed(self: schedule.Scheduler, batches: list[schedule.Batch]) -> bool:
        start = time.thread_time()
        done = original(self, batches)
        spent.append(time.thread_time() - start)
        return done

    accumulator = "float32" if "float32" in find(name).accumulators else find(name).accumulators[0]
    case = Case(*name.split("/"), "bfloat16", accumulator, "sum", size_bytes, RANKS)
    compiled = executable(find(name), case, "sm_90a", Path.home() / ".cache" / "symlab" / "kernels")
    world = ThreadWorld(RANKS, machine=SimulatedWorld(RANKS, SimulatorOptions(races=races)))
    schedule.Scheduler.run = timed  # type: ignore[method-assign]
    try:
        world.run(run_case, Plan(case, find(name), compiled, launches=REPEATS, check=False, between=0), 600)
    finally:
        schedule.Scheduler.run = original  # type: ignore[method-assign]
        world.close()
    return statistics.median(one for one in spent if one > 1e-4)


if __name__ == "__main__":
    for kernel in KERNELS:
        without, with_races = (seconds(kernel, 1 << 20, races) for races in (False, True))
        print(f"{kernel:32} {without:8.3f} s {with_races:8.3f} s  {with_races / without:5.2f}x")
