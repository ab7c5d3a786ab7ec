"""How long a report of 10,000 records takes, and how much memory: `make bench`. Prints a table; no test.

The records are invented, as large as real ones: 4 and 8 ranks, 50 samples a rank, with the configuration of a
published record and an environment of 150 packages. A folder of JSON files, one a record, as a command leaves it,
becomes a page: four ops, two data types, two world sizes, six contestants, 14 sizes, eight worlds. Memory is that of
all processes of the command, shared pages counted once. The limits are 10 s and 500 MB on two cores.

    python tests/benchmarks/bench_reports.py [FOLDER]      # FOLDER keeps the records, for another time
"""

import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cases.record.shared import References, is_shared_file, shared_path  # noqa: E402
from reports import html  # noqa: E402
from reports.record import bundle  # noqa: E402
from tests.reports.synthetic import KIB, record  # noqa: E402

COUNT = 10_000
OPS = {
    "all_reduce": ("one_shot", "two_shot", "lamport", "nccl", "torch/one_shot", "nvshmem"),
    "reduce_scatter": ("pull", "push", "multimem", "nccl", "torch/two_shot", "nvshmem"),
    "all_gather": ("pull", "push", "bulk", "multimem", "nccl", "nvshmem"),
    "all_to_all": ("pull", "push", "bulk", "two_shot", "nccl", "nvshmem"),
}
SIZES = [KIB << power for power in range(14)]


def invented():
    """Records one after another, a world a command, as a series of commands makes them."""
    published = bundle.unpacked(ROOT / "reports" / "published" / "h200-x4" / "all_reduce-world1.jsonl.xz")
    real = next(one for one in published if one.timing is not None and one.kernel is not None)
    assert real.timing is not None
    packages = {f"package-{number}": f"1.{number}.0" for number in range(150)}
    environment = replace(real.environment, packages={**(real.environment.packages or {}), **packages})
    for world in range(9):
        request = replace(real.request, command=f"command{world}")
        for op, algorithms in OPS.items():
            for dtype in ("bfloat16", "float32"):
                for world_size in (4, 8):
                    for algorithm in algorithms:
                        for size_bytes in SIZES:
                            made = record(algorithm, size_bytes, world=world, dtype=dtype, world_size=world_size)
                            case, timing = replace(made.case, op=op), made.timing
                            yield replace(
                                made,
                                case=case,
                                timing=replace(timing, devices=real.timing.devices * (world_size // 4)),
                                id=case.id,
                                environment=environment,
                                request=replace(request, overrides=(f"op={op}", f"dtype={dtype}")),
                            )


def fill(folder):
    """Write COUNT records into the folder."""
    references = References()
    (folder / "shared").mkdir(parents=True, exist_ok=True)
    for number, made in zip(range(COUNT), invented(), strict=False):
        (folder / f"{number:05}.json").write_text(made.referring(references), encoding="utf-8")
    for digest, text in references.texts.items():
        (folder / shared_path(digest)).write_text(text, encoding="utf-8")


def timed(name, start, cpu_start):
    print(f"{name:>28} {time.perf_counter() - start:8.2f} {time.process_time() - cpu_start:8.2f}")


def measure(folder):
    """Reading, then the page, then both by the command, which starts from nothing."""
    size_mib = sum(path.stat().st_size for path in folder.rglob("*.json")) / (1 << 20)
    count = sum(not is_shared_file(path) for path in folder.rglob("*.json"))
    print(f"\n{count} records in as many files, {size_mib:.0f} MiB")
    print(f"{'':>28} {'wall s':>8} {'CPU s':>8}")
    start, cpu_start = time.perf_counter(), time.process_time()
    records = bundle.read([folder])
    timed("reading the records", start, cpu_start)
    start, cpu_start = time.perf_counter(), time.process_time()
    text = html.page(records)
    timed(f"the page ({len(text) / (1 << 20):.1f} MiB)", start, cpu_start)
    target = folder / "report.html"
    start, cpu_start = time.perf_counter(), children_s()
    command = [sys.executable, "-m", "reports", "html", str(folder), "-o", str(target)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        most_kib = peak_kib(process)
    assert process.returncode == 0
    print(f"{'python -m reports html':>28} {time.perf_counter() - start:8.2f} {children_s() - cpu_start:8.2f}")
    print(f"{'its memory':>28} {most_kib * 1024 / 1e6:8.0f} MB")
    target.unlink()


def children_s():
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_kib(process):
    """The most memory that a process and its children have at once, shared pages counted once, until it ends."""
    most = 0
    while process.poll() is None:
        most = max(most, sum(map(proportional_kib, family(process.pid))))
        time.sleep(0.05)
    return most


def family(pid):
    """A process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in map(int, children) for one in family(child))]


def proportional_kib(pid):
    """The memory of a process; a page that several processes share counts in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def main():
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(sys.argv[1] if sys.argv[1:] else f"{place}/records")
        if not folder.is_dir():
            fill(folder)
        measure(folder)


if __name__ == "__main__":
    main()
