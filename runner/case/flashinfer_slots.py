"""How flashinfer's all-reduce kernels are run on slots of a case, through its public interface (flashinfer.comm).

vLLM's reads its peers' inputs where they are, so all slots lie in one buffer that every rank has opened by CUDA's
inter-process handles. Its calls in a graph take their peers' addresses from a table that is filled once the graph was
made (captured). TensorRT-LLM's copies inputs to a workspace of its own. What each call needs beside its slots lies in
device memory and goes on from call to call, so that graphs can be replayed.

Closing gives everything back, collectively. After a failure nothing is waited for, as with a SymmetricPool: a kernel
may still run on the memory, peers may be gone, and the world ends with its processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
from collections.abc import Iterator
from typing import Any

import torch

from cases.case import Case
from cases.dtypes import DTYPES
from kernels.flashinfer import TRTLLM_LAMPORT, VECTOR_BYTES, Rows, rows_of, vllm_stages
from memory.driver import lent_bytes
from memory.fabric import DeviceFabric
from memory.pool import SymmetricPool
from memory.process_group import process_group
from runner.case.library_slots import LibrarySlots, slices_of

VLLM_BLOCKS = 36
"""Maximum number of blocks of vLLM's kernel, with which vLLM itself launches it."""

VLLM_TABLE_BYTES = 8 << 20
"""Room for the peers' addresses, 64 bytes a slot and a call in a graph; as much as vLLM takes."""

VLLM_ADDRESS_BYTES = 64


@contextlib.contextmanager
def open_vllm(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    """Collective: vLLM's all-reduce, in one stage or two as the library decides, on inputs that all ranks opened."""
    from flashinfer import comm

    group, dtype = process_group(), DTYPES[case.dtype]
    source, target = slices_of(case)
    stride_bytes = source.stride * case.itemsize
    scratch_bytes = 0 if vllm_stages(case.world_size, case.size_bytes) == 1 else _largest_share_bytes(case)
    inputs = comm.create_shared_buffer(slots * stride_bytes, group)
    signals = comm.create_shared_buffer(comm.vllm_meta_size() + scratch_bytes, group)
    # Fresh memory holds anything, and ranks whose counters begin differently wait for ever.
    first, second = (
        lent_bytes(shared[fabric.rank], size_bytes, fabric.device)[0]
        for shared, size_bytes in ((inputs, slots * stride_bytes), (signals, comm.vllm_meta_size()))
    )
    first.zero_()
    second.zero_()
    table = torch.zeros(VLLM_TABLE_BYTES, dtype=torch.uint8, device=fabric.device)
    fabric.synchronize()
    fabric.barrier()
    handle = comm.vllm_init_custom_ar(signals, table, fabric.rank, True)
    for slot in range(slots):
        comm.vllm_register_buffer(handle, [address + slot * stride_bytes for address in inputs])
    outputs = torch.zeros(slots * target.stride, dtype=dtype, device=fabric.device)

    def call(one: torch.Tensor, other: torch.Tensor) -> None:
        comm.vllm_all_reduce(handle, one, other, 0, 0, VLLM_BLOCKS)

    buffers = (first.view(dtype), outputs)
    yield LibrarySlots(fabric, case, buffers, slots, call, lambda: _fill_table(fabric, comm, handle, slots))
    fabric.synchronize()
    fabric.barrier()  # no rank closes what a peer may still read
    comm.vllm_dispose(handle)
    fabric.barrier()
    for shared in (inputs, signals):
        comm.free_shared_buffer(shared, group)


def _largest_share_bytes(case: Case) -> int:
    """What the rank with the most vectors reduces in two stages: those that are left over go to the last rank."""
    vectors = case.size_bytes // VECTOR_BYTES
    return (vectors // case.world_size + vectors % case.world_size) * VECTOR_BYTES


def _fill_table(fabric: DeviceFabric, comm: Any, handle: int, slots: int) -> None:
    """Give the calls of all graphs made so far the addresses of their peers' inputs. Collective."""
    mine = [list(one) for one in comm.vllm_get_graph_buffer_ipc_meta(handle)]
    everyone = [json.loads(note) for note in fabric.exchange(json.dumps(mine))]
    calls = {len(offsets) for _, offsets in everyone}
    if len(calls) > 1:
        raise ValueError(f"the ranks' graphs have {' and '.join(map(str, sorted(calls)))} calls of flashinfer's")
    room = VLLM_TABLE_BYTES // VLLM_ADDRESS_BYTES - slots
    if max(calls) > room:
        raise ValueError(f"flashinfer's table has room for {room} calls in graphs, not for {max(calls)} (timing.calls)")
    comm.vllm_register_graph_buffers(handle, [one for one, _ in everyone], [offsets for _, offsets in everyone])
    fabric.barrier()


@contextlib.contextmanager
def open_trtllm(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    """Collective: TensorRT-LLM's all-reduce, Lamport's one-shot or the two-shot by the case's name."""

    is_one_shot = case.algorithm == TRTLLM_LAMPORT
    rows = rows_of(case.size_bytes, case.world_size, is_one_shot)
    assert rows is not None, f"{case.id}: refused beforehand"
    source, target = slices_of(case)
    first, second = (
        torch.zeros(slots * one.stride, dtype=DTYPES[case.dtype], device=fabric.device) for one in (source, target)
    )
    kernel = _Trtllm(fabric, case, rows, is_one_shot)
    yield LibrarySlots(fabric, case, (first, second), slots, kernel.call)
    fabric.synchronize()
    fabric.barrier()
    kernel.close()
    fabric.barrier()


class _Trtllm:
    """A workspace of TensorRT-LLM's and calls on it. Slots keep the call: nothing keeps the workspace after close."""

    def __init__(self, fabric: DeviceFabric, case: Case, rows: Rows, is_one_shot: bool) -> None:
        from flashinfer import comm

        self._comm: Any = comm
        self._shape = (rows.count, rows.elements(case.itemsize))
        self._is_one_shot = is_one_shot
        self._in_float32 = case.dtype != "float32"
        self._workspace: Any = comm.create_allreduce_fusion_workspace(
            backend="trtllm",
            world_size=case.world_size,
            rank=fabric.rank,
            max_token_num=self._shape[0],
            hidden_dim=self._shape[1],
            dtype=DTYPES[case.dtype],
            group=process_group(),
        )
        assert math.prod(self._shape) == case.numel

    def call(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Queue one all-reduce, with dependent launch as production calls it."""
        self._comm.allreduce_fusion(
            input=source.view(self._shape),
            workspace=self._workspace,
            pattern=self._comm.AllReduceFusionPattern.kAllReduce,
            launch_with_pdl=True,
            output=target.view(self._shape),
            use_oneshot=self._is_one_shot,
            fp32_acc=self._in_float32,
        )

    def close(self) -> None:
        """Give the workspace back, and what flashinfer keeps of it: its own destroy() leaves the references that free
        the memory, and the flags on the device."""
        workspace, self._workspace = self._workspace, None
        flags = workspace.metadata.get("control_flag_ptr")
        self._comm.trtllm_destroy_ipc_workspace_for_all_reduce_fusion(workspace.ipc_handles)
        workspace.destroy()
        del workspace
        if flags is not None:
            self._comm.CudaRTLibrary().cudaFree(ctypes.c_void_p(flags))
