"""The workspaces of kernels with counts per peer (kernels/dsl/counted.py), said for the host."""

from __future__ import annotations

from cases.case import Case
from kernels.spec import Workspace

COUNT_BYTES = 8
"""Bytes of a count."""


def rooms(case: Case, max_blocks: int) -> tuple[Workspace, ...]:
    """rows: of each block all ranks' counts; places: of each block two numbers a rank.

    Rows begin as zeros: a rank that gave up waiting for another adds up what is there, and zeros are harmless.
    """
    ranks = case.world_size
    return (
        Workspace("rows", max_blocks * ranks * ranks, "uint64"),
        Workspace("places", max_blocks * 2 * ranks, "uint64", zeroed=False),
    )
