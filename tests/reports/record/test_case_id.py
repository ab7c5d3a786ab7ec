"""Ids of cases: what each schema's rule gives, and what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from reports.record.case import OFF_DEFAULT, RecordedCase, case_id, wrong_id
from reports.record.record import SCHEMA_VERSION, load

EXAMPLES = Path(__file__).parents[1] / "examples"
CASE = RecordedCase(
    op="broadcast",
    algorithm="torch/two-shot",
    dtype="bfloat16",
    accumulator="none",
    reduction="none",
    size_bytes=0,
    world_size=4,
    placement="in_place",
    inputs="edge",
    seed=7,
)
FULL = "broadcast-torch/two-shot-bfloat16-none-none-n4-0B-in_place-edge-s7"


def test_the_id_has_all_fields_and_axes_only_off_their_default() -> None:
    assert {case_id(CASE, schema) for schema in range(1, SCHEMA_VERSION + 1)} == {FULL}
    placed = dataclasses.replace(CASE, root=3, offset=1)
    assert [case_id(placed, schema) for schema in (1, 2, 3, 4)] == [FULL, *[f"{FULL}-r3-o1"] * 3]
    assert case_id(dataclasses.replace(CASE, offset=1), 4) == f"{FULL}-o1"


def test_every_field_of_a_case_is_in_its_id() -> None:
    """Another value gives another id: a field that were left out would let two cases share one."""
    found = {case_id(CASE, SCHEMA_VERSION)}
    for field in dataclasses.fields(RecordedCase):
        if field.name not in ("other", "order"):
            value = getattr(CASE, field.name)
            other = value + 1 if isinstance(value, int) else f"{value}x"
            found.add(case_id(dataclasses.replace(CASE, **{field.name: other}), SCHEMA_VERSION))
    assert len(found) == 1 + len(dataclasses.fields(RecordedCase)) - 2


def test_axes_begin_no_part_that_another_begins() -> None:
    letters = [axis.letter for axis in OFF_DEFAULT]
    assert all(not one.startswith(other) for one, other in itertools.permutations(letters, 2))
    defaults = {field.name: field.default for field in dataclasses.fields(RecordedCase)}
    assert all(defaults[axis.field] == axis.default for axis in OFF_DEFAULT)


@pytest.mark.parametrize(
    ("given", "schemas"),
    [
        (FULL, (1, 2, 3, 4)),
        ("broadcast-torch/two-shot-bfloat16-none-none-n4", (1, 2, 3)),
        ("broadcast-torch/two-shot-bfloat16", (1, 2, 3)),
        ("broadcast-torch/two-shot", ()),
        ("broadcast-torch/two-shot-bfloat1", ()),
        ("broadcast-torch/two-shot-bfloat16-none-none-n", ()),
        ("broadcast-torch/two-shot-float32", ()),
        (f"{FULL}-r1", ()),
        (FULL.replace("-s7", "-s8"), ()),
        ("", ()),
    ],
)
def test_ids_of_schemas_before_4_may_end_early(given: str, schemas: tuple[int, ...]) -> None:
    assert tuple(schema for schema in (1, 2, 3, 4) if not wrong_id(given, CASE, schema)) == schemas
    if 4 not in schemas:
        assert wrong_id(given, CASE, 4) == f"id is '{given}', the case gives '{FULL}'"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_have_ids_by_their_rule(path: Path) -> None:
    record = load(path)
    assert not wrong_id(record.id, record.case, record.schema)
    assert wrong_id(record.id, record.case, SCHEMA_VERSION)
