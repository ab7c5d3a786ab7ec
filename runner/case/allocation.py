"""What a case allocates in symmetric memory. The one description of it: programs allocate by these functions on a
world's fabric, and what a case needs is counted by the same functions in a pool without memory (memory_needed.py).

It imports no torch, so that a request which does not fit is answered at once. Contents come later: see binding.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cases.case import Case
from kernels.spec import KernelSpec, Workspace
from memory.pool import Pool
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
class SlotsMemory:
    """A kernel's memory on one rank, with nothing written to it yet.

    payloads[slot] are what the slot's input and output lie in: two or, in place, one. All slots share the workspaces;
    tables, of peers by buffer and COUNTS, hold one row of world_size entries a slot.
    """

    payloads: list[tuple[Buffer, ...]]
    workspaces: tuple[Buffer, ...]
    tables: dict[str, Buffer]


def allocate(pool: Pool, spec: KernelSpec, cases: Sequence[Case]) -> SlotsMemory:
    """Collective: allocate a slot for each case, guards on either side of each buffer, and workspaces for all.

    A workspace that the cases need of different sizes is as large as the largest.
    """
    payloads = []
    for slot, case in enumerate(cases):
        layout, number = layout_of(case), f" {slot}" if len(cases) > 1 else ""
        sizes = zip(("input", "output"), layout.payloads_bytes, strict=False)
        payloads.append(
            tuple(guarded(pool, f"{name}{number}", size, GUARD_BYTES, layout.offset_bytes) for name, size in sizes)
        )
    return SlotsMemory(payloads, *_shared(pool, spec, cases, ""))


def allocate_arenas(pool: Pool, spec: KernelSpec | None, case: Case, slots: int) -> SlotsMemory:
    """Collective: allocate slots of one case for a kernel, or (spec None) for a library that works on symmetric memory.

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
    return SlotsMemory(payloads, *(_shared(pool, spec, [case] * slots, prefix) if spec is not None else ((), {})))


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


def _arena(pool: Pool, name: str, size_bytes: int, offset_bytes: int, slots: int) -> list[Buffer]:
    """A payload a slot, each offset_bytes behind a boundary."""
    stride = max(-(-(offset_bytes + size_bytes) // SLOT_ALIGNMENT_BYTES), 1) * SLOT_ALIGNMENT_BYTES
    tensor = pool.bytes(stride * slots, name=name, alignment_bytes=SLOT_ALIGNMENT_BYTES)
    return [Buffer(name, tensor, stride * slot + offset_bytes, size_bytes) for slot in range(slots)]


def _shared(
    pool: Pool, spec: KernelSpec, cases: Sequence[Case], prefix: str
) -> tuple[tuple[Buffer, ...], dict[str, Buffer]]:
    """The workspaces and the tables of all slots. prefix makes the tensors' names tell kernels apart."""
    workspaces = tuple(
        replace(guarded(pool, prefix + wanted.name, wanted.size_bytes, GUARD_BYTES), name=wanted.name)
        for wanted in workspaces_of(spec, cases)
    )
    size_bytes = len(cases) * ADDRESS_BYTES * cases[0].world_size
    tables = {
        name: Buffer(name, pool.bytes(size_bytes, name=f"{prefix}{words}"), 0, size_bytes)
        for name, words in tables_of(spec).items()
    }
    return workspaces, tables
