"""The committed score is what the code gives, its splits leave out what they say, and its figures are right."""

import json
from dataclasses import replace

import numpy as np
import pytest

from runner.predict import published, rivals
from runner.predict.evidence import COMMAND, Measured
from runner.predict.model import Fitted, Terms
from runner.predict.score import errors_of, left_out, regret_of, scored
from runner.predict.splits import SCORED_RANKS, SPLITS, UNSEEN_ALGORITHM, UNSEEN_SERIES, known_cases
from runner.predict.stored_score import PLACE, README, sheet, stored, with_table
from runner.request.validate import CONF


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


def _rows(document, predictor):
    return [row for row in document["rows"] if row["predictor"] == predictor]


@pytest.fixture(scope="module")
def again(everything):
    return json.loads(json.dumps(scored(everything, {"model": rivals.model}).document()))


@pytest.mark.slow
def test_the_committed_score_is_of_all_that_is_published(document, again):
    assert document["fitted_to"] == again["fitted_to"]
    assert document["apart"] == again["apart"], f"run {COMMAND}: sets were published since the score was made"


def test_the_committed_score_of_the_model_comes_out_again(document, again):
    assert _close(again["constants"], document["constants"])
    assert _close(again["intervals"], document["intervals"])
    for own, kept in zip(_rows(again, "model"), _rows(document, "model"), strict=True):
        assert _close(own, kept)


def test_the_line_through_the_ends_comes_out_again(document, again):
    name = "the line through a series' own ends"
    assert _close(_rows(again, name), _rows(document, name))


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS[2:4], ids=lambda one: one.title)
@pytest.mark.parametrize("name", ["NCCL's formula", "gradient boosting"])
def test_rivals_come_out_again(cases, document, name, split):
    (row,) = (one for one in _rows(document, name) if one["split"] == split.title)
    found = errors_of(cases, left_out(cases, split, rivals.LEARNERS[name]))
    assert found.cases == row["errors"]["cases"]
    assert found.median == pytest.approx(row["errors"]["median"], abs=0.01)  # libraries differ in the last digits
    assert found.p95 == pytest.approx(row["errors"]["p95"], abs=0.05)


def test_the_readme_shows_the_committed_score(document):
    page = README.read_text()
    assert with_table(page, document) == page
    assert "unseen algorithm x ranks" in page


def test_what_the_model_is_better_at(document):
    """The README's table as claims: against all rivals on unseen op x algorithm, the line at 64 KiB to 1 MiB."""
    rows = {(row["split"], row["predictor"]): row["errors"] for row in document["rows"]}
    for split in ("unseen algorithm x ranks", "unseen op x algorithm", "unseen op", "2 to 4 GPUs"):
        for name in ("NCCL's formula", "gradient boosting"):
            for figure in ("median", "p95", "largest"):
                assert rows[split, "model"][figure] < rows[split, name][figure]
    title = "64 KiB to 1 MiB, unseen op x algorithm"
    line = rows[title, "the line through a series' own ends"]
    assert all(rows[title, "model"][figure] < line[figure] for figure in ("median", "p95", "largest"))


def test_a_split_without_records_says_so(document):
    rows = [{**row, "errors": None} if row["split"] == "another day" else row for row in document["rows"]]
    table = sheet({**document, "rows": rows})
    cells = [line.cells for group in table.groups for line in group]
    of_day = [one for one in cells if one["left out"] == "another day"]
    assert of_day
    assert all(one["cases"] == "no records" and not one["median"] for one in of_day)


def _case(op="all_reduce", algorithm="one_shot", ranks=2, size=1024, time_us=2.0, of="h200-x2", gpu="h200"):
    name = f"{op}-{algorithm}-n{ranks}-{size}"
    terms = Terms(0.5, 2.0, 0.0, size / 1e5, 0.0, 0.0)
    return Measured(
        name, of, gpu, "2026-11-21", op, algorithm, "bfloat16", ranks, size, time_us, 1, 32, 0.0, float(size), terms
    )


def test_no_case_is_predicted_by_constants_that_saw_its_group(cases):
    def group(split, one):
        return {
            "unseen algorithm x ranks": (one.op, one.algorithm, one.world_size),
            "unseen op x algorithm": (one.op, one.algorithm),
            "unseen op": one.op,
            "2 to 4 GPUs": one.world_size,
        }[split.title]

    for split in SPLITS[:4]:
        predicted = []
        for known, unknown in split.folds(cases):
            assert not {group(split, one) for one in known} & {group(split, one) for one in unknown}
            predicted += [one.id for one in unknown]
        wanted = [one.id for one in cases if split.title != "2 to 4 GPUs" or one.world_size == 4]
        assert sorted(predicted) == sorted(wanted)


def test_another_day_and_gpu_are_scored_where_there_are_records():
    usual = [_case(size=1 << power, of=name) for power in range(10, 16) for name in ("h200-x2", "h200-x4")]
    later = [_case(size=1 << power, of="h200-x2-2026-12-01", time_us=3.0) for power in (10, 11)]
    more = [_case(ranks=8, of="h200-x8", time_us=8.0)]
    other = [_case(size=2048, of="h100-x2", gpu="h100", time_us=4.0)]
    seen = []

    def learner(known, unknown):
        seen.append(({one.published for one in known}, {one.published for one in unknown}))
        return np.array([2.0 for _ in unknown])

    found = scored([*usual, *later, *more, *other], {"two": learner})
    rows = {row.split: row for row in found.rows if row.predictor == "two"}
    assert rows["another day"].errors.cases == 2
    assert rows["another day"].errors.median == pytest.approx(1 / 3)
    assert rows["other numbers of GPUs"].errors.largest == pytest.approx(0.75)
    assert rows["another GPU type, floors only"].errors.cases == 1
    assert rows["another GPU type, floors only"].errors.largest == pytest.approx(0.5)
    fitted = {"h200-x2", "h200-x4"}
    for apart in ("h200-x2-2026-12-01", "h200-x8", "h100-x2"):
        assert (fitted, {apart}) in seen
    assert found.apart == ("h100-x2", "h200-x2-2026-12-01", "h200-x8")


def test_errors_are_relative_to_the_measured_time():
    cases = [_case(size=1024, time_us=2.0), _case(size=2048, time_us=4.0), _case(size=4096, time_us=5.0)]
    predicted = dict(zip([f"{one.id} h200-x2" for one in cases], [2.2, 3.0, 5.0], strict=True))
    errors = errors_of(cases, predicted)
    assert (errors.cases, errors.median, errors.largest) == (3, pytest.approx(0.1), pytest.approx(0.25))
    assert errors_of(cases, {}) is None


def test_regret_is_what_the_choice_costs():
    cases = [
        _case(algorithm="a", time_us=2.0),
        _case(algorithm="b", time_us=2.02),
        _case(algorithm="a", size=4096, time_us=3.0),
        _case(algorithm="b", size=4096, time_us=2.0),
        _case(algorithm="alone", size=8192, time_us=2.0),
    ]
    order = {"a": 2.0, "b": 1.9, "alone": 1.0}  # b first: 1 % slower at 1 KiB, the best at 4 KiB
    regret = regret_of(cases, {f"{one.id} h200-x2": order[one.algorithm] for one in cases})
    assert (regret.choices, regret.right) == (2, 1.0)
    assert regret.mean == pytest.approx(0.005)
    worse = {"a": 1.0, "b": 1.9, "alone": 1.0}
    regret = regret_of(cases, {f"{one.id} h200-x2": worse[one.algorithm] for one in cases})
    assert (regret.right, regret.mean) == (0.5, pytest.approx(0.25))
    assert regret_of(cases[:1], {}) is None


def test_the_line_goes_through_both_ends_and_predicts_what_lies_between():
    cases = [_case(size=1000, time_us=2.0), _case(size=2000, time_us=9.0), _case(size=5000, time_us=6.0)]
    assert rivals.line(cases) == {cases[1].id: pytest.approx(3.0)}
    assert rivals.line(cases[:2]) == {}


def test_the_score_is_of_cases_on_2_and_4_gpus(cases):
    assert {one.world_size for one in cases} == set(SCORED_RANKS)


def test_a_liar_that_knows_the_answers_would_show(cases):
    """Errors come from the times: a learner that returns them has none, one that is 10 % off has 10 %."""
    some = cases[:40]
    for factor, error in ((1.0, 0.0), (1.1, 0.1)):
        predicted = {f"{one.id} {one.published}": one.time_us * factor for one in some}
        assert errors_of(some, predicted).largest == pytest.approx(error)


def test_left_out_needs_two_groups():
    one = _case()
    assert left_out([one, replace(one, size_bytes=2048)], UNSEEN_SERIES, rivals.model) == {}
    assert left_out([one], UNSEEN_ALGORITHM, rivals.model) == {}


def test_predictions_take_the_committed_constants(document):
    kept = stored()
    assert kept.constants == Fitted(**document["constants"])
    assert set(kept.intervals) == {"latency", "mixed", "bandwidth"}
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
