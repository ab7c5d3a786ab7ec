"""How long an audit of 10,000 records takes, and how much memory: prints a table; no test. The limits are 60 s and
500 MB on two cores.

Half of the records are of cases that run here once, in commands that differ in their deadline; the other half are of
published timings, as further worlds with samples drawn again. All are honest, so the audit has no finding.

    python tests/benchmarks/bench_audit.py [BUNDLE]      # BUNDLE keeps the records, for another time
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cases.record.record import Record  # noqa: E402
from reports.record import bundle  # noqa: E402
from tests.benchmarks.bench_reports import children_s, peak_kib  # noqa: E402

COUNT = 10_000
MOST_OF_A_COMMAND = 300
STEP_US = 0.032
"""The resolution of CUDA events on the published GPUs."""

RUN = (
    "-m",
    "op=all_reduce,all_gather",
    "algorithms=auto",
    "sizes=[64,2K,32K]",
    "dtype=float32,bfloat16",
    "world_size=2",
)


def simulated(folder: Path) -> Iterator[Record]:
    """Records of simulated cases, again and again, in commands with other deadlines."""
    words = [sys.executable, "-m", "symlab", "run", "-q", *RUN, "fabric=simulator", "track=none", f"records={folder}"]
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    members = bundle.read([folder])
    for number in range(COUNT):
        deadline = f"deadline_s={200 + number}"
        for record in members:
            asked = record.request
            configuration = {**(asked.configuration or {}), "deadline_s": 200.0 + number}
            request = replace(
                asked,
                command=f"{moved_name(asked.command, number)}",
                command_line=(*asked.command_line, deadline),
                overrides=(*asked.overrides, deadline),
                configuration=configuration,
            )
            yield later(replace(record, request=request), -timedelta(minutes=number, milliseconds=number))


def timed() -> Iterator[Record]:
    """Published timings in further worlds, with samples drawn again from those that there are."""
    source = np.random.default_rng(0)
    members = bundle.read([ROOT / "reports" / "published" / "h200-x2"])
    for number in range(COUNT):
        for record in members:
            name = f"world-{number}-{record.request.command}"
            made = replace(record, request=replace(record.request, command=name))
            if made.timing is not None:
                rows = np.array(made.timing.samples_us)
                step_us = STEP_US / made.timing.calls_per_sample
                drawn = np.rint(1.05 * np.median(rows) * np.exp(source.normal(0, 0.01, rows.shape)) / step_us) * step_us
                made = replace(made, timing=replace(made.timing, samples_us=tuple(map(tuple, drawn.tolist()))))
            yield later(made, timedelta(hours=2 * number, milliseconds=number))


def moved_name(name: str, number: int) -> str:
    """The name of a command that started so many minutes earlier."""
    started = datetime.strptime(name[:15], "%Y%m%dT%H%M%S") - timedelta(minutes=number)
    return f"{started:%Y%m%dT%H%M%S}{name[15:]}"


def later(record: Record, by: timedelta) -> Record:
    started, ended = (datetime.fromisoformat(text) + by for text in (record.started, record.ended))
    return replace(
        record, started=started.isoformat(timespec="milliseconds"), ended=ended.isoformat(timespec="milliseconds")
    )


def fill(path: Path) -> None:
    """Write COUNT records into a bundle."""
    with tempfile.TemporaryDirectory() as folder:
        half = COUNT // 2
        bundle.write([*whole(simulated(Path(folder) / "records"), half), *whole(timed(), half)], path)


def whole(records: Iterator[Record], count: int) -> list[Record]:
    """The first records, without the last command: it may lack cases."""
    some = list(islice(records, count + MOST_OF_A_COMMAND))
    last = some[-1].request.command
    return [record for record in some if record.request.command != last]


def measure(path: Path) -> None:
    start, cpu_start = time.perf_counter(), children_s()
    command = [sys.executable, "-m", "symlab", "audit", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        most_kib = peak_kib(process)
        assert process.stdout is not None
        said = process.stdout.read().decode().strip().splitlines()
    print(f"{len(bundle.read([path])):,} records: {time.perf_counter() - start:.1f} s, ", end="")
    print(f"{children_s() - cpu_start:.1f} CPU s, {most_kib * 1024 / 1e6:.0f} MB")
    print(*(line.strip() for line in said if " FINDING " in line), *said[-4:], sep="\n")


def main() -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if sys.argv[1:] else Path(folder) / f"records{bundle.SUFFIX}"
        if not path.exists():
            fill(path)
        measure(path)


if __name__ == "__main__":
    main()
