"""Compiling SGLang's kernels: with what, when again, and which files are trusted."""

import ctypes
import re
import subprocess

import pytest
import torch

from cases import sglang_sizes
from kernels import sglang, toolkit
from runner.case import sglang_build
from runner.case.sglang_build import build, command, load, place_of
from runner.request.experiments import CONF
from tests.golden import refused

NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; fi
if [ -n "$BROKEN" ]; then echo "sglang.cu(3): error: no such type" >&2; exit 2; fi
echo called >> "$(dirname "$0")/calls"
for one in "$@"; do [ "$last" = -o ] && made="$one"; last="$one"; done
echo made > "$made"
"""


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """A compiler that only writes down that it was called, and packages with one header."""
    sources = tmp_path / "sglang" / "jit_kernel"
    header = sources / "include" / "sgl_kernel" / "utils.cuh"
    header.parent.mkdir(parents=True)
    header.write_text("// one")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    monkeypatch.setattr(sglang, "sources", lambda: sources)
    monkeypatch.setattr(sglang, "tvm_ffi", lambda: tmp_path / "tvm_ffi")
    monkeypatch.setattr(toolkit, "nvcc", lambda: str(nvcc))
    monkeypatch.setattr(sglang_build, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(sglang_build, "_capability", lambda: (9, 0))
    forget()
    yield tmp_path
    forget()


def forget():
    place_of.cache_clear()
    sglang_build._release.cache_clear()


def calls(folder):
    return len((folder / "calls").read_text().splitlines()) if (folder / "calls").exists() else 0


def test_the_compiler_is_given_the_packages_headers_and_the_architecture(installed):
    given = command("sglang_push", installed / "made.so")
    assert given[0] == str(installed / "nvcc")
    assert "arch=compute_90,code=sm_90" in given
    assert {"-DSYMLAB_PUSH", "-DSGL_CUDA_ARCH=900", f"-I{installed}/sglang/jit_kernel/include"} <= set(given)
    assert str(sglang_build.SOURCE) in given
    assert sglang_build.SOURCE.is_file()
    assert "-DSYMLAB_PULL" in command("sglang_pull", installed / "made.so")


def test_it_is_compiled_once_and_again_when_a_header_changes(installed):
    assert build("sglang_push") == "nvcc 13.0"
    first = place_of("sglang_push")
    assert first.read_text() == "made\n"
    assert first.stat().st_mode & 0o777 == 0o600
    build("sglang_push")
    assert calls(installed) == 1
    build("sglang_pull")
    assert calls(installed) == 2
    (installed / "sglang/jit_kernel/include/sgl_kernel/utils.cuh").write_text("// two")
    forget()
    build("sglang_push")
    assert calls(installed) == 3
    assert place_of("sglang_push") != first
    assert sorted(one.suffix for one in first.parent.iterdir()) == [".so"] * 3, "nothing half made is left"


def test_what_does_not_compile_leaves_nothing(installed, monkeypatch):
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(subprocess.CalledProcessError):
        build("sglang_push")
    assert list((installed / "cache").iterdir()) == []


def test_a_file_that_others_can_write_to_is_not_loaded():
    with pytest.raises(FileNotFoundError):
        load("sglang_push")
    build("sglang_push")
    made = place_of("sglang_push")
    with pytest.raises(OSError, match=r"made|invalid|short|header"):
        load("sglang_push")  # it is none, and it was tried
    made.chmod(0o666)
    with refused(PermissionError, r"(?<=sglang_push-)\w+"):
        load("sglang_push")
    made.chmod(0o600)
    made.parent.chmod(0o777)
    with refused(PermissionError, r"(?<=sglang_push-)\w+"):
        load("sglang_push")


FOREIGN = sorted(CONF.parent.glob(".venv-foreign/lib/python3*/site-packages/sglang"))
needs_sglang = pytest.mark.skipif(not FOREIGN, reason="sglang is not installed in .venv-foreign (make foreign)")


@needs_sglang
def test_the_table_has_sglangs_own_thresholds_and_grids():
    distributed = FOREIGN[-1] / "jit_kernel" / "csrc" / "distributed"
    push, pull = (
        (distributed / f"custom_all_reduce_{one}.cuh").read_text(encoding="utf-8") for one in ("push", "pull")
    )
    assert "for (const auto t : {128u, 256u, 512u}) {" in push
    assert "if (t * num_blocks * 2 * kVecSize >= num_items) return t;" in push
    assert sglang.PUSH_THREADS == (128, 256, 512, 1024)
    assert "const auto output = input;" in push, "it works in place"
    assert "const auto num_blocks = std::min(needed_blocks, m_num_cta);" in pull
    python = (FOREIGN[-1] / "jit_kernel" / "all_reduce.py").read_text(encoding="utf-8")
    assert f"MAX_THREADS = {sglang.PULL_THREADS}" in python
    place = FOREIGN[-1] / "srt/distributed/device_communicators/custom_all_reduce_v2.py"
    text = place.read_text(encoding="utf-8")
    blackwell, hopper = (
        {
            int(ranks): int(number) << (20 if unit == "MB" else 10)
            for ranks, number, unit in re.findall(r"(\d): ModeConfig\((\d+) \* (KB|MB)", part)
        }
        for part in text.partition("if is_sm100_supported():")[2].split("else:")[:2]
    )
    assert {ranks: hopper[ranks] for ranks in sglang_sizes.WORLD_SIZES} == sglang_sizes.PUSH_BYTES
    assert {ranks: blackwell[ranks] for ranks in sglang_sizes.WORLD_SIZES} == sglang_sizes.PUSH_BYTES_SM100
    assert "max_pull_size = 16 * 1024 * 1024" in text
    assert sglang_sizes.MOST_BYTES == 16 << 20
    assert "2: ModeConfig(2 * MB, INF)" in text, "on two ranks every pull is in one shot"


@needs_sglang
@pytest.mark.slow
@pytest.mark.parametrize("module", sorted(sglang.MODULES.values()))
def test_our_functions_compile_with_sglangs_headers(module, installed, monkeypatch):
    """For Hopper, by the nvcc of .venv-foreign: every dtype and number of ranks has its kernel, and nothing else."""
    packages = FOREIGN[-1].parent
    toolkit_home = packages / "nvidia" / "cu13"
    monkeypatch.setattr(sglang, "sources", lambda: FOREIGN[-1] / "jit_kernel")
    monkeypatch.setattr(sglang, "tvm_ffi", lambda: packages / "tvm_ffi")
    monkeypatch.setattr(toolkit, "nvcc", lambda: str(toolkit_home / "bin" / "nvcc"))
    monkeypatch.setenv("LIBRARY_PATH", str(toolkit_home / "lib"))
    forget()
    build(module)
    library = load(module)
    addresses, null = (ctypes.c_void_p * 8)(*[4096] * 8), ctypes.c_void_p(0)

    def status(type_, ranks):
        if module == sglang.MODULES[sglang_sizes.PUSH]:
            given = (type_, ranks, 0, addresses, null, null, null, 512, 2 << 20, 132, 128, null)
            return int(library.symlab_push(*given))
        return int(library.symlab_pull(type_, ranks, 0, 2, addresses, null, null, 512, 1, 512, null))

    invalid = 1  # cudaErrorInvalidValue: there is no such kernel; else this machine has no driver, or takes the launch
    assert {status(type_, ranks) for type_, ranks in ((3, 2), (0, 3), (0, 9))} == {invalid}
    if not torch.cuda.is_available():
        assert invalid not in {status(type_, ranks) for type_ in range(3) for ranks in sglang_sizes.WORLD_SIZES}
