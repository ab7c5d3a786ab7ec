"""What symlab predict writes into files: pages and its output; whole, and marked as predicted."""

import re
from collections import Counter
from xml.etree import ElementTree

import pytest

from reports.figures import predicted as pictures
from symlab.__main__ import main
from symlab.speed.predict import command, page
from symlab.speed.predict.stored_score import stored
from tests.golden import same_text

REQUEST = (
    "op=all_reduce", "dtype=bfloat16", "world_size=2", "sizes=[1K,4K]", "algorithms=[one_shot,two_shot_lamport]",
)  # fmt: skip
H200 = "fabric.gpu=h200"
NAMES = ("one_shot", "two_shot_lamport")


@pytest.fixture(scope="module")
def written(cache, tmp_path_factory):
    """The files of one command with two jobs: 2 and 3 ranks."""
    folder = tmp_path_factory.mktemp("files")
    words = ("-m", *REQUEST[:2], "world_size=2,3", *REQUEST[3:], H200, f"cache_dir={cache}", "--explain")
    files = ("--page", str(folder / "page.html"), "-o", str(folder / "out.txt"))
    assert main(["predict", *words, "--ranges", *files]) == 0
    return folder


@pytest.mark.slow
def test_the_page_is_marked_holds_the_table_and_draws_times_and_paths(written):
    text = (written / "page.html").read_text()
    assert "<h1>PREDICTED: all_reduce on 2, 3 GPUs of type h200</h1>" in text
    assert "Predicted, not measured: every time and bandwidth on this page is a model&#39;s." in text
    assert text.count("PREDICTED, not measured: all_reduce bfloat16, accumulator float32, sum, 2 ranks of h200") >= 4
    assert ": ranges of sizes" in text
    assert text.count("us = launch ") == 8, "the terms of each case, behind its path"
    assert "3 ranks: the interval is of cases on 2 and 4 GPUs" in text
    cells = re.findall(r"\d\.\d\d \(\d\.\d\d-\d\.\d\d, \d\.\d\)", (written / "out.txt").read_text())
    assert len(cells) == 8
    assert all(cell in text for cell in cells)
    assert not re.search(r'(?:src|href)="(?!#)', text), "nothing is loaded"
    figures = re.findall(r'<svg[^>]*aria-label="([^"]*)"', text)
    assert sum(one.startswith("PREDICTED, not measured: time (us) over size of one_shot") for one in figures) == 2
    assert sum(one.startswith("PREDICTED, not measured: bus bandwidth (GB/s)") for one in figures) == 2
    assert sum(one.startswith("critical path of all_reduce/") for one in figures) == 8
    legends = re.findall(r'class="swatch"[^>]*><use href="#([^"]+)"/></svg>(\w+)', text)
    assert legends == [(f"swatch-job{job}-0-{number}", name) for job in (0, 1) for number, name in enumerate(NAMES)]
    assert all(f'<symbol id="{swatch}"' in text for swatch, _ in legends)
    assert text.count("<details open>") == 1
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert not [one for one, count in Counter(ids).items() if count > 1]


@pytest.mark.slow
def test_what_is_printed_goes_into_the_file(written, cache, capsys):
    words = ("-m", *REQUEST[:2], "world_size=2,3", *REQUEST[3:], H200, f"cache_dir={cache}", "--explain")
    assert main(["predict", *words, "--ranges"]) == 0
    assert capsys.readouterr().out == (written / "out.txt").read_text()


def test_bands_reach_over_the_interval(cache):
    from symlab.speed.predict.asking import asked_jobs, series_of

    (job,) = asked_jobs((*REQUEST, H200, f"cache_dir={cache}"), False, None)
    found = series_of(job, stored(), False)
    for measure in ("median_us", "busbw_gbps"):
        for curve in page.curves(found.predictions, measure):
            own = [one for one in found.predictions if one.case.algorithm == curve.algorithm]
            assert curve.sizes == (1024, 4096)
            for one, middle, low, high in zip(own, curve.middle, curve.lowest, curve.highest, strict=True):
                assert low < middle < high
                told = (one.time_us, one.low_us, one.high_us)
                if measure == "median_us":
                    assert (middle, low, high) == told
                else:  # all_reduce on 2 ranks: the bus moves as much as the message has
                    moved = one.case.size_bytes / 1e3
                    assert (middle, low, high) == pytest.approx((moved / told[0], moved / told[2], moved / told[1]))
    svg = pictures.inline(page.curves(found.predictions, "median_us"), "median_us", "key")
    tree = ElementTree.fromstring(svg.replace(' href="', ' data-href="'))
    texts = ["".join(one.itertext()).strip() for one in tree.iter() if one.tag.endswith("text")]
    assert "PREDICTED" in texts
    assert {"1 KiB", "time (us)"} <= set(texts)


@pytest.mark.slow
def test_a_type_without_floors_has_a_page_without_times_of_waits(cache, tmp_path, capsys):
    words = (*REQUEST, "fabric.gpu=b200", f"cache_dir={cache}", "--explain")
    assert main(["predict", *words, "--page", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "no figure: without floors of its own the type has an order of algorithms" in text
    assert "in order, for b200 has no floors" in text
    assert not re.search(r'aria-label="critical path', text)
    capsys.readouterr()


def test_places_that_cannot_be_written_are_refused_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "series_of", lambda *_, **__: pytest.fail("simulated"))
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    page = ("--page", str(tmp_path / "a.html"))
    for words in (
        ("-o", str(tmp_path)),
        ("--page", str(tmp_path / "folder.html")),
        ("-o", str(tmp_path / "none" / "out.txt")),
        ("--page", str(tmp_path / "page.txt")),
        ("-o", str(tmp_path / "a.html"), *page),
        ("-o", str(tmp_path / "link" / "a.html"), *page),
        ("--score", "-o", str(tmp_path / "out.txt")),
    ):
        assert main(["predict", *REQUEST, H200, *words]) == 2
        same_text(capsys.readouterr().err)


def test_a_file_that_fails_keeps_its_content(cache, tmp_path, monkeypatch, capsys):
    place = tmp_path / "out.txt"
    place.write_text("before")

    def full(path, data):
        raise ValueError(f"{path}: can't be written (No space left on device)")

    monkeypatch.setattr(command, "write_file", full)
    assert main(["predict", *REQUEST, H200, f"cache_dir={cache}", "-o", str(place)]) == 2
    assert "can't be written (No space left on device) (-o)" in capsys.readouterr().err
    assert place.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["out.txt"]
