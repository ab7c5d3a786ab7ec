"""Run by .venv-foreign: compile a CuTe DSL function of sources/ with a library's device code to PTX, with no GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parents[1] / "sources"


def to_ptx(request: dict[str, Any]) -> dict[str, Any]:
    """request: `source` and the `function` of its KERNELS, `arch`, such as 90."""
    import cutlass.cute as cute
    from cutlass.base_dsl.compiler import DumpDir

    if request["source"].startswith("nvshmem"):
        _choose_nvshmem_bitcode(request["arch"])
    found = importlib.util.spec_from_file_location("source", SOURCES / request["source"])
    assert found is not None and found.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    function, arguments = module.KERNELS[request["function"]]
    with tempfile.TemporaryDirectory() as folder:
        options = (cute.KeepPTX, cute.GenerateLineInfo(True), DumpDir(folder), cute.GPUArch(f"sm_{request['arch']}a"))
        ptx = cute.compile[options](function, *arguments).artifacts.PTX
    return {"ptx": (ptx.decode() if isinstance(ptx, bytes) else ptx).rstrip("\0")}


def _choose_nvshmem_bitcode(arch: int) -> None:
    """Give the bindings an architecture: they would ask the current GPU for its own, and there is none."""
    import nvshmem.bindings.device.cute._bitcode as bitcode
    from nvshmem.core.init_fini import find_device_bitcode_library

    bitcode.find_device_bitcode_library = partial(find_device_bitcode_library, arch=arch)


if __name__ == "__main__":
    answer = to_ptx(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
