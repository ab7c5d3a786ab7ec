"""What is kept of a search, and files that are of no use to it."""

import json

import pytest

from cases.documents import encoded
from symlab.speed.tune.state import PointFound, State
from symlab.speed.tuned.table import Guess, Searched

KEY = {"gpu": "NVIDIA H200", "kernels": "abc", "jobs": [{"algorithms": ["two_shot"]}]}
GUESSES = (Guess("two_shot@t512b64l8p", 3.25), Guess("lamport@t128b4l8", 3.5))
SEARCHED = Searched(4, 0, 0, "model", 0.0, "h200, sha256:0", 90, GUESSES)
FOUND = PointFound(("two_shot@t512b64l8p",), ("two_shot", "lamport"), SEARCHED)
KEPT = encoded(FOUND)


def written(folder):
    path = folder / "table.json.search"
    state = State(path, KEY)
    state.rungs("a")["0"] = {"two_shot@t512b64l8p": 3.5, "lamport@t128b4l8": "it hangs"}
    state.finish("a", FOUND)
    return path


def test_it_goes_on_where_it_was(tmp_path):
    again = State(written(tmp_path), KEY)
    assert again.is_begun
    assert again.note == ""
    assert again.found("a") == FOUND
    assert again.found("b") is None
    assert again.rungs("a") == {"0": {"two_shot@t512b64l8p": 3.5, "lamport@t128b4l8": "it hangs"}}


def test_a_finished_search_leaves_no_file(tmp_path):
    path = written(tmp_path)
    State(path, KEY).remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["gpu", "kernels", "jobs"])
def test_another_machine_or_other_kernels_begin_anew(tmp_path, key):
    again = State(written(tmp_path), {**KEY, key: "other"})
    assert not again.is_begun
    assert "of another machine, other kernels or other settings: the search begins anew" in again.note


def changed(at, value):
    document = {
        "symlab_search": 5,
        "key": KEY,
        "seconds": 3.5,
        "finals": {},
        "points": {"a": {"rungs": {"0": {"x@t128b4l8": 3.5}}, "found": KEPT}},
    }
    inside = document
    for one in at[:-1]:
        inside = inside[one]
    inside[at[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{" * 100_000,
        changed(("symlab_search",), 1),
        json.dumps({"symlab_search": 5, "seconds": 3.5, "finals": {}, "points": {}}),
        changed(("seconds",), 10**400),
        changed(("points",), []),
        changed(("points", "a"), 7),
        changed(("points", "a", "found"), {"best": []}),
        changed(("points", "a", "found"), {**KEPT, "searched": {**KEPT["searched"], "predicted": [{"name": "x"}]}}),
        " " * 100 + "\x00",
    ],
)
def test_an_edited_file_begins_anew_and_says_so(tmp_path, text):
    path = tmp_path / "table.json.search"
    path.write_text(text)
    state = State(path, KEY)
    assert not state.is_begun
    assert "can't be read" in state.note
    assert len(state.note.splitlines()) == 1
    state.rungs("a")["0"] = {}
    state.save()
    assert State(path, KEY).note == ""


def test_the_time_of_all_commands_is_kept(tmp_path):
    path = tmp_path / "table.json.search"
    first = State(path, KEY, lambda: 20.0)
    first.finish("a", FOUND)
    second = State(path, KEY, lambda: 5.0)
    assert second.earlier_s == 20.0
    second.save()
    assert State(path, KEY).earlier_s == 25.0
    assert State(path, {**KEY, "gpu": "other"}).earlier_s == 0.0, "of another search"
