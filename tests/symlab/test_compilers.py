"""The examples of simulator/README.md: kernels of other compilers run as it says, where the compiler is installed."""

import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import simulator
from tests.foreign import environment
from tests.foreign.environment import ENVIRONMENT

README = Path(simulator.__file__).parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\*\*([\w ]+)\*\*.*?^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
CUDA = re.findall(r"^```cuda\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


PACKAGES = {"CuTe DSL": "cutlass", "nvcc": "", "Triton": "triton", "Numba": "numba_cuda"}
IN_BOTH = "import runpy, site, sys; sys.argv[2:] and site.addsitedir(sys.argv[2]); runpy.run_path(sys.argv[1])"
"""Our environment's packages come before those of the other one."""


def other_packages():
    """The folder of .venv-foreign's packages, where it was made with this Python."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return [] if environment.absent() else [str(one) for one in ENVIRONMENT.glob(f"lib/{version}/site-packages")]


def absent(compiler):
    """Why an example can't run here; "" if it can."""
    if package := PACKAGES[compiler]:
        is_there = importlib.util.find_spec(package) or any((Path(one) / package).exists() for one in other_packages())
        return "" if is_there else f"{package} is not installed, neither here nor in .venv-foreign (make foreign)"
    reason = environment.absent(needs_host_compiler=True)
    return "" if shutil.which("nvcc") or not reason else f"nvcc is not on PATH, and {reason}"


def promised(code):
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [one.string[2:] for one in tokens if one.type == tokenize.COMMENT and "print(" in one.line]


def test_there_is_an_example_of_each_compiler():
    assert [name for name, _ in EXAMPLES] == ["CuTe DSL", "nvcc", "Triton", "Numba"]
    assert len(CUDA) == 1
    assert all(promised(code) for _, code in EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_prints_what_it_says(compiler, code, tmp_path, monkeypatch):
    if reason := absent(compiler):
        pytest.skip(reason)
    if not environment.absent():
        monkeypatch.setenv("PATH", os.environ["PATH"] + os.pathsep + str(environment.toolkit()))
        monkeypatch.setenv("CUDA_HOME", str(environment.toolkit().parent))  # Numba looks for NVVM there
    (tmp_path / "total.cu").write_text(CUDA[0], encoding="utf-8")
    script = tmp_path / "example.py"  # compilers read the source of their functions
    script.write_text(code, encoding="utf-8")
    command = [sys.executable, "-c", IN_BOTH, str(script), *other_packages()]
    variables = {**os.environ, "PYTHONPATH": str(README.parents[1]), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised(code)
