"""How libraries' own collectives are run, on slots of a case like our kernels (runner/case/binding.py). Only on GPUs.

Which there are, and what each refuses, is in kernels/baselines.py. Memory is the library's: torch's allocator for NCCL,
torch's symmetric memory (SGLang's, too), the fabric's symmetric heap for NVSHMEM, flashinfer's workspaces
(flashinfer_slots.py). Every call is queued on torch's current stream, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as distributed

from cases.case import Case
from cases.dtypes import DTYPES, NONE
from cases.ops import collective
from cases.sglang_sizes import PULL, PUSH
from kernels.baselines import CUBLAS, FUSED, MULTIMEM_STAGED, NCCL, NCCL_SYMMETRIC, TWO_SHOT_STAGED, find_baseline
from kernels.flashinfer import TRTLLM_LAMPORT, TRTLLM_TWO_SHOT, VLLM_ONE_SHOT, VLLM_TWO_SHOT
from memory.fabric import DeviceFabric, Fabric, LibraryCall
from memory.pool import SymmetricPool
from memory.process_group import process_group
from runner.case.allocation import allocate_arenas
from runner.case.binding import Slots
from runner.case.flashinfer_slots import open_trtllm, open_vllm
from runner.case.library_slots import LibrarySlots, ReturnedSlots, slices_of, symmetric_buffer
from runner.case.sglang_slots import open_pull, open_push


@contextlib.contextmanager
def open_baseline(
    name: str, fabric: Fabric, pool: SymmetricPool, case: Case, slots: int
) -> Iterator[LibrarySlots | Slots]:
    """Collective: the baseline of that name with its memory for `slots` slots of the case. Only on a real fabric."""
    opened: Any = {
        NCCL: _nccl,
        CUBLAS: _nccl,
        NCCL_SYMMETRIC: _nccl_symmetric,
        "torch/one_shot": _torch_one_shot,
        "torch/two_shot": _torch_two_shot,
        "torch/multimem": _torch_multimem,
        FUSED: _torch_fused,
        TWO_SHOT_STAGED: _torch_staged,
        MULTIMEM_STAGED: _torch_staged,
        "nvshmem": _nvshmem,
        VLLM_ONE_SHOT: open_vllm,
        VLLM_TWO_SHOT: open_vllm,
        TRTLLM_LAMPORT: open_trtllm,
        TRTLLM_TWO_SHOT: open_trtllm,
        PUSH: open_push,
        PULL: open_pull,
    }[name]
    with opened(fabric, pool, case, slots) as contestant:
        yield contestant


@contextlib.contextmanager
def _nccl(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    yield _nccl_slots(fabric, case, slots)


def _nccl_slots(fabric: DeviceFabric, case: Case, slots: int) -> LibrarySlots:
    """NCCL's calls on slots that torch's allocator gives now."""

    source, target = slices_of(case, fabric.rank)
    dtype = DTYPES[case.dtype]
    call = nccl_call(case, process_group(), fabric.rank)
    buffers = [torch.zeros(slots * source.stride, dtype=dtype, device=fabric.device)]
    if case.placement != "in_place":
        buffers.append(torch.zeros(slots * target.stride, dtype=dtype, device=fabric.device))
    return LibrarySlots(fabric, case, buffers, slots, call)


@contextlib.contextmanager
def _nccl_symmetric(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    """The same calls, with all slots in memory of NCCL's that is registered as symmetric windows meanwhile."""
    from torch import distributed

    group = process_group()
    # A communicator exists from its first call on, and registering needs one.
    distributed.all_reduce(torch.zeros(1, device=fabric.device), group=group)
    backend: Any = group._get_backend(torch.device(fabric.device))
    windows = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(windows):
        opened = _nccl_slots(fabric, case, slots)
    fabric.synchronize()
    fabric.barrier()
    backend.register_mem_pool(windows, symm=True)
    yield opened
    fabric.synchronize()
    fabric.barrier()  # no rank takes a window away that a peer still reads
    backend.deregister_mem_pool(windows)


def nccl_call(case: Case, group: Any, rank: int) -> Callable[..., object]:
    """What runs a case by torch.distributed on a group of all ranks: takes the one buffer, or input and output.

    Data that only moves goes as bytes, which NCCL makes of it anyway: torch knows no unsigned integers of NCCL.
    """

    if collective(case.op).product is not None:
        return _product_call(case, group)
    operations = distributed.ReduceOp
    reduction = {"sum": operations.SUM, "min": operations.MIN, "max": operations.MAX, "avg": operations.AVG}.get(
        case.reduction
    )

    def send_recv(source: torch.Tensor, target: torch.Tensor) -> None:
        sent, received = source.view(torch.uint8), target.view(torch.uint8)
        after, before = (rank + 1) % case.world_size, (rank - 1) % case.world_size
        transfers = [
            distributed.P2POp(distributed.isend, sent, after, group),
            distributed.P2POp(distributed.irecv, received, before, group),
        ]
        for work in distributed.batch_isend_irecv(transfers):
            work.wait()  # the stream waits, not the host

    sends = collective(case.op).sends
    rows = sends(case) if sends else ()
    given = [count * case.itemsize for count in rows[rank]] if rows else []
    got = [row[rank] * case.itemsize for row in rows]

    def all_to_all_v(source: torch.Tensor, target: torch.Tensor) -> None:
        sent = source.view(torch.uint8)[: sum(given)]
        distributed.all_to_all_single(target.view(torch.uint8), sent, got, given, group=group)

    calls: dict[str, Callable[..., object]] = {
        "all_reduce": lambda data: distributed.all_reduce(data, op=reduction, group=group),
        "reduce": lambda data: distributed.reduce(data, dst=case.root, op=reduction, group=group),
        "broadcast": lambda data: distributed.broadcast(data.view(torch.uint8), src=case.root, group=group),
        "reduce_scatter": lambda source, target: distributed.reduce_scatter_tensor(
            target, source, op=reduction, group=group
        ),
        "all_gather": lambda source, target: distributed.all_gather_into_tensor(
            target.view(torch.uint8), source.view(torch.uint8), group=group
        ),
        "all_to_all": lambda source, target: distributed.all_to_all_single(
            target.view(torch.uint8), source.view(torch.uint8), group=group
        ),
        "all_to_all_v": all_to_all_v,
        "send_recv": send_recv,
    }
    return calls[case.op]


def _product_call(case: Case, group: Any) -> Callable[..., object]:
    """What multiplies by cuBLAS, and by NCCL gathers rows before that or adds them after it. PyTorch's defaults let
    cuBLAS add parts of a divided depth in the dtype. Between the two is one buffer for all slots."""

    product = collective(case.op).product
    assert product is not None
    assert case.gemm is not None
    (m, n, k), end = case.gemm, math.prod(product.matrices(case).a)

    @functools.cache
    def intermediate(device: Any, columns: int) -> torch.Tensor:
        return torch.empty(m, columns, dtype=DTYPES[case.dtype], device=device)

    def call(source: torch.Tensor, target: torch.Tensor) -> None:
        a, b, c = source[:end].view(-1, k), source[end:].view(n, k), target.view(-1, n)
        if case.op == "all_gather_matmul":
            whole = intermediate(source.device, k)
            distributed.all_gather_into_tensor(whole, a, group=group)
            torch.matmul(whole, b.T, out=c)
        elif case.op == "matmul_reduce_scatter":
            parts = torch.matmul(a, b.T, out=intermediate(source.device, n))
            distributed.reduce_scatter_tensor(c, parts, group=group)
        else:
            torch.matmul(a, b.T, out=c)
            if case.op == "matmul_all_reduce":
                distributed.all_reduce(c, group=group)

    return call


@contextlib.contextmanager
def _torch_one_shot(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:

    where = slices_of(case)
    source, group_name, _ = symmetric_buffer(fabric, DTYPES[case.dtype], slots * where[0].stride)
    target = torch.zeros_like(source, memory_format=torch.contiguous_format)
    call = torch.ops.symm_mem.one_shot_all_reduce_out
    yield LibrarySlots(fabric, case, (source, target), slots, lambda one, other: call(one, "sum", group_name, other))
    fabric.barrier()  # no rank unmaps what a peer may still read


@contextlib.contextmanager
def _torch_two_shot(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:

    where = slices_of(case)
    buffer, group_name, _ = symmetric_buffer(fabric, DTYPES[case.dtype], slots * where[0].stride)
    if case.op == "all_reduce":
        call = torch.ops.symm_mem.two_shot_all_reduce_
        yield LibrarySlots(fabric, case, [buffer], slots, lambda data: call(data, "sum", group_name))
    else:
        target = torch.zeros(slots * where[1].stride, dtype=buffer.dtype, device=fabric.device)
        scatter = torch.ops.symm_mem.reduce_scatter_out
        # split_last_dim False: a rank's chunk is a piece of the whole, flat input.
        yield LibrarySlots(
            fabric, case, (buffer, target), slots, lambda one, other: scatter(one, group_name, False, other)
        )
    fabric.barrier()


@contextlib.contextmanager
def _torch_multimem(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:

    where = slices_of(case)
    if case.op == "all_reduce":
        buffer, group_name, _ = symmetric_buffer(fabric, DTYPES[case.dtype], slots * where[0].stride)
        call = torch.ops.symm_mem.multimem_all_reduce_
        yield LibrarySlots(fabric, case, [buffer], slots, lambda data: call(data, "sum", group_name))
    else:
        # The output is what all ranks write to; it alone has to be symmetric.
        target, group_name, _ = symmetric_buffer(fabric, DTYPES[case.dtype], slots * where[1].stride)
        source = torch.zeros(slots * where[0].stride, dtype=target.dtype, device=fabric.device)
        gather = torch.ops.symm_mem.multimem_all_gather_out
        yield LibrarySlots(fabric, case, (source, target), slots, lambda one, other: gather(one, group_name, other))
    fabric.barrier()


@contextlib.contextmanager
def _torch_fused(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    """PyTorch keeps a symmetric buffer for a group, which it makes at the first call; here until the case ends."""
    from torch.distributed import _symmetric_memory

    source = torch.zeros(slots * slices_of(case)[0].stride, dtype=DTYPES[case.dtype], device=fabric.device)
    _, group_name, _ = symmetric_buffer(fabric, source.dtype, 1)  # the group's first: later ones need it
    try:
        yield ReturnedSlots(fabric, case, [source], slots, fused_call(case, group_name))
        fabric.synchronize()
        fabric.barrier()
    finally:
        _symmetric_memory._group_name_to_workspace_tensor.pop(group_name, None)


def fused_call(case: Case, group_name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return PyTorch's fused matmul of a case: takes a slot's A and B, and returns C."""

    product = collective(case.op).product
    assert product is not None
    assert case.gemm is not None
    _, n, k = case.gemm
    end = math.prod(product.matrices(case).a)

    def call(source: torch.Tensor) -> torch.Tensor:
        a, b = source[:end].view(-1, k), source[end:].view(n, k)
        if case.op == "all_gather_matmul":
            fused = torch.ops.symm_mem.fused_all_gather_matmul
            made: torch.Tensor = fused(a, [b.T], 0, group_name, return_A=False)[1][0]
        else:
            made = torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b.T, "sum", 0, group_name)
        return made

    return call


@contextlib.contextmanager
def _torch_staged(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    """One symmetric buffer for all slots, as one communicator of vLLM or SGLang has one for all calls."""

    where = slices_of(case)
    source, target = (torch.zeros(slots * one.stride, dtype=DTYPES[case.dtype], device=fabric.device) for one in where)
    buffer, group_name, _ = symmetric_buffer(fabric, DTYPES[case.dtype], where[0].stride)
    symm_mem = torch.ops.symm_mem
    is_multimem = case.algorithm == MULTIMEM_STAGED
    reduce = symm_mem.multimem_all_reduce_ if is_multimem else symm_mem.two_shot_all_reduce_
    stage = buffer[: where[0].numel]
    call = staged_call(stage, lambda data: reduce(data, "sum", group_name))
    yield LibrarySlots(fabric, case, (source, target), slots, call)
    fabric.barrier()


def staged_call(stage: torch.Tensor, reduce: Callable[[torch.Tensor], object]) -> Callable[[Any, Any], None]:
    """Return what runs an all_reduce out of place on a buffer that is reduced in place."""

    def call(source: torch.Tensor, target: torch.Tensor) -> None:
        stage.copy_(source)
        reduce(stage)
        target.copy_(stage)

    return call


class _OnHeap(Slots):
    """NVSHMEM's call on slots in symmetric memory."""

    def __init__(self, fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> None:
        super().__init__(fabric, allocate_arenas(pool, None, case, slots), [case] * slots)
        self._call = nvshmem_call(case)

    def launch(self, slot: int) -> None:
        fabric: Any = self.fabric
        fabric.note_queued(self.cases[slot].name)
        fabric.queue_library(self._call, self.outputs[slot].address, self.inputs[slot].address)


@contextlib.contextmanager
def _nvshmem(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[Slots]:
    with pool.scope():
        yield _OnHeap(fabric, pool, case, slots)


def nvshmem_call(case: Case) -> LibraryCall:
    """A case in NVSHMEM's words; it has no 8-bit floats, which move as bytes."""
    baseline = find_baseline("nvshmem")
    assert baseline is not None
    meaning = collective(case.op)
    dtype = "uint8" if case.itemsize == 1 else case.dtype
    return LibraryCall(
        collective=baseline.offer(case.op).call,
        dtype=f"torch.{dtype}",
        count=case.numel // case.world_size if meaning.chunked else case.numel,
        reduction="" if case.reduction == NONE else case.reduction,
        root=case.root,
    )
