"""Run by .venv-foreign: compile a Numba function of sources/ to PTX, with no GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parents[1] / "sources"


def to_ptx(request: dict[str, Any]) -> dict[str, Any]:
    """request: `source`, `function`, and the `types` of its arguments in Numba's words."""
    from numba import cuda, types

    found = importlib.util.spec_from_file_location("source", SOURCES / request["source"])
    assert found is not None and found.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    signature = types.void(*(eval(one, vars(types)) for one in request["types"]))
    ptx, _ = cuda.compile_ptx(getattr(module, request["function"]), signature, cc=(9, 0))
    return {"ptx": ptx}


if __name__ == "__main__":
    answer = to_ptx(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
