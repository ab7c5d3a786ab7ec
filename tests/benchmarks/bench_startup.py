"""What small things cost that tests must not time: a completion's answer, a page of help, a program in a kept world.

python -m tests.benchmarks.bench_startup: prints a table of medians; no test. CPU time is that of the process, imports
included; a program's time is wall time over 100 of them, which do nothing, in a world of two processes.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runner.world.processes import ProcessWorld
from tests.runner import rank_programs
from tests.runner.rank_programs import FileOpener

TIMES, PROGRAMS = 5, 100
ANSWER = "from symlab.command import main; main(['completion', 'answer', 'bash', 'symlab run +exp=', '='])"


def cpu_s(command: list[str]) -> float:
    """Return the CPU seconds of a process, the median of several."""
    found = []
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(found)


def program_s(folder: Path) -> float:
    """Return the seconds of a program that does nothing in a kept world, the median of several hundreds."""
    world = ProcessWorld(2, FileOpener(str(folder)))
    try:
        found = []
        for _ in range(TIMES):
            begun_s = time.perf_counter()
            for index in range(PROGRAMS):
                world.run(rank_programs.nothing, index, None)
            found.append((time.perf_counter() - begun_s) / PROGRAMS)
        return statistics.median(found)
    finally:
        world.close()


def main() -> None:
    print(f"completion answer       {cpu_s([sys.executable, '-c', ANSWER]):8.3f} s of CPU")
    for module in ("reports", "runner.track"):
        print(f"python -m {module:13} {cpu_s([sys.executable, '-m', module, '--help']):8.3f} s of CPU, --help")
    with tempfile.TemporaryDirectory(prefix="symlab-bench-") as folder:
        print(f"program in a kept world {program_s(Path(folder)) * 1e3:8.3f} ms")


if __name__ == "__main__":
    main()
