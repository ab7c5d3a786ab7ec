"""Compiling SGLang's kernels: with what, when again, and which files are trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels import sglang, toolkit
from runner.case import library_modules, sglang_build
from runner.case.sglang_build import command, load, main, place_of

NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; fi
if [ -n "$BROKEN" ]; then echo "sglang.cu(3): error: no such type" >&2; exit 2; fi
echo called >> "$(dirname "$0")/calls"
for one in "$@"; do [ "$last" = -o ] && made="$one"; last="$one"; done
echo made > "$made"
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
    monkeypatch.setattr(sglang_build, "end_with_input", lambda: None)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    place_of.cache_clear()
    sglang_build._release.cache_clear()


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines()) if (folder / "calls").exists() else 0


def test_the_compiler_is_given_the_packages_headers_and_the_architecture(installed: Path) -> None:
    given = command("sglang_push", installed / "made.so")
    assert given[0] == str(installed / "nvcc")
    assert "arch=compute_90,code=sm_90" in given
    assert {"-DSYMLAB_PUSH", "-DSGL_CUDA_ARCH=900", f"-I{installed}/sglang/jit_kernel/include"} <= set(given)
    assert str(sglang_build.SOURCE) in given
    assert sglang_build.SOURCE.is_file()
    assert "-DSYMLAB_PULL" in command("sglang_pull", installed / "made.so")


def test_it_is_compiled_once_and_again_when_a_header_changes(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("sglang_push") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"compiled_with": "nvcc 13.0"}
    first = place_of("sglang_push")
    assert first.read_text() == "made\n"
    assert first.stat().st_mode & 0o777 == 0o600
    assert main("sglang_push") == 0
    assert calls(installed) == 1
    assert main("sglang_pull") == 0
    assert calls(installed) == 2
    (installed / "sglang/jit_kernel/include/sgl_kernel/utils.cuh").write_text("// two")
    forget()
    assert main("sglang_push") == 0
    assert calls(installed) == 3
    assert place_of("sglang_push") != first
    assert sorted(one.suffix for one in first.parent.iterdir()) == [".so"] * 3, "nothing half made is left"


def test_what_does_not_compile_leaves_nothing(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(subprocess.CalledProcessError):
        main("sglang_push")
    assert list((installed / "cache").iterdir()) == []


def test_a_file_that_others_can_write_to_is_not_loaded() -> None:
    with pytest.raises(FileNotFoundError):
        load("sglang_push")
    main("sglang_push")
    made = place_of("sglang_push")
    with pytest.raises(OSError, match=r"made|invalid|short|header"):
        load("sglang_push")  # it is none, and it was tried
    made.chmod(0o666)
    with pytest.raises(PermissionError, match="can be written to by other users"):
        load("sglang_push")
    made.chmod(0o600)
    made.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="can be written to by other users"):
        load("sglang_push")


def test_its_own_process_compiles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Any] = []
    monkeypatch.setattr(library_modules, "run_builder", lambda command, module, limit_s: commands.append(command))
    library_modules.compiled.cache_clear()
    try:
        library_modules.compiled("sglang_pull", 1.0)
    finally:
        library_modules.compiled.cache_clear()
    assert commands == [[sys.executable, "-m", "runner.case.sglang_build", "sglang_pull"]]
