"""Makes this folder's own modules importable by name (bench, oracle, vectors_*), whatever the import mode."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODULES = (
    "harness",
    "oracle",
    "bench",
    "vectors_integer",
    "vectors_float",
    "vectors_order",
    "vectors_bits",
    "vectors_sets",
    "vectors_modes",
    "vectors_float8",
    "vectors_convert",
    "vectors_move",
    "vectors_memory",
    "defined_atomics",
    "vectors_atomic",
    "vectors_cluster",
    "vectors_control",
    "vectors_space",
    "vectors_warp",
    "vectors_bulk",
    "vectors_lane_copies",
    "vectors_mbarriers",
    "vectors_multimem",
    "vectors_switch",
    "vectors_multicast_copies",
    "multimem_bench",
    "families",
    "forms_asynchronous",
    "forms_cluster",
)
"""In the order of their imports of each other."""


def _load(name: str) -> None:
    full = f"simulator_{name}"
    if full in sys.modules:
        return
    (path,) = HERE.rglob(f"{name}.py")
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)


for _name in MODULES:
    _load(_name)
