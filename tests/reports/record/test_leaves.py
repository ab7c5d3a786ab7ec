"""Leaves of nested values: their paths, and where lists and empty mappings count as leaves."""

from reports.record.leaves import by_dotted_path, leaves

NESTED = {
    "op": "all_reduce",
    "timing": {"mode": "graph", "limits": {}},
    "sizes": [8, 16],
    "gpus": [{"bus": "1"}, {"bus": "2", "links": [[1], [2]]}],
    "none": None,
}


def test_lists_are_leaves():
    assert by_dotted_path(NESTED) == {
        "op": "all_reduce",
        "timing.mode": "graph",
        "timing.limits": {},
        "sizes": [8, 16],
        "gpus": NESTED["gpus"],
        "none": None,
    }


def test_lists_of_mappings_and_of_lists_are_looked_into_when_asked():
    found = dict(leaves(NESTED, into_lists=True))
    assert found[("sizes",)] == [8, 16]
    assert {path: leaf for path, leaf in found.items() if path[0] == "gpus"} == {
        ("gpus", 0, "bus"): "1",
        ("gpus", 1, "bus"): "2",
        ("gpus", 1, "links", 0): [1],
        ("gpus", 1, "links", 1): [2],
    }
    assert by_dotted_path(NESTED, into_lists=True)["gpus.1.links.1"] == [2]


def test_nothing_has_no_leaves():
    assert list(leaves({})) == []
    assert list(leaves({"a": {}})) == [(("a",), {})]
    assert list(leaves(7)) == [((), 7)]
