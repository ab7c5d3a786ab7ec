"""Run by .venv-foreign: compile a Triton function of sources/ to PTX, with no GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parents[1] / "sources"


def to_ptx(request: dict[str, Any]) -> dict[str, Any]:
    """request: `source` and `function`; `types` of the arguments by name; `constants`; `warps`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    found = importlib.util.spec_from_file_location("source", SOURCES / request["source"])
    assert found is not None and found.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    types = {**request["types"], **dict.fromkeys(request["constants"], "constexpr")}
    source = ASTSource(getattr(module, request["function"]), types, constexprs=request["constants"])
    target = GPUTarget("cuda", request.get("arch", 90), 32)
    made = triton.compile(source, target=target, options={"num_warps": request["warps"]})
    return {"ptx": made.asm["ptx"], "entry": made.metadata.name, "shared_bytes": made.metadata.shared}


if __name__ == "__main__":
    os.environ["TRITON_CACHE_DIR"] = str(Path(sys.argv[2]).parent / "cache")
    answer = to_ptx(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
