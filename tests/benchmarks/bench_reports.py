"""How long a report of 10,000 records takes: `make bench`. Prints a table; no test.

The records are invented, as large as real ones: 4 and 8 ranks, 50 samples a rank, with the environment and the
configuration of a published record. A folder of JSON files, one a record, as a command leaves it, becomes a page:
four ops, two data types, two world sizes, six contestants, 14 sizes, eight worlds.

    python tests/benchmarks/bench_reports.py [FOLDER]     # FOLDER keeps the records, for another time
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from reports import html  # noqa: E402
from reports.record import bundle  # noqa: E402
from reports.record.case import case_id  # noqa: E402
from reports.record.record import Record  # noqa: E402
from tests.reports.synthetic import KIB, record  # noqa: E402

COUNT = 10_000
OPS = {
    "all_reduce": ("one_shot", "two_shot", "lamport", "nccl", "torch/one_shot", "nvshmem"),
    "reduce_scatter": ("pull", "push", "multimem", "nccl", "torch/two_shot", "nvshmem"),
    "all_gather": ("pull", "push", "bulk", "multimem", "nccl", "nvshmem"),
    "all_to_all": ("pull", "push", "bulk", "two_shot", "nccl", "nvshmem"),
}
SIZES = [KIB << power for power in range(14)]


def invented() -> Iterator[Record]:
    """Records one after another, a world a command, as a series of commands makes them."""
    published = bundle.unpacked(ROOT / "reports" / "published" / "h200-x4" / "all_reduce-world1.jsonl.xz")
    real = next(one for one in published if one.timing is not None and one.kernel is not None)
    assert real.timing is not None
    for world in range(9):
        request = replace(real.request, command=f"command{world}")
        for op, algorithms in OPS.items():
            for dtype in ("bfloat16", "float32"):
                for world_size in (4, 8):
                    for algorithm in algorithms:
                        for size_bytes in SIZES:
                            made = record(algorithm, size_bytes, world=world, dtype=dtype, world_size=world_size)
                            case, timing = replace(made.case, op=op), made.timing
                            assert timing is not None
                            yield replace(
                                made,
                                case=case,
                                timing=replace(timing, devices=real.timing.devices * (world_size // 4)),
                                id=case_id(case, made.schema),
                                environment=real.environment,
                                request=replace(request, overrides=(f"op={op}", f"dtype={dtype}")),
                            )


def fill(folder: Path) -> None:
    """Write COUNT records into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, made in zip(range(COUNT), invented(), strict=False):
        (folder / f"{number:05}.json").write_text(made.to_json(), encoding="utf-8")


def timed(name: str, start: float, cpu_start: float) -> None:
    print(f"{name:>28} {time.perf_counter() - start:8.2f} {time.process_time() - cpu_start:8.2f}")


def measure(folder: Path) -> None:
    """Reading, then the page, then both by the command, which starts from nothing."""
    size_mib = sum(path.stat().st_size for path in folder.glob("*.json")) / (1 << 20)
    print(f"\n{COUNT} records in as many files, {size_mib:.0f} MiB")
    print(f"{'':>28} {'wall s':>8} {'CPU s':>8}")
    start, cpu_start = time.perf_counter(), time.process_time()
    records = bundle.read([folder], is_alone=True)
    timed("reading the records", start, cpu_start)
    assert len(records) == COUNT
    start, cpu_start = time.perf_counter(), time.process_time()
    text = html.page(records, is_alone=True)
    timed(f"the page ({len(text) / (1 << 20):.1f} MiB)", start, cpu_start)
    target = folder / "report.html"
    start = time.perf_counter()
    command = [sys.executable, "-m", "reports", "html", str(folder), "-o", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    print(f"{'python -m reports html':>28} {time.perf_counter() - start:8.2f}")
    target.unlink()


def main() -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}")
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        if not folder.is_dir():
            fill(folder)
        measure(folder)
        return
    with tempfile.TemporaryDirectory() as place:
        fill(Path(place))
        measure(Path(place))


if __name__ == "__main__":
    main()
