"""Slots of a library's calls, in buffers of its own: slices of one buffer for both, or of an input and an output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cases.case import Case
from cases.ops import collective
from memory.fabric import DeviceFabric
from memory.process_group import process_group
from runner.case.allocation import SLOT_ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class Slices:
    """Where slots lie in a buffer: numel elements each, stride elements apart."""

    numel: int
    stride: int

    def of(self, buffer: torch.Tensor, slot: int) -> torch.Tensor:
        return buffer[slot * self.stride : slot * self.stride + self.numel]


def slices_of(case: Case, rank: int = 0) -> tuple[Slices, Slices]:
    """Of a rank's input and of its output. rank matters with counts per peer alone."""
    meaning = collective(case.op)
    room, room_behind = (_stride(count, case.itemsize) for count in meaning.elements(case))
    given = meaning.elements(case)[0]
    return Slices(given, room), Slices(meaning.received(case, rank), room_behind)


def _stride(numel: int, itemsize: int) -> int:
    return -(-numel * itemsize // SLOT_ALIGNMENT_BYTES) * SLOT_ALIGNMENT_BYTES // itemsize


def symmetric_buffer(fabric: DeviceFabric, dtype: torch.dtype, numel: int) -> tuple[torch.Tensor, str, tuple[int, ...]]:
    """Collective: a buffer in torch's symmetric memory, the name of the group, and each rank's buffer's address here.

    Taken from the allocator itself and not from torch's pool of such memory, so that it is given back when it goes.
    """
    from torch._C._distributed_c10d import _SymmetricMemory
    from torch.distributed import _symmetric_memory

    group = process_group()
    buffer = _SymmetricMemory.empty_strided_p2p((numel,), (1,), dtype, torch.device(fabric.device))
    handle = _symmetric_memory.rendezvous(buffer, group)
    if handle is None:
        raise RuntimeError("torch's symmetric memory gave no handle for a buffer of its own")
    return buffer, str(group.group_name), tuple(handle.buffer_ptrs)


class LibrarySlots:
    """Slots of one buffer of this rank, which are both input and output, or of an input and an output buffer; and a
    call that takes a slot's slices, input first.

    The fabric does not see a library's calls, so each is noted there: errors name the last one. captured is what the
    library wants done once graphs of its calls were made; None: nothing.
    """

    def __init__(
        self,
        fabric: DeviceFabric,
        case: Case,
        buffers: Sequence[torch.Tensor],
        slots: int,
        call: Callable[..., object],
        captured: Callable[[], None] | None = None,
    ) -> None:
        self.slots = slots
        self._fabric, self._name = fabric, case.name
        self._call, self._captured = call, captured
        self._where = slices_of(case, fabric.rank)
        self._views = [
            [one.of(buffer, slot) for buffer, one in zip(buffers, self._where, strict=False)] for slot in range(slots)
        ]

    def write(self, slot: int, data: torch.Tensor) -> None:
        """Fill a slot's input (1-D, the case's dtype), and poison an output of its own."""

        source, *others = self._views[slot]
        source.copy_(data)
        for other in others:
            other.view(torch.uint8).fill_(0xFF)

    def launch(self, slot: int) -> None:
        """Queue one call on torch's current stream. Nothing but that: it can be captured in a CUDA graph."""
        self._fabric.note_queued(self._name)
        self._call(*self._views[slot])

    def output(self, slot: int) -> torch.Tensor:
        """A slot's output (1-D, the case's dtype) where it lies; to be looked at."""
        return self._views[slot][-1]

    def captured(self) -> None:
        """Collective, once after graphs of its launches were made and before the first is replayed."""
        if self._captured is not None:
            self._captured()

    def trouble(self) -> str:
        return ""


class ReturnedSlots(LibrarySlots):
    """Slots of an input each, and a call that returns its output. That of a call in a graph is written by each replay:
    it is kept, so that nothing else takes its memory. Before a slot's first call memory of an output's size is poisoned
    and given back, which torch's allocator gives next."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._made: dict[int, torch.Tensor] = {}

    def write(self, slot: int, data: torch.Tensor) -> None:
        super().write(slot, data)
        made = self._made.get(slot)
        if made is None:
            made = data.new_empty(self._where[1].numel)
        made.fill_(float("nan"))

    def launch(self, slot: int) -> None:
        self._fabric.note_queued(self._name)
        made: Any = self._call(*self._views[slot])
        self._made[slot] = made

    def output(self, slot: int) -> torch.Tensor:
        return self._made[slot].flatten()
