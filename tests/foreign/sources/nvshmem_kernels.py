"""Kernels that call NVSHMEM's device functions through nvshmem4py's bindings for CuTe DSL: a PE gives to the next."""

import cutlass
import cutlass.cute as cute
import nvshmem.core.device.cute as nvshmem

THREADS = 64
SIGNAL_SET, SIGNAL_ADD = 9, 10
EQUAL = 0
ARRIVED = 7


@cute.jit
def _next(pe):
    return (pe + 1) % nvshmem.n_pes()


@cute.jit
def _part(pointer: cute.Pointer, first, count):
    return cute.make_tensor(pointer + first, cute.make_layout(count))


@cute.kernel
def _p(source: cute.Pointer, target: cute.Pointer):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    nvshmem.p(_part(target, index, 1), _part(source, index, 1)[0], _next(nvshmem.my_pe()))


@cute.jit
def p(source: cute.Pointer, target: cute.Pointer):
    """One element a thread."""
    _p(source, target).launch(grid=[4, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def _put_block(source: cute.Pointer, target: cute.Pointer, count: cutlass.Int32):
    block, _, _ = cute.arch.block_idx()
    nvshmem.put_block(_part(target, block * count, count), _part(source, block * count, count), _next(nvshmem.my_pe()))


@cute.jit
def put_block(source: cute.Pointer, target: cute.Pointer, count: cutlass.Int32):
    """`count` elements a block."""
    _put_block(source, target, count).launch(grid=[4, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def _put_signal_of_threads(source: cute.Pointer, target: cute.Pointer, signal: cute.Pointer, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    first = thread * count
    nvshmem.put_signal(
        _part(target, first, count),
        _part(source, first, count),
        _part(signal, 0, 1),
        1,
        SIGNAL_ADD,
        _next(nvshmem.my_pe()),
    )
    nvshmem.signal_wait(_part(signal, 0, 1), EQUAL, THREADS)


@cute.jit
def put_signal_of_threads(source: cute.Pointer, target: cute.Pointer, signal: cute.Pointer, count: cutlass.Int32):
    """Each thread of a block gives `count` elements, adds 1 to the signal, and waits for those of the PE before."""
    _put_signal_of_threads(source, target, signal, count).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def _put_signal(
    source: cute.Pointer, target: cute.Pointer, signal: cute.Pointer, copied: cute.Pointer, count: cutlass.Int32
):
    thread, _, _ = cute.arch.thread_idx()
    mine = _part(signal, 0, 1)
    nvshmem.put_signal_block(
        _part(target, 0, count), _part(source, 0, count), mine, ARRIVED, SIGNAL_SET, _next(nvshmem.my_pe())
    )
    if thread == 0:
        nvshmem.signal_wait(mine, EQUAL, ARRIVED)
    cute.arch.sync_threads()
    for index in range(thread, count, THREADS):
        _part(copied, index, 1)[0] = _part(target, index, 1)[0]


@cute.jit
def put_signal(
    source: cute.Pointer, target: cute.Pointer, signal: cute.Pointer, copied: cute.Pointer, count: cutlass.Int32
):
    """One block gives `count` elements, waits for those of the PE before, and copies them once they are there."""
    _put_signal(source, target, signal, copied, count).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def _wait_alone(signal: cute.Pointer):
    nvshmem.signal_wait(_part(signal, 0, 1), EQUAL, ARRIVED)


@cute.jit
def wait_alone(signal: cute.Pointer):
    """Wait for a signal that no PE gives."""
    _wait_alone(signal).launch(grid=[1, 1, 1], block=[1, 1, 1])


@cute.kernel
def _barrier_all():
    nvshmem.barrier_all_block()


@cute.jit
def barrier_all():
    """Wait for all PEs."""
    _barrier_all().launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


def _pointer(element):
    return cute.runtime.make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=element.width // 8)


DATA, SIGNAL = _pointer(cutlass.Float32), _pointer(cutlass.Uint64)
COUNT = cutlass.Int32(1)
KERNELS = {
    "p": (p, [DATA, DATA]),
    "put_block": (put_block, [DATA, DATA, COUNT]),
    "put_signal": (put_signal, [DATA, DATA, SIGNAL, DATA, COUNT]),
    "put_signal_of_threads": (put_signal_of_threads, [DATA, DATA, SIGNAL, COUNT]),
    "wait_alone": (wait_alone, [SIGNAL]),
    "barrier_all": (barrier_all, []),
}
