"""Configurations as YAML: readable, a line for each key, and the same values when read back."""

import yaml

from reports.html.commands import yaml_line, yaml_text
from tests.golden import same_text

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


def test_configurations_are_readable_and_read_back():
    same_text(yaml_text(VALUES))
    same_text("\n".join(yaml_line(value) for value in (VALUES, None, "graph", "no", (1, 2), 7, {"a": 1})))
    assert yaml_text({"sizes": {"list": [1, 2]}}) == "sizes:\n  list: [1, 2]"
    assert yaml.safe_load(yaml_text(VALUES)) == yaml.safe_load(yaml_line(VALUES)) == VALUES
