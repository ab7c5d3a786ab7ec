"""Kernels on NVSHMEM's device functions in the simulator: right and clean, and what is said of each mistake.

They are compiled with the bitcode of nvidia-nvshmem-cu13, which `make foreign` installs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import symlab
from kernels.catalogue import NVSHMEM_NAMES
from kernels.nvshmem_bitcode import bitcode
from symlab.command import main

MISTAKEN = Path(__file__).with_name("nvshmem_sabotaged.py")
FOUND = bitcode("sm_90a")
ABSENT = "" if FOUND and FOUND.version.startswith("3.8.") else "there is no bitcode of NVSHMEM 3.8 (make foreign)"

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.skipif(bool(ABSENT), reason=ABSENT)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cache")
    made.chmod(0o700)
    return made


def ended(name: str, cache: Path) -> symlab.Run:
    kernel = symlab.kernel(f"{MISTAKEN}:{name}")
    case = symlab.case(kernel, size_bytes="1K", ranks=2)
    return symlab.run(case, kernel=kernel, races=True, cache_dir=cache)


def test_without_a_mistake_the_kernel_is_right_and_clean(cache: Path) -> None:
    done = ended("RIGHT", cache)
    assert (done.status, done.reason) == ("PASSED", "")


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("OVERTAKEN", "output"), ("UNREAD", "output"), ("REUSED", "output")],
    ids=["a signal that overtakes a put", "data read before its signal", "a buffer that is reused"],
)
def test_a_mistake_is_a_race(name: str, tensor: str, cache: Path) -> None:
    done = ended(name, cache)
    assert done.status == "WRONG"
    assert done.reason.startswith("race: ")
    assert f"of {tensor} by rank" in done.reason


def test_a_signal_that_is_missing_is_a_deadlock_that_says_whose_and_what_is_expected(cache: Path) -> None:
    done = ended("SILENT", cache)
    assert done.status == "DEADLOCK"
    assert "rank 1, block 0, thread 0 spins: sees 0 at 0x" in done.reason
    assert "byte 264 of tensor 'words'" in done.reason
    assert "compared with 1 (setp.eq.b64)" in done.reason


def test_the_collective_of_thirty_lines_is_right_and_clean(cache: Path, tmp_path: Path) -> None:
    """The page's own text."""
    readme = Path(__file__).parents[2] / "kernels" / "README.md"
    code = readme.read_text(encoding="utf-8").split("```python next.py\n")[1].split("```")[0]
    assert len(code.strip().splitlines()) < 40
    file = tmp_path / "next.py"
    file.write_text(code, encoding="utf-8")
    kernel = symlab.kernel(f"{file}:SPEC")
    case = symlab.case(kernel, size_bytes="1K", ranks=3)
    done = symlab.run(case, kernel=kernel, races=True, cache_dir=cache)
    assert (done.status, done.reason) == ("PASSED", "")


def test_the_experiment_runs_one_algorithm_of_each_op(cache: Path, tmp_path: Path) -> None:
    where = [f"records={tmp_path / 'records'}", f"cache_dir={cache}", "track=none"]
    assert main(["run", "+exp=device_nvshmem", *where]) == 0
    found = symlab.records(tmp_path / "records")
    assert sorted(f"{one.case.op}/{one.case.algorithm}" for one in found) == sorted(NVSHMEM_NAMES)
    assert {str(one.status) for one in found} == {"PASSED"}, "right, and no race"
