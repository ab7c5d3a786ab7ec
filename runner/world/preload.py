"""Another NCCL for the ranks: a file that is loaded before the one that torch brings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from memory.nccl import version_of_file
from runner.request_error import RequestError

KEY = "library.nccl"

FILE = "libnccl.so.2"

LOADED_FIRST = "LD_PRELOAD"
"""The variable by which a process loads libraries before all others."""


_version = cache(version_of_file)
"""A process says it, and each job of a sweep asks."""


@dataclass(frozen=True, slots=True)
class Preloaded:
    """A library that the ranks' processes load first: its file, and the version that it names itself."""

    path: str
    version: str


def nccl_of(given: object) -> Preloaded | None:
    """Return the NCCL whose file library.nccl names; None for null. RequestError if there is no such library."""
    if given is None:
        return None
    path = Path(str(given)).expanduser().absolute()
    version = _version(path) if path.is_file() else ""
    if not version:
        what = "is no NCCL" if path.is_file() else "is no file"
        raise RequestError(f"{given} {what} ({KEY}), give the path of a {FILE}")
    return Preloaded(str(path), version)


def loaded_first(environment: dict[str, str], library: Preloaded | None) -> None:
    """Let a process with this environment load the library before what was to be loaded first so far."""
    if library is not None:
        others = environment.get(LOADED_FIRST, "")
        environment[LOADED_FIRST] = f"{library.path}:{others}" if others else library.path
