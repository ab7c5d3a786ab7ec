"""What a job of a sweep costs beside its simulation, by launcher. Prints a table; no test.

python tests/benchmarks/bench_launchers.py [JOBS [LAUNCHER ..]]: 1,000 jobs of one small case each; basic and joblib if
none is named. Commands run one after another, with two workers where the launcher has workers. A job's cost is the time
of the command, times its workers, by the number of jobs, less what its records say that their cases took.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reports.record.bundle import read

JOBS, WORKERS = 1000, 2
CASE = ("world_size=2", "sizes=[64]", "algorithms=[one_shot]", "fabric=simulator", "track=none")
OPTIONS = {"basic": (), "joblib": ("hydra.launcher.n_jobs=2",)}


def measured(launcher, jobs, folder):
    """Return seconds of the command, CPU seconds of all its processes, and milliseconds a job of its cases and beside
    them."""
    lines = [f"hydra/launcher={launcher}", *OPTIONS.get(launcher, ("hydra.launcher.array_parallelism=2",))]
    given = lines if launcher != "basic" else []
    command = [sys.executable, "-m", "symlab", "run", "-q", "-m", *CASE, f"seed=range({jobs})", *given]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_s = time.monotonic()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env={**os.environ})
    seconds = time.monotonic() - start_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    records = read([folder / "records"])
    assert len(records) == jobs, f"{len(records)} records of {jobs} jobs"
    cases_s = sum(record.duration_s for record in records)
    workers = 1 if launcher == "basic" else WORKERS
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu_s, cases_s / jobs * 1e3, (seconds * workers - cases_s) / jobs * 1e3


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else JOBS
    print(f"{number:,} jobs; load of this machine before: {os.getloadavg()[0]:.1f}")
    print(f"{'launcher':<16} {'seconds':>8} {'CPU s':>8} {'case ms':>8} {'beside ms':>10}")
    for name in sys.argv[2:] or ("basic", "joblib"):
        with tempfile.TemporaryDirectory(prefix="symlab-bench-") as made:
            figures = measured(name, number, Path(made))
        print(f"{name:<16} {figures[0]:8.1f} {figures[1]:8.1f} {figures[2]:8.1f} {figures[3]:10.1f}", flush=True)
