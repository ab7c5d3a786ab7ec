"""Whether this machine has NVIDIA's driver; gpus.py asks it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

DRIVER = Path("/proc/driver/nvidia")
"""Where the driver tells of itself."""

LIBRARY = "libnvidia-ml.so.1"


def has_driver(driver: Path = DRIVER, library: str = LIBRARY) -> bool:
    """Return whether there is a driver, or at least its library."""
    if driver.is_dir():
        return True
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def no_gpus(missing: dict[str, str]) -> dict[str, Any]:
    """Return what is captured of GPUs on a machine without a driver."""
    missing["gpus"] = "no driver"
    return {"gpus": None, "cuda_driver": None}
