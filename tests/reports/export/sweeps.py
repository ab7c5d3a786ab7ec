"""Invented sweeps over NCCL's settings, and invented times of what vLLM and SGLang choose among."""

import functools
from dataclasses import replace

from cases.record.nccl_settings import NcclAlgorithm, NcclProtocol, NcclSettings
from tests.reports.synthetic import KIB, record, with_case, with_environment, with_request

SIZES = tuple(KIB << power for power in range(0, 19, 2))

RING_LL = NcclSettings(NcclAlgorithm.Ring, NcclProtocol.LL, 8)
RING_LL128 = NcclSettings(NcclAlgorithm.Ring, NcclProtocol.LL128, 16)
TREE_LL = NcclSettings(NcclAlgorithm.Tree, NcclProtocol.LL, 16)
RING_SIMPLE = NcclSettings(NcclAlgorithm.Ring, NcclProtocol.Simple, 32)
OWN = NcclSettings()

MODEL = {
    RING_LL: (10.0, 60.0),
    RING_LL128: (14.0, 250.0),
    TREE_LL: (13.0, 55.0),
    RING_SIMPLE: (20.0, 350.0),
    OWN: (11.0, 330.0),
}
"""An invented delay in us and an invented bandwidth in GB/s of each setting."""


def us(settings, size_bytes):
    delay_us, gbps = MODEL[settings.choice]
    if settings == OWN:  # as good as the best but for a share of 5 %
        return 1.05 * min(us(one, size_bytes) for one in MODEL if one != OWN)
    return delay_us + size_bytes / gbps / 1e3


def blocks(settings, size_bytes):
    """As NCCL takes fewer channels for small messages."""
    return min(settings.channels or 24, max(1, size_bytes // (16 * KIB)))


def timed(made, time_us):
    """The record with samples around a time."""
    samples = tuple(tuple(time_us + wave for wave in (-0.01, 0.0, 0.01)) for _ in range(made.case.world_size))
    return replace(made, timing=replace(made.timing, samples_us=samples))


@functools.cache
def nccl_record(settings, size_bytes, world=0, **changes):
    """One case of NCCL's, under settings, as a command writes it."""
    kernels = {"kernels": ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL",)}
    kernels |= {"kernel_blocks": (blocks(settings, size_bytes),)}
    made = record("nccl", size_bytes, world=world, **({"timing": kernels} | changes))
    made = timed(with_case(made, placement="in_place"), us(settings, size_bytes))
    asked = {"nccl": None, "nccl_algo": None, "nccl_proto": None, "nccl_channels": settings.channels}
    asked |= {"nccl_algo": settings.algorithm and str(settings.algorithm)}
    asked |= {"nccl_proto": settings.protocol and str(settings.protocol), "nccl_graph_mixing": settings.graph_mixing}
    made = with_request(made, configuration={**(made.request.configuration or {}), "library": asked})
    made = with_environment(made, gpus=tuple({"model": "Invented GPU"} for _ in range(made.case.world_size)))
    return replace(made, library=settings.named("NCCL 0.0.0"))


def sweep(sizes=SIZES, settings=tuple(MODEL)):
    return [nccl_record(one, size, world) for world, one in enumerate(settings) for size in sizes]
