"""NVSHMEM's device functions through nvshmem4py: the kernels of sources/nvshmem_kernels.py. Each PE gives to the next.

The simulator fills the state that the functions read (simulator/run/nvshmem.py), so these launches name only buffers.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.foreign.cases import Case, Foreign, Outputs, held
from tests.foreign.environment import Module, compiled

SOURCE = "nvshmem_kernels.py"
ARRIVED = 7
BLOCKS, THREADS = 4, 64


def of_nvshmem(function: str) -> Module:
    return compiled("cute_to_ptx.py", {"source": SOURCE, "function": function, "arch": 90}, [SOURCE])


def given(ranks: int, numel: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(11)
    return [torch.randn(numel, generator=made) for _ in range(ranks)]


def from_before(ranks: int, function: str, numel: int, grid: int, *more: Any) -> Case:
    """A kernel after which `target` holds what the PE before has in `source`."""
    source = given(ranks, numel)

    def check(outputs: Outputs) -> None:
        for rank in range(ranks):
            held("target", outputs["target"][rank], source[rank - 1], rank)

    buffers = {"source": source, "target": (numel, torch.float32)}
    arguments = ["source", "target", *more]
    return Case(
        of_nvshmem(function), {"grid": grid, "block": THREADS, "buffers": buffers, "arguments": arguments}, check
    )


def p(ranks: int) -> Case:
    return from_before(ranks, "p", BLOCKS * THREADS, BLOCKS)


def put_block(ranks: int) -> Case:
    count = 250  # no multiple of a vector's or a warp's elements
    return from_before(ranks, "put_block", BLOCKS * count, BLOCKS, ("s32", count))


def put_signal(ranks: int) -> Case:
    """What a PE reads behind signal_wait_until is there, and the signal has its value."""
    source = given(ranks, 1000)

    def check(outputs: Outputs) -> None:
        for rank in range(ranks):
            held("copied", outputs["copied"][rank], source[rank - 1], rank)
            held("signal", outputs["signal"][rank], torch.tensor([ARRIVED], dtype=torch.uint64), rank)

    buffers = {
        "source": source,
        "target": (1000, torch.float32),
        "signal": (1, torch.uint64, 0),
        "copied": (1000, torch.float32),
    }
    launch = {
        "grid": 1,
        "block": THREADS,
        "buffers": buffers,
        "arguments": [*buffers, ("s32", 1000)],
        "local": ["copied"],
    }
    return Case(of_nvshmem("put_signal"), launch, check)


def put_signal_of_threads(ranks: int) -> Case:
    """All threads have added to the signal of the PE behind them before it ends."""
    count = 5
    source = given(ranks, THREADS * count)

    def check(outputs: Outputs) -> None:
        for rank in range(ranks):
            held("target", outputs["target"][rank], source[rank - 1], rank)
            held("signal", outputs["signal"][rank], torch.tensor([THREADS], dtype=torch.uint64), rank)

    buffers = {"source": source, "target": (THREADS * count, torch.float32), "signal": (1, torch.uint64, 0)}
    launch = {"grid": 1, "block": THREADS, "buffers": buffers, "arguments": [*buffers, ("s32", count)]}
    return Case(of_nvshmem("put_signal_of_threads"), launch, check)


KERNELS = (
    Foreign("NVSHMEM: p", "nvshmem4py-cu13", p),
    Foreign("NVSHMEM: put_block", "nvshmem4py-cu13", put_block),
    Foreign("NVSHMEM: put_signal of each thread and signal_wait_until", "nvshmem4py-cu13", put_signal_of_threads),
    Foreign("NVSHMEM: put_signal_block and signal_wait_until", "nvshmem4py-cu13", put_signal),
)
