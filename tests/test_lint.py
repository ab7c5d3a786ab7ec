"""The rules of tests/lint.py find what they are for, and the files that they are about."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.lint import (
    PACKAGES,
    ROOT,
    dead_links,
    of_source,
    same_names,
    shared_experiments,
    short_waits,
    unwanted_in,
    upper_bounds,
    without_test,
    written,
)


@pytest.mark.parametrize(
    ("text", "bounds", "waits"),
    [
        ("began = time.monotonic()\nassert time.monotonic() - began < 3", [2], []),
        ("assert 9 > perf_counter_ns() - began, 'slow'", [1], []),
        ("took = time.process_time() - began\nassert job.ran and took / 100 <= limit", [2], []),
        ("assert time.monotonic() < ends_s", [1], []),
        ("took = time.monotonic() - began\nassert took >= 0.2", [], []),
        ("assert 0.2 <= time.monotonic() - began < 15", [1], []),
        ("assert time.monotonic() - began < patience.NEVER_S", [], []),
        ("assert before_s <= after_s", [], []),
        ("assert outcome.wall_s < 3\nassert all(one.duration_s < 0.3 for one in records)", [1, 2], []),
        ("assert 0.5 <= done.seconds < 30\nassert outcome.wall_s < PATIENCE_S\nassert done.seconds >= 1", [1], []),
        ("subprocess.run(line, timeout=20)\nprocess.wait(5)\nthread.join(59.5)", [], [1, 2, 3]),
        ("process.wait(PATIENCE_S)\nready.wait(0.02)\nprocess.communicate(timeout=120)\n', '.join(x)", [], []),
        ("world.run(program, None, 20.0)\nworld.run(squared, 7)\nworld.run(program, None, NEVER_S)", [], [1]),
    ],
)
def test_what_asserts_speed_is_found(text: str, bounds: list[int], waits: list[int]) -> None:
    tree = ast.parse(text)
    assert (upper_bounds(tree), short_waits(tree)) == (bounds, waits)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("None where nobody\n    counts", ["nobody"]),
        ("# a batch has so\n    # many runs", ["so many"]),
        ('"conf/ is not "\n    f"asked"', ["is not asked"]),
        ("// Whoever reads\n// is\n// told", ["whoever", "is told"]),
        ("it is asked for, for nobodys", []),
    ],
)
def test_unwanted_words_are_found_across_lines(text: str, words: list[str]) -> None:
    assert unwanted_in(text) == words


def test_all_packages_are_read() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in written()}
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, "conf"}
    assert {"runner/track/send.py", "reports/html/page.js", "conf/config.yaml"} <= names


def test_a_clock_of_work_is_for_benchmarks() -> None:
    text = 'line = "import time"\nprogram = "time.perf_counter()"\n'
    for name, found in (("tests/test_x.py", [2]), ("tests/benchmarks/x.py", []), ("runner/x.py", [])):
        assert [line for line, _ in of_source(ROOT / name, text)] == found


def test_a_link_needs_its_file_or_its_title() -> None:
    text = "# A title, here\n[a](#a-title-here) [b](x.md)\n[c](#no) [d](README.md)\n`cases/gone.py` `cases/ops.py`\n"
    found = [(line, what.split()[0]) for line, what in dead_links(ROOT / "page.md", text)]
    assert found == [(2, "x.md"), (3, "#no"), (4, "cases/gone.py")]


def test_files_of_tests_share_neither_names_nor_experiments() -> None:
    assert list(same_names([Path("tests/a/x.py"), Path("tests/b/y.py"), Path("tests/b/conftest.py")])) == []
    (line,) = same_names([Path("tests/a/x.py"), Path("tests/b/x.py")])
    assert line.startswith("tests/a/x.py and tests/b/x.py: ")
    one = 'run("track.experiment=x")'
    assert list(shared_experiments([("a.py", one), ("b.py", one.replace("=x", "=y"))])) == []
    (line,) = shared_experiments([("a.py", one), ("b.py", one)])
    assert line.startswith("a.py and b.py: ")


def test_texts_of_tests_that_are_gone_are_named() -> None:
    here = "tests/test_lint.py::test_texts_of_tests_that_are_gone_are_named"
    assert list(without_test([here, f"{here}[a::b] #2"])) == []
    for gone in (f"{here}_not", "tests/test_gone.py::test_a[x]"):
        assert len(list(without_test([gone]))) == 1
