"""How much memory an audit and its worker need."""

import contextlib
import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reports.record.bundle import line_of, read
from tests.patience import until

ROOT = Path(__file__).parents[4]
PUBLISHED = sorted((ROOT / "reports" / "published" / "h200-x4").glob("*.jsonl.xz"))
MANY, MOST_KB = 10_000, 500 << 10


def peak_kb(folder):
    """The most memory that the audit of a folder had, and its worker. Nothing runs again."""
    words = ["-m", "symlab", "audit", "--rerun", "0", "--inputs-up-to", "0", str(folder)]
    audit = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = {}

    def has_ended():
        with contextlib.suppress(OSError, StopIteration):  # it ends
            started = Path(f"/proc/{audit.pid}/task/{audit.pid}/children").read_text().split()
            for pid in (str(audit.pid), *started):
                if "symlab" in Path(f"/proc/{pid}/cmdline").read_text():
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                    peaks[pid] = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
        return audit.poll() is not None

    until(has_ended, "the end of the audit")
    assert (audit.returncode, len(peaks)) == (1, 2), "worlds are copies of one another; an audit and a worker"
    return sum(peaks.values())


@pytest.mark.slow
def test_ten_thousand_records_need_less_than_500_mb(tmp_path):
    """Published ones, over and over with commands of other names."""
    records = read(PUBLISHED)
    times = -(-MANY // len(records))
    for number in range(times):
        with lzma.open(tmp_path / f"{number}.jsonl.xz", "wt", preset=0) as bundle:
            for one in records:
                request = replace(one.request, command=f"{one.request.command}-{number}")
                bundle.write(f"{line_of(replace(one, request=request))}\n")
    assert peak_kb(tmp_path) < MOST_KB
