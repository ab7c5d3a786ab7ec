"""Times of matmuls, alone and fused with collectives: waves of tiles, and what a collective adds.

    time = begin + waves * (wave + K * depth) + sqrt(other ranks) * added + open * link

waves is the most tiles that an SM takes, with the tiles that the kernel chooses; depth goes by their columns. link is
what a rank gets from others, at the floor of pushing. A fused kernel hides most of it: open is the share that it does
not. No time is below begin and the link's, or the memory's for A, B and C. The constants are fitted to the times of
matmuls_h200.json by Huber's loss of log(predicted / measured); a test does it again. Nothing is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod, sqrt

from cases.case import Case
from cases.ops import MATMUL, collective
from kernels.fused import matrices, tuning_of, waves_of
from symlab.speed.predict.model import Rates

GPUS = ("h200",)
"""Types of GPU that the constants are of."""

MEASURED = {False: ((256, 16384), (1024, 8192), (1024, 8192)), True: ((512, 4096), (4096, 8192), (4096, 8192))}
"""From and to which M, N and K times were measured; of fused matmuls, on 2 and 4 GPUs: True."""

BEGIN_US, WAVE_US = 2.474, 0.861
DEPTH_NS = {256: 10.372, 192: 7.518, 128: 5.13}
"""Of a wave, for each element of K, by a tile's columns."""

ADDED = {
    "matmul/tiles": (0.0, 0.0),
    "all_gather_matmul/push": (13.809, 0.0983),
    "matmul_reduce_scatter/inbox": (8.862, 0.27),
    "matmul_reduce_scatter/adding": (12.868, 0.355),
    "matmul_all_reduce/inbox": (15.22, 0.331),
}
"""Microseconds for each square root of other ranks (the best of five forms by these times), and the share of the
link's time that is left open."""

INTERVAL = (0.919, 1.113)
"""Between which measured / predicted of 90 % of the times lies, their M, N and K left out."""


def time_us(case: Case, rates: Rates) -> float:
    """Return the predicted time of a launch in microseconds."""
    assert case.gemm is not None, "it multiplies"
    tuning = tuning_of(case)
    waves_us = waves_of(case, tuning) * (WAVE_US + case.gemm[2] * DEPTH_NS[tuning.columns] / 1e3)
    added_us, share = ADDED[case.name]
    shapes = matrices(case)
    memory_us = sum(map(prod, (shapes.a, shapes.b, shapes.c))) * case.itemsize / rates.memory_gbps / 1e3
    gets_us = link_us(case, rates)
    return BEGIN_US + max(waves_us + sqrt(case.world_size - 1) * added_us + share * gets_us, gets_us, memory_us)


def link_us(case: Case, rates: Rates) -> float:
    """Return how long what a rank gets from others takes over its link, in microseconds."""
    product = collective(case.op).product
    assert product is not None, "it multiplies"
    return product.received(case) * case.itemsize / rates.push_gbps / 1e3


def remarks(case: Case) -> Iterator[str]:
    """Yield why a prediction is worth less than its interval says."""
    is_fused = case.op != MATMUL.op
    ranges = dict(zip("MNK", MEASURED[is_fused], strict=True))
    if not all(low <= size <= high for size, (low, high) in zip(case.gemm or (), ranges.values(), strict=True)):
        yield f"measured: {', '.join(f'{name} {low} to {high}' for name, (low, high) in ranges.items())}"
    if case.dtype != "bfloat16":
        yield f"measured with bfloat16, not with {case.dtype}"
    if is_fused and case.world_size not in (2, 4):
        yield f"measured on 2 and 4 GPUs, not on {case.world_size}"
