"""Which series of a command are drawn first, and what a command's run says of its best."""

from pathlib import Path

from reports.record import bundle
from reports.table.compare import is_baseline
from runner.track.names import Kept, series_of
from runner.track.standing import comparisons, section_of, standings
from tests.golden import same_text
from tests.reports.synthetic import KIB, MIB, record, refused

PUBLISHED = Path(__file__).parents[3] / "reports" / "published" / "h200-x4" / "all_reduce-world1.jsonl.xz"
NAMES = ("native", "float32")
DRAWN = 20
"""The number of runs that MLflow draws in a view of ours."""


def timed(algorithm, times_us, **changes):
    return [record(algorithm, size, samples_us=[[time] * 3] * 4, **changes) for size, time in times_us.items()]


def placed(records):
    """The algorithms in the order in which they are drawn."""
    series = series_of([Kept(Path(f"{number}.json"), one) for number, one in enumerate(records)])
    found = standings(series)
    ordered = sorted(series, key=found.__getitem__)
    assert sorted(found.values()) == list(range(1, len(series) + 1))
    return [series[key][0].record.case.algorithm for key in ordered]


def test_winners_and_baselines_are_among_the_first_whatever_they_are_called():
    slow = [one for number in range(80) for one in timed(f"a{number:02d}", {KIB: 50, MIB: 500})]
    small, large = timed("z_small", {KIB: 2, MIB: 400}), timed("z_large", {KIB: 40, MIB: 100})
    found = placed(
        [*slow, *timed("nccl", {KIB: 60, MIB: 600}), *timed("torch/one_shot", {KIB: 3, MIB: 700}), *small, *large]
    )
    assert len(found) == 84
    assert set(found[:4]) == {"z_small", "z_large", "nccl", "torch/one_shot"}


def test_sections_take_turns():
    of_bfloat16 = [one for name in ("a", "b", "c") for one in timed(name, {KIB: 5})]
    of_float32 = timed("z", {KIB: 9}, dtype="float32", request={"command": "command0", "job": 1})
    assert set(placed([*of_bfloat16, *of_float32])[:2]) == {"a", "z"}


def test_of_records_without_times_failures_come_first_and_refusals_last():
    assert placed([refused("a"), record("b", is_timed=False), record("c", is_timed=False)])[-1] == "a"


def test_published_records_show_their_fastest_and_their_baselines():
    """In the view of the command, of 30 series, and in that of each section."""
    kept = [Kept(Path(f"{number}.json"), one) for number, one in enumerate(bundle.unpacked(PUBLISHED))]
    series = series_of(kept)
    found = standings(series)
    assert len(series) == 30
    drawn = {key for key, place in found.items() if place <= DRAWN}
    section = {key: section_of(some[0].record) for key, some in series.items()}
    sections = set(section.values())
    assert sections == {f"all_reduce {dtype} n4" for dtype in ("bfloat16", "float16", "float32")}
    for name in sections:
        own = [one.record for key, some in series.items() if section[key] == name for one in some]
        shown = [series[key][0].record for key in drawn if section[key] == name]
        assert sum(map(is_baseline, shown)) >= 2
        for size in {one.case.size_bytes for one in own}:
            times = {
                one.case.algorithm: one.timing.median_us
                for one in own
                if one.case.size_bytes == size and one.timing is not None and not is_baseline(one)
            }
            assert min(times, key=times.__getitem__) in {one.case.algorithm for one in shown}


def test_a_command_has_its_best_of_each_size_and_the_worst_ratio():
    ours = [*timed("one_shot", {KIB: 4.0, MIB: 30.0}), *timed("two_shot", {KIB: 6.0, MIB: 20.0})]
    for records in ([*ours, *timed("nccl", {KIB: 8.0, MIB: 16.0})], ours[:1], [refused()]):
        same_text("\n".join(map(str, comparisons(records))))


def test_metrics_of_a_command_have_names_that_mlflow_takes():
    from mlflow.utils.validation import _validate_metric_name

    names = {name for name, _, _ in comparisons(bundle.unpacked(PUBLISHED))}
    assert len(names) == 10
    for name in names:
        _validate_metric_name(name)


def test_a_section_is_op_dtype_and_ranks():
    assert section_of(record(world_size=8)) == "all_reduce bfloat16 n8"
