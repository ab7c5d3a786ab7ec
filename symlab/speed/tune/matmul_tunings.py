"""The tunings that a search tries for matmuls: what the catalogue chooses among, with other copies to other ranks, then
the steps beside one that did well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cases.case import Case
from kernels.fused import tiles_of, tuning_of, tunings_of, waves_of
from kernels.matmul.tuning import BLOCKS, COLUMNS, Tuning
from kernels.tuned_name import AT, base_of

COPIES = ((128, 2), (512, 4), (2048, 1), (2048, 8))
"""Bytes of a piece, and pieces in flight: those that were the fastest of a kernel on 2 H200 (kernels/matmul)."""

UNUSED = {"matmul/tiles": {"piece_bytes", "in_flight"}, "matmul_reduce_scatter/adding": {"piece_bytes"}}
"""What a kernel's code does not depend on: it sends nothing, or only rows of C."""

MOST_STAGES = 8
"""The most for which shared memory has room: with tiles of 64 columns."""


def grid(case: Case) -> Iterator[str]:
    """Yield names for a case of a catalogue's kernel: each number of columns with each of COPIES."""
    for one in tunings_of(case.name):
        for piece_bytes, in_flight in COPIES:
            yield from _named(case, one, piece_bytes=piece_bytes, in_flight=in_flight)


def beside(case: Case) -> Iterator[str]:
    """Yield names of tunings that are one step from a case's: a stage more or less, other chunks with the stages that
    they leave room for, copies twice or half as large or many, clusters of the other number of blocks, the other tile
    order, and all blocks or the fewest that need no further wave of tiles."""
    one = tuning_of(case)
    for stages in (one.stages + 1, one.stages - 1):
        yield from _named(case, one, stages=stages)
    for chunks in range(1, one.columns // COLUMNS + 1):
        for stages in range(MOST_STAGES, 1, -1):
            if found := list(_named(case, one, chunks=chunks, stages=stages)):
                yield from found
                break
    for key in ("piece_bytes", "in_flight", "panel"):
        value = getattr(one, key)
        yield from _named(case, one, **{key: 2 * value})
        yield from _named(case, one, **{key: value // 2})
    yield from _named(case, one, cluster=3 - one.cluster)
    yield from _named(case, one, along="n" if one.along == "m" else "m")
    yield from _named(case, one, blocks=BLOCKS)
    yield from _named(case, one, blocks=-(-tiles_of(case, one) // waves_of(case, one)) * one.cluster)


def _named(case: Case, one: Tuning, **changes: Any) -> Iterator[str]:
    """The name of a changed tuning, if it is valid."""
    base = base_of(case.name)
    used = {key: value for key, value in changes.items() if key not in UNUSED.get(base, ())}
    try:
        yield f"{base_of(case.algorithm)}{AT}{replace(one, **used).name}"
    except ValueError:  # shared memory has no room for it, or it divides nothing
        return
