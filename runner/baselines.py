"""Libraries' own collectives, beside ours: what there is, what each can't do and why, and how one is run.

The table is data and imports nothing heavy. A baseline runs through its library's own interface and on memory that the
library wants: what it does inside (algorithm, order, precision of its sums) is its own matter, so results are held to
the bound of sums in the data's own type. Each has the placements that its interface has; asked for another one, it
runs in the one it has, and its case says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from kernels.dtypes import DTYPES
from kernels.spec import Case, Fold
from memory.fabric import DeviceFabric, Fabric, Traits

if TYPE_CHECKING:
    import torch

    from memory.pool import SymmetricPool
    from runner.contenders import Contender

ACCUMULATOR = "library"
"""The accumulator that a baseline's case names: nobody here chooses it."""

TORCH_ALIGNMENT_BYTES = 4
"""PyTorch's symmetric memory kernels take sizes and offsets that are multiples of this, and no others."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """One library's way to do an op, and what it needs. fold and owner are what a check asks of any algorithm.

    uses_heap: its buffers lie in the fabric's symmetric heap.
    """

    algorithm: str
    summary: str
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    reductions: tuple[str, ...]
    placements: tuple[str, ...]
    needs_multicast: bool = False
    size_multiple_bytes: int = 1
    max_world_size: int = 72
    uses_heap: bool = False
    fold: Fold = "unordered"
    owner: Callable[[Case, int], torch.Tensor] | None = None
    one_owner: bool = False
    same_order: bool = True
    positive_zero: Literal["", "inputs", "results"] = ""

    @property
    def name(self) -> str:
        return self.algorithm

    def placement(self, wanted: str) -> str:
        """The placement that a request for `wanted` runs in: that one, or the only one there is."""
        return wanted if wanted in self.placements else self.placements[0]


BASELINES: tuple[Baseline, ...] = (
    Baseline(
        "nccl",
        "torch.distributed.all_reduce on the NCCL backend",
        ops=("all_reduce",),
        dtypes=("float32", "float16", "bfloat16"),
        reductions=("sum",),
        placements=("in_place",),
    ),
    Baseline(
        "torch/one_shot",
        "torch.ops.symm_mem.one_shot_all_reduce_out",
        ops=("all_reduce",),
        dtypes=("float32", "bfloat16"),
        reductions=("sum",),
        placements=("out_of_place",),
        size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
    ),
    Baseline(
        "torch/two_shot",
        "torch.ops.symm_mem.two_shot_all_reduce_",
        ops=("all_reduce",),
        dtypes=("float32", "bfloat16"),
        reductions=("sum",),
        placements=("in_place",),
        size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
    ),
    Baseline(
        "torch/multimem",
        "torch.ops.symm_mem.multimem_all_reduce_",
        ops=("all_reduce",),
        dtypes=("float32", "bfloat16"),
        reductions=("sum",),
        placements=("in_place",),
        needs_multicast=True,
        size_multiple_bytes=TORCH_ALIGNMENT_BYTES,
    ),
    Baseline(
        "nvshmem",
        "NVSHMEM's own sum over all ranks, queued from the host",
        ops=("all_reduce",),
        dtypes=("float32", "float16", "bfloat16"),
        reductions=("sum",),
        placements=("out_of_place", "in_place"),
        uses_heap=True,
    ),
)


def find_baseline(algorithm: str) -> Baseline | None:
    """The baseline of that name; None for a kernel's name."""
    return next((baseline for baseline in BASELINES if baseline.algorithm == algorithm), None)


def names_for(op: str) -> tuple[str, ...]:
    """All baselines that do an op, in the table's order."""
    return tuple(baseline.algorithm for baseline in BASELINES if op in baseline.ops)


def refuses_baseline(baseline: Baseline, case: Case, traits: Traits) -> str | None:
    """Why the library can't run the case on a fabric with these traits; None when it can."""
    if traits.simulated:
        return f"{baseline.name} needs GPUs: the fabric {traits.name} has none"
    if case.op not in baseline.ops:
        return f"{baseline.name} does not do {case.op}: it does {', '.join(baseline.ops)}"
    for what, value, allowed in (
        ("dtype", case.dtype, baseline.dtypes),
        ("reduction", case.reduction, baseline.reductions),
        ("placement", case.placement, baseline.placements),
    ):
        if value not in allowed:
            return f"{baseline.name} has no {what} {value!r}: it has {', '.join(allowed)}"
    if case.size_bytes < case.itemsize or case.size_bytes % case.itemsize:
        return f"{case.size_bytes} bytes are no whole number of {case.dtype} elements of {case.itemsize} bytes"
    if case.size_bytes % baseline.size_multiple_bytes:
        return f"{baseline.name} takes multiples of {baseline.size_multiple_bytes} bytes, not {case.size_bytes}"
    if case.offset and not baseline.uses_heap:
        return f"{baseline.name} is run on buffers of its own, which begin at a boundary: give offset=0"
    if traits.world_size != case.world_size:
        return f"the case wants {case.world_size} ranks, and the fabric {traits.name} has {traits.world_size}"
    if not 2 <= case.world_size <= baseline.max_world_size:
        return f"{baseline.name} is compared on 2 to {baseline.max_world_size} ranks, not on {case.world_size}"
    if baseline.algorithm.startswith("torch/") and traits.unmapped:
        return f"{baseline.name} needs every rank's memory mapped on every other: {traits.unmapped}"
    if baseline.needs_multicast and not traits.multicast:
        reason = traits.multicast_reason or "no reason given"
        return f"{baseline.name} needs multicast addresses, and the fabric {traits.name} has none: {reason}"
    return None


def library_of(algorithm: str, traits: Traits) -> str:
    """What a record calls the library behind a baseline, with the version that was loaded: "NCCL 2.28.9"."""
    import torch

    if algorithm == "nccl":
        if not hasattr(torch._C, "_nccl_version"):
            return "NCCL (not in this torch)"
        version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        return f"NCCL {'.'.join(str(part) for part in version)}"
    if algorithm.startswith("torch/"):
        return f"PyTorch {torch.__version__.partition('+')[0]} symmetric memory"
    return traits.library


class InPlace:
    """Slots that are both input and output: slices of one buffer of this rank, and a call that takes a slice."""

    def __init__(
        self, buffer: torch.Tensor, numel: int, stride: int, slots: int, call: Callable[[Any], object]
    ) -> None:
        self.slots = slots
        self._call = call
        self._views = [buffer[slot * stride : slot * stride + numel] for slot in range(slots)]

    def write(self, slot: int, data: torch.Tensor) -> None:
        self._views[slot].copy_(data)

    def launch(self, slot: int) -> None:
        self._call(self._views[slot])

    def output(self, slot: int) -> torch.Tensor:
        return self._views[slot]

    def trouble(self) -> str:
        return ""


class OutOfPlace:
    """Slots of one input and one output buffer of this rank, and a call that takes a slice of each."""

    def __init__(
        self,
        buffers: tuple[torch.Tensor, torch.Tensor],
        numel: int,
        stride: int,
        slots: int,
        call: Callable[[Any, Any], object],
    ) -> None:
        self.slots = slots
        self._call = call
        self._views = [
            (buffers[0][slot * stride : slot * stride + numel], buffers[1][slot * stride : slot * stride + numel])
            for slot in range(slots)
        ]

    def write(self, slot: int, data: torch.Tensor) -> None:
        import torch

        source, target = self._views[slot]
        source.copy_(data)
        target.view(torch.uint8).fill_(0xFF)

    def launch(self, slot: int) -> None:
        self._call(*self._views[slot])

    def output(self, slot: int) -> torch.Tensor:
        return self._views[slot][1]

    def trouble(self) -> str:
        return ""


def baseline_contender(
    name: str, fabric: Fabric, pool: SymmetricPool, case: Case, slots: int
) -> AbstractContextManager[Contender]:
    """Collective: the baseline of that name with its memory for `slots` slots of the case. Only on a real fabric."""
    opened = {
        "nccl": _nccl,
        "torch/one_shot": _torch_one_shot,
        "torch/two_shot": _torch_two_shot,
        "torch/multimem": _torch_multimem,
        "nvshmem": _nvshmem,
    }[name]
    return opened(cast(DeviceFabric, fabric), pool, case, slots)


def _stride(case: Case) -> int:
    """Elements from one slot to the next: slots begin at multiples of 256 bytes."""
    return -(-case.size_bytes // 256) * 256 // case.itemsize


def _group() -> Any:
    """torch's process group of all ranks of this world, made on first use."""
    from runner.rank import process_group

    return process_group()


@contextlib.contextmanager
def _nccl(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[Contender]:
    import torch

    group, stride = _group(), _stride(case)
    buffer = torch.zeros(slots * stride, dtype=DTYPES[case.dtype], device=fabric.device)

    def call(data: torch.Tensor) -> None:
        torch.distributed.all_reduce(data, op=torch.distributed.ReduceOp.SUM, group=group)

    yield InPlace(buffer, case.numel, stride, slots, call)


def _symmetric(fabric: DeviceFabric, case: Case, slots: int) -> tuple[torch.Tensor, str]:
    """A buffer in torch's symmetric memory, known to all ranks, and the name of the group.

    Taken from the allocator itself and not from torch's pool of such memory, so that it is given back when it goes.
    """
    import torch
    from torch._C._distributed_c10d import _SymmetricMemory
    from torch.distributed import _symmetric_memory

    group = _group()
    shape = (slots * _stride(case),)
    buffer = _SymmetricMemory.empty_strided_p2p(shape, (1,), DTYPES[case.dtype], torch.device(fabric.device))
    handle = _symmetric_memory.rendezvous(buffer, group)
    if handle is None:
        raise RuntimeError("torch's symmetric memory gave no handle for a buffer of its own")
    return buffer, str(group.group_name)


@contextlib.contextmanager
def _torch_one_shot(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[Contender]:
    import torch

    source, group_name = _symmetric(fabric, case, slots)
    target = torch.zeros_like(source, memory_format=torch.contiguous_format)
    call = torch.ops.symm_mem.one_shot_all_reduce_out
    stride = _stride(case)
    yield OutOfPlace(
        (source, target), case.numel, stride, slots, lambda one, other: call(one, "sum", group_name, other)
    )
    fabric.barrier()  # no rank unmaps what a peer may still read


@contextlib.contextmanager
def _torch_two_shot(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[Contender]:
    import torch

    buffer, group_name = _symmetric(fabric, case, slots)
    call = torch.ops.symm_mem.two_shot_all_reduce_
    yield InPlace(buffer, case.numel, _stride(case), slots, lambda data: call(data, "sum", group_name))
    fabric.barrier()


@contextlib.contextmanager
def _torch_multimem(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[Contender]:
    import torch

    buffer, group_name = _symmetric(fabric, case, slots)
    call = torch.ops.symm_mem.multimem_all_reduce_
    yield InPlace(buffer, case.numel, _stride(case), slots, lambda data: call(data, "sum", group_name))
    fabric.barrier()


@contextlib.contextmanager
def _nvshmem(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[Contender]:
    from runner.contenders import LibrarySlots

    dtype = DTYPES[case.dtype]

    def call(target: int, source: int) -> None:
        fabric.queue_library_all_reduce(dtype, target, source, case.numel)

    with pool.scope():
        yield LibrarySlots(fabric, pool, case, slots, call)
