"""The names of the types of GPUs that there are. A shell asks for them at each key, so this imports nothing heavy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

CONF = Path(__file__).resolve().parents[2] / "conf"
KEY = "fabric.gpu"
"""The key of a request that names a type."""

SUFFIX = ".yaml"
LEAST_ARCH = 90
"""The number of the oldest architecture that the project's kernels are built for: KernelSpec.archs."""


def gpu_names(folders: Iterable[Path] = (CONF,)) -> list[str]:
    """Return the names of the types that folders of configurations describe in gpu/, in order."""
    return sorted({name for folder in folders for name in _names(folder / "gpu")})


def offered_gpu_names(folders: Iterable[Path] = (CONF,)) -> list[str]:
    """Return the names of the types that the project's kernels are built for: what help and completion offer. A PTX
    file of an older type can be brought for the others."""
    places = list(folders)
    return [name for name in gpu_names(places) if not any(_is_older(one / "gpu" / f"{name}{SUFFIX}") for one in places)]


def _is_older(path: Path) -> bool:
    """Whether a file says an architecture before LEAST_ARCH."""
    try:
        found = re.search(r"^\s*arch:.*?\bsm_(\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return False
    return found is not None and int(found[1]) < LEAST_ARCH


def _names(folder: Path) -> list[str]:
    """The names of the files of a folder; none where there is no folder."""
    try:
        return [name.removesuffix(SUFFIX) for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except OSError:
        return []
