"""Percentiles of samples, worked out by hand."""

from reports.table import spread
from reports.table.compare import rows, split
from tests.reports.synthetic import record


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
