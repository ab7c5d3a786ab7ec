"""The program that makes faults, on a small package of its own: what it makes, draws, runs, keeps and says."""

import ast
import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

import tests.faults.__main__ as program
from tests.faults.chosen import drawn
from tests.faults.made import KINDS, faults_of
from tests.faults.reached import Reached
from tests.faults.stored_draws import stored_draws, table
from tests.faults.trial import Found, copy_of, tried
from tests.marked import included
from tests.repository import git

ROOT = Path(__file__).resolve().parents[2]

TURNS = '''"""Turns of a game."""


LIMIT = 3


def is_early(turn: int) -> bool:
    """Whether more than 1 turn is left: never "1 + 1"."""
    assert turn >= 0
    return turn < LIMIT


def counted(turns: int) -> int:
    found = 0
    while found != turns:
        found += 1
    return found


def nobody_looks(turn: int) -> int:
    return max(turn, 7)
'''
TESTS = """import pytest
from runner.track import turns

def test_the_third_is_not_early():
    assert turns.is_early(2) and not turns.is_early(3)

def test_it_gives_a_number():
    assert turns.nobody_looks(9) >= 0

@pytest.mark.slow
def test_the_later_one():
    assert turns.nobody_looks(9) == 9

def test_that_always_fails():
    assert turns.nobody_looks(7) == 8
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A repository of one module and its tests."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "runner" / "track").mkdir(parents=True)
    (folder / "runner" / "__init__.py").touch()
    (folder / "runner" / "track" / "__init__.py").touch()
    (folder / "runner" / "track" / "turns.py").write_text(TURNS)
    (folder / "tests" / "runner" / "track").mkdir(parents=True)
    (folder / "tests" / "runner" / "track" / "test_turns.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\nmarkers =\n    slow: s\n    gpu: g\n"
    )
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "all")
    return folder


def fault(before, after, text=TURNS, path="runner/track/turns.py"):
    (one,) = [one for one in faults_of(path, text) if (one.before, one.after) == (before, after)]
    return one


class Told(Reached):
    """Says that all tests reach all lines, in this order."""

    def __init__(self, *tests):
        self.known = [f"tests/runner/track/test_turns.py::test_{one}" for one in tests]

    def tests(self, fault):
        return self.known

    def seconds_of(self, tests):
        return 0.0


@pytest.mark.parametrize(
    ("text", "kind", "faults"),
    [
        ("x = a < b", "comparison", {"x = a <= b"}),
        ("x = a is not b", "comparison", {"x = a is b"}),
        ("x = a in b", "comparison", {"x = a not in b"}),
        ("x = 0 <= a < 4", "comparison", {"x = 0 < a < 4", "x = 0 <= a <= 4"}),
        ("x = a[7]", "constant", {"x = a[8]"}),
        ("x: list[int, 3] = 0x10", "constant", {"x: list[int, 3] = (0x10 + 1)"}),
        ("x = a and b and c", "and/or", {"x = a or b and c", "x = a and b or c"}),
        ("x = a if b else c", "condition", {"x = a if not (b) else c"}),
        ("while True:\n    if a:\n        b()", "condition", {"while True:\n    if not (a):\n        b()"}),
        ("def f():\n    g(1)", "statement", {"def f():\n    pass"}),
        ("def f():\n    x.y = 1\n    z = 2\n    z += 3", "statement", {
            "def f():\n    pass\n    z = 2\n    z += 3", "def f():\n    x.y = 1\n    z = 2\n    pass"
        }),
        ("def f():\n    raise E(1 + 2)", "statement", {"def f():\n    pass"}),
        ("x = f(a)", "result", {"x = (a)"}),
        ("x = a.b.strip(c, d)", "result", {"x = (a.b)"}),
        ("f(a)\nx = list(a)", "result", set()),
        ("f(a, b, c=d)\nf(a, a)\nf(*a, b)", "arguments", {"f(b, a, c=d)\nf(a, a)\nf(*a, b)"}),
        ("x = min(a)", "extremum", {"x = max(a)"}),
        ("x = (a) - (b)", "sum", {"x = (a) + (b)"}),
        ("def f():\n    return True", "neighbour", {"def f():\n    return False"}),
        ("def f():\n    return a, b", "neighbour", {"def f():\n    return b, a"}),
    ],
)  # fmt: skip
def test_what_is_made_of_a_piece_of_code(text, kind, faults):
    assert {one.applied(text) for one in faults_of("a/b.py", text) if one.kind == kind} == faults


def test_what_no_test_should_notice_is_left_alone():
    text = """'''1 + 2'''
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    x = 1 + 2
assert x < 3, f"{x + 1}"
@given(1)
def f(a: Literal[1]) -> Literal[1 + 2]:
    y: Literal[1]
    text = f"{a + 1:>8}"
"""
    assert faults_of("a/b.py", text) == []


def test_all_kinds_are_made_and_all_faults_of_a_file_are_programs():
    path = ROOT / "runner/track/send.py"
    text = path.read_text(encoding="utf-8")
    faults = faults_of("runner/track/send.py", text)
    assert len(faults) > 50
    for one in faults:
        ast.parse(one.applied(text))
        assert text.splitlines()[one.line - 1].strip() == one.statement
        assert one.first <= one.line <= one.last
    assert {one.kind for one in faults} <= set(KINDS)


def test_a_fault_knows_its_line_after_letters_of_several_bytes():
    text = "a = 'ä'\nb = 'ö', 1 < c\n"
    one = fault("<", "<=", text)
    assert (one.line, one.column, one.applied(text)) == (2, 12, "a = 'ä'\nb = 'ö', 1 <= c\n")
    with pytest.raises(ValueError, match="has changed"):
        one.applied("# more\n" + text)


def test_a_draw_is_a_function_of_its_seed_and_of_lines_and_leaves_out_what_mostly_raises_at_once():
    text = "".join(f"def f{at}(a, b):\n    g(a, b)\n    return h(a, b) < {at}\n" for at in range(40))
    sites = faults_of("runner/a.py", text)
    found = drawn(sites, 30, "seed")
    assert drawn(sites[::-1], 30, "seed") == found
    assert drawn(sites, 10, "seed") == found[:10] != drawn(sites, 10, "another seed")
    assert len({one.line for one in found}) == 30
    assert {one.kind for one in found} >= {"comparison", "constant", "statement"}
    assert not {one.kind for one in found if one.statement.startswith("return")} & {"arguments", "result"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "layer", "how", "by"),
    [
        ("<", "<=", "quick", "failed", "the_third_is_not_early"),
        ("max", "min", "quick", "", ""),
        ("max", "min", "full", "failed", "the_later_one"),
        ("3", "4", "quick", "failed", "the_third_is_not_early"),
    ],
)
def test_a_fault_is_found_by_the_first_test_that_fails_without_failing_anyway(toy, before, after, layer, how, by):
    one = fault(before, after)
    told = Told("that_always_fails", "it_gives_a_number", "no_longer_here", "the_third_is_not_early", "the_later_one")
    with copy_of(toy) as copy:
        found = tried(copy, one, told, layer)
        assert (copy / one.path).read_text() == TURNS
    assert (found.how, found.by.partition("::test_")[2]) == (how, by)
    assert not copy.exists()


class AllReached:
    """Every line of the toy is run by its tests."""

    paths = frozenset({"runner/track/turns.py"})

    def lines(self, path):
        return set(range(1, 99))


@pytest.fixture
def fake(monkeypatch, toy, tmp_path):
    """The command over the toy, without running tests: `looks` are the faults it looked at, `how` what it found."""
    state = SimpleNamespace(looks=[], how=lambda one, layer: "failed")

    def looked(copy, one, reached, layer, ends_s):
        state.looks.append((one.name, layer))
        how = state.how(one, layer)
        return None if how is None else Found(how, "tests/x.py::test_x" if how else "", 3, 1.0)

    monkeypatch.setattr(program, "Reached", lambda folder: AllReached())
    monkeypatch.setattr(program, "copy_of", contextlib.nullcontext)
    monkeypatch.setattr(program, "tried", looked)
    words = ["--root", str(toy), "--recorded", "x", "--draws", str(tmp_path), "--seed", "s", "--name", "one"]
    state.run = lambda *more: program.main([*words, "--count", "6", *more])
    return state


def test_what_was_cut_goes_on_where_it_ended(fake, capsys):
    fake.how = lambda one, layer: "failed" if len(fake.looks) < 3 else None
    assert fake.run() == 1
    assert "4 of 6 are left" in capsys.readouterr().out
    assert fake.run("--seconds", "-1") == 1
    fake.how = lambda one, layer: "failed"
    assert fake.run() == 0
    assert len(fake.looks) == 2 + 1 + 4, "one was begun and cut"
    assert len({name for name, _ in fake.looks}) == 6
    assert fake.run() == 0
    assert len(fake.looks) == 7, "nothing is left"


def test_the_full_layer_is_asked_for_what_the_quick_one_did_not_find(fake, tmp_path):
    fake.how = lambda one, layer: "" if layer == "quick" and len(fake.looks) in (2, 5) else "failed"
    assert fake.run() == 1
    quick = [name for name, _ in fake.looks]
    assert fake.run("--of", "full") == 0
    assert fake.looks[6:] == [(quick[1], "full"), (quick[4], "full")]
    (draw,) = stored_draws(tmp_path)
    lines = list(table([draw]))
    assert lines[2].endswith("| 6 | 4 | 2 | 0 | 0 |")
    assert sum("tests/x.py::test_x" in line for line in lines) == 2
    page = included("a\n<!-- faults -->\nold\n<!-- end -->\nb\n", "faults", lines)
    assert page == "a\n<!-- faults -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->\nb\n"


def test_a_wrong_request_is_one_line(fake, capsys, tmp_path):
    """No records are named, none are there, another seed for a draw."""
    with pytest.raises(ValueError, match="nothing is recorded"):
        Reached(tmp_path)
    assert fake.run() == 0
    assert [program.main([]), fake.run("--seed", "other")] == [2, 2]
    assert [line[:20] for line in capsys.readouterr().err.splitlines()] == ["tests.faults: error:"] * 2
