"""What orders cost: user CPU time of all_reduce kernels by order and granularity, on 4 simulated ranks. Prints a table;
no test. By access, random may take at most 5 times what it takes by block.

python tests/benchmarks/bench_orders.py [BYTES [KERNEL ..]]: 4 KiB and 256 KiB, and six kernels, if none is named. The
orders take turns, so that a busy machine slows down all of them.
"""

import platform
import resource
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path

from cases.case import Case
from kernels.catalogue import find
from kernels.compile import executable
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions

RANKS = 4
SEEDS = 9
KERNELS = ("one_shot", "two_shot", "ll", "multimem_one_shot", "multimem_two_shot", "two_shot_lamport")
ORDERS = (("fair", "block"), ("random", "block"), ("random", "access"), ("adversarial", "access"))


def spent(name, size_bytes):
    """Return for each of the orders the median user milliseconds of two checked launches on all ranks and of what is
    around them, and the mean number of steps."""
    spec = find(f"all_reduce/{name}")
    case = Case("all_reduce", name, "bfloat16", "float32", "sum", size_bytes, RANKS, inputs="exact")
    compiled = executable(spec, case, "sm_90a", Path.home() / ".cache" / "symlab" / "kernels")
    found: list[list[tuple[float, int]]] = [[] for _ in ORDERS]
    for seed in range(SEEDS + 1):  # the first decodes the kernel, and does not count
        for (schedule, granularity), runs in zip(ORDERS, found, strict=True):
            options = SimulatorOptions(heap_bytes=32 << 20, schedule=schedule, granularity=granularity, seed=seed)
            world = ThreadWorld(RANKS, options)
            start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            outcomes = world.run(run_case, Plan(case, spec, compiled, launches=2), 600)
            seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
            assert all(outcome.check is not None and not outcome.check.wrong for outcome in outcomes)
            runs.append((seconds, world.counters()["steps"]))
    return [
        (statistics.median(s for s, _ in runs[1:]) * 1e3, statistics.mean(n for _, n in runs[1:])) for runs in found
    ]


def main(arguments):
    sizes = [int(arguments[0])] if arguments else [4 << 10, 256 << 10]
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}; user ms (steps)")
    heads = [f"{schedule}, {granularity}" for schedule, granularity in ORDERS]
    print(f"{'kernel':<18} {'size':>8} " + " ".join(f"{one:>20}" for one in heads) + f" {'access / block':>15}")
    for size_bytes in sizes:
        for name in arguments[1:] or KERNELS:
            found = spent(name, size_bytes)
            shown = " ".join(f"{f'{ms:.0f} ({steps:.0f})':>20}" for ms, steps in found)
            print(f"{name:<18} {size_bytes // 1024:>4} KiB {shown} {found[2][0] / found[1][0]:15.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
