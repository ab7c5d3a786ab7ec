"""Pictures: the same bytes for the same records, and what is drawn is what was recorded."""

import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

from cases.record.timing import LinkLimit
from kernels.catalogue import SPECS
from reports import figures
from reports.figures import curves, style
from reports.record.bundle import digest
from reports.table import spread
from reports.table.compare import rows, split
from tests.reports.synthetic import DELAYS_US, KIB, MIB, record, refused, study, with_case

ROOT = Path(__file__).parents[3]
RECORDS = study(("one_shot", "nccl"), (KIB, 64 * KIB, 4 * MIB))


def drawn(records):
    """The figure, and its axes: time and bandwidth of each section."""
    figure = curves.figure(figures.drawable(records))
    return figure, figure.get_axes()


def lines_of(axes):
    return [line for line in axes.get_lines() if len(line.get_xdata()) > 2]


def bands_of(axes):
    return [one for one in axes.patches if one.get_alpha() == curves.BAND]


@pytest.mark.slow
def test_the_same_records_are_the_same_svg_in_any_process(tmp_path):
    program = (
        "import sys, hashlib; from reports.figures import picture; "
        "from tests.reports.figures.test_figures import RECORDS; "
        "print(hashlib.sha256(picture(RECORDS)).hexdigest())"
    )
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert hashes[0] == hashes[1]


def test_empty_messages_have_no_place_on_the_axis():
    _, axes = drawn([*RECORDS, record(size_bytes=0, timing={"slot_bytes": 0, "checked_before": 0, "checked_after": 0})])
    assert [list(line.get_xdata()) for line in lines_of(axes[0])] == [[KIB, 64 * KIB, 4 * MIB]] * 2
    with pytest.raises(ValueError, match="nothing to draw"):
        figures.drawable([record(size_bytes=0)])


def test_the_svg_names_its_records_and_no_date():
    text = figures.picture(RECORDS).decode()
    xml.etree.ElementTree.fromstring(text)
    assert digest(RECORDS) in text
    assert not re.search(r"<dc:date>|20\d\d-\d\d-\d\d", text)
    assert len(text) < 300_000


def test_lines_are_the_medians_over_worlds_and_bands_their_range():
    _, (left, right) = drawn(RECORDS)
    ours, nccl = lines_of(left)
    for line, algorithm in ((ours, "one_shot"), (nccl, "nccl")):
        of_algorithm = [one for one in RECORDS if one.case.algorithm == algorithm and one.timing]
        for size_bytes, value in zip(line.get_xdata(), line.get_ydata(), strict=True):
            times = sorted(one.timing.median_us for one in of_algorithm if one.case.size_bytes == size_bytes)
            assert len(times) == 3
            assert value == times[1]
    band = bands_of(left)[0].get_xy()[:, 1]
    times = [one.timing.median_us for one in RECORDS if one.case.algorithm == "one_shot" and one.timing]
    assert (band.min(), band.max()) == (min(times), max(times))
    first = next(one for one in RECORDS if one.timing)
    assert lines_of(right)[0].get_ydata()[0] == pytest.approx(first.timing.busbw_gbps(KIB), rel=0.06)
    assert left.get_ylabel() == "time (us)"
    assert right.get_ylabel() == "bus bandwidth (GB/s)"


def test_one_world_has_no_band():
    _, (left, _) = drawn(study(("one_shot", "nccl"), (KIB, 64 * KIB), worlds=1))
    assert bands_of(left) == []


def test_axes_are_logarithmic_with_binary_ticks():
    figure, (left, right) = drawn(RECORDS)
    figure.canvas.draw()
    assert (left.get_xscale(), left.get_yscale(), right.get_xscale(), right.get_yscale()) == ("log",) * 3 + ("linear",)
    for axes in (left, right):
        texts = [label.get_text() for label in axes.get_xticklabels()]
        assert texts[0] == "1 KiB"
        assert all(re.fullmatch(r"\d+ (B|KiB|MiB|GiB)", text) for text in texts)


def test_the_limit_is_the_measured_one():
    _, (_, right) = drawn(RECORDS)
    (limit,) = [line for line in right.get_lines() if len(line.get_xdata()) == 2]
    assert set(limit.get_ydata()) == {400.0}
    other = [record(size_bytes=size, timing={"limit": LinkLimit(100.0, 123.0, 1)}) for size in (KIB, MIB, 4 * MIB)]
    _, (_, right) = drawn(other)
    assert [set(line.get_ydata()) for line in right.get_lines() if len(line.get_xdata()) == 2] == [{123.0}]
    _, (_, right) = drawn([record(size_bytes=size, timing={"limit": None}) for size in (KIB, MIB, 4 * MIB)])
    assert all(len(line.get_xdata()) > 2 for line in right.get_lines())


def test_ours_are_solid_and_baselines_dashed_each_with_its_own_look():
    figure, (left, _) = drawn(study(sizes=(KIB, MIB, 4 * MIB)))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:-1] == list(DELAYS_US)
    styles = {name: line.get_linestyle() for name, line in zip(labels, lines_of(left), strict=False)}
    assert {name for name, style in styles.items() if style == "-"} == {"one_shot", "two_shot"}
    looks = {name: tuple(figures.look(name).values()) for name in style.KNOWN}
    assert figures.look("lamport@d") == figures.look("lamport") != figures.look("lamport@t64b8l1d")
    assert len(set(looks.values())) == len(looks)
    assert figures.look("a_new_one") == figures.look("a_new_one")


@pytest.mark.parametrize("others", [(), ("multimem_one_shot", "multimem_two_shot", "torch/multimem", "a_new_one")])
def test_the_legend_covers_no_data_and_is_not_cut(others):
    records = [record(name, size) for name in (*DELAYS_US, *others) for size in (KIB, MIB, 4 * MIB)]
    figure, axes = drawn(records)
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(one.get_window_extent()) for one in axes)
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert legend.y0 >= 0


def test_every_job_has_a_row_and_the_title_says_what_holds_for_all():
    records = [one for dtype in ("bfloat16", "float32") for one in study(dtype=dtype, sizes=(KIB, MIB), worlds=1)]
    figure, axes = drawn(records)
    assert [one.get_title(loc="left").partition(",")[0] for one in axes[::2]] == [
        "all_reduce bfloat16",
        "all_reduce float32",
    ]
    assert figure.get_suptitle() == "4 x Invented GPU: graph, window kernel, L2 rotate"


def test_what_can_not_be_drawn(tmp_path):
    with pytest.raises(ValueError, match="nothing to draw"):
        figures.draw([refused()], tmp_path / "x.svg")
    with pytest.raises(ValueError, match=r"ends in \.svg or \.png"):
        figures.draw(RECORDS, tmp_path / "x.pdf")
    assert split([refused()])[0] == []
    assert list(tmp_path.iterdir()) == []


def test_algorithms_of_an_op_differ_clearly():
    """In colour or marker, whatever their dashes; ours, of which lines are solid, as far as there are colours."""
    ops = {}
    for spec in SPECS:
        ops.setdefault(spec.op, set()).add(spec.algorithm)
    assert len(ops) == 9
    baselines = {"nccl", "nvshmem", "torch/one_shot", "torch/two_shot", "torch/multimem"}
    for op, ours in ops.items():
        looks = [tuple(figures.look(name).values()) for name in ours | baselines]
        assert len(set(looks)) == len(looks), op
        colours = {figures.look(name)["color"] for name in ours}
        assert len(colours) == min(len(ours), len(style.COLOURS)), op
        assert ours | baselines <= set(style.KNOWN), op


def test_pictures_for_a_page_have_ids_of_their_own_and_are_named_for_who_hears_them():
    judged = rows(figures.drawable(RECORDS)[0])
    first, second = (style.inline(lambda: curves.single(judged, "median_us"), key, 'a "label" <b>') for key in "ab")
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip((first, second), ids, strict=True):
        assert set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", text)) <= own
        assert 'role="img" aria-label="a &quot;label&quot; &lt;b&gt;"' in text
        assert "<metadata" not in text
        assert not re.search(r"http|<style|<!--", text.replace("http://www.w3.org/2000/svg", ""))
        xml.etree.ElementTree.fromstring(text)
    assert "1 KiB" in first


@pytest.mark.parametrize("sizes", [(KIB,), (KIB, MIB)])
@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_every_kind_of_picture_is_a_file(suffix, begins, sizes, tmp_path):
    figures.draw([record("one_shot", size) for size in sizes], tmp_path / f"x.{suffix}")
    picture = (tmp_path / f"x.{suffix}").read_bytes()
    assert picture.startswith(begins)
    assert len(picture) > 5_000


def in_both_placements(sizes=(KIB, 64 * KIB)):
    """two_shot out of place and in place, the second a tenth slower; NCCL, which is in place only, beside them."""
    made = []
    for size in sizes:
        samples = [[10.0 + size / 1e4] * 3] * 4
        slower = [[1.1 * one for one in row] for row in samples]
        made += [record("two_shot", size, samples_us=samples)]
        made += [with_case(record("two_shot", size, samples_us=slower), placement="in_place")]
        made += [with_case(record("nccl", size), placement="in_place")]
    return made


def test_placements_are_curves_of_their_own():
    (section,) = figures.drawable(in_both_placements())
    found = {one.label: one for one in curves.curves(rows(section), "median_us")}
    assert list(found) == ["two_shot (out of place)", "two_shot (in place)", "nccl"]
    out, second, _ = found.values()
    assert second.middle == pytest.approx([1.1 * value for value in out.middle])
    assert [one.is_second for one in found.values()] == [False, True, False], "nccl has one placement only"
    assert {one.sizes for one in found.values()} == {(KIB, 64 * KIB)}
    styles = [style.line_style(one.algorithm, one.is_ours, one.is_second)["linestyle"] for one in found.values()]
    assert len(set(map(str, styles))) == 3
    figure, axes = drawn(in_both_placements((KIB, 64 * KIB, MIB)))
    assert len(lines_of(axes[0])) == 3
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} > {"two_shot (out of place)", "two_shot (in place)", "nccl"}


def test_the_spread_of_placements_has_slots_of_their_own():
    (section,) = figures.drawable(in_both_placements())
    names = [line.cells["algorithm"] for group in spread.sheet(section).groups for line in group]
    assert names[:3] == ["two_shot (out of place)", "two_shot (in place)", "nccl"]
