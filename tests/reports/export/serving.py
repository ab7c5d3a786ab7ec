"""Invented records of what vLLM and SGLang choose among, and readers of their dictionaries, written from their sources:
which entry a communicator takes, and which sizes it then takes (vllm/distributed/device_communicators/symm_mem.py and
custom_all_reduce.py, sglang/srt/distributed/device_communicators/torch_symm_mem.py, of June to November 2026)."""

import functools
from dataclasses import replace

from tests.reports.export.sweeps import SIZES, timed
from tests.reports.synthetic import record, with_case

MODEL = {
    "nccl": (20.0, 320.0),
    "torch/multimem_staged": (12.0, 260.0),
    "torch/two_shot_staged": (13.0, 240.0),
    "flashinfer/vllm_one_shot": (6.0, 40.0),
    "flashinfer/vllm_two_shot": (9.0, 150.0),
}


def us(algorithm, size_bytes):
    delay_us, gbps = MODEL[algorithm]
    return delay_us + size_bytes / gbps / 1e3


@functools.cache
def serving_record(algorithm, size_bytes, multicast=True, **changes):
    made = record(algorithm, size_bytes, **changes)
    fabric = replace(made.fabric, multicast=multicast, multicast_reason="" if multicast else "none")
    made = replace(made, library=f"{algorithm.partition('/')[0].upper()} 0.0.0", fabric=fabric)
    return timed(with_case(made, accumulator="library"), us(algorithm, size_bytes))


def serving(*left_out, sizes=SIZES, **changes):
    """Records of all of these algorithms but some."""
    return [serving_record(one, size, **changes) for one in MODEL if one not in left_out for size in sizes]


def dictionaries(text):
    """What the file defines."""
    found = {}
    exec(text, {}, found)
    return found


def vllm_takes_symmetric(text, capability, ranks, size_bytes):
    """Whether vLLM takes symmetric memory for a message, once its own kernels did not."""
    sizes = dictionaries(text)["SYMM_MEM_ALL_REDUCE_MAX_SIZES"]
    if capability not in sizes or ranks not in sizes[capability] or size_bytes % 4:
        return False
    return bool(size_bytes <= sizes[capability][ranks])


def vllm_takes_own(text, capability, ranks, size_bytes):
    """Whether vLLM takes its own kernels for a message, symmetric memory being on."""
    most = 8192 * 1024
    sizes = dictionaries(text)["CUSTOM_ALL_REDUCE_MAX_SIZES"]
    if capability in sizes:
        most = min(sizes[capability][ranks], most)
    return size_bytes % 16 == 0 and bool(size_bytes < most)


def sglang_takes_symmetric(text, major, ranks, size_bytes):
    """Whether SGLang takes symmetric memory for a message."""
    most = dictionaries(text)["TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES"][major][ranks]
    return size_bytes % 4 == 0 and bool(size_bytes < most)
