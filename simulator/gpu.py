"""What a type of GPU holds at once: its limits, and how many blocks of a kernel fit within them.

The rules are those by which the CUDA driver answers cuOccupancyMaxActiveBlocksPerMultiprocessor, as NVIDIA's header
cuda_occupancy.h has them for compute capability 8.0 and later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from memory.fabric import Dimensions

WARP_THREADS = 32
BLOCK_SHARED_BYTES = {
    **dict.fromkeys(("sm_80", "sm_87"), 163 << 10),
    **dict.fromkeys(("sm_86", "sm_89", "sm_120", "sm_121"), 99 << 10),
}
"""Maximum shared memory of a block by architecture, where no GPU is named (CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability")."""
MAX_BLOCK_SHARED_BYTES = 227 << 10
"""The same of all other architectures that are simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The limits of a type of GPU; conf/gpu has them, each with its source.

    arch: its architecture without a suffix ("sm_90"). multiprocessors: number of SMs. Of a multiprocessor: blocks,
    threads, bytes of shared memory, registers of 32 bits, numbered barriers. Of a block: threads, bytes of shared
    memory that a launch can ask for, bytes that the driver reserves beside them, registers. Registers are given to
    warps, in units of register_unit, from as many partitions of the multiprocessor; shared memory is given in units of
    shared_unit_bytes. cluster_blocks: maximum number of blocks of a cluster; 1: it has no clusters.
    """

    name: str
    arch: str
    multiprocessors: int
    blocks_per_multiprocessor: int
    threads_per_multiprocessor: int
    shared_bytes_per_multiprocessor: int
    registers_per_multiprocessor: int
    barriers_per_multiprocessor: int
    threads_per_block: int
    shared_bytes_per_block: int
    reserved_shared_bytes_per_block: int
    registers_per_block: int
    shared_unit_bytes: int
    register_unit: int
    partitions: int
    cluster_blocks: int


@dataclass(frozen=True, slots=True)
class Need:
    """What a block of a kernel takes. registers: of a thread, barriers: of the block, as ptxas counts them; None:
    unknown, so that they limit nothing."""

    threads: int
    shared_bytes: int
    registers: int | None = None
    barriers: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """How many blocks of a kernel a GPU holds at once: a multiprocessor, and all of them (whole clusters only).

    limits: what allows no more, such as ("threads", "registers").
    """

    per_multiprocessor: int
    blocks: int
    limits: tuple[str, ...]


def block_shared_bytes(arch: str, gpu: Gpu | None) -> int:
    """Return the maximum shared memory of a block: that of a GPU, or without one that of an architecture."""
    if gpu is not None:
        return gpu.shared_bytes_per_block
    return BLOCK_SHARED_BYTES.get(arch.rstrip("af"), MAX_BLOCK_SHARED_BYTES)


def fit(gpu: Gpu, need: Need, cluster: Dimensions = (1, 1, 1)) -> Fit:
    """Return how many blocks of a kernel fit on a GPU at once; 0 if a block or a cluster never fits.

    A cluster counts as fitting wherever its blocks find places. On hardware it lies within one group of
    multiprocessors, whose sizes differ from GPU to GPU, so that a few clusters less may fit there.
    """
    by_limit = _blocks_by_limit(gpu, need)
    per_multiprocessor = min(by_limit.values())
    limits = tuple(name for name, count in by_limit.items() if count == per_multiprocessor)
    size = math.prod(cluster)
    if size > gpu.cluster_blocks:
        return Fit(per_multiprocessor, 0, ("cluster",))
    return Fit(per_multiprocessor, per_multiprocessor * gpu.multiprocessors // size * size, limits)


def _blocks_by_limit(gpu: Gpu, need: Need) -> dict[str, int]:
    """How many blocks a multiprocessor holds, if only one of the limits held."""
    warps = -(-need.threads // WARP_THREADS)
    found = {"threads": 0, "blocks": gpu.blocks_per_multiprocessor, "shared memory": 0}
    if need.threads <= gpu.threads_per_block:
        found["threads"] = gpu.threads_per_multiprocessor // WARP_THREADS // warps
    if need.shared_bytes <= gpu.shared_bytes_per_block:
        taken = _rounded(need.shared_bytes + gpu.reserved_shared_bytes_per_block, gpu.shared_unit_bytes)
        found["shared memory"] = gpu.shared_bytes_per_multiprocessor // max(taken, 1)
    if need.registers:
        found["registers"] = _by_registers(gpu, need.registers, warps)
    if need.barriers:
        found["barriers"] = gpu.barriers_per_multiprocessor // need.barriers
    return found


def _by_registers(gpu: Gpu, registers: int, warps: int) -> int:
    """A launch is refused as if its warps were dealt out to all partitions evenly; a partition holds whole warps."""
    of_a_warp = _rounded(registers * WARP_THREADS, gpu.register_unit)
    if of_a_warp * _rounded(warps, gpu.partitions) > gpu.registers_per_block:
        return 0
    return gpu.registers_per_multiprocessor // gpu.partitions // of_a_warp * gpu.partitions // warps


def _rounded(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def check_fit(name: str, gpu: Gpu, need: Need, blocks: int, cluster: Dimensions, is_cooperative: bool) -> Fit:
    """Return how many blocks of the kernel called name fit at once.

    Raises ValueError for a block or a cluster that never fits, and for a cooperative launch of more blocks than fit.
    """
    found = fit(gpu, need, cluster)
    size = math.prod(cluster)
    if size > gpu.cluster_blocks:
        can = f"has clusters of up to {gpu.cluster_blocks} blocks" if gpu.cluster_blocks > 1 else "has no clusters"
        raise ValueError(f"{name}: a cluster of {size} blocks never fits, {gpu.name} {can} (fabric.gpu)")
    if not found.per_multiprocessor:
        raise ValueError(f"{name}: a block never fits on {gpu.name} (fabric.gpu): {_too_much(gpu, need, found)}")
    if not found.blocks:
        places = found.per_multiprocessor * gpu.multiprocessors
        raise ValueError(f"{name}: a cluster of {size} blocks never fits, {gpu.name} holds {places} (fabric.gpu)")
    if is_cooperative and blocks > found.blocks:
        raise ValueError(
            f"{name}: a cooperative launch of {blocks} blocks, and {gpu.name} holds {found.blocks} of them at once "
            f"({limited(gpu, found)}): give at most that many"
        )
    return found


def _too_much(gpu: Gpu, need: Need, found: Fit) -> str:
    """What of a block is more than there is."""
    if "threads" in found.limits:
        return f"it has {need.threads:,} threads, and at most {gpu.threads_per_block:,} are possible"
    if "shared memory" in found.limits:
        most = gpu.shared_bytes_per_block
        return f"it needs {need.shared_bytes:,} bytes of shared memory, and at most {most:,} are possible"
    if "barriers" in found.limits:
        return f"it needs {need.barriers} barriers, and there are {gpu.barriers_per_multiprocessor}"
    return (
        f"{need.threads:,} threads of {need.registers} registers each are too many for {gpu.registers_per_block:,} "
        "registers"
    )


def limited(gpu: Gpu, found: Fit) -> str:
    """Return what allows no more blocks at once, in words: "132 multiprocessors x 2, limited by threads"."""
    are = "multiprocessor" if gpu.multiprocessors == 1 else "multiprocessors"
    return f"{gpu.multiprocessors} {are} x {found.per_multiprocessor}, limited by {' and '.join(found.limits)}"
