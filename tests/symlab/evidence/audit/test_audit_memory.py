"""How much memory an audit takes, with all processes that it starts."""

import contextlib
import json
import lzma
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reports.record.bundle import line_of, read
from tests.patience import LOOK_S, NEVER_S

ROOT = Path(__file__).parents[4]
PUBLISHED = sorted((ROOT / "reports" / "published" / "h200-x4").glob("*.jsonl.xz"))
MANY, MOST_KB = 10_000, 500 << 10


PAGE_KB = os.sysconf("SC_PAGE_SIZE") >> 10


def resident_kb(pid, parents=""):
    """The resident memory of a process and of all below it, of which what two of them share counts twice. parents: the
    memory of the process that started it, in pages; a child that has not yet begun its program is still in the same."""
    total = 0
    with contextlib.suppress(OSError):  # it ends
        pages = Path(f"/proc/{pid}/statm").read_text()
        total += int(pages.split()[1]) * PAGE_KB if pages != parents else 0
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += sum(resident_kb(child, pages) for child in (thread / "children").read_text().split())
    return total


def peak_kb(folder, home):
    """The most memory that the audit of a folder has at once, for a user who has compiled nothing yet."""
    words = [sys.executable, "-m", "symlab", "audit", "-o", str(home / "audit.json"), str(folder)]
    dropped = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    audit = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "HOME": str(home)}, **dropped)
    peak, ends_s = 0, time.monotonic() + NEVER_S
    while audit.poll() is None and time.monotonic() < ends_s:
        peak = max(peak, resident_kb(audit.pid))
        time.sleep(LOOK_S)
    audit.kill()
    points = {item["name"]: str(item["points"]) for item in json.loads((home / "audit.json").read_bytes())["items"]}
    assert (audit.returncode, "sources changed" in points["kernels"]) == (1, True), "kernels ran again"
    assert "cases recomputed: " in points["data"]
    return peak


@pytest.mark.slow
def test_ten_thousand_records_need_less_than_500_mb(tmp_path):
    """Published ones, over and over with commands of other names; to half of them digests are invented."""
    records = read(PUBLISHED)
    times = -(-MANY // len(records))
    (folder := tmp_path / "records").mkdir()
    for number in range(times):
        with lzma.open(folder / f"{number}.jsonl.xz", "wt", preset=0) as bundle:
            for one in records:
                request = replace(one.request, command=f"{one.request.command}-{number}")
                check = one.check
                if check is not None and number % 2:
                    ranks = one.case.world_size
                    rows = (("0" * 64,) * check.launches,) * ranks
                    check = replace(check, input_digests=("0" * 64,) * ranks, output_digests=rows)
                changes = {"request": request, "check": check, "duration_s": one.duration_s + number / 1024}
                bundle.write(f"{line_of(replace(one, **changes))}\n")
    (home := tmp_path / "home").mkdir()
    assert peak_kb(folder, home) < MOST_KB
