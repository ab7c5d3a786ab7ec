"""What of a timed record goes to MLflow; what of others does is tested with MLflow itself, in test_track."""

import json
from dataclasses import replace

import pytest

from reports.mlflow_values import command_metrics, metrics_of, missing_of, parameters_of
from runner.track.names import Kept, series_name, series_of, series_tags
from tests.golden import same_text
from tests.reports.synthetic import KIB, record, refused, with_case, with_request

SAMPLES = [[10.0, 20.0, 40.0], [15.0, 10.0, 50.0], [5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]


ERRED = replace(record().check, max_relative_error=2.0**-7, rms_relative_error=2.0**-9)
METRICS = {
    # 1 MB in 20 us: 50 GB/s, times 2(4-1)/4, over 400
    "timed": record(size_bytes=1_000_000, samples_us=SAMPLES),
    "no limit": record(timing={"limit": None}),
    "refused": refused(),
    # in units of the type's roundoff, 2**-8
    "relative errors": record(check=ERRED, is_timed=False),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_and_parameters_of_a_record(name):
    same_text(json.dumps([metrics_of(METRICS[name]), parameters_of(METRICS[name])], indent=1))


def test_every_metric_is_in_a_section_and_counters_are_in_one():
    counters = {
        "instructions": 3,
        "accesses": {"own_read": {"bytes": 64}},
        "read [own]": 5,
        "links": {"0->1": 7},
        "of": {"launches": 5, "ranks": 2, "checked": 2},  # they say what the others are sums of, and of which parts
        "launches": [{"launches": "0-4", "instructions": {"min": 3, "max": 3}}],
    }
    metrics = metrics_of(record(counters=counters))
    same_text(json.dumps(metrics, indent=1))
    assert all(name.startswith("cases/") for name in command_metrics([record()], 0))


def test_a_command_counts_its_cases():
    same_text(json.dumps(command_metrics([record(), refused()], 3), indent=1))


def test_an_algorithm_has_the_colour_of_the_pictures():
    from reports.figures import look

    assert series_tags([record("two_shot")])["mlflow.runColor"] == look("two_shot")["color"]
    assert (look("nccl")["color"], series_tags([record("nccl")])["mlflow.runColor"]) == ("#000000", "#7f7f7f")
    jobs = [series_tags([with_request(record("two_shot"), job=job)])["mlflow.runColor"] for job in range(6)]
    assert len(set(jobs)) == 6
    assert jobs[1] == "#753300", "darker"


def test_tags_say_how_it_was_timed_and_by_whom():
    tags = series_tags([record("nccl"), record("nccl", 4 * KIB)])
    same_text(json.dumps(tags, indent=1))
    ours = series_tags([record(counters={"instructions": 3})])
    assert "library" not in ours
    assert ours["counters"].startswith("sums")
    assert not {"mode", "window", "l2"} & set(series_tags([refused()]))


NAMED = [
    {},
    {"reduction": "max", "accumulator": "native"},
    {"op": "all_gather", "algorithm": "pull", "reduction": "none"},
]


def test_a_series_is_called_after_what_it_does():
    names = [series_name(with_case(record(), **changes), also) for changes in NAMED for also in ((), ["seed=1"])]
    same_text("\n".join(names))


def test_root_offset_and_counts_off_uniform_are_parameters():
    moved = with_case(record(), op="all_to_all_v", algorithm="push", reduction="none", counts="zeros", root=3, offset=0)
    found = parameters_of(moved)
    assert (found["root"], found["offset"], found["counts"]) == (3, 0, "zeros")


def test_a_baseline_is_a_series_of_its_own(tmp_path):
    kept = [Kept(tmp_path / f"{index}.json", one) for index, one in enumerate([record("torch/one_shot"), record()])]
    assert list(series_of(kept)) == ["0/all_reduce/torch/one_shot", "0/all_reduce/one_shot"]


def in_both(made, placement="out_of_place"):
    """The record as one of a job that was asked for in both placements."""
    return with_request(with_case(made, placement=placement), configuration={"placement": "both"})


def test_placements_of_one_job_are_series_of_their_own(tmp_path):
    out, second = in_both(record("two_shot")), in_both(record("two_shot"), "in_place")
    kept = [Kept(tmp_path / f"{index}.json", one) for index, one in enumerate([out, second])]
    found = series_of(kept)
    assert {name: [one.record for one in some] for name, some in found.items()} == {
        "0/all_reduce/two_shot": [out],
        "0/all_reduce/two_shot/in_place": [second],
    }
    assert series_name(out) == "all_reduce/two_shot bfloat16/float32 n4"
    assert series_name(second) == "all_reduce/two_shot bfloat16/float32 n4 in place"
    missing = [(0, with_case(one, size_bytes=4 * KIB).id) for one in (out, second, second)]
    assert [missing_of(some[0].record, missing) for some in found.values()] == [1, 2]


def test_a_job_of_one_placement_keeps_its_series(tmp_path):
    alone = with_request(with_case(record("two_shot"), placement="in_place"), configuration={"placement": "in_place"})
    assert list(series_of([Kept(tmp_path / "0.json", alone)])) == ["0/all_reduce/two_shot"]
    assert series_name(alone) == "all_reduce/two_shot bfloat16/float32 n4"
