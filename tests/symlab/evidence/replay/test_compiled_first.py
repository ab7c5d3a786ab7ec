"""Kernels that are compiled before cases run again, and what is given up after each case."""

import subprocess
import sys
from pathlib import Path

from reports.record.bundle import read
from runner.case import inputs, reference
from symlab.evidence.audit.worker import Rerun
from symlab.evidence.replay import rerun as rerunning
from symlab.evidence.replay.by_reference import KEPT_UP_TO_BYTES, check_by_reference
from symlab.evidence.replay.compiled_first import compiled_first, kernel_of
from symlab.evidence.replay.rerun import rerun
from tests.patience import NEVER_S

ROOT = Path(__file__).parents[4]
BUNDLE = ROOT / "reports" / "published" / "h200-x4" / "collectives-world1.jsonl.xz"


def of_kernel(name, size_bytes=1024):
    return next(one for one in read([BUNDLE]) if one.case.algorithm == name and one.case.size_bytes == size_bytes)


def test_the_process_that_runs_cases_never_imports_the_compiler(tmp_path):
    program = (
        "import sys; from pathlib import Path; from reports.record.bundle import read\n"
        "from symlab.evidence.replay.compiled_first import compiled_first\n"
        f"records = [one for one in read([{str(BUNDLE)!r}]) if one.case.algorithm == 'bulk'][:1]\n"
        f"late = compiled_first(records, Path({str(tmp_path)!r}), None, lambda text: None)\n"
        "print(len(late), {'cutlass', 'torch'} & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "0 set()\n"
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_what_the_time_does_not_suffice_for_is_named_and_does_not_run(tmp_path, monkeypatch):
    record = of_kernel("bulk")
    assert compiled_first([record], tmp_path, -1.0, print) == {kernel_of(record)}
    monkeypatch.setattr(rerunning, "CACHE", tmp_path)
    monkeypatch.setattr(
        rerunning, "compiled_first", lambda records, *rest: compiled_first(records, tmp_path, -1.0, print)
    )
    found = rerun([record], Rerun(patience_s=NEVER_S), lambda text: None, up_to_bytes=-1)
    assert found.parts.data.stated == [
        (record.id, f"not compiled within half of {NEVER_S:.0f} s, and --rerun has no limit")
    ]
    assert list(tmp_path.iterdir()) == []


def test_inputs_and_references_of_large_cases_are_given_up():
    reference.forget_references()
    for size_bytes, is_kept in ((KEPT_UP_TO_BYTES, True), (1 << 20, False)):
        check_by_reference(of_kernel("pull", size_bytes))
        assert bool(inputs._kept_on_cpu) is is_kept
        assert bool(reference._references._on_cpu) is is_kept
