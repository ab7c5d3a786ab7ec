"""What an H100 gave for rows of the matrix, bit for bit: hardware/h100.json.xz has the digests of all ranks' outputs.

`python -m tests.matrix --gpus --share-gpus --few` wrote them on 2026-11-24 at commit 057e7cb3: two ranks shared one
H100, of a part also four. A simulator that computes other bits, or a kernel that keeps its promise no longer, is found
here without a GPU.
"""

import json
import lzma
from pathlib import Path

import pytest

from kernels import catalogue
from kernels.nvshmem_bitcode import refuses_bitcode
from tests.matrix.cells import all_rows, case_of
from tests.matrix.running import cores, in_processes

FILE = Path(__file__).parent / "hardware" / "h100.json.xz"

EACH = 3
"""Rows of each kernel that a test runs, of the tens or hundreds that the file has."""


@pytest.fixture(scope="module")
def digests():
    return json.loads(lzma.decompress(FILE.read_bytes()))


@pytest.fixture(scope="module")
def rows(digests):
    """Rows that the file has, by kernel."""
    found = {}
    names = {"/".join(id.split("-")[:2]) for id in digests}
    specs = tuple(spec for spec in catalogue.ALL_SPECS if spec.name in names)
    for row in all_rows(specs, (2, 4), few=True):
        if case_of(row).id in digests:
            found.setdefault(row.name, []).append(row)
    return found


def chosen(rows):
    """Few of a kernel's rows, spread over all, and one in which NaNs of float64 are added up, where there is one."""
    nans = [row for row in rows if (row.dtype, row.inputs, row.reduction) == ("float64", "edge", "avg")]
    return list(dict.fromkeys([*nans[:1], *rows[:: max(1, len(rows) // EACH)][:EACH]]))


def test_the_file_has_every_case_that_was_run_with_two_ranks(digests, rows):
    kernels = {"/".join(id.split("-")[:2]) for id in digests}
    assert kernels == set(rows)
    assert len(kernels) == 31
    assert [sum(f"-n{ranks}-" in id for id in digests) for ranks in (2, 4)] == [2966, 485]


@pytest.mark.slow
@pytest.mark.parametrize("by_nvshmem", [False, True], ids=["ours", "nvshmem"])
def test_the_simulator_gives_the_bits_of_an_h100(digests, rows, by_nvshmem):
    """One row of each kernel that calls NVSHMEM, as these take seconds to compile."""
    names = [name for name in rows if bool(catalogue.find(name).nvshmem) is by_nvshmem]
    if by_nvshmem and (absent := refuses_bitcode(names[0], "sm_90a")):
        pytest.skip(str(absent))
    asked = [row for name in names for row in chosen(rows[name])[: 1 if by_nvshmem else None]]
    found = [one for task in in_processes(asked, cores()) for one in task]
    assert {one.status for one in found} == {"PASSED"}
    assert {one.id: one.digest for one in found} == {case_of(row).id: digests[case_of(row).id] for row in asked}
