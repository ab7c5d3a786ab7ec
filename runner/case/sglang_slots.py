"""How SGLang's all-reduce kernels are run on slots of a case: as in CUDA graphs of its server.

Buffers are in torch's symmetric memory, where SGLang has memory of its own that the ranks open by CUDA's inter-process
handles. push works in place: its inboxes have the size up to which SGLang pushes, and its slots are ordinary memory.
pull reads its peers' slots where they are, by a table of their addresses, as SGLang's graphs do once they were
registered; eager calls of SGLang copy the input into a buffer of its own first, which is not done here. In one shot it
has an output of its own, in two it works in place. The state of both goes on from call to call, so that graphs can be
replayed.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch

from cases.case import Case
from cases.dtypes import DTYPES
from cases.sglang_sizes import PULL, PUSH, push_bytes
from kernels.sglang import DTYPES as TYPES
from kernels.sglang import MODULES, Launch, pull_launch, pull_shots, push_launch
from memory.fabric import DeviceFabric
from memory.pool import SymmetricPool
from runner.case import library_modules
from runner.case.library_slots import LibrarySlots, slices_of, symmetric_buffer

ADDRESS_BYTES = 8


@contextlib.contextmanager
def open_push(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    """Collective: SGLang's one-shot push, in place."""

    library: Any = library_modules.load(MODULES[PUSH])
    where = slices_of(case)[0]
    launch = push_launch(case.size_bytes, _multiprocessors(fabric))
    inbox_bytes = push_bytes(case.world_size, fabric.traits.arch)
    banks_bytes = library.symlab_banks() * case.world_size * inbox_bytes
    banks, _, addresses = symmetric_buffer(fabric, torch.uint8, banks_bytes)
    banks.zero_()  # +0.0: nothing is written yet
    epochs = torch.zeros(launch.blocks * library.symlab_epoch_bytes(), dtype=torch.uint8, device=fabric.device)
    buffer = torch.zeros(slots * where.stride, dtype=DTYPES[case.dtype], device=fabric.device)
    inboxes = _pointers(addresses)
    fabric.synchronize()
    fabric.barrier()

    def call(data: torch.Tensor) -> None:
        place = ctypes.c_void_p(data.data_ptr())
        _queued(
            library.symlab_push(
                *_who(fabric, case),
                *(inboxes, ctypes.c_void_p(epochs.data_ptr()), place, place, data.numel(), inbox_bytes),
                *_how(fabric, launch),
            )
        )

    yield LibrarySlots(fabric, case, [buffer], slots, call)
    fabric.synchronize()
    fabric.barrier()  # no rank gives an inbox back that a peer may still write to


@contextlib.contextmanager
def open_pull(fabric: DeviceFabric, pool: SymmetricPool, case: Case, slots: int) -> Iterator[LibrarySlots]:
    """Collective: SGLang's pull, in one shot out of place or in two in place, by the number of ranks."""

    library: Any = library_modules.load(MODULES[PULL])
    source, target = slices_of(case)
    shots, dtype = pull_shots(case.world_size), DTYPES[case.dtype]
    launch = pull_launch(case.size_bytes, _multiprocessors(fabric))
    inputs, _, addresses = symmetric_buffer(fabric, dtype, slots * source.stride)
    signals, _, places = symmetric_buffer(fabric, torch.uint8, launch.blocks * library.symlab_flag_bytes())
    for one in (inputs.view(torch.uint8), signals):
        one.zero_()
    columns, step_bytes = library.symlab_table_bytes() // ADDRESS_BYTES, source.stride * case.itemsize
    peers = [[one + slot * step_bytes for one in addresses] + [0] * (columns - len(addresses)) for slot in range(slots)]
    table = torch.tensor(peers, dtype=torch.int64, device=fabric.device)
    rows = {inputs[slot * source.stride :].data_ptr(): table[slot].data_ptr() for slot in range(slots)}
    flags = _pointers(places)
    fabric.synchronize()
    fabric.barrier()

    def call(data: torch.Tensor, output: torch.Tensor | None = None) -> None:
        row = ctypes.c_void_p(rows[data.data_ptr()])
        result = ctypes.c_void_p(output.data_ptr() if output is not None else None)
        _queued(
            library.symlab_pull(
                *(*_who(fabric, case), shots, flags, row, result, data.numel()),
                *_how(fabric, launch),
            )
        )

    if shots == 1:
        outputs = torch.zeros(slots * target.stride, dtype=dtype, device=fabric.device)
        yield LibrarySlots(fabric, case, (inputs, outputs), slots, call)
    else:
        yield LibrarySlots(fabric, case, [inputs], slots, call)
    fabric.synchronize()
    fabric.barrier()  # no rank unmaps what a peer may still read


def _who(fabric: DeviceFabric, case: Case) -> tuple[int, int, int]:
    """The C functions' first arguments: the dtype's number, the number of ranks, and which this is."""
    return TYPES.index(case.dtype), case.world_size, fabric.rank


def _how(fabric: DeviceFabric, launch: Launch) -> tuple[int, int, ctypes.c_void_p]:
    """Their last arguments: the grid, and the current stream."""
    return launch.blocks, launch.threads, ctypes.c_void_p(_stream(fabric))


def _pointers(addresses: tuple[int, ...]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _queued(status: int) -> None:
    if status:
        raise RuntimeError(f"SGLang's kernel could not be launched: CUDA's error {status}")


def _stream(fabric: DeviceFabric) -> int:

    return int(torch.cuda.current_stream(fabric.device).cuda_stream)


def _multiprocessors(fabric: DeviceFabric) -> int:

    return int(torch.cuda.get_device_properties(fabric.device).multi_processor_count)
