"""Another NCCL for the ranks: a file, or an installed version, that is loaded before the one that torch brings."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from memory.nccl import version_of_file
from runner.request_error import RequestError

KEY = "library.nccl"

FILE = "libnccl.so.2"

IN_A_PACKAGE = ("nvidia/nccl/lib", "nvidia/cu13/lib")
"""Where packages keep the library, below an entry of Python's path."""

SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")

LOADED_FIRST = "LD_PRELOAD"
"""The variable by which a process loads libraries before all others."""


@dataclass(frozen=True, slots=True)
class Preloaded:
    """A library that the ranks' processes load first: its file, and the version that it names itself."""

    path: str
    version: str


def nccl_of(given: object, folders: Iterable[Path] | None = None) -> Preloaded | None:
    """Return the NCCL that library.nccl names: a file, or an installed version; None for null.

    RequestError if there is no such library. folders are searched in place of this machine's.
    """
    if given is None:
        return None
    text = str(given)
    if "/" in text or ".so" in text:
        path = Path(text).expanduser().absolute()
        version = _version(path) if path.is_file() else ""
        if not version:
            what = "is no NCCL" if path.is_file() else "is no file"
            raise RequestError(f"{text} {what} ({KEY}), give the path of a {FILE}, or an installed version")
        return Preloaded(str(path), version)
    if not re.fullmatch(r"\d+\.\d+\.\d+", text):
        raise RequestError(f"'{text}' is neither a path nor a version ({KEY}), give one such as 2.28.9")
    installed: dict[str, str] = {}
    for path in _installed(_folders() if folders is None else folders):
        installed.setdefault(_version(path), str(path))
    installed.pop("", None)
    if text not in installed:
        there = f"here are {', '.join(sorted(installed))}; give one of these, or" if installed else "none is here; give"
        raise RequestError(f"NCCL {text} is not installed ({KEY}), {there} a path")
    return Preloaded(installed[text], text)


def loaded_first(environment: dict[str, str], library: Preloaded | None) -> None:
    """Let a process with this environment load the library before what was to be loaded first so far."""
    if library is not None:
        others = environment.get(LOADED_FIRST, "")
        environment[LOADED_FIRST] = f"{library.path}:{others}" if others else library.path


def _version(path: Path) -> str:
    """The version that a file names itself; asked once for what is in the file now."""
    found = path.stat()
    return _asked(str(path), found.st_mtime_ns, found.st_size)


@cache
def _asked(path: str, changed_ns: int, size_bytes: int) -> str:
    return version_of_file(Path(path))


def _folders() -> Iterator[Path]:
    """Where libraries are on this machine: packages', the linker's, the system's."""
    yield from (Path(entry, below) for entry in sys.path if entry for below in IN_A_PACKAGE)
    yield from (Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry)
    yield from map(Path, SYSTEM_FOLDERS)


def _installed(folders: Iterable[Path]) -> Iterator[Path]:
    """The libraries in folders, each file once."""
    paths = (folder / FILE for folder in folders)
    yield from dict.fromkeys(path.resolve() for path in paths if path.is_file())
