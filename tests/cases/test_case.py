"""Ids of cases: the same for ever, and another for every other case."""

import dataclasses

from cases.case import Case

CASE = Case("broadcast", "torch/two-shot", "bfloat16", "none", "none", 0, 4, "in_place", "edge", seed=7)
ID = "broadcast-torch/two-shot-bfloat16-none-none-n4-0B-in_place-edge-s7"


def test_axes_are_in_an_id_only_off_their_default():
    assert CASE.id == ID
    changed = dataclasses.replace(CASE, root=3, offset=1, stress="late_rank", counts="skewed")
    assert changed.id == f"{ID}-r3-o1-stress_late_rank-counts_skewed"


def test_every_field_of_a_case_is_in_its_id():
    """Another value gives another id: a field that were left out would let two cases share one."""
    found = {CASE.id}
    for field in dataclasses.fields(Case):
        value = getattr(CASE, field.name)
        other = (1, 2, 3) if field.name == "gemm" else value + 1 if isinstance(value, int) else f"{value}x"
        found.add(dataclasses.replace(CASE, **{field.name: other}).id)
    assert len(found) == 1 + len(dataclasses.fields(Case))
