"""What is installed: every distribution with its version, and how torch was built. Nothing is imported for it.

Versions are read off the names of the folders that installers leave, which takes a file system milliseconds; opening
each distribution's metadata takes half a second.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WATCHED = (
    "torch",
    "numpy",
    "ml_dtypes",
    "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-core",
    "nvidia-cutlass-dsl-libs-cu12",
    "nvidia-cutlass-dsl-libs-cu13",
    "cuda-python",
    "cuda-bindings",
    "cuda-core",
    "nvshmem4py-cu13",
    "nvidia-nvshmem-cu13",
    "nvidia-nccl-cu13",
    "triton",
    "hydra-core",
    "omegaconf",
    "mlflow",
    "mlflow-skinny",
    "rich",
    "symlab",
)
"""Distributions whose version can change a result or how it is kept; null in a record says: not installed."""

_FOLDER = re.compile(r"(?P<name>.+?)(?:-(?P<version>\d[^-]*)(?:-py[\d.]+)?)?\.(?:dist|egg)-info")
_ASSIGNED = re.compile(r"^(?P<name>\w+)(?:\s*:[^=]*)?\s*=\s*(?P<value>.+)$", re.MULTILINE)


def installed(paths: Sequence[str] | None = None) -> dict[str, str | None]:
    """Versions by name: the watched ones first, None where one is not installed, then all others by name.

    Of a distribution that is there twice the first on the path counts, as for imports; paths is sys.path by default.
    """
    found: dict[str, str] = {}
    for path in sys.path if paths is None else paths:
        for name, version in _in_folder(path or "."):
            found.setdefault(name, version)
    watched = {name: found.pop(canonical(name), None) for name in WATCHED}
    return watched | dict(sorted(found.items()))


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it: in small letters, with dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def torch_build(missing: dict[str, str]) -> dict[str, Any] | None:
    """torch's version, the commit it was made of, and the CUDA it was made for (None: for CPUs), from its version.py.

    The versions of cuDNN and NCCL that it loads are those of their distributions; ranks on GPUs say what they have.
    """
    try:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            missing["torch"] = "not installed"
            return None
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except (OSError, ValueError, ImportError) as error:
        missing["torch"] = str(error)
        return None
    values: dict[str, Any] = {}
    for match in _ASSIGNED.finditer(text):
        try:
            values[match["name"]] = ast.literal_eval(match["value"])
        except (ValueError, SyntaxError):
            continue
    found = {"version": values.get("__version__")}
    return found | {name: values.get(name) for name in ("git_version", "cuda", "hip", "debug")}


def _in_folder(path: str) -> list[tuple[str, str]]:
    """Name and version of what is installed in one folder; nothing of what is no folder."""
    found = []
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith("-info"))
    except OSError:
        return []
    for name in names:
        match = _FOLDER.fullmatch(name)
        if match is None:
            continue
        version = match["version"] or _version_within(Path(path) / name)
        if version:
            found.append((canonical(match["name"]), version))
    return found


def _version_within(folder: Path) -> str:
    """The version that the metadata says, where the folder's name has none; "" where they don't."""
    for name in ("METADATA", "PKG-INFO"):
        try:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
        if match:
            return match[1]
    return ""
