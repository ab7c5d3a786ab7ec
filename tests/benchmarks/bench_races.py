"""What the race checker costs: CPU time of a launch on 8 ranks x 1 MiB with and without it. Prints a table; no test.

python tests/benchmarks/bench_races.py [RANKS [BYTES [KERNEL ..]]]: all kernels but the barriers if none is named. Runs
with and without take turns, so that a busy machine slows down both.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from kernels.catalogue import NAMES, find
from kernels.compile import executable
from kernels.spec import Case
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.run import schedule
from simulator.world import SimulatedWorld, SimulatorOptions

RANKS = 8
SIZE_BYTES = 1 << 20
TURNS, LAUNCHES = 2, 3
KERNELS = tuple(name for name in NAMES if not name.startswith("barrier/"))


def seconds(name: str, ranks: int, size_bytes: int) -> tuple[float, float]:
    """Return the median CPU seconds of a launch on all ranks, without and with."""
    spent: list[float] = []
    original = schedule.Scheduler.run

    def timed(self: schedule.Scheduler, batches: list[schedule.Batch]) -> bool:
        start = time.thread_time()
        done = original(self, batches)
        spent.append(time.thread_time() - start)
        return done

    spec = find(name)
    accumulator = "float32" if "float32" in spec.accumulators else spec.accumulators[0]
    case = Case(*name.split("/"), "bfloat16", accumulator, spec.reductions[0], size_bytes, ranks)
    compiled = executable(spec, case, "sm_90a", Path.home() / ".cache" / "symlab" / "kernels")
    worlds = [ThreadWorld(ranks, machine=SimulatedWorld(ranks, SimulatorOptions(races=one))) for one in (False, True)]
    found: list[list[float]] = [[], []]
    schedule.Scheduler.run = timed  # type: ignore[method-assign]
    try:
        for _ in range(TURNS):
            for world, times in zip(worlds, found, strict=True):
                spent.clear()
                world.run(run_case, Plan(case, spec, compiled, launches=LAUNCHES, check=False, between=0), 600)
                times += [one for one in spent if one > 1e-4]
    finally:
        schedule.Scheduler.run = original  # type: ignore[method-assign]
        for world in worlds:
            world.close()
    return statistics.median(found[0]), statistics.median(found[1])


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:3]]
    ranks, size_bytes = given + [RANKS, SIZE_BYTES][len(given) :]
    for kernel in sys.argv[3:] or KERNELS:
        without, with_races = seconds(kernel, ranks, size_bytes)
        print(f"{kernel:32} {without:8.3f} s {with_races:8.3f} s  {with_races / without:5.2f}x", flush=True)
