"""A kernel on one rank: slots of its cases in symmetric memory, and its arguments there, bound from what its spec
declares.

A slot is one input with its output. All host work is done when a kernel is bound: launch(slot) queues one call and does
nothing else, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import torch

from cases.case import Case
from cases.dtypes import DTYPES
from cases.ops import collective
from kernels.spec import KernelSpec, Parameter
from memory.fabric import Argument, Executable, Fabric
from memory.pool import SymmetricPool
from runner.case.allocation import ADDRESS_BYTES, COUNTS, SlotsMemory, allocate, allocate_arenas, workspaces_of
from runner.case.buffers import Buffer, changed_guards, changed_pieces, fill, halves
from runner.case.contestant import Contestant
from runner.case.inputs import CPU
from runner.case.layout import layout_of

STATUS = "status"
"""The workspace in which kernels leave their report of a wait that they gave up (kernels/dsl/status.py)."""


class Slots:
    """Slots of cases in symmetric memory: inputs and outputs by slot."""

    def __init__(self, fabric: Fabric, memory: SlotsMemory, cases: Sequence[Case]) -> None:
        self.fabric, self.memory, self.cases = fabric, memory, tuple(cases)
        both = [
            halves(layout_of(case), payloads, fabric.rank)
            for case, payloads in zip(cases, memory.payloads, strict=True)
        ]
        self.inputs = [source for source, _ in both]
        self.outputs = [target for _, target in both]

    @property
    def slots(self) -> int:
        return len(self.cases)

    def write(self, slot: int, data: torch.Tensor) -> None:
        """Fill a slot's input (1-D, the case's dtype), and poison all else of its payloads."""
        fill(self.fabric, self.memory.payloads[slot], self.inputs[slot], data)

    def launch(self, slot: int) -> None:
        """Queue one call on a slot."""
        raise NotImplementedError

    def output(self, slot: int, case: Case | None = None) -> torch.Tensor:
        """A slot's output (1-D, the case's dtype) where it lies; to be looked at, after a synchronize. case: with other
        data than the slot's own, where counts per peer follow from it."""
        target = self.outputs[slot]
        if case is not None:
            target = halves(layout_of(case), self.memory.payloads[slot], self.fabric.rank)[1]
        return target.inspect(self.fabric).view(DTYPES[self.cases[slot].dtype])

    def captured(self) -> None:
        """Collective, once after graphs of its launches were made and before the first is replayed."""

    def trouble(self) -> str:
        """What it reports about its calls so far, such as a wait that it gave up; "" for nothing."""
        return ""


class BoundKernel(Slots):
    """A compiled kernel on its slots: one set of workspaces, and each slot's launch and arguments.

    executables: by slot, what was compiled for its case.
    """

    def __init__(
        self,
        fabric: Fabric,
        memory: SlotsMemory,
        spec: KernelSpec,
        cases: Sequence[Case],
        executables: Sequence[Executable],
        patience_s: float,
    ) -> None:
        super().__init__(fabric, memory, cases)
        self._spec = spec
        self._executables = executables
        self._launches = [
            spec.launch(case) if made.host is None else made.host.by_rank[fabric.rank].launch
            for case, made in zip(cases, executables, strict=True)
        ]
        for wanted, workspace in zip(workspaces_of(spec, cases), memory.workspaces, strict=True):
            initial = wanted.initial(workspace.size_bytes)
            if initial is not None:
                workspace.write(fabric, torch.frombuffer(bytearray(initial), dtype=torch.uint8))
        workspaces = {workspace.name: workspace for workspace in memory.workspaces}
        self._buffers: list[Mapping[str, Buffer]] = [
            {"input": source, "output": target} | workspaces
            for source, target in zip(self.inputs, self.outputs, strict=True)
        ]
        for slot, case in enumerate(cases):
            self._buffers[slot] = {**self._buffers[slot], **self._matrices(slot, case)}
        for name, table in memory.tables.items():
            if name != COUNTS:
                of, _, offset = name.partition("+")
                write_peers(fabric, table, [buffers[of.strip()] for buffers in self._buffers], int(offset or 0))
        for slot, case in enumerate(cases):
            self.write_counts(slot, case)
        self.set_patience(0 if fabric.traits.simulated else int(patience_s * 1e9))

    def _matrices(self, slot: int, case: Case) -> dict[str, Buffer]:
        """A slot's A, B and C by name, of an op that multiplies."""
        product = collective(case.op).product
        if product is None:
            return {}
        shapes, source = product.matrices(case), self.inputs[slot]
        end, ranks = prod(shapes.a) * case.itemsize, case.world_size
        a = source.part([0] * ranks, 0, end)
        return {"a": a, "b": source.part([end] * ranks, 0, source.size_bytes - end), "c": self.outputs[slot]}

    def set_patience(self, nanoseconds: int) -> None:
        """Set how long later launches wait for another rank before they report that; 0: for ever."""
        if self._spec.arguments is not None:
            self.arguments = [self._of_brought(slot, nanoseconds) for slot in range(self.slots)]
            return
        self.arguments = [
            tuple(one.argument(self._value(one, slot, nanoseconds)) for one in self._spec.parameters)
            for slot in range(self.slots)
        ]

    def _of_brought(self, slot: int, patience: int) -> tuple[Argument, ...]:
        """The arguments of a kernel that says them itself."""
        from runner.case.brought_arguments import BroughtMemory, bound, value_of

        case, host, rank = self.cases[slot], self._executables[slot].host, self.fabric.rank
        row_bytes = ADDRESS_BYTES * case.world_size
        tables = {
            name: Buffer(name, one.tensor, one.offset_bytes + row_bytes * slot, row_bytes)
            for name, one in self.memory.tables.items()
        }
        counts = {COUNTS: self._counts(slot)} if COUNTS in self.memory.tables else {}
        memory = BroughtMemory({**self._buffers[slot], **counts}, tables, patience=patience)
        if host is not None:
            found: tuple[Argument, ...] = host.arguments(rank, lambda one: value_of(one, memory))
            return found
        assert self._spec.arguments is not None
        return bound(self.fabric, self._spec.arguments(case, self._launches[slot], rank), memory)

    def write_counts(self, slot: int, case: Case) -> None:
        """Write what this rank sends to each in a case to the slot's row of the table of counts, if there is one."""
        sends = collective(case.op).sends
        if COUNTS in self.memory.tables:
            assert sends is not None, f"{case.op} has no counts per peer"
            self._counts(slot).write(self.fabric, torch.tensor(sends(case)[self.fabric.rank], dtype=torch.int64))

    def _counts(self, slot: int) -> Buffer:
        """A slot's row of the table of counts."""
        table, row_bytes = self.memory.tables[COUNTS], ADDRESS_BYTES * self.cases[slot].world_size
        return Buffer(table.name, table.tensor, table.offset_bytes + row_bytes * slot, row_bytes)

    def prepare(self, number: int, data: Mapping[int, torch.Tensor]) -> None:
        """Fill the inputs of slots, and make all else unlike any result.

        The first launch (number 0) has the fresh memory's poison in the output and, in place, beside the input, and
        around all buffers where the fabric knows poison: it reports a kernel that reads it. Later launches have 0xFF
        written there, and a pattern around the buffers.
        """
        device = device_of(self.fabric)
        for buffer in (*(buffer for slot in data for buffer in self.memory.payloads[slot]), *self.memory.workspaces):
            buffer.fill_guards(self.fabric, device, number)
        for slot, content in data.items():
            if number:
                self.write(slot, content)
            else:
                self.inputs[slot].write(self.fabric, content)

    def launch(self, slot: int, stream: int | None = None) -> None:
        """Queue one launch on a slot."""
        shape = self._launches[slot]
        if stream is not None:
            shape = dataclasses.replace(shape, stream=stream)
        self.fabric.launch(self._executables[slot], shape, self.arguments[slot])

    def trouble(self) -> str:
        """What the kernel said about a wait that it gave up; "" when it said nothing. Only after a synchronize."""
        for workspace in self.memory.workspaces:
            if workspace.name == STATUS:
                from kernels.dsl.status import describe

                words = workspace.inspect(self.fabric).cpu().clone().view(torch.int32).tolist()
                return str(describe(words, self.fabric.rank)) if any(words) else ""
        return ""

    def faults(self, number: int, held: Mapping[int, tuple[Case, torch.Tensor]]) -> list[str]:
        """What a launch changed that was not its to change, a line each: guards, and what is kept of the payloads.

        held: by slot, its case and what its input held.
        """
        fabric, found = self.fabric, []
        for slot, (case, data) in held.items():
            layout, payloads = layout_of(case), self.memory.payloads[slot]
            kept = layout.kept(fabric.rank, collective(case.op).gives(case, fabric.rank))
            others = " beside the output" if layout.in_place else " of a rank that is given none"
            for index, (buffer, pieces) in enumerate(zip(payloads, kept, strict=True)):
                where = buffer.name + (others if index or layout.in_place else "")
                found += changed_guards(fabric, buffer, buffer.name, number)
                found += changed_pieces(fabric, buffer, pieces, data, where, number)
        for buffer in self.memory.workspaces:
            found += changed_guards(fabric, buffer, buffer.name, number)
        return found

    def _value(self, parameter: Parameter, slot: int, patience_ns: int) -> int:
        """The value of one kernel parameter on this rank."""
        case, buffers, tables = self.cases[slot], self._buffers[slot], self.memory.tables
        row = ADDRESS_BYTES * case.world_size * slot
        match parameter.kind:
            case "address":
                return buffers[parameter.of].address
            case "peers":
                return tables[parameter.of].address + row
            case "counts":
                return tables[COUNTS].address + row
            case "multicast":
                return buffers[parameter.of].multicast_address()
            case "numel":
                return case.numel
            case "rank":
                return self.fabric.rank
            case "root":
                return case.root
            case "patience":
                return patience_ns


def bind(
    fabric: Fabric,
    pool: SymmetricPool,
    spec: KernelSpec,
    cases: Sequence[Case],
    executables: Sequence[Executable],
    patience_s: float,
) -> BoundKernel:
    """Collective: allocate a slot for each case of a kernel, with guards around it, and bind the kernel there."""
    return BoundKernel(fabric, allocate(pool, spec, cases), spec, cases, executables, patience_s)


@contextlib.contextmanager
def open_kernel(
    fabric: Fabric, pool: SymmetricPool, contestant: Contestant, slots: int, patience_s: float
) -> Iterator[BoundKernel]:
    """Collective: a compiled kernel with memory for `slots` slots of its case, held until the end of the with block.

    Raises HeapFull when it does not fit, ValueError for no slots.
    """
    case, spec = contestant.case, contestant.spec
    assert isinstance(spec, KernelSpec)
    assert contestant.executable is not None
    with pool.scope():
        memory = allocate_arenas(pool, spec, case, slots)
        yield BoundKernel(fabric, memory, spec, [case] * slots, [contestant.executable] * slots, patience_s)


def write_peers(fabric: Fabric, table: Buffer, buffers: Sequence[Buffer], offset_bytes: int = 0) -> None:
    """Write a table of peers: a row for each buffer, of world_size int64 addresses, from offset_bytes on."""
    rows = torch.tensor([buffer.peer_addresses() for buffer in buffers], dtype=torch.int64)
    table.write(fabric, rows.view(-1) + offset_bytes)


def device_of(fabric: Fabric) -> torch.device:
    """Where a rank's memory is: its GPU, or the host for a fabric without one."""
    return getattr(fabric, "device", CPU)
