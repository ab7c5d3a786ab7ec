"""Which all-reduce SGLang takes at which size: facts of SGLang 0.5.14 that kernels and exports need
(srt/distributed/device_communicators/custom_all_reduce_v2.py)."""

from __future__ import annotations

PUSH, PULL, NCCL = "sglang/push", "sglang/pull", "nccl"

WORLD_SIZES = (2, 4, 6, 8)
"""Numbers of ranks for which SGLang has all-reduces of its own."""

MOST_BYTES = 16 << 20
"""Beyond this SGLang calls NCCL."""

_KIB, _MIB = 1 << 10, 1 << 20
PUSH_BYTES = {2: 2 * _MIB, 4: 384 * _KIB, 6: 192 * _KIB, 8: 160 * _KIB}
"""Up to which size SGLang pushes, by the number of ranks; it measured these on H200."""

PUSH_BYTES_SM100 = {2: 4 * _MIB, 4: 2 * _MIB, 6: 1 * _MIB, 8: 720 * _KIB}
"""The same for compute capability 10.x, measured by SGLang on B200."""


def push_bytes(world_size: int, arch: str) -> int:
    """Return the largest size that SGLang pushes on GPUs of an architecture such as "sm_90a"."""
    return (PUSH_BYTES_SM100 if arch.startswith("sm_10") else PUSH_BYTES)[world_size]


def taken(size_bytes: int, world_size: int, arch: str) -> str:
    """Return which of PUSH, PULL and NCCL SGLang takes, on a number of ranks in WORLD_SIZES."""
    if size_bytes <= push_bytes(world_size, arch):
        return PUSH
    return PULL if size_bytes <= MOST_BYTES else NCCL
