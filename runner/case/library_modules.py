"""Brings a library's module onto the ranks: compiled once on each host, then loaded by every rank.

python -m runner.case.library_modules MODULE compiles one, in a process of its own. Its last line of standard output is
JSON: what the module was compiled with. It ends, with all that it has started, when its standard input does, because
the process that waits for it is gone then. Start it in a session of its own.

The compiler runs in a process of its own, which has a limit of time and is ended with all that it has started when the
limit has passed, or when the rank that waits for it ends. What goes wrong is a reason in one line, the same on all
ranks, and no failure: the case is refused.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernels import sglang
from kernels.flashinfer import TRTLLM_MODULE, VLLM_MODULE
from kernels.sources import ROOT
from memory.fabric import Fabric

BUILD_LIMIT_S = 600.0
"""How long compiling a module may take."""

LOAD_LIMIT_S = 120.0
"""How long all ranks may take to import the library and to load what was compiled."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What came of it: why the module is unavailable ("" if it is loaded), and what it was compiled with."""

    problem: str
    compiled_with: str = ""


def bring_module(fabric: Fabric, module: str) -> Brought:
    """Compile a module where it is not compiled yet, and load it on this rank. All ranks call it with the same one.

    The first rank of each host compiles; the others wait for it.
    """
    hosts = fabric.exchange(platform.node())
    mine = Brought("")
    if hosts.index(hosts[fabric.rank]) == fabric.rank:
        mine = compiled(module)
    everyone = [Brought(*json.loads(note)) for note in fabric.exchange(json.dumps([mine.problem, mine.compiled_with]))]
    problem = next((one.problem for one in everyone if one.problem), "") or _agreed(fabric, module)
    return Brought(problem, everyone[0].compiled_with)


def _agreed(fabric: Fabric, module: str) -> str:
    """Load a module on this rank; the first reason why a rank could not."""
    try:
        load(module)
        problem = ""
    except Exception as error:
        problem = f"{module} could not be loaded: {first_error(f'{type(error).__name__}: {error}')}"
    return next(filter(None, fabric.exchange(problem)), "")


def load(module: str) -> Any:
    """Load a compiled module: flashinfer's as flashinfer itself does, so that its functions find it loaded."""
    if module in sglang.MODULES.values():
        from runner.case import sglang_build

        return sglang_build.load(module)
    if module == VLLM_MODULE:
        from flashinfer.comm.vllm_ar import get_vllm_comm_module

        return get_vllm_comm_module()
    from flashinfer.comm.trtllm_ar import get_trtllm_comm_module

    return get_trtllm_comm_module()


@cache
def compiled(module: str) -> Brought:
    """Compile a module in another process, once a process. What goes wrong is the problem."""
    return run_builder([sys.executable, "-m", "runner.case.library_modules", module], module, BUILD_LIMIT_S)


def run_builder(command: list[str], module: str, limit_s: float) -> Brought:
    """Run a command that compiles a module, and end it, with all that it has started, once the limit has passed."""
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    try:
        said, _ = _all_it_says(process, limit_s)
    except subprocess.TimeoutExpired:
        return Brought(f"compiling {module} took longer than {limit_s:g} s")
    finally:
        _end(process)
    if process.returncode:
        return Brought(f"{module} did not compile: {first_error(said)}")
    return Brought("", str(json.loads(said.splitlines()[-1])["compiled_with"]))


def _all_it_says(process: subprocess.Popen[str], limit_s: float) -> tuple[str, str]:
    """Wait for a process whose standard input stays open meanwhile; communicate() would close it."""
    stdin, process.stdin = process.stdin, None
    try:
        return process.communicate(timeout=limit_s)
    finally:
        process.stdin = stdin


def _end(process: subprocess.Popen[str]) -> None:
    """End a process with its session, unless it has ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def first_error(text: str) -> str:
    """Return the first line of a compiler's output that names an error; the last line where none does."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = (line for line in lines if re.search(r"\b(error|fatal|not found|cannot find)\b", line, re.IGNORECASE))
    # A command line that is echoed may have the word in it, too; a message is short.
    found = next((line for line in named if len(line) < 500), lines[-1] if lines else "no message")
    return found[:300]


def main(module: str) -> int:
    """Compile a module, and print what it was compiled with. Raises what the library raises."""
    threading.Thread(target=end_with_input, daemon=True).start()
    if module in sglang.MODULES.values():
        from runner.case import sglang_build

        made = sglang_build.build(module)
    else:
        made = _flashinfer(module)
    print(json.dumps({"compiled_with": made}), flush=True)
    return 0


def _flashinfer(module: str) -> str:
    """Compile and load a module of flashinfer's; what records say beside its version: "PyTorch 2.11.0, nvcc 13.0"."""
    from flashinfer.jit import comm

    spec = {VLLM_MODULE: comm.gen_vllm_comm_module, TRTLLM_MODULE: comm.gen_trtllm_comm_module}[module]()
    spec.build_and_load()
    version = importlib.metadata.version("torch").partition("+")[0]
    if spec.is_aot:
        return f"PyTorch {version}, module brought compiled"
    from flashinfer.jit.cpp_ext import get_cuda_version

    return f"PyTorch {version}, nvcc {get_cuda_version()}"


def end_with_input() -> None:
    """End this process's session when its standard input ends. Never returns."""
    while os.read(sys.stdin.fileno(), 4096):  # sys.stdin's own buffer has a lock that an exit would want
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
