"""Studies of accumulators: which records are points of which curve, and what is said of them."""

import dataclasses
import math
import xml.etree.ElementTree

import pytest

from cases.record.record import Check, FabricInfo
from reports.__main__ import main
from reports.numerics import accuracy, study
from reports.numerics.closing_text import console_report
from reports.record import bundle
from reports.table import sheet, table
from tests.golden import same_text
from tests.reports import synthetic

WORLD_SIZES = (2, 8, 72)


def text_of(curves):
    return sheet.text(study.sheets_of(curves), study.captions(curves))


def checked(
    algorithm="two_shot",
    world_size=2,
    *,
    rms=2.0,
    relative=2.0**-8,
    results=1,
    elements=100,
    size_bytes=4096,
    case=None,
    **changes,
):
    """A record with invented errors; relative: of the root mean square, the largest is four times it."""
    made = synthetic.record(algorithm, size_bytes, world_size=world_size, is_timed=False, **changes)
    check = Check(
        method="bitwise_fold",
        elements=elements,
        wrong=0,
        max_absolute_error=1.0,
        max_ulp_error=int(10 * rms),
        rms_ulp_error=rms,
        ranks_equal=results == 1,
        launches=1,
        launches_equal=True,
        ranks_equal_promised=results == 1,
        max_relative_error=None if relative is None else 4 * relative,
        rms_relative_error=relative,
        results=results,
    )
    fabric = FabricInfo("simulator", "sm_90a", world_size, 1 << 28, True, "", True)
    return dataclasses.replace(synthetic.with_case(made, **(case or {})), check=check, fabric=fabric)


RECORDS = [
    *(checked("two_shot", size, relative=size * 2.0**-8) for size in WORLD_SIZES),
    *(checked("one_shot_rotated", size, results=size) for size in WORLD_SIZES),
]


def test_a_curve_is_an_algorithm_a_dtype_and_an_accumulator_over_world_sizes():
    first, second = study.series(list(reversed(RECORDS)))
    assert (first.algorithm, second.algorithm) == ("one_shot_rotated", "two_shot")
    assert second.name == "all_reduce/two_shot bfloat16/float32 sum, normal inputs"
    assert second.sizes == WORLD_SIZES
    assert [point.rms_relative_error for point in second.points] == [2, 8, 72], "in units of u"
    assert [point.max_relative_error for point in second.points] == [8, 32, 288]
    assert [point.results for point in first.points] == [2, 8, 72]
    other = checked(accumulator="native")
    assert len(study.series([*RECORDS, other])) == 3


def test_several_sizes_are_one_point_weighted_by_their_elements():
    both = [checked(rms=1.0, relative=0.0, elements=300), checked(rms=3.0, elements=100, size_bytes=64)]
    ((point,),) = (one.points for one in study.series(both))
    assert point.rms_ulp_error == pytest.approx(math.sqrt((300 * 1 + 100 * 9) / 400))
    assert point.rms_relative_error == pytest.approx(math.sqrt(100 / 400))
    assert (point.max_ulp_error, point.max_relative_error) == (30, 4.0)


def test_older_records_have_no_relative_errors():
    old = [checked(world_size=size, relative=None, results=None) for size in WORLD_SIZES]
    ((*points,),) = (one.points for one in study.series(old))
    assert {(point.max_relative_error, point.rms_relative_error, point.results) for point in points} == {(None,) * 3}
    text = text_of(study.studied(old))
    assert "rms of the results" not in text
    assert text.count("in ulp") == 1


@pytest.mark.parametrize(
    "case",
    [
        {"dtype": "int32", "accumulator": "native"},
        {"reduction": "min", "accumulator": "native"},
        {"inputs": "edge"},
        {"accumulator": "library"},
    ],
)
def test_what_rounds_nothing_and_what_others_did_is_on_no_curve(case):
    assert study.series([checked(case=case)]) == []


def test_what_was_not_checked_or_refused_is_on_no_curve():
    unchecked = dataclasses.replace(checked(), check=None, reason="check was off")
    assert study.series([unchecked, synthetic.refused()]) == []


def test_three_world_sizes_make_a_study():
    assert study.studied(RECORDS[:2]) == []
    assert len(study.studied(RECORDS)) == 2
    assert len(study.studied(RECORDS[:2], least=2)) == 1


def test_the_table_has_a_column_a_world_size_and_says_whether_ranks_agree():
    same_text(text_of(study.studied(RECORDS)))


def test_a_curve_without_a_world_size_has_a_dash_there():
    text = text_of(study.studied([*RECORDS, *(checked("one_shot", size) for size in (2, 4, 8))]))
    line = next(line for line in text.splitlines() if " one_shot " in line)
    assert line.split()[-2:] == ["-", "yes"]


def test_ranks_that_differ_without_a_count_are_said_to_differ():
    (curve,) = study.series([checked(results=None)])
    assert study.agreement(curve) == "no"


def test_a_command_ends_with_its_study_and_what_is_not_in_it():
    refused = synthetic.refused()
    assert console_report([*RECORDS, refused]) == (
        table.console_table([refused]) + "\n\n" + text_of(study.studied(RECORDS))
    )
    assert console_report(RECORDS) == text_of(study.studied(RECORDS))
    assert console_report(RECORDS[:2]) == table.console_table(RECORDS[:2])


@pytest.fixture
def folder(tmp_path):
    for number, record in enumerate(RECORDS):
        (tmp_path / f"{number}.json").write_text(record.to_json(), encoding="utf-8")
    return tmp_path


def test_the_command(folder, capsys):
    assert main(["study", str(folder)]) == 0
    assert capsys.readouterr().out == text_of(study.studied(bundle.read([folder]))) + "\n"
    assert main(["study", str(folder), "--format", "markdown", "-o", str(folder / "study.svg")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("**all_reduce sum, normal inputs")
    assert "| bfloat16 | float32 | two_shot | 2 / 8 |" in printed
    root = xml.etree.ElementTree.parse(folder / "study.svg").getroot()
    assert root.tag.endswith("svg")
    assert main(["study", str(folder), "-o", str(folder / "study.pdf")]) == 2
    assert "ends in .svg or .png" in capsys.readouterr().err


def test_without_a_curve_it_says_so(tmp_path, capsys):
    path = tmp_path / "one.json"
    path.write_text(RECORDS[0].to_json(), encoding="utf-8")
    assert main(["study", str(path)]) == 2
    assert "two world sizes or more: no curve" in capsys.readouterr().err


def test_the_picture_has_every_curve_on_every_axis():
    from reports.figures import errors

    figure = errors.over_ranks(study.studied(RECORDS))
    axes = figure.get_axes()
    assert [one.get_ylabel() for one in axes] == [measure.title for measure in study.MEASURES]
    for one, measure in zip(axes, study.MEASURES, strict=True):
        lines = one.get_lines()
        assert len(lines) == 2
        assert list(lines[0].get_xdata()) == list(WORLD_SIZES)
        assert list(lines[0].get_ydata()) == [measure.value(point) for point in study.series(RECORDS)[0].points]


def test_the_pictures_axes_lie_beside_and_below_each_other_and_below_the_title():
    from reports.figures import errors

    worse = [checked("two_shot", size, rms=9.0, case={"placement": "in_place"}) for size in WORLD_SIZES]
    figure = errors.over_ranks(study.studied([*RECORDS, *worse]))
    renderer = figure.canvas.get_renderer()
    title = figure._suptitle.get_window_extent(renderer)
    boxes = [one.get_tightbbox(renderer) for one in figure.get_axes()]
    assert len(boxes) == 2 * len(study.MEASURES)
    for at, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= 0
        assert box.y1 <= title.y0
        assert not any(box.overlaps(other) for other in boxes[:at])


def test_records_without_the_later_fields_stay_as_they_were():
    plain = synthetic.record(is_timed=False)
    assert "rms_relative_error" not in plain.to_json()
    assert '"rms_relative_error": 0.0078125' in checked(relative=2.0**-7).to_json()


def test_an_empty_message_has_no_error_and_stops_nothing():
    """A sum of 0 elements compares nothing: it is in no curve, and the others keep theirs."""
    empty = checked("two_shot", 4, elements=0, size_bytes=0)
    assert study.series([empty]) == []
    assert study.series([empty, *RECORDS]) == study.series(RECORDS)
    assert not study.belongs(empty, study.series(RECORDS))


def test_placements_are_curves_and_groups_of_their_own():
    worse = [checked("two_shot", size, rms=9.0, case={"placement": "in_place"}) for size in WORLD_SIZES]
    out, second = [one for one in study.series([*RECORDS, *worse]) if one.algorithm == "two_shot"]
    assert (out.name + ", in place", out.picture[-1], second.picture[-1]) == (second.name, "normal inputs", "in place")
    assert [point.rms_ulp_error for point in out.points] == [2.0] * 3
    assert [point.rms_ulp_error for point in second.points] == [9.0] * 3
    assert study.belongs(worse[0], [second])
    assert not study.belongs(worse[0], [out])
    headings = [sheet.heading for sheet in study.sheets_of([out, second])]
    assert [", in place" in heading for heading in headings] == [False, False, True, True]
    groups = accuracy.groups([*RECORDS[:1], *worse[:1]])
    assert [group.heading.rpartition(", ")[2] for group in groups] == ["out of place", "in place"]
    assert [len(accuracy.groups(some)) for some in (RECORDS[:1], worse[:1])] == [1, 1]


def named(records, experiment="accumulator_study"):
    return [synthetic.with_request(one, experiment=experiment) for one in records]


def test_a_study_of_too_few_world_sizes_says_why():
    two = named([checked("two_shot", size) for size in (2, 8)])
    same_text(console_report(two, "records/x").splitlines()[-1])
    same_text(study.why_no_study(two[:1]))
    assert study.why_no_study(named([synthetic.refused()])).endswith("on no world size")
    assert study.why_no_study(named(RECORDS)) == ""
    assert "no study" not in console_report(named(two, "allreduce_bf16"))


def test_a_long_study_is_summarised_and_its_command_named():
    many = [
        checked("two_shot", size, case={"dtype": dtype, "accumulator": accumulator, "reduction": reduction})
        for size in WORLD_SIZES
        for dtype in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
        for accumulator in ("native", "float16", "float32")
        for reduction in ("sum", "avg")
    ]
    assert len(console_report(many).splitlines()) > 60
    short = console_report(many, "records/x y")
    assert len(short.splitlines()) < 60
    assert short.splitlines()[-1] == "the whole study: symlab study 'records/x y'"
    assert console_report(RECORDS, "records/x") == console_report(RECORDS)
