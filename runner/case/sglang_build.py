"""Compiles SGLang's kernels with our C functions around them (sglang.cu).

The compiled library lies in the user's cache under a digest of all that it is made of: sources, headers, compiler and
architecture.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
from functools import cache
from pathlib import Path

from cases.sglang_sizes import PUSH
from kernels import sglang, toolkit
from kernels.sglang import MODULES
from memory.private_folder import exposure, is_ours, make_private

SOURCE = Path(__file__).with_name("sglang.cu")

CACHE = Path("~/.cache/symlab/libraries")

FLAGS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC", "-shared")
"""SGLang's own, and those of a shared library."""


def build(module: str) -> str:
    """Compile a module unless it is in the cache, and return what it was compiled with. Raises CalledProcessError."""
    made = place_of(module)
    if not made.is_file():
        make_private(made.parent)
        beside = made.with_suffix(f".{os.getpid()}")
        try:
            subprocess.run(command(module, beside), check=True)
            beside.chmod(0o600)
            beside.replace(made)
        finally:
            beside.unlink(missing_ok=True)
    return f"nvcc {_release()}"


def load(module: str) -> ctypes.CDLL:
    """Load a compiled module. OSError if it is missing, or if another user could have written it."""
    made = place_of(module)
    with made.open("rb") as file:
        if exposed := exposure(made.parent):
            raise PermissionError(f"{made.parent} {exposed}")
        if not is_ours(file.fileno()):
            raise PermissionError(f"{made} can be written to by other users")
    return ctypes.CDLL(str(made))


def command(module: str, made: Path) -> list[str]:
    """Return nvcc's command line for a module. ValueError if something that it needs is missing."""
    compiler, sources, headers = _needed()
    major, minor = _capability()
    folders = (sources / "include", sources / "csrc" / "distributed", headers / "include")
    return [
        *(compiler, "-gencode", f"arch=compute_{major}{minor},code=sm_{major}{minor}", *FLAGS),
        f"-DSGL_CUDA_ARCH={major * 100 + minor * 10}",
        "-DSYMLAB_PUSH" if module == MODULES[PUSH] else "-DSYMLAB_PULL",
        *(f"-I{folder}" for folder in folders),
        *("-o", str(made), str(SOURCE)),
        *(f"-L{headers / 'lib'}", "-ltvm_ffi", "-Xlinker", f"-rpath={headers / 'lib'}"),
    ]


@cache
def place_of(module: str) -> Path:
    """Return where a module's library lies in the cache once it is compiled. Raises what command() raises."""
    _, sources, _ = _needed()
    files = [SOURCE, *sorted(one for one in sources.glob("**/*") if one.suffix in (".cuh", ".h"))]
    digest = hashlib.sha256("\0".join([*command(module, Path("made")), _release()]).encode())
    for file in files:
        digest.update(file.read_bytes())
    return CACHE.expanduser() / f"{module}-{digest.hexdigest()[:32]}.so"


def _needed() -> tuple[str, Path, Path]:
    """nvcc, SGLang's sources, and the folder of the headers that these include."""
    compiler, sources, headers = toolkit.nvcc(), sglang.sources(), sglang.tvm_ffi()
    if compiler is None or sources is None or headers is None:
        raise ValueError(sglang.missing())
    return compiler, sources, headers


@cache
def _release() -> str:
    """The compiler's version, such as "13.0"."""
    compiler, _, _ = _needed()
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+\.\d+)", said)
    return found[1] if found else "of unknown version"


def _capability() -> tuple[int, int]:
    """The compute capability of this process's GPU."""
    import torch

    return torch.cuda.get_device_capability()
