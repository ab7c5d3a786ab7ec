"""What a case allocates in symmetric memory. The one description of it: programs allocate by these functions on a
world's fabric, and what a case needs is counted by the same functions on a fabric without memory (memory_needed.py).

It imports no torch, so that a request which does not fit is answered at once. Contents come later: see binding.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cases.case import Case
from kernels.spec import KernelSpec, Workspace
from memory.pool import SymmetricPool
from runner.case.buffers import Buffer, guarded
from runner.case.layout import layout_of

GUARD_BYTES = 256
"""What a program keeps on either side of every payload and workspace."""

SLOT_ALIGNMENT_BYTES = 256
"""Where slots begin within their arena."""

ADDRESS_BYTES = 8
"""Bytes of an entry of a table of peers, or of counts."""

COUNTS = "counts"
"""The table of how many elements the rank sends to each."""


@dataclass(frozen=True, slots=True)
class CaseMemory:
    """A case's memory on one rank, with nothing written to it yet.

    payloads: what input and output lie in, two or, in place, one. tables: by buffer, its table of peers,
    and COUNTS.
    """

    payloads: tuple[Buffer, ...]
    workspaces: tuple[Buffer, ...]
    tables: dict[str, Buffer]


@dataclass(frozen=True, slots=True)
class SlotsMemory:
    """Memory of several slots of a case: payloads[slot] are what its input and output lie in.

    A kernel's slots share its workspaces; its tables hold one row of world_size entries a slot.
    """

    payloads: list[tuple[Buffer, ...]]
    workspaces: tuple[Buffer, ...]
    tables: dict[str, Buffer]


def allocate_case(pool: SymmetricPool, spec: KernelSpec, case: Case, guard_bytes: int) -> CaseMemory:
    """Collective: allocate what one run of the case's kernel needs, guard_bytes on either side of each buffer."""
    layout = layout_of(case)
    payloads = tuple(
        guarded(pool, name, size_bytes, guard_bytes, layout.offset_bytes)
        for name, size_bytes in zip(("input", "output"), layout.payloads_bytes, strict=False)
    )
    workspaces = _workspaces(pool, spec, case, guard_bytes, "")
    return CaseMemory(payloads, workspaces, _tables(pool, spec, case, 1, ""))


def allocate_slots(pool: SymmetricPool, spec: KernelSpec | None, case: Case, slots: int) -> SlotsMemory:
    """Collective: allocate slots for a kernel, or (spec None) for a library that works on symmetric memory.

    All inputs lie in one arena and all outputs in another; in place both are the same. ValueError for no slots.
    """
    if slots < 1:
        raise ValueError(f"{slots} slots for {case.id}: a contestant has at least one")
    # A kernel's two placements may be timed together, and names tell tensors apart.
    prefix = f"{case.name} in place " if case.placement == "in_place" else f"{case.name} "
    arenas = [
        _arena(pool, prefix + name, size_bytes, layout_of(case).offset_bytes, slots)
        for name, size_bytes in zip(("input", "output"), layout_of(case).payloads_bytes, strict=False)
    ]
    payloads = list(zip(*arenas, strict=True))
    if spec is None:
        return SlotsMemory(payloads, (), {})
    workspaces = _workspaces(pool, spec, case, GUARD_BYTES, prefix)
    return SlotsMemory(payloads, workspaces, _tables(pool, spec, case, slots, prefix))


def allocate_in_turn(pool: SymmetricPool, spec: KernelSpec, cases: Sequence[Case], guard_bytes: int) -> SlotsMemory:
    """Collective: allocate a slot for each case, guard_bytes on either side of each buffer, and workspaces for all.

    A workspace that the cases need of different sizes is as large as the largest.
    """
    payloads = []
    for slot, case in enumerate(cases):
        layout = layout_of(case)
        sizes = zip(("input", "output"), layout.payloads_bytes, strict=False)
        payloads.append(
            tuple(guarded(pool, f"{name} {slot}", size, guard_bytes, layout.offset_bytes) for name, size in sizes)
        )
    largest = workspaces_of(spec, cases)
    workspaces = tuple(guarded(pool, wanted.name, wanted.size_bytes, guard_bytes) for wanted in largest)
    return SlotsMemory(payloads, workspaces, _tables(pool, spec, cases[0], len(cases), ""))


def workspaces_of(spec: KernelSpec, cases: Sequence[Case]) -> tuple[Workspace, ...]:
    """Return the workspaces that serve all of the cases: of each name the largest, in the spec's order."""
    found: dict[str, Workspace] = {}
    for wanted in (workspace for case in cases for workspace in spec.workspaces(case)):
        kept = found.get(wanted.name)
        if kept is None or kept.size_bytes < wanted.size_bytes:
            found[wanted.name] = wanted
    return tuple(found.values())


def tables_of(spec: KernelSpec) -> dict[str, str]:
    """Return the tables that a kernel wants, each once, with what each is: of peers, by buffer, and COUNTS."""
    peers = {one.of: f"peers of {one.of}" for one in spec.parameters if one.kind == "peers"}
    has_counts = any(one.kind == "counts" for one in spec.parameters)
    return peers | ({COUNTS: "counts for peers"} if has_counts else {})


def _arena(pool: SymmetricPool, name: str, size_bytes: int, offset_bytes: int, slots: int) -> list[Buffer]:
    """A payload a slot, each offset_bytes behind a boundary."""
    stride = max(-(-(offset_bytes + size_bytes) // SLOT_ALIGNMENT_BYTES), 1) * SLOT_ALIGNMENT_BYTES
    tensor = pool.bytes(stride * slots, name=name, alignment_bytes=SLOT_ALIGNMENT_BYTES)
    return [Buffer(name, tensor, stride * slot + offset_bytes, size_bytes) for slot in range(slots)]


def _workspaces(pool: SymmetricPool, spec: KernelSpec, case: Case, guard_bytes: int, prefix: str) -> tuple[Buffer, ...]:
    """What the kernel keeps between launches. prefix makes the tensors' names tell kernels apart."""
    return tuple(
        replace(guarded(pool, prefix + wanted.name, wanted.size_bytes, guard_bytes), name=wanted.name)
        for wanted in spec.workspaces(case)
    )


def _tables(pool: SymmetricPool, spec: KernelSpec, case: Case, rows: int, prefix: str) -> dict[str, Buffer]:
    row_bytes = ADDRESS_BYTES * case.world_size
    return {
        name: Buffer(name, pool.bytes(rows * row_bytes, name=f"{prefix}{words}"), 0, rows * row_bytes)
        for name, words in tables_of(spec).items()
    }
