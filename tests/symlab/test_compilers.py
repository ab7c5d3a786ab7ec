"""The examples of simulator/README.md: kernels of other compilers run as it says, where the compiler is installed."""

from __future__ import annotations

import importlib.util
import io
import re
import runpy
import shutil
import tokenize
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import simulator

README = Path(simulator.__file__).parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\*\*([\w ]+)\*\*.*?^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
CUDA = re.findall(r"^```cuda\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def absent(compiler: str) -> str:
    """Why an example can't run here; "" if it can."""
    if compiler == "nvcc":
        return "" if shutil.which("nvcc") else "nvcc is not on PATH"
    package = {"CuTe DSL": "cutlass", "Triton": "triton", "Numba": "numba_cuda"}[compiler]
    return "" if importlib.util.find_spec(package) else f"{package} is not installed"


def promised(code: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [one.string[2:] for one in tokens if one.type == tokenize.COMMENT and "print(" in one.line]


def test_there_is_an_example_of_each_compiler() -> None:
    assert [name for name, _ in EXAMPLES] == ["CuTe DSL", "nvcc", "Triton", "Numba"]
    assert len(CUDA) == 1
    assert all(promised(code) for _, code in EXAMPLES)


@pytest.mark.parametrize(("compiler", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_prints_what_it_says(
    compiler: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := absent(compiler):
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "total.cu").write_text(CUDA[0], encoding="utf-8")
    script = tmp_path / "example.py"  # compilers read the source of their functions
    script.write_text(code, encoding="utf-8")
    printed = io.StringIO()
    with redirect_stdout(printed):
        runpy.run_path(str(script))
    assert printed.getvalue().splitlines() == promised(code)
