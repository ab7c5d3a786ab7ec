"""What is installed: versions of packages; the CUDA toolkit's compiler and the host's, for kernels of libraries that
are compiled on first use."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from pathlib import Path


def nvcc() -> str | None:
    """Return the path of nvcc: of CUDA_HOME or CUDA_PATH if either is set, else on the path; None if it is missing."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return shutil.which(str(Path(home) / "bin" / "nvcc"))
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def host_compiler() -> str | None:
    """Return the path of the C++ compiler that nvcc calls and that links; None if it is missing."""
    return shutil.which(os.environ.get("CXX", "c++"))


def version_of(package: str) -> str:
    """Return the version of an installed package; "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
