"""What flashinfer's all-reduces are refused for, how their data is shown to them, and what an installation lacks."""

import dataclasses
import importlib.metadata
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from cases.case import Case
from kernels import flashinfer
from kernels.baselines import find_baseline, library_of, refuses_baseline
from kernels.flashinfer import (
    MODULES,
    TRTLLM_LAMPORT,
    TRTLLM_MODULE,
    TRTLLM_TWO_SHOT,
    VLLM_MODULE,
    VLLM_ONE_SHOT,
    VLLM_TWO_SHOT,
    Rows,
    rows_of,
    vllm_stages,
)
from memory.fabric import Traits
from tests.golden import same_text

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """flashinfer is there with all its tools, as far as a machine can tell."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.7.2")
    monkeypatch.setattr(flashinfer.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{Path(name).name}")


def reason(name, size_bytes, world_size=2, dtype="bfloat16", **changes):
    traits = Traits("nvshmem", "sm_90a", world_size, 8 << 30, False, "no switch")
    baseline = find_baseline(name)
    case = Case("all_reduce", name, dtype, "library", "sum", size_bytes, world_size, **changes)
    found = refuses_baseline(baseline, case, traits)
    return None if found is None else f"{found.key}: {found}"


@pytest.mark.parametrize(
    ("world_size", "size_bytes", "stages"),
    [
        *((ranks, size, 1) for ranks, size in ((2, KIB), (2, 256 * MIB), (4, 512 * KIB - 16), (6, 256 * KIB - 16))),
        (4, 512 * KIB, 2),
        (8, 256 * KIB, 2),
    ],
)
def test_the_library_chooses_how_many_stages(world_size, size_bytes, stages):
    assert vllm_stages(world_size, size_bytes) == stages
    runs, other = (VLLM_ONE_SHOT, VLLM_TWO_SHOT) if stages == 1 else (VLLM_TWO_SHOT, VLLM_ONE_SHOT)
    assert reason(runs, size_bytes, world_size) is None
    assert reason(other, size_bytes, world_size) == (
        f"sizes: {other} is not what the library runs for {size_bytes} bytes on {world_size} ranks: there it takes "
        f"{runs}"
    )


@pytest.mark.parametrize(
    ("size_bytes", "world_size", "one_shot", "two_shot"),
    [
        (16, 2, Rows(1, 1), None),
        (KIB, 2, Rows(1, 64), Rows(4, 16)),
        (16 * KIB, 2, Rows(1, 1024), Rows(4, 256)),
        (64 * KIB, 2, Rows(4, 1024), Rows(4, 1024)),
        (64 * KIB, 8, Rows(4, 1024), Rows(16, 256)),
        (16 * 4093, 2, None, None),
        (3 * 16 * KIB, 2, Rows(3, 1024), Rows(3, 1024)),
        (48 * 1000, 2, Rows(3, 1000), Rows(3, 1000)),
        (256 * MIB, 2, Rows(16384, 1024), Rows(16384, 1024)),
    ],
)
def test_rows_are_as_long_as_the_kernels_take(size_bytes, world_size, one_shot, two_shot):
    for found, fewest in ((rows_of(size_bytes, world_size, True), 1), (rows_of(size_bytes, world_size, False), 3)):
        if found is not None:
            assert found.count * found.vectors * 16 == size_bytes
            assert found.count >= fewest
            assert found.elements(2) == 8 * found.vectors
    assert rows_of(size_bytes, world_size, True) == one_shot
    assert rows_of(size_bytes, world_size, False) == two_shot


@pytest.mark.parametrize("name", MODULES)
def test_what_none_of_them_takes(name):
    for changes in (
        {"dtype": "float64"},
        {"size_bytes": 1000},
        {"placement": "in_place"},
        {"inputs": "edge"},
        {"size_bytes": 2 << 30},
        {"world_size": 3},
    ):
        same_text(str(reason(name, **({"size_bytes": 16 * KIB} | changes))))


def test_float16_has_no_subnormal_numbers_that_float32_lacks():
    assert reason(VLLM_ONE_SHOT, KIB, dtype="float16", inputs="edge") is None
    assert reason(TRTLLM_LAMPORT, KIB, dtype="float32", inputs="edge") is not None


def test_trtllms_workspace_has_an_end_and_its_rows_fit():
    for name in (TRTLLM_LAMPORT, TRTLLM_TWO_SHOT):
        assert reason(name, 256 * MIB) is None
        same_text(str(reason(name, 512 * MIB)))
        same_text(str(reason(name, 16 * 4093)))
    assert reason(TRTLLM_LAMPORT, 16) is None
    assert reason(TRTLLM_TWO_SHOT, 16) is not None


@pytest.mark.parametrize("tool", ["nvcc", "ninja", "c++"])
@pytest.mark.parametrize("name", MODULES)
def test_a_tool_that_is_missing_is_named(name, tool, monkeypatch):
    present = shutil.which
    monkeypatch.setattr(shutil, "which", lambda one: None if Path(one).name == tool else present(one))
    called = "a C++ compiler" if tool == "c++" else tool
    assert reason(name, KIB) == (
        f"baselines: {name} is unavailable: flashinfer compiles {MODULES[name]}, and {called} is missing"
    )


def test_nvcc_is_looked_for_where_flashinfer_does(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(shutil, "which", lambda name: asked.append(name) or "there")
    for home, wanted in (("CUDA_PATH", "/path/bin/nvcc"), ("CUDA_HOME", "/home/bin/nvcc")):
        monkeypatch.setenv(home, wanted.removesuffix("/bin/nvcc"))
        assert flashinfer.missing(VLLM_MODULE) == ""
        assert wanted in asked
    monkeypatch.setenv("FLASHINFER_NVCC", "/mine/nvcc")
    assert flashinfer.missing(VLLM_MODULE) == ""
    assert "/mine/nvcc" in asked


def test_modules_that_are_brought_compiled_need_no_tools(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(flashinfer.importlib.util, "find_spec", lambda name: package if name == "flashinfer" else None)
    assert flashinfer.missing(VLLM_MODULE) == "flashinfer compiles vllm_comm, and nvcc is missing"
    made = tmp_path / "data" / "aot" / VLLM_MODULE / "vllm_comm.so"
    made.parent.mkdir(parents=True)
    made.touch()
    assert flashinfer.missing(VLLM_MODULE) == ""
    assert flashinfer.missing(TRTLLM_MODULE) != ""
    monkeypatch.setattr(flashinfer.importlib.util, "find_spec", lambda name: package)
    assert flashinfer.missing(TRTLLM_MODULE) == "", "a package of compiled modules is installed"


def test_without_flashinfer_it_says_so(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert reason(VLLM_ONE_SHOT, KIB) == (
        "baselines: flashinfer/vllm_one_shot is unavailable: flashinfer-python is not installed"
    )


def test_records_name_the_version_and_what_compiled_it():
    traits = Traits("nvshmem", "sm_90a", 2, 1 << 30, False)
    assert library_of(VLLM_ONE_SHOT, traits, "PyTorch 2.11.0, nvcc 13.0") == (
        "flashinfer 0.7.2 (PyTorch 2.11.0, nvcc 13.0)"
    )
    assert library_of(VLLM_ONE_SHOT, traits) == "flashinfer 0.7.2"
    assert library_of(TRTLLM_LAMPORT, traits) == "flashinfer 0.7.2 (dependent launch)"


def test_ranks_that_do_not_reach_each_other_are_refused():
    baseline = find_baseline(VLLM_ONE_SHOT)
    traits = dataclasses.replace(Traits("nvshmem", "sm_90a", 2, 1 << 30, False), unmapped="rank 0 can't reach rank 1")
    case = Case("all_reduce", VLLM_ONE_SHOT, "bfloat16", "library", "sum", KIB, 2)
    assert "rank 0 can't reach rank 1" in str(refuses_baseline(baseline, case, traits))
