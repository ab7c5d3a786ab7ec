"""python -m runner.case.flashinfer_build MODULE: compiles and loads a module of flashinfer's, in a process of its own.

Its last line of standard output is JSON: what the module was compiled with. It ends, with all that it has started, when
its standard input does, because the process that waits for it is gone then. Start it in a session of its own.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import sys
import threading
from typing import Any

from kernels.flashinfer import TRTLLM_MODULE, VLLM_MODULE


def main(module: str) -> int:
    """Compile and load a module, and print what it was compiled with. Raises what flashinfer raises."""
    threading.Thread(target=end_with_input, daemon=True).start()
    spec = spec_of(module)
    spec.build_and_load()
    print(json.dumps({"compiled_with": compiled_with(spec)}), flush=True)
    return 0


def spec_of(module: str) -> Any:
    """Return flashinfer's description of how a module is built."""
    from flashinfer.jit import comm

    return {VLLM_MODULE: comm.gen_vllm_comm_module, TRTLLM_MODULE: comm.gen_trtllm_comm_module}[module]()


def compiled_with(spec: Any) -> str:
    """Return what records say beside flashinfer's version: "PyTorch 2.11.0, nvcc 13.0"."""
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
