"""ptxas, where it is installed: what is legal on hardware, and for which GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

PACKAGE = "nvidia-cuda-nvcc"
"""The package of PyPI that brings ptxas; it needs no GPU."""

_PROBLEM = re.compile(r"^ptxas\s+(?:\S+,\s+line\s+(\d+);\s*)?(?:error|fatal)\s*:\s*(.+?)\s*$", re.MULTILINE)
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_REGISTERS, _BARRIERS = re.compile(r"Used (\d+) registers"), re.compile(r"used (\d+) barriers")
_TOO_NEW = re.compile(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'")
_VERSION = re.compile(r"^(\s*\.version\s+)[\d.]+", re.MULTILINE)
_WHEELS = ("cu*/bin/ptxas", "cuda_nvcc/bin/ptxas")


@dataclass(frozen=True, slots=True)
class Problem:
    """What ptxas refuses: the PTX line (0: none in particular) and its words."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ptxas says of a module for an architecture. version: such as "13.0.88"; no problems: it assembles."""

    version: str
    arch: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel takes, as ptxas counts it: registers of a thread, and numbered barriers of a block."""

    registers: int
    barriers: int


def find_ptxas() -> Path | None:
    """Return ptxas on PATH, else the one that an installed package brings, else None."""
    if (found := shutil.which("ptxas")) is not None:
        return Path(found)
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for pattern in _WHEELS:
            for path in sorted(Path(folder).glob(pattern)):
                return path
    return None


def usage_of(ptx: str, entry: str, arch: str) -> Usage | None:
    """Return what an entry of a module takes on an architecture; None if ptxas is not installed or refuses the module.

    A module that states a later version of PTX than ptxas knows is assembled as one of the version that it knows, which
    it refuses if that matters.
    """
    ptxas = find_ptxas()
    return _usages(ptxas, ptx, arch).get(entry) if ptxas is not None else None


@lru_cache(maxsize=256)
def _usages(ptxas: Path, ptx: str, arch: str) -> Mapping[str, Usage]:
    """What each entry of a module takes; a module is assembled once for an architecture. Nothing if it is refused."""
    done = _run(ptxas, ptx, arch, "-v")
    if late := _TOO_NEW.search(done.stdout + done.stderr):
        done = _run(ptxas, _VERSION.sub(rf"\g<1>{late[1]}", ptx, count=1), arch, "-v")
    return MappingProxyType(_read_usages(done.stdout + done.stderr) if not done.returncode else {})


def _read_usages(said: str) -> dict[str, Usage]:
    """What ptxas -v says of each entry."""
    found = {}
    entry = ""
    for line in said.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif match := _REGISTERS.search(line):
            barriers = _BARRIERS.search(line)
            found[entry] = Usage(int(match[1]), int(barriers[1]) if barriers else 0)
    return found


def _run(ptxas: Path, ptx: str, arch: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Assemble a module, and keep nothing but what ptxas says."""
    with tempfile.TemporaryDirectory(prefix="symlab-ptxas-") as folder:
        source = Path(folder) / "module.ptx"
        source.write_text(ptx, encoding="utf-8")
        command = [str(ptxas), f"-arch={arch}", *options, str(source), "-o", str(Path(folder) / "module.cubin")]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def assembled(ptxas: Path, ptx: str, arch: str) -> Verdict:
    """Assemble a module for an architecture; nothing is kept. Raises OSError if ptxas can't be started."""
    done = _run(ptxas, ptx, arch)
    said = done.stdout + done.stderr
    problems = [Problem(int(line or 0), text) for line, text in _PROBLEM.findall(said)]
    if len(problems) > 1:  # the last one only says that there were errors
        problems = [one for one in problems if "due to errors" not in one.text]
    if done.returncode and not problems:
        lines = said.strip().splitlines()
        problems = [Problem(0, lines[0] if lines else f"ended with exit code {done.returncode}")]
    return Verdict(version_of(ptxas), arch, tuple(dict.fromkeys(problems)))


def version_of(ptxas: Path) -> str:
    """Return the version that ptxas says it has, "" if it says none."""
    done = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout)
    return match.group(1) if match else ""
