"""What a record of NCCL says of its settings, against what its command asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases.record.nccl_settings import NcclSettings
from cases.record.record import Record
from reports.audit.bound_records import contradictions
from tests.reports.export.sweeps import OWN, RING_LL, TREE_LL, nccl_record
from tests.reports.synthetic import KIB, record, with_request


def said(made: Record) -> list[str]:
    return [one.sentence for one in contradictions(made) if "asked NCCL" in one.sentence]


@pytest.mark.parametrize("settings", [OWN, RING_LL, TREE_LL])
def test_what_was_asked_and_what_is_named_agree(settings: NcclSettings) -> None:
    assert said(nccl_record(settings, KIB)) == []


def test_settings_that_were_not_asked_for_are_found_and_those_that_are_not_named() -> None:
    plain, restricted = nccl_record(OWN, KIB), nccl_record(RING_LL, KIB)
    more, less = replace(plain, library=restricted.library), replace(restricted, library=plain.library)
    assert "asked NCCL for nothing, and names Ring, LL, 8 channels" in said(more)[0]
    assert "asked NCCL for Ring, LL, 8 channels, and names nothing" in said(less)[0]


def test_a_setting_that_there_is_not_is_found() -> None:
    asked = with_request(nccl_record(OWN, KIB), configuration={"library": {"nccl_algo": "Star"}})
    assert "asked NCCL for what it does not have" in said(asked)[0]


def test_records_of_others_and_of_before_are_not_held_to_it() -> None:
    assert said(record("nccl")) == []
    assert said(record("torch/two_shot")) == []
