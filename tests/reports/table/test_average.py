"""The average bus bandwidth below a table, and a command that asked for more."""

import dataclasses

import pytest

from reports.table.average import too_slow
from reports.table.table import plain
from runner.records.command_json import exit_code_for
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from tests.reports.synthetic import record, with_request

MB = 1_000_000


def timed(algorithm, time_us, least=None, size_bytes=MB):
    """busbw is 1500 / time_us GB/s at MB."""
    made = record(algorithm, size_bytes, samples_us=[[time_us] * 4] * 4)
    timing = {"mode": "graph", "window": "kernel", "l2": "rotate", "min_busbw_gbps": least}
    return with_request(made, configuration={"accumulator": "float32", "timing": timing})


def test_a_table_ends_with_the_average_of_ours_and_of_each_library():
    records = [
        timed("one_shot", 20.0),
        timed("two_shot", 30.0),
        timed("nccl", 25.0),
        timed("one_shot", 20.0, None, 2 * MB),
    ]
    (line,) = [line for line in plain(records).splitlines() if line.startswith("Avg bus bandwidth")]
    assert line.startswith("Avg bus bandwidth: ours 91.67 (3), nccl 60.00 (1) GB/s, the mean of busbw")


def test_a_command_below_the_bandwidth_that_it_asked_for_fails():
    ours, base = timed("one_shot", 20.0, 75.5), timed("nccl", 25.0, 75.5)
    assert too_slow([ours, base]) == (
        "the average bus bandwidth of ours is 75.00 GB/s, below 75.5 (timing.min_busbw_gbps)"
    )
    assert exit_code_for([ours, base]) == 1
    for enough in ([timed("one_shot", 20.0, 74.5), timed("nccl", 25.0, 74.5)], [timed("one_shot", 20.0)]):
        assert (too_slow(enough), exit_code_for(enough)) == ("", 0)
    assert "of nccl is 60.00" in too_slow([base]), "where only a library was timed, it is judged"
    of_product = dataclasses.replace(ours, timing=dataclasses.replace(ours.timing, bus_factor=0.0))
    assert "of ours is 0.00" in too_slow([of_product]), "what multiplies has none"


def test_a_bandwidth_that_none_can_be_below_is_refused():
    with pytest.raises(RequestError, match=r"timing\.min_busbw_gbps"), hydra_over():
        compose_jobs(["timing.min_busbw_gbps=0"], False)
