"""What the race checker or the clock costs: CPU time of a launch with and without it; and what the orders by priority
cost: CPU time of a checked run in fair order with and without them. Prints a table; no test.

python tests/benchmarks/bench_listeners.py races|clock|orders [RANKS [BYTES,BYTES,.. [KERNEL ..]]]: if nothing is given,
all kernels on 8 ranks, with races at 1 MiB, else at several sizes. Runs with and without take turns, so that a busy
machine slows down both. orders ends with a line of a page's table for each size.
"""

import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

from cases.case import Case
from kernels.catalogue import NAMES, find
from kernels.compile import executable
from runner.case.program import Plan, run_case
from runner.world import threads
from runner.world.threads import ThreadWorld
from simulator.clock.costs import H200_TRIAL
from simulator.run import schedule
from simulator.world import SimulatedWorld, SimulatorOptions

RANKS = 8
WITH = {"races": SimulatorOptions(races=True), "clock": SimulatorOptions(clock=H200_TRIAL)}
SIZES_BYTES = {"races": (1 << 20,), "clock": (16 << 10, 256 << 10, 1 << 20), "orders": (1 << 10, 64 << 10, 1 << 20)}
TURNS, LAUNCHES = 3, 3
ORDERS = ((), threads.RACE_SEEDS)


def plan_of(name, ranks, size_bytes, **how):
    """Return the launches of a kernel."""
    spec = find(name)
    accumulator = "float32" if "float32" in spec.accumulators else spec.accumulators[0]
    case = Case(*name.split("/"), "bfloat16", accumulator, spec.reductions[0], size_bytes, ranks)
    return Plan(case, spec, executable(spec, case, "sm_90a", Path.home() / ".cache" / "symlab" / "kernels"), **how)


def seconds_of_orders(name, ranks, size_bytes):
    """Return the median CPU seconds of a checked run as a command makes it, without and with orders by priority."""
    plan = plan_of(name, ranks, size_bytes)
    found: list[list[float]] = [[], []]
    for turn in range(TURNS + 1):  # the first decodes the kernel, and does not count
        for threads.RACE_SEEDS, times in zip(ORDERS, found, strict=True):
            world = ThreadWorld(ranks, SimulatorOptions(races=True))
            start = time.process_time()
            world.run(run_case, plan, 600)
            times += [time.process_time() - start] if turn else []
            world.close()
    return statistics.median(found[0]), statistics.median(found[1])


def seconds(what, name, ranks, size_bytes):
    """Return the median CPU seconds of a launch on all ranks, without and with."""
    spent: list[float] = []
    original = schedule.Scheduler.run

    def timed(self, batches):
        start = time.thread_time()
        done = original(self, batches)
        spent.append(time.thread_time() - start)
        return done

    plan = plan_of(name, ranks, size_bytes, launches=LAUNCHES, check=False, between=0)
    worlds = [ThreadWorld(ranks, machine=SimulatedWorld(ranks, one)) for one in (SimulatorOptions(), WITH[what])]
    found: list[list[float]] = [[], []]
    schedule.Scheduler.run = timed  # type: ignore[method-assign]
    try:
        for _ in range(TURNS):
            for world, times in zip(worlds, found, strict=True):
                spent.clear()
                world.run(run_case, plan, 600)
                times += [one for one in spent if one > 1e-4]
    finally:
        schedule.Scheduler.run = original  # type: ignore[method-assign]
        for world in worlds:
            world.close()
    return statistics.median(found[0]), statistics.median(found[1])


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    ranks = int(given[0]) if given else RANKS
    sizes = [int(one) for one in given[1].split(",")] if given[1:] else SIZES_BYTES[what]
    by_size: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for kernel in given[2:] or NAMES:
        for size in sizes if not kernel.startswith("barrier/") else sizes[:1]:
            without, with_it = (
                seconds_of_orders(kernel, ranks, size) if what == "orders" else seconds(what, kernel, ranks, size)
            )
            print(f"{kernel:32} {size:>9} B {without:8.3f} s {with_it:8.3f} s  {with_it / without:5.2f}x", flush=True)
            by_size[size].append((without, with_it))
    for size, pairs in by_size.items() if what == "orders" else ():
        times = sorted(with_it / without for without, with_it in pairs)
        more = sorted(with_it - without for without, with_it in pairs)
        cells = [size >> 10, len(pairs), f"{statistics.median(one for one, _ in pairs):.2f}"]
        cells += [f"{statistics.median(one):.1f} ({one[0]:.1f} to {one[-1]:.1f})" for one in (times, more)]
        print(f"| {' | '.join(map(str, cells))} |")
