"""What audits count of a case is what its ranks are given, and the memory that it has."""

from __future__ import annotations

import dataclasses

import pytest

from cases.case import Case
from cases.ops import COLLECTIVES, Collective
from reports.audit.bound_ops import checked_elements, slot_bytes
from runner.case.layout import layout_of


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda one: one.op)
@pytest.mark.parametrize("counts", ["uniform", "skewed"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_an_op_moves_what_it_means(collective: Collective, counts: str, world_size: int) -> None:
    for placement in ("out_of_place", "in_place"):
        if (placement == "in_place" and collective.in_place is None) or (counts != "uniform" and not collective.sends):
            continue
        case = Case(collective.op, "any", "float32", "float32", "sum", 240 * world_size, world_size, placement)
        case = dataclasses.replace(case, counts=counts, root=world_size - 1 if collective.rooted else 0)
        gets = [rank for rank in range(world_size) if collective.gives(case, rank)]
        assert checked_elements(case) == sum(collective.received(case, rank) for rank in gets)
        assert slot_bytes(case) == sum(layout_of(case).payloads_bytes)
