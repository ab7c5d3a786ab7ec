"""The score of the model by any records: errors, the order within a size, and what counts as reached."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.record.record import KernelInfo
from symlab.command import main
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.evidence import Measured
from symlab.speed.predict.model import Terms
from symlab.speed.predict.on_records import correlations, report, scored, worlds_of
from symlab.speed.predict.profiles import Unprofiled
from symlab.speed.predict.stored_score import stored
from tests.reports.synthetic import record, with_environment

NAMES = tuple(f"two_shot@t512b{blocks}l8" for blocks in (1, 2, 4, 8, 16))


def timed(name, us, size_bytes=1 << 20, world=0):
    made = record(name, size_bytes, samples_us=[[us] * 5] * 2, world_size=2, world=world)
    return replace(with_environment(made, gpus=({"model": "NVIDIA H100 80GB HBM3"},)), kernel=kernel(name))


def kernel(name):
    fields = {one: None for one in KernelInfo.__dataclass_fields__}
    return KernelInfo(
        **{
            **fields,
            "arch": "sm_90a",
            "ptx_digest": f"sha256:{'0' * 64}",
            "grid": 8,
            "block": 512,
            "name": f"all_reduce/{name}",
        }
    )


def of(predicted, measured, size_bytes=1 << 20):
    """Cases of one size with their measured and predicted times."""
    terms = Terms(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    cases = [Case("all_reduce", name, "bfloat16", "float32", "sum", size_bytes, 2) for name in NAMES]
    return [
        (Measured("", "h100", case, us, terms), it) for case, it, us in zip(cases, predicted, measured, strict=False)
    ]


def test_the_order_within_a_size_is_spearmans_correlation():
    right, wrong = of([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]), of([5, 4, 3, 2, 1], [1, 2, 3, 4, 5], 1 << 22)
    assert correlations([*right, *wrong]) == pytest.approx([1.0, -1.0])
    # d = 0, 1, 1, 0, 0: 1 - 6 * 2 / (5 * 24)
    assert correlations(of([1, 3, 2, 4, 5], [1, 2, 3, 4, 5])) == pytest.approx([0.9])
    assert correlations(of([1, 1, 3, 4, 5], [1, 1, 3, 4, 5])) == pytest.approx([1.0]), "equal values share a rank"
    assert correlations(of([1, 2, 3, 4, 5], [1] * 5)) == [0.0]
    assert correlations(right[:4]) == []


@pytest.mark.parametrize(
    ("predicted", "is_met"),
    [([1.05, 2.1, 3.1, 4.2, 5.2], True), ([1.2, 2.4, 3.6, 4.8, 6.0], False), ([1.05, 1.04, 1.03, 1.02, 1.01], False)],
)
def test_the_goals_are_reached_or_not(predicted, is_met):
    said = report(of(predicted, [1, 2, 3, 4, 5]), {})
    assert ("not reached" in said) != is_met
    assert "5 tunings: median error" in said


def test_worlds_are_pooled_and_what_can_not_be_profiled_is_told():
    records = [timed(NAMES[0], 10.0), timed(NAMES[0], 12.0, world=1), timed(NAMES[0], 30.0, world=2)]
    records += [timed("two_shot", 9.0), timed("two_shot@d", 5.0), record("nccl", 1 << 20)]
    worlds = worlds_of(records)
    assert [(one[0].case.algorithm, len(one)) for one in worlds] == [(NAMES[0], 3), ("two_shot", 1), ("two_shot@d", 1)]

    def profiled(arch, cases):
        assert arch == "sm_90a"
        yield cases[0], CaseWork({"hop": 2.0}, {"hop": 2.0}, ())
        yield cases[1], Unprofiled("it waits", can_run=True)
        yield cases[2], CaseWork({"hop": 2.0}, {"hop": 2.0}, ())

    found, problems = scored(worlds, profiled, stored(), lambda line: None)
    (one, predicted_us), (other, dependent_us) = found
    assert (one.case.algorithm, one.time_us, other.time_us) == (NAMES[0], 12.0, 5.0)
    assert 0 < dependent_us < predicted_us
    assert list(problems.values()) == ["it waits"]
    assert "not predicted: it waits" in report(found, problems)


def test_records_without_times_of_ours_are_one_line(tmp_path, capsys):
    with pytest.raises(ValueError, match="no record has a time of the catalogue's kernels"):
        worlds_of([record("nccl", 1 << 20)])
    assert main(["predict", "--score", str(tmp_path / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
