"""What an audit and its worker need, and what each timed record adds to that."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.record.bundle import read
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
    assert (audit.returncode, len(peaks)) == (2, 2), "not auditable without reruns; an audit and a worker"
    return sum(peaks.values())


@pytest.mark.slow
def test_ten_thousand_records_need_less_than_500_mb(tmp_path):
    needed = []
    for name, files in (("one world", PUBLISHED[:1]), ("all", PUBLISHED)):
        (folder := tmp_path / name).mkdir()
        for file in files:
            shutil.copy(file, folder)
        needed.append((len(list(read([folder]))), peak_kb(folder)))
    (few, small_kb), (more, large_kb) = needed
    each_kb = (large_kb - small_kb) / (more - few)
    assert large_kb + (MANY - more) * each_kb < MOST_KB
