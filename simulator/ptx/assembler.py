"""ptxas, where it is installed: what is legal on hardware, and for which GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nvidia-cuda-nvcc"
"""The package of PyPI that brings ptxas; it needs no GPU."""

_PROBLEM = re.compile(r"^ptxas\s+(?:\S+,\s+line\s+(\d+);\s*)?(?:error|fatal)\s*:\s*(.+?)\s*$", re.MULTILINE)
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


def assembled(ptxas: Path, ptx: str, arch: str) -> Verdict:
    """Assemble a module for an architecture; nothing is kept. Raises OSError if ptxas can't be started."""
    with tempfile.TemporaryDirectory(prefix="symlab-ptxas-") as folder:
        source = Path(folder) / "module.ptx"
        source.write_text(ptx, encoding="utf-8")
        command = [str(ptxas), f"-arch={arch}", str(source), "-o", str(Path(folder) / "module.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
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
