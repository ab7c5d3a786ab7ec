"""Kernels that call NCCL's device functions through nccl4py's bindings for CuTe DSL."""

import cutlass
import cutlass.cute as cute
import nccl.core.device.cute as nccl
from nccl.core.device.cute import runtime
from nccl.core.device.cute.types import MemoryOrder

THREADS, BLOCKS = 64, 4
ELEMENT_BYTES = 4


@cute.jit
def _at(pointer, count):
    return cute.make_tensor(cute.make_ptr(cutlass.Float32, pointer), cute.make_layout(count))


@cute.kernel
def _store(comm: nccl.DevComm, window: nccl.Window, source: cute.Pointer):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    peer = (comm.lsa_rank + 1) % comm.lsa_size
    _at(window.lsa_pointer(index * ELEMENT_BYTES, peer), 1)[0] = cute.make_tensor(source + index, cute.make_layout(1))[
        0
    ]


@cute.jit
def store(comm: nccl.DevComm, window: nccl.Window, source: cute.Pointer):
    """Each rank stores its elements into the next rank's window."""
    _store(comm, window, source).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def _barrier(
    comm: nccl.DevComm, window: nccl.Window, source: cute.Pointer, target: cute.Pointer, multimem: cutlass.Constexpr
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    peer = (comm.lsa_rank + 1) % comm.lsa_size
    _at(window.lsa_pointer(index * ELEMENT_BYTES, peer), 1)[0] = cute.make_tensor(source + index, cute.make_layout(1))[
        0
    ]
    group = nccl.cta()
    session = nccl.lsa_default(group, comm, block, multimem=multimem, mm_handle=comm.lsa_multimem if multimem else None)
    session.sync(group, MemoryOrder.ACQ_REL)
    session.destroy()
    cute.make_tensor(target + index, cute.make_layout(1))[0] = _at(window.local_pointer(index * ELEMENT_BYTES), 1)[0]


@cute.jit
def barrier(
    comm: nccl.DevComm, window: nccl.Window, source: cute.Pointer, target: cute.Pointer, multimem: cutlass.Constexpr
):
    """As store; behind a barrier of the blocks of one number each rank reads what it got."""
    _barrier(comm, window, source, target, multimem).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def _reduce_copy(comm: nccl.DevComm, sources: nccl.Window, targets: nccl.Window, count: cutlass.Int32):
    block, _, _ = cute.arch.block_idx()
    group = nccl.cta()
    session = nccl.lsa_default(group, comm, block)
    session.sync(group, MemoryOrder.ACQ_REL)
    share = count // (BLOCKS * comm.lsa_size)
    first = (comm.lsa_rank * BLOCKS + block) * share * ELEMENT_BYTES
    source = sources.tensor(cutlass.Float32, cute.make_layout(share), first)
    target = targets.tensor(cutlass.Float32, cute.make_layout(share), first)
    nccl.lsa_reduce_sum_copy(group, sources, source, targets, target, share, team=comm.team_lsa)
    session.sync(group, MemoryOrder.ACQ_REL)
    session.destroy()


@cute.jit
def reduce_copy(comm: nccl.DevComm, sources: nccl.Window, targets: nccl.Window, count: cutlass.Int32):
    """An all_reduce in two shots: each rank adds a share of all ranks' windows, and copies the sums into all."""
    _reduce_copy(comm, sources, targets, count).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


COMM, WINDOW = runtime.make_fake_dev_comm(), runtime.make_fake_window()
DATA = cute.runtime.make_ptr(cutlass.Float32, 0, cute.AddressSpace.gmem, assumed_align=ELEMENT_BYTES)
KERNELS = {
    "store": (store, [COMM, WINDOW, DATA]),
    "barrier": (barrier, [COMM, WINDOW, DATA, DATA, False]),
    "multimem_barrier": (barrier, [COMM, WINDOW, DATA, DATA, True]),
    "reduce_copy": (reduce_copy, [COMM, WINDOW, WINDOW, cutlass.Int32(1)]),
}
