"""A file is replaced in one step: old content or all of the new one, and nothing beside it afterwards."""

import os
from pathlib import Path

import pytest

from memory.atomic_file import replacing


def test_new_content_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "kept.json"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
        assert (beside.parent, beside.name[0], beside.suffix) == (tmp_path, ".", ".tmp")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["kept.json"]


def test_a_long_name_is_no_longer_beside():
    longest = Path("x" * 255)  # the maximum of most file systems
    with pytest.raises(FileNotFoundError), replacing(longest) as beside:
        assert len(beside.name) < 255


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_content(tmp_path, error):
    path = tmp_path / "kept.json"
    path.write_text("old")

    def fail():
        with replacing(path) as beside:
            beside.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept.json"]


def test_a_failed_renaming_leaves_nothing(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError), replacing(folder) as beside:
        beside.write_text("new")
    assert os.listdir(tmp_path) == ["folder"]


def test_writers_at_the_same_time_have_files_of_their_own(tmp_path):
    path = tmp_path / "kept.json"
    with replacing(path) as first:
        with replacing(path) as second:
            assert first != second
            second.write_text("second")
        first.write_text("first")
    assert path.read_text() == "first"
