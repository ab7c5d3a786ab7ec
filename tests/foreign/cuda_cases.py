"""CUDA that nvcc compiles: modules, by source and macros."""

from dataclasses import replace

from simulator.ptx.parse import entries_of
from tests.foreign.environment import compiled

ARCH = "sm_90a"


def of_cuda(source, kernel, **define):
    """Return a module of sources/ with the one of its kernels that has `kernel` in its name as the entry."""
    request = {"source": source, "arch": ARCH, "define": define}
    made = compiled("cuda_to_ptx.py", request, [source])
    (entry,) = (one for one in entries_of(made.ptx) if kernel in one)
    return replace(made, facts={**made.facts, "entry": entry})
