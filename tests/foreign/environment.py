"""The environment that `make foreign` makes: compile in it, in a process of its own, and keep what came out."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENT = ROOT / ".venv-foreign"
LOCK = HERE / "constraints.txt"
COMPILERS = HERE / "compilers"
SOURCES = HERE / "sources"
COMPILE_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Module:
    """PTX that a compiler wrote, and what it says besides, such as the entry and the bytes of shared memory."""

    ptx: str
    facts: Mapping[str, Any]


def versions():
    """Return the version of each package of the environment, by name."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def toolkit():
    """Return the folder of nvcc's and ptxas' programs."""
    (found,) = ENVIRONMENT.glob("lib/python3*/site-packages/nvidia/cu13/bin")
    return found


def absent(needs_host_compiler=False):
    """Return why nothing can be compiled here; "" if it can."""
    stamp = ENVIRONMENT / ".installed"
    if not stamp.exists():
        return "there is no .venv-foreign (make foreign)"
    if stamp.read_text(encoding="utf-8") != LOCK.read_text(encoding="utf-8"):
        return ".venv-foreign has other versions than tests/foreign/constraints.txt (make foreign)"
    if needs_host_compiler and shutil.which("g++") is None:
        return "nvcc needs a C++ compiler, and g++ is not on PATH"
    return ""


def compiled(script, request, sources=()):
    """Return what a script of compilers/ makes of a request, in the environment's Python.

    The script is called with two paths: a JSON file with the request, and the JSON file to write. `ptx` in it is the
    module, all else becomes facts. sources: files of sources/ that the script reads. The result is kept in the
    environment until script, request, sources or versions change.
    """
    path = COMPILERS / script
    texts = [path, LOCK, *(SOURCES / name for name in sources)]
    asked = json.dumps(request, sort_keys=True)
    digest = hashlib.sha256("\0".join([asked, *(one.read_text(encoding="utf-8") for one in texts)]).encode())
    kept = ENVIRONMENT / "compiled" / f"{digest.hexdigest()}.json"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as name:
            _run(path, asked, Path(name))
            (Path(name) / "answer.json").replace(kept)
    answer = json.loads(kept.read_text(encoding="utf-8"))
    return Module(answer.pop("ptx"), answer)


def _run(script, asked, folder):
    (folder / "request.json").write_text(asked, encoding="utf-8")
    command = [ENVIRONMENT / "bin" / "python", script, folder / "request.json", folder / "answer.json"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=COMPILE_LIMIT_S, env=_variables()
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def _variables():
    """The process's variables: none of this project, so that the environment imports only what is its own."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
