"""The names of the types of GPUs that there are. A shell asks for them at each key, so this imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

CONF = Path(__file__).resolve().parents[2] / "conf"
"""The folder of configurations, which lies beside runner/."""

KEY = "fabric.gpu"
"""The key of a request that names a type."""

SUFFIX = ".yaml"


def gpu_names(folders: Iterable[Path] = (CONF,)) -> list[str]:
    """Return the names of the types that folders of configurations describe in gpu/, in order."""
    return sorted({name for folder in folders for name in names_in(folder / "gpu")})


def names_in(folder: Path) -> list[str]:
    """Return the names of the files of a folder of configurations, in order; none where there is no folder."""
    try:
        return sorted(name.removesuffix(SUFFIX) for name in os.listdir(folder) if name.endswith(SUFFIX))
    except OSError:
        return []
