"""NCCL as it is in a process, or in a file: the version that the library itself names.

torch names the version that it was built with, which says nothing of a library that was preloaded in its place.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAPS = Path("/proc/self/maps")
"""What is mapped into this process, and from which files."""

NUMBERED_AS_TODAY = 10_000
"""From 2.9 on a version is major * 10000 + minor * 100 + patch; before, it was major * 1000 + minor * 100 + patch."""

ASKING = "import sys; from memory.nccl import version_at; print(version_at(sys.argv[1]))"

ASKING_S = 60.0
"""How long a library may take to be loaded and to answer: it has some hundred megabytes."""


def loaded_version() -> str:
    """Return the version of the NCCL that calls of this process reach, such as "2.28.9"; "" if none is loaded.

    It is that of the function that the process's global names give, which is what torch was linked with: of two
    libraries the one that was preloaded. If NCCL is not among them, it is that of the mapped file.
    """
    for library in (None, *_mapped()):
        version = version_at(library)
        if version:
            return version
    return ""


def version_at(library: str | None) -> str:
    """Return the version that a file's NCCL names, None standing for this process's global names; "" if it has none."""
    try:
        ask = ctypes.CDLL(library).ncclGetVersion
    except (OSError, AttributeError):
        return ""
    number = ctypes.c_int()
    return version_text(number.value) if ask(ctypes.byref(number)) == 0 else ""


def version_of_file(path: Path) -> str:
    """Return the version that a file's NCCL names, "" if it is none; a process of its own loads it."""
    done = subprocess.run(
        [sys.executable, "-c", ASKING, str(path)],
        capture_output=True,
        text=True,
        timeout=ASKING_S,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def version_text(number: int) -> str:
    """Return a version from NCCL's number for it: "2.28.9" from 22809."""
    thousand = 10_000 if number >= NUMBERED_AS_TODAY else 1000
    return f"{number // thousand}.{number % thousand // 100}.{number % 100}"


def _mapped() -> Iterator[str]:
    """The mapped files whose names are NCCL's, in the order of their addresses."""
    try:
        lines = MAPS.read_text().splitlines()
    except OSError:
        return
    paths = (line.split(maxsplit=5)[-1] for line in lines if "libnccl" in line)
    yield from dict.fromkeys(paths)
