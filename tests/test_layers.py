"""Which tests are quick: by seconds and by cases, so that no function leaves for one slow case."""

import json
from itertools import pairwise

import pytest

from tests import layers
from tests.layers import FIRST_S, FUNCTION_S, FURTHER_S, MAX_CASES, Durations, features, quick_cases

pytest_plugins = ["pytester"]


def numbered(count):
    return [{("n", str(at))} for at in range(count)]


@pytest.mark.parametrize(
    ("seconds", "quick"),
    [
        ([0.0] * MAX_CASES, set(range(MAX_CASES))),
        ([0.1, 9.0, 0.1], {0, 2}),
        ([0.45, 0.4, 0.48], {1}),
        ([FIRST_S, 3.0], set()),
        ([FIRST_S - 0.01], {0}),
        ([0.01, FURTHER_S], {0}),
    ],
)
def test_a_function_keeps_its_cheap_cases_and_its_cheapest(seconds, quick):
    assert quick_cases(seconds, numbered(len(seconds))) == quick
    assert len(quick_cases([0.2] * 5, numbered(5))) == int(FUNCTION_S / 0.2)


def test_of_many_cases_a_fixed_number_that_is_spread_over_the_table():
    chosen = sorted(quick_cases([0.0] * 160, numbered(160)))
    assert len(chosen) == MAX_CASES
    assert max(later - one for one, later in pairwise(chosen)) < 30
    assert chosen == sorted(quick_cases([0.0] * 160, numbered(160)))


def test_cases_that_differ_in_kind_come_first():
    """Two parameters, one with 100 values and one with 8: all 8 are there; so is the only None."""
    rows = [{"size": size, "way": way} for size in range(100) for way in "abcdefgh"]
    rows[77]["way"] = None
    found = [features(f"{row['size']}-{row['way']}", row) for row in rows]
    assert {rows[at]["way"] for at in quick_cases([0.0] * len(rows), found)} == {*"abcdefgh", None}


def test_words_and_kinds_of_values_and_pairs_are_features():
    found = features("sizes=[0]-True", {"line": "sizes=[0]", "flag": True})
    assert {"sizes", "true", ("line", "sizes=[0]"), ("flag", bool)} <= found
    assert (("flag", "True"), ("line", "sizes=[0]")) in found


def test_a_duration_is_the_cases_else_the_functions():
    stored = Durations({"tests/a.py": {"test_x": 0.1, "test_x[slow]": 2.0}})
    assert stored.of("tests/a.py::test_x[slow]") == 2.0
    assert stored.of("tests/a.py::test_x[new]") == 0.1
    assert stored.of("tests/a.py::test_y") == stored.of("tests/b.py::test_x") == 0.0


def test_rows_are_medians_and_what_deviates():
    tests = {"test_a[1]": 0.1, "test_a[2]": 0.1, "test_a[3]": 0.12, "test_a[4]": 0.9, "test_b": 0.004, "test_c": 0.3}
    assert layers.rows_of(tests) == {"test_a": 0.1, "test_a[4]": 0.9, "test_c": 0.3}


def test_durations_are_made_again_of_what_was_measured(tmp_path, monkeypatch):
    place = tmp_path / "durations.json"
    place.write_text(json.dumps({"tests/test_layers.py": {"test_a": 9.0, "test_b": 8.0}, "tests/gone.py": {"t": 1.0}}))
    junit = tmp_path / "junit.xml"
    junit.write_text(
        '<testsuite><testcase classname="tests.test_layers" name="test_a" time="0.5"/>'
        '<testcase classname="tests.test_layers" name="test_c" time="7"><skipped/></testcase></testsuite>'
    )
    monkeypatch.setattr(layers, "PLACE", place)
    layers.main([str(junit)])
    assert json.loads(place.read_text()) == {"tests/test_layers.py": {"test_a": 0.5, "test_b": 8.0}}


def test_what_is_stored_is_of_files_that_exist():
    stored = Durations.stored()
    assert len(stored.rows) > 100
    assert [path for path in stored.rows if not (layers.ROOT / path).is_file()] == [], "python -m tests.layers"


def test_marks_decide_what_runs(pytester):
    """With -m, as make test has it: each function runs, 16 of 40 cases do, and what is marked in the file does not."""
    pytester.makeconftest(
        """
        import pytest
        from tests import layers

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            seconds = {"test_one": 0.3, "test_long": 2.0, "test_two[1]": 3.0}
            layers.mark(items, layers.Durations({"test_it.py": seconds}))
        """
    )
    pytester.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.parametrize("n", range(40))
        def test_many(n): pass
        @pytest.mark.parametrize("n", range(2))
        def test_two(n): pass
        def test_one(): pass
        def test_long(): pass
        @pytest.mark.slow
        def test_marked(): pass
        """
    )
    arguments = ("-q", "-p", "no:cacheprovider", "-W", "ignore")
    pytester.runpytest(*arguments, "-m", "not slow").assert_outcomes(passed=16 + 1 + 1, deselected=24 + 1 + 2)
    pytester.runpytest(*arguments, "-m", "slow").assert_outcomes(passed=27, deselected=18)
    pytester.runpytest(*arguments).assert_outcomes(passed=45)
