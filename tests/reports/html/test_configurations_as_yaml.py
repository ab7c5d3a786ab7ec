"""Configurations as YAML: readable, a line for each key, and the same values when read back."""

from __future__ import annotations

from typing import Any

import yaml

from reports.html.commands import yaml_line, yaml_text

SIZES = [8, "16K", [1, 2]]
VALUES: dict[str, Any] = {
    "op": "all_reduce",
    "timing": {"mode": "graph", "patience_s": 1e-05, "limits": {}},
    "sizes": SIZES,
    "again": SIZES,
    "switch": "on",
    "ratio": "1:30",
    "nothing": None,
    "text": "two\nlines: é",
    "long": "one_shot " * 40,
    "members": [{"a": True}, {"b": []}],
}


def test_mappings_are_in_lines_and_lists_in_one() -> None:
    lines = yaml_text(VALUES).splitlines()
    assert lines[:7] == [
        "op: all_reduce",
        "timing:",
        "  mode: graph",
        "  patience_s: 1.0e-05",
        "  limits: {}",
        "sizes: [8, 16K, [1, 2]]",
        "again: [8, 16K, [1, 2]]",
    ]
    assert len(lines) == 13
    assert lines[-1] == "members: [{a: true}, {b: []}]"


def test_it_reads_back_as_the_same_values() -> None:
    assert yaml.safe_load(yaml_text(VALUES)) == VALUES
    assert yaml.safe_load(yaml_line(VALUES)) == VALUES


def test_one_line_of_anything() -> None:
    assert "\n" not in yaml_line(VALUES)
    assert [yaml_line(value) for value in (None, "graph", "no", (1, 2), 7, {"a": 1})] == [
        "null",
        "graph",
        "'no'",
        "[1, 2]",
        "7",
        "{a: 1}",
    ]
