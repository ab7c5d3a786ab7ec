"""Contestants: things that do a case and can be launched again and again, on memory for several buffers in turn.

A slot is one input with its output. Slots are rotated so that what is timed doesn't find its data in the cache, as
far as their number goes. All host work is done when a contestant is opened: launch(slot) queues one call on the current
stream and does nothing else, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

import torch

from cases.case import Case
from cases.dtypes import DTYPES
from kernels.spec import KernelSpec
from memory.fabric import Fabric
from memory.pool import SymmetricPool
from runner.case.allocation import ADDRESS_BYTES, allocate_slots
from runner.case.binding import arguments_of, fill_workspaces, status_report, write_tables
from runner.case.buffers import fill, halves
from runner.case.contestant import Contestant
from runner.case.layout import layout_of


class OpenContestant(Protocol):
    """Something that does a case on one of several slots. Reads of outputs come after Fabric.synchronize()."""

    @property
    def slots(self) -> int: ...

    def write(self, slot: int, data: torch.Tensor) -> None:
        """Fill a slot's input (1-D, the case's dtype), and poison all else of its buffers."""
        ...

    def launch(self, slot: int) -> None:
        """Queue one call on the current stream. Nothing but that: it can be captured."""
        ...

    def output(self, slot: int) -> torch.Tensor:
        """A slot's output (1-D, the case's dtype) where it lies; to be looked at."""
        ...

    def captured(self) -> None:
        """Collective, once after graphs of its launches were made and before the first is replayed: what it has to do
        for them."""
        ...

    def trouble(self) -> str:
        """What the contestant itself reports about its calls so far, such as a wait it gave up; "" for nothing."""
        ...


def slot_bytes(case: Case) -> int:
    """Input and output of one slot, together; in place they are one buffer."""
    return sum(layout_of(case).payloads_bytes)


class _Arenas:
    """Slots in symmetric memory, of a kernel or (spec None) of a library."""

    def __init__(self, fabric: Fabric, pool: SymmetricPool, case: Case, spec: KernelSpec | None, slots: int) -> None:
        self.slots = slots
        self._fabric = fabric
        self._dtype = DTYPES[case.dtype]
        self._memory = allocate_slots(pool, spec, case, slots)
        both = [halves(layout_of(case), payloads, fabric.rank) for payloads in self._memory.payloads]
        self.inputs = [source for source, _ in both]
        self.outputs = [target for _, target in both]

    def write(self, slot: int, data: torch.Tensor) -> None:
        fill(self._fabric, self._memory.payloads[slot], self.inputs[slot], data)

    def output(self, slot: int) -> torch.Tensor:
        return self.outputs[slot].inspect(self._fabric).view(self._dtype)

    def captured(self) -> None:
        pass


class KernelSlots(_Arenas):
    """A compiled kernel on its slots: one set of workspaces, and each slot's arguments made beforehand."""

    def __init__(
        self,
        fabric: Fabric,
        pool: SymmetricPool,
        contestant: Contestant,
        slots: int,
        patience_s: float,
    ) -> None:
        case, spec = contestant.case, contestant.spec
        assert isinstance(spec, KernelSpec)
        assert contestant.executable is not None
        super().__init__(fabric, pool, case, spec, slots)
        self._executable = contestant.executable
        self._launch = spec.launch(case)
        fill_workspaces(fabric, spec, case, self._memory.workspaces)
        workspaces = {workspace.name: workspace for workspace in self._memory.workspaces}
        per_slot = [
            {"input": source, "output": target} | workspaces
            for source, target in zip(self.inputs, self.outputs, strict=True)
        ]
        write_tables(fabric, self._memory.tables, [case] * slots, per_slot)
        row_bytes = ADDRESS_BYTES * case.world_size
        self._arguments = [
            arguments_of(
                spec,
                fabric,
                case,
                buffers,
                {name: table.address + row_bytes * slot for name, table in self._memory.tables.items()},
                patience_s,
            )
            for slot, buffers in enumerate(per_slot)
        ]

    def launch(self, slot: int) -> None:
        self._fabric.launch(self._executable, self._launch, self._arguments[slot])

    def trouble(self) -> str:
        return status_report(self._fabric, self._memory.workspaces)


class LibrarySlots(_Arenas):
    """A library's call on symmetric memory; it takes the output's address and the input's."""

    def __init__(
        self, fabric: Fabric, pool: SymmetricPool, case: Case, slots: int, call: Callable[[int, int], None]
    ) -> None:
        super().__init__(fabric, pool, case, None, slots)
        self._call = call
        self._addresses = [
            (target.address, source.address) for source, target in zip(self.inputs, self.outputs, strict=True)
        ]

    def launch(self, slot: int) -> None:
        self._call(*self._addresses[slot])

    def trouble(self) -> str:
        return ""


@contextlib.contextmanager
def open_kernel(
    fabric: Fabric, pool: SymmetricPool, contestant: Contestant, slots: int, patience_s: float
) -> Iterator[OpenContestant]:
    """Collective: a compiled kernel, with memory for `slots` slots of its case, held until the end of the with block.

    Raises HeapFull when it does not fit, ValueError for no slots.
    """
    with pool.scope():
        yield KernelSlots(fabric, pool, contestant, slots, patience_s)
