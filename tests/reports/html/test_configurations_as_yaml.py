"""Configurations as YAML: readable, a line for each key, and the same values when read back."""

import yaml

from reports.html.commands import yaml_line, yaml_text

SIZES = [8, "16K", [1, 2]]
VALUES = {
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


def test_what_holds_plain_values_is_in_one_line():
    lines = yaml_text({key: VALUES[key] for key in ("op", "timing", "again", "long")}).splitlines()
    assert lines[:2] == ["op: all_reduce", "timing:"]
    assert "  limits: {}" in lines
    assert lines[-1] == f"long: '{VALUES['long']}'"
    assert yaml_text({"sizes": {"list": [1, 2]}}) == "sizes:\n  list: [1, 2]"


def test_it_reads_back_as_the_same_values():
    assert yaml.safe_load(yaml_text(VALUES)) == VALUES
    assert yaml.safe_load(yaml_line(VALUES)) == VALUES


def test_one_line_of_anything():
    assert "\n" not in yaml_line({key: value for key, value in VALUES.items() if key != "text"})
    assert [yaml_line(value) for value in (None, "graph", "no", (1, 2), 7, {"a": 1})] == [
        "null",
        "graph",
        "'no'",
        "[1, 2]",
        "7",
        "{a: 1}",
    ]
