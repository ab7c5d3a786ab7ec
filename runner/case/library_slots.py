"""Slots of a library's calls, in buffers of its own: slices of one buffer for both, or of an input and an output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.ops import collective
from memory.process_group import process_group

if TYPE_CHECKING:
    import torch

    from memory.fabric import DeviceFabric

SLOT_ALIGNMENT_BYTES = 256
"""Slots begin at multiples of this."""


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
    room, room_behind = (_stride(count, case.itemsize) for count in meaning.counts(case.numel, case.world_size))
    given = meaning.counts(case.numel, case.world_size)[0]
    return Slices(given, room), Slices(meaning.received(case, rank), room_behind)


def _stride(numel: int, itemsize: int) -> int:
    return -(-numel * itemsize // SLOT_ALIGNMENT_BYTES) * SLOT_ALIGNMENT_BYTES // itemsize


def symmetric_buffer(fabric: DeviceFabric, dtype: torch.dtype, numel: int) -> tuple[torch.Tensor, str, tuple[int, ...]]:
    """Collective: a buffer in torch's symmetric memory, the name of the group, and each rank's buffer's address here.

    Taken from the allocator itself and not from torch's pool of such memory, so that it is given back when it goes.
    """
    import torch
    from torch._C._distributed_c10d import _SymmetricMemory
    from torch.distributed import _symmetric_memory

    group = process_group()
    buffer = _SymmetricMemory.empty_strided_p2p((numel,), (1,), dtype, torch.device(fabric.device))
    handle = _symmetric_memory.rendezvous(buffer, group)
    if handle is None:
        raise RuntimeError("torch's symmetric memory gave no handle for a buffer of its own")
    return buffer, str(group.group_name), tuple(handle.buffer_ptrs)


class InPlace:
    """Slots that are both input and output: slices of one buffer of this rank, and a call that takes a slice."""

    def __init__(self, buffer: torch.Tensor, where: Slices, slots: int, call: Callable[[Any], object]) -> None:
        self.slots = slots
        self._call = call
        self._views = [where.of(buffer, slot) for slot in range(slots)]

    def write(self, slot: int, data: torch.Tensor) -> None:
        self._views[slot].copy_(data)

    def launch(self, slot: int) -> None:
        self._call(self._views[slot])

    def output(self, slot: int) -> torch.Tensor:
        return self._views[slot]

    def captured(self) -> None:
        pass

    def trouble(self) -> str:
        return ""


class OutOfPlace:
    """Slots of one input and one output buffer of this rank, and a call that takes a slice of each, input first.

    captured is what the library wants done once graphs of its calls were made; None: nothing.
    """

    def __init__(
        self,
        buffers: tuple[torch.Tensor, torch.Tensor],
        where: tuple[Slices, Slices],
        slots: int,
        call: Callable[[Any, Any], object],
        captured: Callable[[], None] | None = None,
    ) -> None:
        self.slots = slots
        self._call = call
        self._captured = captured
        self._views = [(where[0].of(buffers[0], slot), where[1].of(buffers[1], slot)) for slot in range(slots)]

    def write(self, slot: int, data: torch.Tensor) -> None:
        import torch

        source, target = self._views[slot]
        source.copy_(data)
        target.view(torch.uint8).fill_(0xFF)

    def launch(self, slot: int) -> None:
        self._call(*self._views[slot])

    def output(self, slot: int) -> torch.Tensor:
        return self._views[slot][1]

    def captured(self) -> None:
        if self._captured is not None:
            self._captured()

    def trouble(self) -> str:
        return ""
