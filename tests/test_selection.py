"""What of the full layer runs, and why; what passed is recorded row by row, and nothing else is."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import planned, selection
from tests.layers import Durations
from tests.selection import MANY_CASES, Choice, Row, Why, choose, everything, kernel_of, why

pytest_plugins = ["pytester"]
CODES = {"all_reduce/one_shot": "sha256:1", "all_reduce/one_shot_rotated": "sha256:2"}
NOW = ("own", "near", "far")


def row(name, seconds=10.0, kernel="", digests=NOW):
    return Row(name, (f"{name}::test_x",), digests, seconds, kernel)


def names(choice):
    return [one.name for one, _ in choice.chosen]


class Invented:
    """Dependencies of files that are not there."""

    def __init__(self, direct, versions=None):
        self.of = direct
        self.versions = versions or {}

    def of_test(self, path):
        found, todo = {path}, [path]
        while todo:
            new = self.direct(todo.pop()) - found
            found |= new
            todo += new
        return found

    def direct(self, path):
        return self.of.get(path, set())

    def texts_of(self, path):
        return str(self.versions.get(f"texts of {path}", 0))

    def digest(self, paths, *more):
        return str([*sorted((one, self.versions.get(one, 0)) for one in paths), *more])


TREE = {
    "tests/runner/case/test_a.py": {"runner/case/program.py", "tests/runner/case/bench.py"},
    "runner/case/program.py": {"runner/case/inputs.py", "simulator/world.py", "kernels/spec.py"},
}
TEST = "tests/runner/case/test_a.py"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (TEST, Why.TESTS),
        (f"texts of {TEST}", Why.TESTS),
        ("texts of tests/test_b.py", None),
        ("tests/runner/case/bench.py", Why.TESTS),
        ("runner/case/program.py", Why.NEAR),
        ("runner/case/inputs.py", Why.NEAR),
        ("simulator/world.py", Why.FAR),
        ("pyproject.toml", Why.FAR),
        ("tests/conftest.py", Why.FAR),
        ("reports/table.py", None),
    ],
)
def test_why_a_row_runs(changed, reason):
    def of(versions):
        (made,) = selection.rows_of([f"{TEST}::test_x"], Invented(TREE, versions), CODES, {}, Durations({}))
        return made

    passed = of({}).digests
    assert why(of({changed: 1}), passed) is reason
    assert why(of({changed: 1}), None) is Why.NEW


def test_a_kernels_row_goes_by_its_code_and_not_by_the_files_of_kernels():
    def of(versions, codes):
        tests = [f"{TEST}::test_x[2-all_reduce/one_shot]"]
        (made,) = selection.rows_of(tests, Invented(TREE, versions), codes, {}, Durations({}))
        return made

    assert kernel_of("tests/a.py::test_x[all_reduce/one_shot_rotated-2]", CODES) == "all_reduce/one_shot_rotated"
    assert kernel_of("tests/all_reduce/one_shot.py::test_x[runner/case]", CODES) == ""
    before = of({}, CODES)
    assert (before.name, before.kernel) == (f"{TEST} all_reduce/one_shot", "all_reduce/one_shot")
    assert why(of({"kernels/spec.py": 1}, CODES), before.digests) is None
    assert why(of({}, CODES | {"all_reduce/one_shot": "sha256:3"}), before.digests) is Why.TESTS
    assert why(of({}, CODES | {"all_reduce/one_shot_rotated": "sha256:3"}), before.digests) is None
    assert why(of({"simulator/world.py": 1}, CODES), before.digests) is Why.FAR


def test_many_cases_are_rows_of_their_own_and_every_test_is_in_one():
    tests = [f"{TEST}::test_many[{at}]" for at in range(MANY_CASES)] + [f"{TEST}::test_one", f"{TEST}::test_two[1]"]
    rows = selection.rows_of(tests, Invented(TREE), CODES, {TEST: 7.0}, Durations({}))
    assert sorted(test for one in rows for test in one.tests) == sorted(tests)
    whole = next(one for one in rows if one.name == TEST)
    assert (whole.tests, whole.cost_s) == ((f"{TEST}::test_one", f"{TEST}::test_two[1]"), 7.0)
    assert len(rows) > 2
    assert {one.file for one in rows} == {TEST}


def test_what_changed_comes_first_and_by_relevance():
    rows = [row("far"), row("near"), row("own"), row("new"), row("same")]
    passed = {"far": ("own", "near", "-"), "near": ("own", "-", "far"), "own": ("-", "near", "far"), "same": NOW}
    assert names(choose(rows, passed, "c", 10, 1)) == ["own", "near", "new", "far", "same"]
    short = choose(rows, passed, "c", 40 / 60, 1)
    assert names(short)[:3] == ["own", "near", "new"]
    assert [reason for _, reason in short.chosen][3:] == [Why.ROTATES]
    assert {one.name for one, _ in short.left} == {"far", "near", "own", "new"} - set(names(short))


def test_the_time_is_kept_for_all_and_for_each_file():
    rows = [row(f"tests/a.py {at}", 30) for at in range(10)] + [row(f"tests/{at}.py", 30) for at in range(10)]
    choice = choose(rows, {}, "c", 1, 2)
    assert sum(one.cost_s for one, _ in choice.chosen) <= 120
    assert sum(one.cost_s for one, _ in choice.chosen if one.file == "tests/a.py") <= 60
    assert len(choice.chosen) + len(choice.left) == len(rows)
    assert choose([row("tests/long.py", 1000)], {}, "c", 1, 2).chosen == ()


def test_what_is_unchanged_rotates_with_the_commit():
    rows = [row(f"tests/{at}.py", 10) for at in range(100)]
    passed = {one.name: NOW for one in rows}
    first, again, other = (set(names(choose(rows, passed, commit, 1, 1))) for commit in ("a", "a", "b"))
    assert first == again != other
    assert len(first) == 6
    assert not choose(rows, passed, "a", 1, 1).left


def report(test, when="call", **more):
    values = {"nodeid": test, "when": when, "duration": 1.0, "failed": False, "skipped": False, "longrepr": None}
    return SimpleNamespace(**{**values, **more})


def skipped(reason):
    return report("3", "setup", skipped=True, longrepr=("file", 1, f"Skipped: {reason}"))


@pytest.fixture
def recorder(tmp_path):
    """recorder(*reports): what is recorded of a plan of two rows, a (of tests 1 and 2) and b (of test 3)."""
    rows = {"a": {"tests": ["1", "2"], "digests": NOW}, "b": {"tests": ["3"], "digests": NOW}}

    def run(*reports):
        made = planned.Recorder({"place": str(tmp_path / "full.json"), "rows": rows})
        for one in reports:
            made.pytest_runtest_logreport(one)
        return selection.stored(tmp_path / "full.json")

    return run


def test_a_row_is_recorded_once_all_of_it_passed(recorder):
    first = [report("1"), report("1", "teardown"), report("3"), report("3", "teardown")]
    assert recorder(*first) == {"b": [*NOW, 2.0]}
    assert recorder(*first, report("2"), report("2", "teardown")) == {"a": [*NOW, 4.0], "b": [*NOW, 2.0]}


@pytest.mark.parametrize(
    ("first", "count"),
    [
        *((report("3", when, failed=True), 0) for when in ("setup", "call", "teardown")),
        (skipped("make foreign"), 0),
        (skipped("one core compiles in one process"), 1),
    ],
)
def test_a_failure_and_a_skip_for_want_of_a_tool_are_no_pass(first, count, recorder):
    assert len(recorder(first, report("3", "teardown"))) == count


def test_no_tracked_file_changes_while_tests_run(tmp_path, monkeypatch):
    """A run that is cut leaves its rows, and the next one records them first."""
    place, gathered = tmp_path / "full.json", tmp_path / "cache" / "full.json"
    monkeypatch.setattr(selection, "PLACE", place)
    monkeypatch.setattr(selection, "GATHERED", gathered)
    during = []

    def run(line, **_):
        plan = json.loads(Path(line[line.index("--plan") + 1]).read_text())
        selection.record(Path(plan["place"]), {"a": ["1", "2", "3", 4.0]})
        during.append(place.exists())
        return subprocess.CompletedProcess(line, 1)

    monkeypatch.setattr(selection.subprocess, "run", run)
    row = Row("a", ("tests/test_a.py::test_a",), ("1", "2", "3"), 4.0)
    assert selection.ran(Choice(((row, Why.NEW),), ()), ()) == 1
    assert during == [False]
    assert selection.stored(place) == {"a": ["1", "2", "3", 4.0]}
    assert not gathered.exists()


def test_a_plan_runs_its_tests_alone(pytester):
    pytester.makeconftest(
        """
        from tests import planned

        def pytest_addoption(parser):
            parser.addoption("--plan")

        def pytest_configure(config):
            planned.pytest_configure(config)

        def pytest_collection_modifyitems(config, items):
            planned.keep(config, items)
        """
    )
    pytester.makepyfile(test_it="def test_a(): pass\ndef test_b(): assert False\n")
    place = pytester.path / "full.json"
    rows = {"test_it.py": {"tests": ["test_it.py::test_a"], "digests": NOW}}
    plan = pytester.path / "plan.json"
    plan.write_text(json.dumps({"place": str(place), "rows": rows}))
    done = pytester.runpytest("-q", "-p", "no:cacheprovider", "-W", "ignore", "--plan", str(plan))
    done.assert_outcomes(passed=1, deselected=1)
    assert list(selection.stored(place)) == ["test_it.py"]


def test_programs_are_rows_until_they_pass(monkeypatch, tmp_path):
    proven = tmp_path / "simulator.json"
    proven.write_text(json.dumps({"specs": {"op/a": {"code": "sha256:1"}, "op/b": {"code": "sha256:0"}}}))
    monkeypatch.setattr(selection, "PROVEN", proven)
    depends = SimpleNamespace(files=["kernels/a.py", "runner/b.py"], digest=lambda paths: str(sorted(paths)))
    made = selection.programs(depends, {"op/a": "sha256:1", "op/b": "sha256:2"}, {})
    assert [one.name for one in made] == ["codes", "matrix op/b"]
    assert made[0].digests[0] == "['constraints.txt', 'kernels/a.py']"
    assert selection.command_of(made[0]) == ["make", "codes"]
    assert selection.command_of(made[1])[1:] == ["-m", "tests.matrix", "--kernel", "op/b"]
    assert names(everything(made, {"codes": list(made[0].digests)})) == ["matrix op/b"]
