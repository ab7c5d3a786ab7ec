"""Worlds that are there twice, and sides that were exchanged, in comparisons."""

from __future__ import annotations

import dataclasses

from reports.audit.comparison import compare
from reports.audit.statistics import Speed
from reports.record.record import Record
from tests.reports.audit.tampering import members


def shifted(record: Record, factor: float) -> Record:
    """The record as of another command, with all of its samples multiplied."""
    assert record.timing is not None
    rows = tuple(tuple(value * factor for value in row) for row in record.timing.samples_us)
    request = dataclasses.replace(record.request, command=f"{record.request.command}-again")
    return dataclasses.replace(record, request=request, timing=dataclasses.replace(record.timing, samples_us=rows))


def test_copied_samples_are_no_second_measurement() -> None:
    before = [one for one in members() if one.case.algorithm == "nccl"]
    for factor in (1.0, 0.97):
        (case,) = compare(before, [shifted(one, factor) for one in before]).cases
        assert case.speed.speed is Speed.NOT_COMPARABLE
        assert "one world is there twice" in case.speed.advice


def test_sides_that_were_exchanged_are_named() -> None:
    every = [one for one in members() if one.case.algorithm == "nccl"]
    assert "AFTER ran before BEFORE" in compare(every[2:], every[:2]).verdict
    for before, after in ((every[:2], every[2:]), (every[::2], every[1::2])):
        assert "AFTER ran before BEFORE" not in compare(before, after).verdict
    assert compare(every[2:], every[:2]).document()["is_backwards"]
