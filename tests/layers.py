"""Which tests are quick: chosen by measured seconds and by the number of a function's cases (tests/README.md).

`python -m tests.layers JUNIT.xml ...` makes tests/durations.json again, from what `pytest --junit-xml` wrote: rows of
functions that the files have are replaced, and rows of tests that no longer exist go.
"""

import json
import re
import statistics
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from enum import Enum
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "tests" / "durations.json"

FIRST_S = 0.5
"""A function's cheapest case is quick if it takes less than this."""

FURTHER_S = 0.25
"""Each further case that is quick takes less than this."""

FUNCTION_S = 0.4
"""All further cases end at this sum of a function's seconds."""

MAX_CASES = 16

LEAST_S = 0.01
"""Durations below are not stored, but for those of functions with many cases: they count as 0."""

_GOLDEN = 0.6180339887498949


class Durations:
    """Seconds by test: of a test that deviates from its function its own, else the function's median, else 0."""

    def __init__(self, rows):
        self.rows = rows

    @classmethod
    def stored(cls, place=PLACE):
        return cls(json.loads(place.read_text(encoding="utf-8")) if place.exists() else {})

    def of(self, test, unknown=0.0):
        """Seconds of a test, by its node id."""
        file, _, name = test.partition("::")
        row = self.rows.get(file, {})
        return row.get(name, row.get(name.partition("[")[0], unknown))


def function_of(test):
    """The node id of a test without its case."""
    return test.partition("[")[0]


def features(case, values):
    """What a case has that others of its function may lack: words of its id, values, kinds of values, and pairs of
    values of two parameters."""
    texts = {name: _text(value) for name, value in values.items()}
    found = set(re.findall(r"[a-z]+", case.lower()))
    found |= set(texts.items()) | {(name, type(value)) for name, value in values.items()}
    rows = sorted(texts.items())
    return found | {(one, other) for at, one in enumerate(rows) for other in rows[at + 1 :]}


def _text(value):
    if value is None or isinstance(value, str | bytes | int | float | Enum):
        return str(value)
    return str(getattr(value, "name", type(value).__name__))


def in_order_of_difference(found, limit, first):
    """Numbers of at most `limit` cases, by their features: `first`, then always the one with most that is new. Of equal
    ones that which lies farthest in a fixed order spread over the table, so that neighbours are not taken in a row."""
    spread = sorted(range(len(found)), key=lambda at: at * _GOLDEN % 1)
    order, seen = [first], set(found[first])
    left = [at for at in spread if at != first]
    while left and len(order) < limit:
        best = max(left, key=lambda at: len(found[at] - seen))
        order.append(best)
        seen |= found[best]
        left.remove(best)
    return order


def quick_cases(seconds, found):
    """Numbers of a function's cases that are quick, by their seconds and features. None if even the cheapest takes
    FIRST_S."""
    cheapest = min(range(len(seconds)), key=lambda at: seconds[at])
    if seconds[cheapest] >= FIRST_S:
        return set()
    cheap = [at for at in range(len(seconds)) if at == cheapest or seconds[at] < FURTHER_S]
    order = in_order_of_difference([found[at] for at in cheap], len(cheap), cheap.index(cheapest))
    chosen = set()
    total_s = 0.0
    for at in (cheap[one] for one in order):
        if not chosen or (len(chosen) < MAX_CASES and total_s + seconds[at] <= FUNCTION_S):
            chosen.add(at)
            total_s += seconds[at]
    return chosen


def mark(items, durations):
    """Mark as slow what is not quick. Tests that are marked in their files are slow in any case and don't count."""
    functions = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is None:
            functions[function_of(item.nodeid)].append(item)
    for cases in functions.values():
        seconds = [durations.of(item.nodeid) for item in cases]
        simple = len(cases) <= MAX_CASES and sum(seconds) <= FUNCTION_S
        chosen = set(range(len(cases))) if simple else quick_cases(seconds, [_features(item) for item in cases])
        for at, item in enumerate(cases):
            if at not in chosen:
                item.add_marker(pytest.mark.slow)


def _features(item):
    call = getattr(item, "callspec", None)
    return features(call.id, call.params) if call is not None else set()


def measured(files):
    """Seconds by file and test of what junit files say passed; where several have a test, the least of them."""
    found = defaultdict(dict)
    for file in files:
        for one in ElementTree.parse(file).getroot().iter("testcase"):
            if len(one):  # skipped or failed
                continue
            path, *classes = _place(one.get("classname", ""))
            name = "::".join([*classes, one.get("name", "")])
            seconds = float(one.get("time", "0"))
            found[path][name] = min(seconds, found[path].get(name, seconds))
    return dict(found)


def _place(name):
    """The file of a junit class name such as tests.a.test_b.TestC, and the classes."""
    words = name.split(".")
    for end in range(len(words), 0, -1):
        path = "/".join(words[:end]) + ".py"
        if (ROOT / path).is_file():
            return [path, *words[end:]]
    return [name]


def rows_of(tests):
    """What is stored of a file's tests: functions' medians, and cases that deviate by over a half of it and 0.05 s."""
    functions = defaultdict(dict)
    for test, seconds in tests.items():
        functions[function_of(test)][test] = seconds
    rows = {}
    for function, cases in functions.items():
        median = statistics.median_low(cases.values())
        if median >= LEAST_S or len(cases) > MAX_CASES:
            rows[function] = round(median, 2)
        for test, seconds in cases.items():
            if test != function and abs(seconds - median) > max(0.05, median / 2):
                rows[test] = round(seconds, 2)
    return rows


def main(files):
    """Make tests/durations.json again. Rows of files and functions that were not measured stay, if the file does."""
    known = json.loads(PLACE.read_text(encoding="utf-8")) if PLACE.exists() else {}
    for path, tests in measured(map(Path, files)).items():
        again = {function_of(test) for test in tests}
        kept = {test: seconds for test, seconds in known.get(path, {}).items() if function_of(test) not in again}
        known[path] = kept | rows_of(tests)
    rows = {
        path: dict(sorted(tests.items())) for path, tests in sorted(known.items()) if tests and (ROOT / path).is_file()
    }
    PLACE.write_text(json.dumps(rows, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{PLACE.name}: {sum(map(len, rows.values()))} rows of {len(rows)} files")


if __name__ == "__main__":
    main(sys.argv[1:])
