"""Texts that tests compare: what is kept, what is masked, and what a new run of tests replaces."""

import tempfile

import pytest

from tests import golden
from tests.golden import ROOT, refused, same_text
from tests.golden.texts import Texts
from tests.processes import ran


@pytest.fixture
def kept(monkeypatch, request):
    """Texts in place of the stored ones, by number of this test's texts."""
    texts: dict[str, str] = {}

    class Stored(Texts):
        def of(self, key):
            return texts.get(key.removeprefix(request.node.nodeid))

    monkeypatch.setattr(Texts, "stored", staticmethod(lambda: Stored({})))
    monkeypatch.delenv(golden.WRITE_TO, raising=False)
    return texts


def test_a_text_is_compared_whole_and_by_number(kept):
    kept |= {"": "one", " #2": "two\n\nlines"}
    same_text("one\n")
    same_text("two\n\nlines")
    with pytest.raises(pytest.fail.Exception, match="no text is kept"):
        same_text("three")
    kept[" #4"] = "four"
    with pytest.raises(pytest.fail.Exception, match=r"-four\n\+fours"):
        same_text("fours")


def test_an_error_is_compared_with_its_class(kept):
    kept |= {"": "ValueError: no", " #2": "KeyError: 'no'"}
    with refused() as error:
        raise ValueError("no")
    assert error.type is ValueError
    with pytest.raises(pytest.fail.Exception), refused(LookupError):
        raise IndexError("no")


def test_what_changes_from_run_to_run_is_masked(kept, tmp_path):
    kept[""] = "<tmp>/a.yaml of <root>/conf in <tmp>, at <address> after <hidden> s"
    same_text(
        f"{tmp_path}/a.yaml of {ROOT}/conf in {tempfile.gettempdir()}/x1, at 0x7f00aa00bb00 after 12 s", r"\d+(?= s)"
    )


def test_texts_are_read_as_they_were_written(tmp_path):
    texts = Texts({"tests/test_a.py::test_b[x y]": "one\n\n  two", "tests/test_a.py::test_b": ""})
    texts.write(tmp_path / "texts.txt")
    assert Texts.read(tmp_path / "texts.txt") == texts


def test_a_run_replaces_what_it_saw_and_keeps_what_it_did_not_run():
    old = {"a.py::gone": "1", "a.py::skipped": "2", "a.py::ran #2": "3", "a.py::ran": "4", "b.py::other": "5"}
    new = Texts(old).renewed({"a.py::ran": "new"}, ["a.py::skipped", "a.py::ran"], ["a.py::ran"])
    assert new.by_key == {"a.py::skipped": "2", "a.py::ran": "new", "b.py::other": "5"}


@pytest.mark.slow
def test_the_command_writes_what_tests_see():
    """The file is what the command writes, for one file of tests."""
    before = Texts.read(golden.texts.PLACE)
    done = ran("-m", "tests.golden", "tests/symlab/test_describing.py", cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert Texts.read(golden.texts.PLACE) == before
