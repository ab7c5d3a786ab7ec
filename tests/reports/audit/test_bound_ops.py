"""What audits know of ops is what the catalogue says."""

from __future__ import annotations

import pytest

from cases import ops as cases_ops
from cases.case import Case
from cases.dtypes import DTYPES
from reports.audit import bound_ops as ops
from runner.case.layout import layout_of
from runner.case.recorded import recorded_case

SIZES, WORLDS = (0, 240, 960), (1, 2, 3, 8)


def case(op: str, size_bytes: int, world_size: int, placement: str = "out_of_place", root: int = 0) -> Case:
    return Case(
        op=op,
        algorithm="any",
        dtype="float32",
        accumulator="float32",
        reduction="sum",
        size_bytes=size_bytes * world_size,
        world_size=world_size,
        placement=placement,
        inputs="normal",
        seed=0,
        root=root,
    )


def test_all_ops_are_known() -> None:
    assert set(ops.OPS) == {one.op for one in cases_ops.COLLECTIVES}


@pytest.mark.parametrize("op", sorted(ops.OPS))
def test_an_op_moves_what_the_catalogue_says(op: str) -> None:
    collective = cases_ops.collective(op)
    for world_size in WORLDS:
        assert ops.OPS[op].bus_factor(world_size) == collective.bus_factor(world_size)
        for size_bytes in SIZES:
            one = case(op, size_bytes, world_size, root=world_size - 1)
            recorded = recorded_case(one)
            assert ops.counts_of(recorded) == collective.counts(one.numel, world_size)
            gets = [rank for rank in range(world_size) if collective.gives(one, rank)]
            assert ops.checked_elements(recorded) == sum(collective.received(one, rank) for rank in gets)
            assert ops.slot_bytes(recorded) == sum(layout_of(one).payloads_bytes)
            if collective.in_place is not None:
                shared = case(op, size_bytes, world_size, "in_place")
                assert ops.slot_bytes(recorded_case(shared)) == sum(layout_of(shared).payloads_bytes)


@pytest.mark.parametrize("op", sorted(ops.OPS))
def test_an_output_that_is_one_input_is_known(op: str) -> None:
    import torch

    collective, world_size, root = cases_ops.collective(op), 3, 1
    source = ops.OPS[op].source
    inputs = [torch.full((6,), rank) for rank in range(world_size)]
    for rank in range(world_size):
        parts = collective.outputs(inputs, rank, root)
        if source is not None:
            assert parts is not None
            (only,) = parts
            assert torch.equal(only, inputs[source(rank, world_size, root)])
        elif not collective.reduces:
            assert parts is not None
            assert not any(torch.equal(parts[0], one) for one in inputs)


def test_itemsizes_are_those_of_the_data_types() -> None:
    for name, dtype in DTYPES.items():
        assert ops.itemsize(name) == dtype.itemsize, name
    assert ops.itemsize("custom") == 0
