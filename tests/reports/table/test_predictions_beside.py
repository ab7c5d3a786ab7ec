"""Tables and pages with predictions beside measured times: columns, cases that are far slower, reasons, raw values."""

import csv
import dataclasses
import io
import json
import re

import pytest

from cases.documents import decoded, encoded
from cases.record.prediction import PredictedTerms, RecordedPrediction
from reports.html import page
from reports.html.blocks import Table
from reports.html.predictions import part
from reports.record import bundle
from reports.table.table import markdown, plain, values
from reports.table.text import csv_of, json_of
from tests.golden import refused, same_text
from tests.reports.beside import BEFORE, TERMS, predicted
from tests.reports.synthetic import KIB, record


def without(made, reason="nccl is a library's, and the model is of the catalogue's kernels"):
    return dataclasses.replace(made, prediction=RecordedPrediction(reason=reason))


@pytest.fixture(scope="module")
def records():
    """One of ours as predicted, one far slower, and a library's."""
    ours, slow, theirs = record("one_shot", KIB), record("two_shot", KIB), record("nccl", KIB)
    return [predicted(ours, ours.timing.median_us), predicted(slow, slow.timing.median_us / 2), without(theirs)]


def test_tables_have_the_columns_only_where_something_was_predicted(records):
    bare = [dataclasses.replace(one, prediction=None) for one in records]
    assert "predicted" not in plain(bare)
    assert "predicted" not in json_of(values(bare)) + csv_of(values(bare))
    reasons = plain([without(one) for one in bare]).splitlines()
    assert not any("predicted" in line for line in reasons[:5]), "reasons need none"


def test_what_is_far_slower_is_pointed_out_with_its_path(records):
    """Wide tables have a column of predicted times for each contestant that has some."""
    same_text(plain(records))
    same_text(markdown(records, is_wide=True))
    bare = [dataclasses.replace(one, prediction=None) for one in records]
    assert "predicted" not in markdown(bare, is_wide=True)


def test_the_median_of_worlds_counts(records):
    worlds = [record("one_shot", KIB, world=world) for world in range(3)]
    told = [predicted(one, time_us) for one, time_us in zip(worlds, (1.0, 5.0, 100.0), strict=True)]
    (line,) = json.loads(json_of(values(told)))
    assert line["predicted_us"] == 5.0
    assert line["measured_over_predicted"] == line["median_us"] / 5.0


def test_raw_values_say_what_was_predicted(records):
    ours, slow, theirs = json.loads(json_of(values(records)))
    assert (ours["far_slower"], slow["far_slower"], theirs["far_slower"]) == (False, True, None)
    assert (slow["predicted_gpu"], slow["predicted_regime"], slow["measured_over_predicted"]) == ("h200", "mixed", 2.0)
    assert theirs["predicted_us"] is None
    assert theirs["not_predicted"].startswith("nccl is a library's")
    rows = list(csv.DictReader(io.StringIO(csv_of(values(records)))))
    assert [float(row["predicted_us"] or 0) for row in rows] == [ours["predicted_us"], slow["predicted_us"], 0.0]


def test_predicted_times_are_in_no_curve(records):
    """Every picture of the page is the same to the byte with predictions and without."""
    sizes = [record("one_shot", size_bytes) for size_bytes in (KIB, 2 * KIB, 4 * KIB)]
    told = [predicted(one, 1.0) for one in sizes]
    assert drawn_pictures(told) == drawn_pictures(sizes) != []


def drawn_pictures(records):
    return re.findall(r'<div class="picture">.*?</div>', page(records), re.DOTALL)


def test_the_page_has_a_part_with_the_slower_cases_first(records):
    text = page(records)
    part = text[text.index('<section id="predicted"') :].partition("</section>")[0]
    assert "1 case of 2 slower than predicted" in part
    assert "largest terms: the path of a message of 1 KiB 4.00 us" in part
    assert part.index("all_reduce/two_shot</td>") < part.index("all_reduce/one_shot</td>")
    bare = [dataclasses.replace(one, prediction=None) for one in records]
    assert '<section id="predicted"' not in page(bare)


def test_bundles_carry_predictions(records, tmp_path):
    path = tmp_path / f"set{bundle.SUFFIX}"
    bundle.write(records, path)
    assert {one.id: one.prediction for one in bundle.read([path])} == {one.id: one.prediction for one in records}


@pytest.mark.parametrize(
    "changes",
    [
        {"time_us": 0.0},
        {"ratio": float("inf")},
        {"low_us": 30.0, "high_us": 20.0},
        {"regime": "fast"},
        {"floors_digest": "abc"},
        {"gpu": ""},
        {"path_us": {"hop": -1.0}},
        {"path_us": {"hop": 10**400}},
        {"work": {"steps": {"hop": 10**400}}},
        {"path_us": {"hop": True}},
    ],
)
def test_what_can_be_no_prediction_is_none(changes):
    with refused():
        predicted(record("one_shot", KIB), 10.0, **changes)


def test_a_prediction_has_a_time_or_a_reason_and_stands_beside_a_timing(records):
    with pytest.raises(ValueError, match="a time, or the reason"):
        RecordedPrediction()
    with pytest.raises(ValueError, match="link_us: nan"):
        dataclasses.replace(TERMS, link_us=float("nan"))
    with pytest.raises(ValueError, match="a prediction belongs to a timed case, not to PASSED"):
        dataclasses.replace(records[0], timing=None)


def test_the_largest_terms_leave_out_the_shorter_of_link_and_path():
    assert TERMS.largest(3) == (("the path of a message of 1 KiB", 4.0), ("the link", 3.5), ("begin", 1.2))
    other = dataclasses.replace(TERMS, more_us=9.0)
    assert other.largest(1) == (("the rest of the path", 9.0),)
    assert other.time_us == pytest.approx(0.7 + 1.2 + 4.0 + 9.0)


def test_memory_counts_with_the_link_and_records_from_before_have_none():
    assert "memory_us" not in encoded(BEFORE)
    assert decoded(PredictedTerms, encoded(BEFORE), "terms") == BEFORE
    assert BEFORE.time_us == TERMS.time_us
    more = dataclasses.replace(TERMS, memory_us=2.0, more_us=4.0)
    assert decoded(PredictedTerms, encoded(more), "terms") == more
    assert more.time_us == pytest.approx(0.7 + 1.2 + 4.0 + 3.5 + 2.0)
    assert more.largest(3)[1:] == (("the link", 3.5), ("the own memory", 2.0))
    rest = dataclasses.replace(more, more_us=6.0)
    assert rest.largest(2) == (("the rest of the path", 6.0), ("the path of a message of 1 KiB", 4.0))
    with pytest.raises(ValueError, match="memory_us: -1"):
        dataclasses.replace(TERMS, memory_us=-1.0)


def test_a_page_shows_the_memory_where_a_record_has_it(records):
    earlier, later = predicted(records[0], 7.0, terms=BEFORE), dataclasses.replace(TERMS, memory_us=1.375)
    (table,) = (
        block for block in part([earlier, predicted(records[1], 7.0, terms=later)]).blocks if isinstance(block, Table)
    )
    lines = {line.cells["algorithm"]: line for group in table.sheet.groups for line in group}
    before, now = lines["all_reduce/one_shot"], lines["all_reduce/two_shot"]
    assert (before.cells["memory"], now.cells["memory"]) == ("-", "1.38")
    assert "memory" not in before.raw
    assert now.raw["memory"] == 1.375
