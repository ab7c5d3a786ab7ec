"""Ids of cases: what each schema's rule gives, and what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from cases.record.case import OFF_DEFAULT, RecordedCase, case_id, wrong_id
from cases.record.record import SCHEMA_VERSION, from_json, load

EXAMPLES = Path(__file__).parents[2] / "reports" / "examples"
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
    stressed = dataclasses.replace(placed, stress="late_rank")
    assert [case_id(stressed, schema) for schema in (4, 5)] == [f"{FULL}-r3-o1", f"{FULL}-r3-o1-stress_late_rank"]


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


@pytest.mark.parametrize("schema", range(1, SCHEMA_VERSION + 1))
def test_an_id_is_the_one_that_the_case_gives_and_no_other(schema: int) -> None:
    assert not wrong_id(FULL, CASE, schema)
    short = "broadcast-torch/two-shot-bfloat16"
    for given in (short, f"{FULL}-r1", FULL.replace("-s7", "-s8"), FULL.replace("bfloat16", "float32"), ""):
        assert wrong_id(given, CASE, schema) == f"id is '{given}', the case gives '{FULL}'"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_examples_have_ids_by_their_rule(path: Path) -> None:
    record = load(path)
    assert not wrong_id(record.id, record.case, record.schema)
    cut = path.read_text().replace(record.id, record.id.rpartition("-")[0])
    with pytest.raises(ValueError, match="the case gives"):
        from_json(cut)
