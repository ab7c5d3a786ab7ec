"""Pictures: the same bytes for the same records, and what is drawn is what was recorded."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from reports import figures
from reports.bundle import digest
from reports.compare import split
from reports.figures import curves, style
from reports.record import LinkLimit
from tests.reports.synthetic import DELAYS_US, KIB, MIB, record, refused, study

ROOT = Path(__file__).parents[2]
RECORDS = study(("one_shot", "nccl"), (KIB, 64 * KIB, 4 * MIB))


def drawn(records: list[Any]) -> tuple[Any, list[Any]]:
    """The figure, and its axes: time and bandwidth of each section."""
    figure = curves.figure(figures.drawable(records))
    return figure, figure.get_axes()


def lines_of(axes: Any) -> list[Any]:
    return [line for line in axes.get_lines() if len(line.get_xdata()) > 2]


def test_the_same_records_are_the_same_svg_in_any_process() -> None:
    program = (
        "import sys, hashlib; from reports.figures import picture; from tests.reports.test_figures import RECORDS; "
        "print(hashlib.sha256(picture(RECORDS)).hexdigest())"
    )
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "HOME": "/nowhere", "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert hashes[0] == hashes[1]


def test_empty_messages_have_no_place_on_the_axis() -> None:
    _, axes = drawn([*RECORDS, record(size_bytes=0, timing={"slot_bytes": 0, "checked_before": 0, "checked_after": 0})])
    assert [list(line.get_xdata()) for line in lines_of(axes[0])] == [[KIB, 64 * KIB, 4 * MIB]] * 2
    with pytest.raises(ValueError, match="nothing to draw"):
        figures.drawable([record(size_bytes=0)])


def test_the_svg_names_its_records_and_no_date() -> None:
    text = figures.picture(RECORDS).decode()
    xml.etree.ElementTree.fromstring(text)
    assert digest(RECORDS) in text
    assert not re.search(r"<dc:date>|20\d\d-\d\d-\d\d", text)
    assert len(text) < 300_000


def test_lines_are_the_medians_over_worlds_and_bands_their_range() -> None:
    _, (left, right) = drawn(RECORDS)
    ours, nccl = lines_of(left)
    for line, algorithm in ((ours, "one_shot"), (nccl, "nccl")):
        of_algorithm = [one for one in RECORDS if one.case["algorithm"] == algorithm and one.timing]
        for size_bytes, value in zip(line.get_xdata(), line.get_ydata(), strict=True):
            times = sorted(one.timing.median_us for one in of_algorithm if one.case["size_bytes"] == size_bytes)
            assert len(times) == 3
            assert value == times[1]
    band = left.collections[0].get_paths()[0].vertices[:, 1]
    times = [one.timing.median_us for one in RECORDS if one.case["algorithm"] == "one_shot" and one.timing]
    assert (band.min(), band.max()) == (min(times), max(times))
    first = next(one for one in RECORDS if one.timing)
    assert lines_of(right)[0].get_ydata()[0] == pytest.approx(first.timing.busbw_gbps(KIB), rel=0.06)
    assert left.get_ylabel() == "time (us)"
    assert right.get_ylabel() == "bus bandwidth (GB/s)"


def test_one_world_has_no_band() -> None:
    _, (left, _) = drawn(study(("one_shot", "nccl"), (KIB, 64 * KIB), worlds=1))
    assert len(left.collections) == 0


def test_axes_are_logarithmic_with_binary_ticks() -> None:
    figure, (left, right) = drawn(RECORDS)
    figure.canvas.draw()
    assert (left.get_xscale(), left.get_yscale(), right.get_xscale(), right.get_yscale()) == ("log",) * 3 + ("linear",)
    for axes in (left, right):
        texts = [label.get_text() for label in axes.get_xticklabels()]
        assert texts[0] == "1 KiB"
        assert all(re.fullmatch(r"\d+ (B|KiB|MiB|GiB)", text) for text in texts)


def test_the_limit_is_the_measured_one() -> None:
    _, (_, right) = drawn(RECORDS)
    (limit,) = [line for line in right.get_lines() if len(line.get_xdata()) == 2]
    assert set(limit.get_ydata()) == {400.0}
    other = [record(size_bytes=size, timing={"limit": LinkLimit(100.0, 123.0, 1)}) for size in (KIB, MIB, 4 * MIB)]
    _, (_, right) = drawn(other)
    assert [set(line.get_ydata()) for line in right.get_lines() if len(line.get_xdata()) == 2] == [{123.0}]
    _, (_, right) = drawn([record(size_bytes=size, timing={"limit": None}) for size in (KIB, MIB, 4 * MIB)])
    assert all(len(line.get_xdata()) > 2 for line in right.get_lines())


def test_ours_are_solid_and_baselines_dashed_each_with_its_own_look() -> None:
    figure, (left, _) = drawn(study(sizes=(KIB, MIB, 4 * MIB)))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:-1] == list(DELAYS_US)
    styles = {name: line.get_linestyle() for name, line in zip(labels, lines_of(left), strict=False)}
    assert {name for name, style in styles.items() if style == "-"} == {"one_shot", "two_shot"}
    looks = {name: tuple(figures.look(name).values()) for name in style.KNOWN}
    assert len(set(looks.values())) == len(looks)
    assert figures.look("a_new_one") == figures.look("a_new_one")


@pytest.mark.parametrize("others", [(), ("multimem_one_shot", "multimem_two_shot", "torch/multimem", "a_new_one")])
def test_the_legend_covers_no_data_and_is_not_cut(others: tuple[str, ...]) -> None:
    records = [record(name, size) for name in (*DELAYS_US, *others) for size in (KIB, MIB, 4 * MIB)]
    figure, axes = drawn(records)
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(one.get_window_extent()) for one in axes)
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert legend.y0 >= 0


def test_every_job_has_a_row_and_the_title_says_what_holds_for_all() -> None:
    records = [one for dtype in ("bfloat16", "float32") for one in study(dtype=dtype, sizes=(KIB, MIB), worlds=1)]
    figure, axes = drawn(records)
    assert [one.get_title(loc="left").partition(",")[0] for one in axes[::2]] == [
        "all_reduce bfloat16",
        "all_reduce float32",
    ]
    assert figure.get_suptitle() == "4 x Invented GPU: graph, window kernel, L2 rotate"


def test_one_size_is_a_picture_too() -> None:
    assert figures.picture([record()], "png").startswith(b"\x89PNG")


def test_what_can_not_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        figures.draw([refused()], tmp_path / "x.svg")
    with pytest.raises(ValueError, match=r"ends in \.svg or \.png"):
        figures.draw(RECORDS, tmp_path / "x.pdf")
    assert split([refused()])[0] == []
    assert list(tmp_path.iterdir()) == []
