"""The committed score is what the code gives, its splits leave out what they say, and its figures are right."""

import json
from dataclasses import replace

import pytest

from kernels.spec import Case
from runner.request.experiments import CONF
from symlab.speed.predict import published
from symlab.speed.predict.evidence import COMMAND, Measured
from symlab.speed.predict.model import Fitted, Terms
from symlab.speed.predict.score import errors_of, left_out, regret_of, scored, share_within
from symlab.speed.predict.splits import FITTED_TO, SCORED_RANKS, SPLITS, UNSEEN_ALGORITHM, UNSEEN_SERIES, known_cases
from symlab.speed.predict.stored_score import PLACE, README, sheet, stored, with_table


@pytest.fixture(scope="module")
def everything():
    """The cases of all published sets. A set without profiles is said, with the command that makes them."""
    return published.evidence(CONF.parent)


@pytest.fixture(scope="module")
def cases(everything):
    """Those of the sets that constants are fitted to."""
    return known_cases(everything)


@pytest.fixture(scope="module")
def document():
    return json.loads(PLACE.read_text())


@pytest.fixture(scope="module")
def again(everything):
    return json.loads(json.dumps(scored(everything).document()))


@pytest.mark.slow
def test_the_committed_score_is_of_all_that_is_published(document, again):
    assert document["fitted_to"] == again["fitted_to"]
    assert document["apart"] == again["apart"], f"run {COMMAND}: sets were published since the score was made"


def test_the_committed_score_of_the_model_comes_out_again(document, again):
    assert _close(again["constants"], document["constants"])
    assert _close(again["intervals"], document["intervals"])
    for own, kept in zip(again["rows"], document["rows"], strict=True):
        assert _close(own, kept)


def test_the_readme_shows_the_committed_score():
    page = README.read_text()
    assert with_table(page, stored()) == page
    assert "unseen algorithm x ranks" in page


def test_a_split_without_records_says_so():
    score = stored()
    rows = tuple(replace(row, errors=None) if row.split == "another day" else row for row in score.rows)
    table = sheet(replace(score, rows=rows))
    cells = [line.cells for group in table.groups for line in group]
    of_day = [one for one in cells if one["left out"] == "another day"]
    assert of_day
    assert all(one["cases"] == "no records" and not one["median"] for one in of_day)


def _case(op="all_reduce", algorithm="one_shot", ranks=2, size=1024, time_us=2.0, of="h200-x2", gpu="h200"):
    terms = Terms(0.5, 2.0, 0.0, size / 1e5, 0.0, 0.0)
    return Measured(of, gpu, Case(op, algorithm, "bfloat16", "float32", "sum", size, ranks), time_us, terms)


def test_no_case_is_predicted_by_constants_that_saw_its_group(cases):
    def group(split, measured):
        one = measured.case
        return {
            "unseen algorithm x ranks": (one.op, one.algorithm, one.world_size),
            "unseen op x algorithm": (one.op, one.algorithm),
            "the same, dependent launches": (one.op, one.algorithm),
            "unseen op": one.op,
            "2 to 4 GPUs": one.world_size,
        }[split.title]

    for split in SPLITS[:5]:
        predicted = []
        for known, unknown in split.folds(cases):
            assert not {group(split, one) for one in known} & {group(split, one) for one in unknown}
            predicted += unknown
        mine = [one for one in cases if one.terms.is_dependent == ("dependent" in split.title)]
        wanted = [one for one in mine if split.title != "2 to 4 GPUs" or one.case.world_size == 4]
        assert sorted(predicted, key=str) == sorted(wanted, key=str)


def test_another_day_and_gpu_are_scored_where_there_are_records_and_nothing_is_fitted_to_them():
    """The sets that constants are fitted to take just 0.9 us to begin: others, which take longer, change nothing."""

    def took(factor, **changes):
        one = _case(**changes)
        return replace(one, time_us=factor * one.terms.time_us(Fitted(0.9, 0.0, 1.0, 0.0)))

    usual = [took(1.0, size=1 << power, of=name) for power in range(10, 16) for name in FITTED_TO]
    later = [took(1.5, size=1 << power, of="h200-x2-2026-12-01") for power in (10, 11)]
    found = scored([*usual, *later, took(4.0, ranks=8, of="h200-x8"), took(2.0, of="h100-x2", gpu="h100")])
    assert found.constants.begin_us == pytest.approx(0.9)
    rows = {row.split: row for row in found.rows}
    assert rows["another day"].errors.cases == 2
    assert rows["another day"].errors.median == pytest.approx(1 / 3)
    assert rows["other numbers of GPUs"].errors.largest == pytest.approx(0.75)
    assert rows["another GPU type, floors only"].errors.largest == pytest.approx(0.5)
    assert list(found.apart) == ["h100-x2", "h200-x2-2026-12-01", "h200-x8"]


def test_the_share_of_cases_in_their_intervals_is_by_regime():
    constants = Fitted(0.9, 0.0, 1.0, 0.0)
    small, large = (_case(size=size) for size in (1 << 10, 1 << 28))
    regimes = [one.terms.regime(constants) for one in (small, large)]
    assert len(set(regimes)) == 2
    cases = [
        replace(one, time_us=by * one.terms.time_us(constants)) for one in (small, large) for by in (0.8, 1.0, 1.2)
    ]
    within = dict(zip(regimes, [(0.9, 1.3), (0.9, 1.1)], strict=True))
    assert share_within(cases, constants, within) == pytest.approx(3 / 6)
    assert share_within(cases, constants, {regimes[0]: (0.9, 1.3)}) == pytest.approx(2 / 6)


def _pairs(*times, size=1024):
    """Measured and predicted times of algorithms of one size."""
    return [(_case(algorithm=f"a{number}", size=size, time_us=us), it) for number, (us, it) in enumerate(times)]


def test_errors_are_relative_to_the_measured_time():
    errors = errors_of(_pairs((2.0, 2.2), (4.0, 3.0), (5.0, 5.0)))
    assert (errors.cases, errors.median, errors.largest) == (3, pytest.approx(0.1), pytest.approx(0.25))
    assert errors_of([]) is None


def test_regret_is_what_the_choice_costs():
    alone = _pairs((2.0, 1.0), size=8192)
    regret = regret_of([*_pairs((2.0, 2.0), (2.02, 1.9)), *_pairs((3.0, 2.0), (2.0, 1.9), size=4096), *alone])
    assert (regret.choices, regret.right) == (2, 1.0)
    assert regret.mean == pytest.approx(0.005)
    worse = regret_of([*_pairs((2.0, 1.0), (2.02, 1.9)), *_pairs((3.0, 1.0), (2.0, 1.9), size=4096)])
    assert (worse.right, worse.mean) == (0.5, pytest.approx(0.25))
    assert regret_of(alone) is None


def test_the_score_is_of_cases_on_2_and_4_gpus(cases):
    assert {one.case.world_size for one in cases} == set(SCORED_RANKS)


def test_left_out_needs_two_groups():
    one = _case()
    assert left_out([one, _case(size=2048)], UNSEEN_SERIES) == []
    assert left_out([one], UNSEEN_ALGORITHM) == []


def test_predictions_take_the_committed_constants(document):
    kept = stored()
    assert json.loads(json.dumps(kept.document())) == document
    assert set(kept.intervals) == {"latency", "mixed", "bandwidth", "dependent"}
    assert all(low < 1.1 and high > 0.9 and low < high for low, high in kept.intervals.values())


def test_a_file_that_is_no_score_is_named(tmp_path):
    path = tmp_path / "score.json"
    for content in ("", "{}", '{"gpu": "h200"}'):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"score\.json: not a score"):
            stored(path)


def _close(own, kept):
    """Whether two documents agree to a thousandth: sums of another NumPy may differ behind that."""
    if isinstance(kept, dict):
        return set(own) == set(kept) and all(_close(own[name], kept[name]) for name in kept)
    if isinstance(kept, list):
        return len(own) == len(kept) and all(map(_close, own, kept))
    if isinstance(kept, float):
        return own == pytest.approx(kept, abs=1e-3)
    return own == kept
