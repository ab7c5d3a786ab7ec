"""Where a run took place: what a reader of its records may need, as far as it is available here.

Read, never guessed: "not_captured" lists what was unavailable and why, so that a gap can't be
taken for a fact. Of the process environment only variables of an allow-list are kept, and of those no value that
looks like a secret; the rest is only counted. Names of people and of home folders stay out, but for the user's login
name.

What only ranks on GPUs know (their devices, the libraries as loaded) a world adds when it starts:
runner.environment.gpus.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner.environment.driver import has_driver, no_gpus
from runner.environment.host import host, launch
from runner.environment.packages import installed, torch_build
from runner.environment.repository import git, source_digests
from runner.records.scrub import WITHHELD, is_secret, scrubbed

ALLOWED = ("NCCL_", "NVSHMEM_", "CUDA_", "TORCH_", "CUTE_", "SLURM_", "TORCHELASTIC_")
"""Beginnings of the names of variables whose values are kept."""

ALLOWED_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS", "LD_PRELOAD")
"""Variables whose values are kept beside those: what torchrun says, and which libraries come before all others."""

LOOKS_SECRET = f"{WITHHELD}: looks like a secret"

_kept: dict[Path, dict[str, Any]] = {}
_lock = threading.Lock()


def capture(root: Path | str) -> dict[str, Any]:
    """What surrounds this process, as plain JSON values; root is the project's folder. Read once a process and root.

    git.diff is the text of the changes, which no record is to hold: it is kept beside them, see Store.write_difference.
    """
    root = Path(root).absolute()
    with _lock:
        if root not in _kept:
            _kept[root] = _capture(root)
        return _kept[root]


def _gpus(missing: dict[str, str]) -> dict[str, Any]:
    if not has_driver():
        return no_gpus(missing)
    from runner.environment.gpus import gpus

    return gpus(missing)


def _capture(root: Path) -> dict[str, Any]:
    missing: dict[str, str] = {}
    with ThreadPoolExecutor(1) as pool:
        repository = pool.submit(git, root, missing)  # mostly waiting, for git
        found = {
            "python": {
                "version": platform.python_version(),
                "implementation": platform.python_implementation(),
                "prefix_is_virtual": sys.prefix != sys.base_prefix,
            },
            "torch": torch_build(missing),
            "packages": installed(),
            "sources": source_digests(root),
            "host": host(missing),
            **_gpus(missing),
            "launch": launch(os.environ),
            "variables": variables(os.environ),
        }
        return {"git": repository.result(), **found, "not_captured": missing}


def variables(environment: Mapping[str, str]) -> dict[str, Any]:
    """The allowed variables with their values, secrets replaced, home folders as ~; of all others only their
    number."""
    kept = {}
    for name, value in sorted(environment.items()):
        if name.startswith(ALLOWED) or name in ALLOWED_NAMES:
            kept[name] = LOOKS_SECRET if is_secret(name, value) else scrubbed(value)
    return {"allowed": kept, "withheld": len(environment) - len(kept)}
