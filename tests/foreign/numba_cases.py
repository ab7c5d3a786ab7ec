"""Numba: the kernels of sources/numba_kernels.py."""

import torch

from tests.foreign.cases import Foreign, exact, random_rows
from tests.foreign.environment import compiled

BLOCKS, THREADS, NUMEL = 5, 128, 3000


def array(name, numel, itemsize):
    """The seven parameters of an array of one dimension: owner, parent, number of elements, their size, address, shape
    and stride."""
    return [("u64", 0), ("u64", 0), ("s64", numel), ("s64", itemsize), name, ("s64", numel), ("s64", itemsize)]


def of_numba(function, ranks, buffers, out):
    """A kernel of arrays of 32-bit numbers, of which the last is `out` and holds one number. buffers: type in Numba's
    words, number of elements and what the array is, by name."""
    source = "numba_kernels.py"
    types = [f"{of_type}[::1]" for of_type, *_ in buffers.values()]
    module = compiled("numba_to_ptx.py", {"source": source, "function": function, "types": types}, [source])
    arguments = [one for name, (_, numel, _) in buffers.items() for one in array(name, numel, 4)]
    given = {name: one for name, (*_, one) in buffers.items()}
    how = {"grid": BLOCKS, "block": THREADS, "buffers": given, "arguments": arguments}
    return exact(module, ranks, lambda rank: {"out": out(rank).view(1)}, **how)


def total(ranks):
    """Sums of integers are exact in any order."""
    x = random_rows(ranks, (NUMEL,), torch.float32, -99, 100)
    buffers = {
        "x": ("float32", NUMEL, x),
        "partial": ("float32", BLOCKS, (BLOCKS, torch.float32)),
        "arrived": ("int32", 1, (1, torch.int32, 0)),
        "out": ("float32", 1, (1, torch.float32)),
    }
    return of_numba("total", ranks, buffers, lambda rank: x[rank].sum())


def largest(ranks):
    x = random_rows(ranks, (NUMEL,), torch.int32, -(10**6), 10**6)
    buffers = {"x": ("int32", NUMEL, x), "out": ("int32", 1, (1, torch.int32, -(2**31)))}
    return of_numba("largest", ranks, buffers, lambda rank: x[rank].max())


KERNELS = (
    Foreign("Numba: sum, with a ticket for the last block", "numba-cuda", total),
    Foreign("Numba: maximum, by atomics", "numba-cuda", largest),
)
