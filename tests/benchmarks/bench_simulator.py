"""How fast the simulator is, beside Triton's interpreter on the same all-reduce: `make bench`. Prints a table; no test.

1. A one-shot all-reduce of 1 MiB bfloat16 over 8 ranks: the kernel's PTX on all ranks, lane instructions a second of
one
   core (CPU time of the thread that drives the world), and how the time grows with the size.
2. One rank's share of it in Triton's interpreter (TRITON_INTERPRET=1): the fold of 8 buffers. It can't run the
kernel itself:
   it knows one program at a time, and this kernel waits for other GPUs.
3. `python -m runner +exp=allreduce_bf16`, the second time: wall time with imports, and the largest resident set.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANKS = 8
REPEATS = 5
MIB = 1 << 20


def simulated(size_bytes: int) -> tuple[float, int]:
    """Median CPU seconds of one launch on all ranks, and its lane instructions. The data is checked once, before."""
    from cases.case import Case
    from kernels.catalogue import find
    from kernels.compile import executable
    from runner.case.program import Plan, run_case
    from runner.world.threads import ThreadWorld
    from simulator.run import schedule

    spent: list[float] = []
    original = schedule.Scheduler.run

    def timed(self: schedule.Scheduler, batches: list[schedule.Batch]) -> None:
        start = time.thread_time()
        original(self, batches)
        spent.append(time.thread_time() - start)

    case = Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", size_bytes, RANKS)
    spec = find(case.name)
    compiled = executable(spec, case, "sm_90a", Path.home() / ".cache" / "symlab" / "kernels")
    world = ThreadWorld(RANKS)
    outcomes = world.run(run_case, Plan(case, spec, compiled, launches=1), 600)
    assert all(outcome.check is not None and not outcome.check.wrong for outcome in outcomes)
    schedule.Scheduler.run = timed  # type: ignore[method-assign]
    try:
        world.run(run_case, Plan(case, spec, compiled, launches=REPEATS, check=False), 600)
    finally:
        schedule.Scheduler.run = original  # type: ignore[method-assign]
    launches = [one for one in spent if one > 1e-4][-REPEATS:]
    counts = world.counters()
    return statistics.median(launches), counts["instructions"] // counts["of"]["launches"]


def interpreted(block: int) -> float:
    """Median seconds of Triton's interpreter for folding 8 buffers of 1 MiB bfloat16."""
    script = f"""
import statistics, sys, time
import torch, triton
sys.path.insert(0, {str(Path(__file__).parent)!r})
from triton_fold import fold
inputs = torch.randint(-8, 8, ({RANKS}, {MIB // 2})).to(torch.bfloat16)
output = torch.empty({MIB // 2}, dtype=torch.bfloat16)
times = []
for _ in range({REPEATS}):
    start = time.perf_counter()
    fold[(triton.cdiv({MIB // 2}, {block}),)](inputs, output, {MIB // 2}, {RANKS}, {block})
    times.append(time.perf_counter() - start)
assert torch.equal(output, inputs.float().sum(0).to(torch.bfloat16))
print(statistics.median(times))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"Triton's interpreter failed (pip install -c constraints.txt -e '.[bench]'):\n{done.stderr}")
    return float(done.stdout)


def main_job() -> tuple[float, float]:
    """Wall seconds and the largest resident set in MiB of the main job's second run."""
    command = [sys.executable, "-m", "runner", "+exp=allreduce_bf16"]
    with tempfile.TemporaryDirectory() as folder:
        wall, size = 0.0, 0.0
        for _ in range(2):
            start = time.perf_counter()
            with open(os.devnull, "w") as nowhere:
                process = subprocess.Popen(command, cwd=folder, stdout=nowhere)
                _, status, usage = os.wait4(process.pid, 0)
            wall, size = time.perf_counter() - start, usage.ru_maxrss / 1024
            assert os.waitstatus_to_exitcode(status) == 0, "the main job failed"
    return wall, size


def main() -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}")
    print("\nall_reduce/one_shot, bfloat16 with float32, 8 ranks, one launch on all ranks (one core)")
    print(f"{'size':>8} {'CPU ms':>8} {'M lane instr':>13} {'M/s':>6}")
    for size in (MIB // 4, MIB, 4 * MIB):
        seconds, instructions = simulated(size)
        print(
            f"{size // 1024:>5} KiB {seconds * 1e3:8.1f} {instructions / 1e6:13.1f} {instructions / seconds / 1e6:6.0f}"
        )
        if size == MIB:
            share = seconds / RANKS
    print(f"\none rank's share of 1 MiB: {share * 1e3:.1f} ms; Triton's interpreter folding the same:")
    for block in (1024, 8192, 65536):
        seconds = interpreted(block)
        print(f"  block {block:>6}: {seconds * 1e3:8.1f} ms ({seconds / share:.1f} times ours)")
    wall, size_mib = main_job()
    print(f"\n+exp=allreduce_bf16, second run: {wall:.1f} s wall, {size_mib:.0f} MiB resident")


if __name__ == "__main__":
    main()
