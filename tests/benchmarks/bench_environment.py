"""What it costs to capture the environment: `python tests/benchmarks/bench_environment.py`. Prints a table; no test.

Each sample is the first capture of a new process, with all modules imported: what a command pays.
Then its parts, in one process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 10

FIRST = """
import time
from runner.environment.capture import capture
start = time.perf_counter()
capture(".")
print(time.perf_counter() - start)
"""


def first_captures() -> list[float]:
    """Milliseconds of the first capture, in new processes."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    commands = [[sys.executable, "-c", FIRST]] * SAMPLES
    runs = [subprocess.run(one, cwd=ROOT, env=environment, capture_output=True, check=True) for one in commands]
    return [1000 * float(run.stdout) for run in runs]


def parts() -> dict[str, float]:
    """Median milliseconds of each part."""
    from runner.environment import gpus, host, packages, repository

    calls = {
        "git": lambda: repository.git(ROOT, {}),
        "digests of sources": lambda: repository.source_digests(ROOT),
        "packages": packages.installed,
        "torch's build": lambda: packages.torch_build({}),
        "host": lambda: host.host({}),
        "GPUs": lambda: gpus.gpus({}),
    }
    found = {}
    for name, call in calls.items():
        spent = []
        for _ in range(SAMPLES):
            start = time.perf_counter()
            call()
            spent.append(1000 * (time.perf_counter() - start))
        found[name] = statistics.median(spent)
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    first = first_captures()
    print(f"first capture: {statistics.median(first):.0f} ms (median of {SAMPLES}), {max(first):.0f} ms at most")
    for part, milliseconds in parts().items():
        print(f"  {part}: {milliseconds:.1f} ms")
