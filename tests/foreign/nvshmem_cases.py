"""NVSHMEM's device functions through nvshmem4py: the kernels of sources/nvshmem_kernels.py. Each PE gives to the next.

The simulator fills the state that the functions read (simulator/run/nvshmem.py), so these launches name only buffers.
"""

import torch

from tests.foreign.cases import Foreign, exact
from tests.foreign.environment import compiled

SOURCE = "nvshmem_kernels.py"
ARRIVED = 7
BLOCKS, THREADS = 4, 64


def of_nvshmem(function):
    return compiled("cute_to_ptx.py", {"source": SOURCE, "function": function, "arch": 90}, [SOURCE])


def from_before(function, ranks, numel, more, grid, signal=None, target="target"):
    """A kernel after which `target` holds what the PE before has in `source`, and the signal, if any, its value."""
    made = torch.Generator().manual_seed(11)
    source = [torch.randn(numel, generator=made) for _ in range(ranks)]
    buffers = {"source": source, "target": (numel, torch.float32)}
    if signal is not None:
        buffers["signal"] = (1, torch.uint64, 0)
    buffers[target] = (numel, torch.float32)

    def expected(rank):
        counted = {} if signal is None else {"signal": torch.tensor([signal], dtype=torch.uint64)}
        return {target: source[rank - 1], **counted}

    local = () if target == "target" else (target,)
    how = {"grid": grid, "block": THREADS, "buffers": buffers, "local": local}
    return exact(of_nvshmem(function), ranks, expected, more, **how)


def p(ranks):
    return from_before("p", ranks, BLOCKS * THREADS, (), BLOCKS)


def put_block(ranks):
    count = 250  # no multiple of a vector's or a warp's elements
    return from_before("put_block", ranks, BLOCKS * count, [("s32", count)], BLOCKS)


def put_signal(ranks):
    """What a PE reads behind signal_wait_until is there, and the signal has its value."""
    return from_before("put_signal", ranks, 1000, [("s32", 1000)], 1, ARRIVED, "copied")


def put_signal_of_threads(ranks):
    """All threads have added to the signal of the PE behind them before it ends."""
    return from_before("put_signal_of_threads", ranks, THREADS * 5, [("s32", 5)], 1, THREADS)


KERNELS = (
    Foreign("NVSHMEM: p", "nvshmem4py-cu13", p),
    Foreign("NVSHMEM: put_block", "nvshmem4py-cu13", put_block),
    Foreign("NVSHMEM: put_signal of each thread and signal_wait_until", "nvshmem4py-cu13", put_signal_of_threads),
    Foreign("NVSHMEM: put_signal_block and signal_wait_until", "nvshmem4py-cu13", put_signal),
)
