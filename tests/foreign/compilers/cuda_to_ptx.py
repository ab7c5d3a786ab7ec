"""Run by .venv-foreign: compile a CUDA source of sources/ to PTX with nvcc, with no GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parents[1] / "sources"


def folder_of(package: str) -> Path:
    """Where a package lies, without importing it."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.submodule_search_locations  # noqa: PT018
    return Path(next(iter(found.submodule_search_locations)))


def to_ptx(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """request: `source`, `arch` and the macros to `define`."""
    toolkit = folder_of("nvidia") / "cu13"
    data = folder_of("flashinfer") / "data"
    headers = [toolkit / "include", toolkit / "include" / "cccl", data / "include", data / "spdlog" / "include"]
    standard = "c++17"
    if request["source"] == "sglang.cu":
        standard = "c++20"
        sglang = folder_of("sglang") / "jit_kernel"
        headers += [sglang / "include", sglang / "csrc" / "distributed", folder_of("tvm_ffi") / "include"]
    if request["source"] == "nccl_ll.cu":
        headers.append(folder_of("nvidia") / "nccl" / "include")
    options = ["-ptx", f"-std={standard}", "-lineinfo", "--expt-relaxed-constexpr", f"-arch={request['arch']}"]
    options += [*(f"-I{one}" for one in headers), *(f"-D{name}={value}" for name, value in request["define"].items())]
    command = [
        str(toolkit / "bin" / "nvcc"),
        *options,
        str(SOURCES / request["source"]),
        "-o",
        str(folder / "module.ptx"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return {"ptx": (folder / "module.ptx").read_text(encoding="utf-8")}


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answer = to_ptx(asked, Path(sys.argv[2]).parent)
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
