"""Cases as records hold them: nothing is lost, and both sides give the same id."""

from __future__ import annotations

import dataclasses

from cases.case import Case
from cases.record.case import case_id
from cases.record.record import SCHEMA_VERSION, RecordedCase
from kernels.catalogue import SPECS
from runner.case.recorded import case_of, recorded_case
from tests.golden import refused

CASES = [
    Case(
        op=spec.op,
        algorithm=spec.algorithm,
        dtype=spec.dtypes[number % len(spec.dtypes)],
        accumulator=spec.accumulators[number % len(spec.accumulators)],
        reduction=spec.reductions[number % len(spec.reductions)],
        size_bytes=number * 1024,
        world_size=1 + number % 72,
        placement=spec.placements[number % len(spec.placements)],
        inputs=("exact", "normal", "edge")[number % 3],
        seed=number,
        root=root,
        offset=offset,
        counts="zeros" if spec.op == "all_to_all_v" and root else "uniform",
    )
    for number, spec in enumerate(SPECS)
    for root, offset in ((0, 0), (1, 0), (0, 3), (2, 5))
]


def test_a_case_comes_back_from_its_record_and_both_give_the_same_id() -> None:
    assert len({case.id for case in CASES}) == len(CASES) >= 4 * 30
    names = [member.name for member in dataclasses.fields(Case)]
    for case in CASES:
        recorded = recorded_case(case)
        assert case_id(recorded, SCHEMA_VERSION) == case.id
        assert case_of(RecordedCase.read(recorded.document())) == case
        assert list(recorded.document()) == (names if case.counts != "uniform" else names[:-1])


def test_a_case_with_unknown_keys_is_no_case_here() -> None:
    strange = RecordedCase.read(recorded_case(CASES[0]).document() | {"tiles": 4})
    with refused():
        case_of(strange)
