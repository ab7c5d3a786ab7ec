"""CUDA that nvcc compiles: modules, by source and macros."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulator.ptx.parse import entries_of
from tests.foreign.environment import Module, compiled

ARCH = "sm_90a"


def of_cuda(source: str, kernel: str, **define: str | int) -> Module:
    """Return a module of sources/ with the one of its kernels that has `kernel` in its name as the entry."""
    request: dict[str, Any] = {"source": source, "arch": ARCH, "define": define}
    made = compiled("cuda_to_ptx.py", request, [source])
    (entry,) = (one for one in entries_of(made.ptx) if kernel in one)
    return replace(made, facts={**made.facts, "entry": entry})
