"""Times of matmuls, alone and fused with collectives: waves of tiles, and what a collective adds.

    time = begin + waves * (wave + K * depth) + added + open * link

waves is how often each SM takes a tile, with the tiles that the kernel chooses; depth goes by their columns. link is
what a rank gets from others, at the floor of pushing. A fused kernel hides most of it: open is the share that it does
not. The constants are fitted, by relative errors, to the times of matmuls_h200.json, as the link's rate is; a test
does it again. Nothing is simulated.
"""

from __future__ import annotations

from cases.case import Case
from cases.ops import collective
from kernels.fused import tuning_of, waves_of

GPUS = ("h200",)
"""Types of GPU that the constants are of."""

RANKS = (1, 2)

BEGIN_US, WAVE_US = 2.846, 1.018
DEPTH_NS = {256: 10.269, 192: 7.297, 128: 4.752}
"""Of a wave, for each element of K, by a tile's columns."""

ADDED = {
    "matmul/tiles": (0.0, 0.0),
    "all_gather_matmul/push": (8.391, 0.7),
    "matmul_reduce_scatter/inbox": (10.451, 0.456),
    "matmul_reduce_scatter/adding": (15.857, 0.361),
    "matmul_all_reduce/inbox": (19.0, 0.176),
}
"""Microseconds, and the share of the link's time that is left open."""

INTERVAL = (0.95, 1.1)
"""Between which measured / predicted of 90 % of the times lies, their M, N and K left out."""


def time_us(case: Case, push_gbps: float) -> float:
    """Return the predicted time of a launch in microseconds. push_gbps: what a rank gets over its link, in GB/s."""
    assert case.gemm is not None, "it multiplies"
    tuning = tuning_of(case)
    waves_us = waves_of(case, tuning) * (WAVE_US + case.gemm[2] * DEPTH_NS[tuning.columns] / 1e3)
    added_us, share = ADDED[case.name]
    return BEGIN_US + waves_us + added_us + share * link_us(case, push_gbps)


def link_us(case: Case, push_gbps: float) -> float:
    """Return how long what a rank gets from others takes over its link, in microseconds. push_gbps: see time_us."""
    product = collective(case.op).product
    assert product is not None, "it multiplies"
    return product.received(case) * case.itemsize / push_gbps / 1e3


def remarks(case: Case) -> tuple[str, ...]:
    """Return why a prediction is worth less than its interval says."""
    if case.world_size in RANKS:
        return ()
    return (f"constants of {RANKS[-1]} GPUs, here {case.world_size}",)
