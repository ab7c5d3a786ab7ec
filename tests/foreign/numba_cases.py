"""Numba: the kernels of sources/numba_kernels.py."""

from __future__ import annotations

from typing import Any

import torch

from tests.foreign.cases import Case, Foreign, Outputs, held, random_rows
from tests.foreign.environment import Module, compiled

BLOCKS, THREADS, NUMEL = 5, 128, 3000


def of_numba(function: str, *types: str) -> Module:
    source = "numba_kernels.py"
    return compiled("numba_to_ptx.py", {"source": source, "function": function, "types": types}, [source])


def array(name: str, numel: int, itemsize: int) -> list[Any]:
    """The seven parameters of an array of one dimension: owner, parent, number of elements, their size, address, shape
    and stride."""
    return [("u64", 0), ("u64", 0), ("s64", numel), ("s64", itemsize), name, ("s64", numel), ("s64", itemsize)]


def total(ranks: int) -> Case:
    """Sums of integers are exact in any order."""
    x = random_rows(ranks, (NUMEL,), torch.float32, -99, 100)
    module = of_numba("total", "float32[::1]", "float32[::1]", "int32[::1]", "float32[::1]")

    def check(outputs: Outputs) -> None:
        for rank in range(ranks):
            held("out", outputs["out"][rank], x[rank].sum().view(1), rank)

    buffers = {
        "x": x,
        "partial": (BLOCKS, torch.float32),
        "arrived": (1, torch.int32, 0),
        "out": (1, torch.float32),
    }
    numels = {"x": NUMEL, "partial": BLOCKS, "arrived": 1, "out": 1}
    arguments = [one for name, numel in numels.items() for one in array(name, numel, 4)]
    how = {"grid": BLOCKS, "block": THREADS, "buffers": buffers, "arguments": arguments, "local": list(buffers)}
    return Case(module, how, check)


def largest(ranks: int) -> Case:
    x = random_rows(ranks, (NUMEL,), torch.int32, -(10**6), 10**6)
    module = of_numba("largest", "int32[::1]", "int32[::1]")

    def check(outputs: Outputs) -> None:
        for rank in range(ranks):
            held("out", outputs["out"][rank], x[rank].max().view(1), rank)

    buffers = {"x": x, "out": (1, torch.int32, -(2**31))}
    arguments = [*array("x", NUMEL, 4), *array("out", 1, 4)]
    how = {"grid": BLOCKS, "block": THREADS, "buffers": buffers, "arguments": arguments, "local": list(buffers)}
    return Case(module, how, check)


KERNELS = (
    Foreign("Numba: sum, with a ticket for the last block", "numba-cuda", total),
    Foreign("Numba: maximum, by atomics", "numba-cuda", largest),
)
