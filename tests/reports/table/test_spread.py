"""Percentiles of samples, and errors over sizes: figures worked out by hand."""

import pytest

from cases.record.record import Check, FabricInfo
from reports.numerics import accuracy
from reports.table import spread
from reports.table.compare import rows, split
from tests.reports.synthetic import KIB, record, refused, with_case


def test_percentiles_are_of_all_worlds_samples_and_of_the_slowest_rank():
    first = [[float(sample) for sample in range(1, 51)], [0.5] * 50]
    second = [[0.25] * 50, [float(sample) for sample in range(51, 101)]]
    records = [record(samples_us=samples, world=world, world_size=2) for world, samples in enumerate((first, second))]
    (section,), _ = split(records)
    (row,) = rows(section)
    assert spread.samples_us(row) == tuple(map(float, range(1, 101)))
    ((line,),) = spread.sheet(section).groups
    wanted = {"min": 1, "p5": 5, "p25": 25, "p50": 50, "p75": 75, "p95": 95, "p99": 99, "max": 100}
    assert {name: line.raw[name] for name in wanted} == wanted
    assert line.cells["samples"] == "100"
    assert line.cells["p95/p50"] == "1.900"


def checked(ulps, rms, elements, **changes):
    check = Check("bitwise", elements, 0, ulps / 8, ulps, rms, True, 2, True)
    return record(check=check, **changes)


def test_errors_over_sizes_and_over_all_of_them():
    records = [
        checked(1, 1.0, 10, size_bytes=KIB),
        checked(5, 2.0, 30, size_bytes=KIB, world=1),
        checked(0, 0.0, 40, size_bytes=4 * KIB),
        refused("one_shot", 16 * KIB),
    ]
    (group,) = accuracy.groups(records)
    (curve,) = group.curves
    assert curve.sizes == (KIB, 4 * KIB)
    assert [point.max_ulp_error for point in curve.points] == [5, 0]
    assert curve.points[0].rms_ulp_error == pytest.approx(((1 * 10 + 4 * 30) / 40) ** 0.5)
    assert not curve.is_exact
    (((line,),),) = [sheet.groups for sheet in accuracy.sheets(records)]
    assert line.raw["rms ulp"] == pytest.approx(((1 * 10 + 4 * 30) / 80) ** 0.5)
    assert line.raw["max abs error"] == 5 / 8
    assert (line.cells["cases"], line.cells["elements"], line.cells["sizes"]) == ("3", "80", "2")
    assert (line.cells["of bound"], line.cells["max rel (u)"]) == ("-", "-")


def test_simulated_sums_are_a_group_of_their_own():
    simulator = FabricInfo("simulator", "sm_90a", 4, 1, True, "", True)
    records = [checked(1, 1.0, 10), checked(2, 1.0, 10, fabric=simulator, is_timed=False)]
    assert [group.heading for group in accuracy.groups(records)] == [
        "all_reduce bfloat16, sum, 4 ranks, normal inputs, on hardware",
        "all_reduce bfloat16, sum, 4 ranks, normal inputs, simulated",
    ]
    assert [group.heading for group in accuracy.groups(records[:1])] == [
        "all_reduce bfloat16, sum, 4 ranks, normal inputs"
    ]


def test_only_checked_sums_of_floats_have_errors():
    assert accuracy.groups([with_case(record(), reduction="max")]) == []
    assert accuracy.groups([with_case(record(), dtype="int32")]) == []
    assert accuracy.groups([with_case(record(), inputs="edge")]) == []
    assert accuracy.groups([record(is_timed=False, check=None, reason="check was off")]) == []
