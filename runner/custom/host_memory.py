"""What a custom case needs of the host's memory: an upper bound, from its description alone.

It is computed before inputs are made, since those of all ranks are made at once, in the process that judges. The parts,
for n ranks, beside what runner/case/host_memory.py says of any case: the inputs of all ranks and their copy for the
reference, the reference's own work (as much again), what must come out (any buffer may be compared), in the simulator
what ranks hold (a buffer on its way, outputs of all launches), and the comparison of one buffer after the other.

A run of 977 blocks x 1024 threads on four ranks, buffers of a million float32, took 2.15 to 2.46 GB on a 2-core x86
host on 2026-11-27.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from memory.fabric import Launch
from memory.placing import NVSHMEM, SIMULATED, CountingPool
from runner.case.host_memory import (
    ADDING_LANE_BYTES,
    BASE_BYTES,
    BOUNDED_BYTES,
    RANK_BYTES,
    SLACK_PERCENT,
    TRACKING_BYTES,
    gibibytes,
)
from runner.custom.nouns import CustomSpec, Fill
from runner.custom.program import LEAST_LAUNCHES, allocate_custom
from runner.request.schema import HostMemory
from runner.request.sizes import format_bytes
from runner.request.validate import Request, ResolvedRequest
from runner.request_error import RequestError
from runner.world.fabrics import FabricRequest

WIDE_BYTES = 12
"""Bytes an element while a buffer is filled: floats are drawn in float32 or float64, and then rounded."""

LIMIT_BYTES = 40
"""Bytes an element of the limits of a tolerance: they are held for all buffers."""

LANE_BYTES, REGISTERS_PERCENT = 144, 150
"""A lane's bytes beside its registers, and what these take, in percent of their own size."""

_REGISTERS = re.compile(r"\.reg\s+\.(pred|[busf](?:8|16|32|64|128)|f16x2|bf16x2|bf16)\s+[^;]*?<(\d+)>")


def check_memory(
    spec: CustomSpec, asked: Request, fabric: FabricRequest, available_bytes: int | None, ptx: str
) -> None:
    """Raise RequestError if a custom case does not fit the symmetric heap, or may need more than the host has.

    available_bytes is what the host can still give; None, if it is unknown: then it is not compared. ptx is the
    kernel's, "" of a function, which is not compiled yet.
    """
    needed = custom_heap_bytes(spec, asked.world_size, fabric.simulated)
    if needed > fabric.heap_bytes:
        raise RequestError(
            f"the buffers of {spec.name} take {format_bytes(needed)} a rank with their guards, beyond the heap of "
            f"{format_bytes(fabric.heap_bytes)} (custom.buffers, fabric.heap_bytes), give fabric.heap_bytes="
            f"{format_bytes(needed)} or more, or smaller buffers"
        )
    if available_bytes is None or asked.host_memory == HostMemory.ignore:
        return
    total = custom_host_bytes(spec, asked, fabric, asked.world_size, ptx)
    if total <= available_bytes:
        return
    fewer = range(1, asked.world_size)
    fitting = [ranks for ranks in fewer if custom_host_bytes(spec, asked, fabric, ranks, ptx) <= available_bytes]
    advice = f"smaller buffers or {f'world_size={fitting[-1]}' if fitting else 'a smaller grid'}"
    doing = "simulating" if fabric.simulated else "checking"
    raise RequestError(
        f"{doing} {spec.name} with world_size={asked.world_size} takes up to {gibibytes(total)} of host memory, and "
        f"{gibibytes(available_bytes)} is available (custom.buffers, world_size), give {advice}; host_memory=ignore "
        "runs it all the same, the bound may be too high"
    )


def custom_heap_bytes(spec: CustomSpec, world_size: int, is_simulated: bool) -> int:
    """Return the smallest symmetric heap of a rank that holds a custom kernel's buffers."""
    pool = CountingPool(SIMULATED if is_simulated else NVSHMEM)
    allocate_custom(pool, spec, world_size)
    return pool.peak_bytes


def custom_host_bytes(
    spec: CustomSpec, asked: Request | ResolvedRequest, fabric: FabricRequest, ranks: int, ptx: str
) -> int:
    """Return an upper bound of the peak resident memory of the process that runs and judges a custom case."""
    total = sum(one.size_bytes for one in spec.buffers)
    filled = sum(one.size_bytes for one in spec.buffers if one.fill is not Fill.poison)
    numel = max(one.numel for one in spec.buffers)
    on_its_way = max(one.size_bytes for one in spec.buffers) + numel * WIDE_BYTES
    held = ranks * 2 * filled
    if asked.check:
        launches = asked.launches if fabric.simulated else max(asked.launches, LEAST_LAUNCHES)
        held += ranks * (total + filled) + launches * ranks * total + numel * BOUNDED_BYTES
        held += 0 if spec.tolerance.is_bitwise else ranks * LIMIT_BYTES * sum(one.numel for one in spec.buffers)
        held += ranks * total  # which bytes were never written
    simulated = 0
    if fabric.simulated:
        heap_bytes = custom_heap_bytes(spec, ranks, is_simulated=True)
        simulated = ranks * (2 * heap_bytes + heap_bytes // 64 + 2 * on_its_way) + max(
            _lanes_bytes(one.launch, ranks, ptx) for one in (spec, *spec.then)
        )
    base = BASE_BYTES + (TRACKING_BYTES if asked.track.name != "none" else 0) + ranks * RANK_BYTES
    return base + (held + on_its_way + simulated) * (100 + SLACK_PERCENT) // 100


def _lanes_bytes(launch: Launch | None, ranks: int, ptx: str) -> int:
    """Bytes of all threads of a launch, and of the dynamic shared memory of its blocks; 0 if its launch is unknown."""
    if launch is None:
        return 0
    lane_bytes = LANE_BYTES + register_bytes(ptx) * REGISTERS_PERCENT // 100 if ptx else ADDING_LANE_BYTES
    return ranks * launch.blocks * (launch.threads * lane_bytes + 2 * launch.shared_bytes)


def register_bytes(ptx: str) -> int:
    """Return the bytes of all registers that a PTX module declares: one of its kernels has no more of its own."""
    widths: Mapping[str, int] = {"pred": 1, "f16x2": 4, "bf16x2": 4, "bf16": 2}
    return sum(
        int(count) * (widths[kind] if kind in widths else int(kind[1:]) // 8) for kind, count in _REGISTERS.findall(ptx)
    )
