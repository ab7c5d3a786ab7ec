"""Folders that only their user writes to: each way in which another user could, named."""

import os
import stat

import pytest

from memory import private_folder
from memory.private_folder import exposure, is_ours, make_private


def test_a_folder_that_is_made_is_the_users_alone_whatever_the_mask(tmp_path):
    mask = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b")
    finally:
        os.umask(mask)
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert exposure(folder) == ""
    make_private(tmp_path / "a" / "b")


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path):
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_private(tmp_path / "file")


@pytest.mark.parametrize(("mode", "is_exposed"), [(0o700, False), (0o755, False), (0o775, True), (0o1777, True)])
def test_a_folder_that_others_write_to(tmp_path, mode, is_exposed):
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    said = f"can be written to by other users (mode {mode:04o})" if is_exposed else ""
    assert exposure(folder) == said


def test_a_folder_of_another_user(tmp_path, monkeypatch):
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(private_folder.os, "geteuid", lambda: owner + 1)
    if owner:
        assert exposure(tmp_path) == f"belongs to another user (number {owner})"
    else:
        assert exposure(tmp_path) == "", "the administrator's"


@pytest.mark.parametrize(("mode", "is_exposed"), [(0o777, True), (0o1777, False), (0o775, False)])
def test_a_folder_above_in_which_others_can_rename(tmp_path, mode, is_exposed):
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    for folder in (above / "folder", above / "missing" / "folder"):
        if folder.parent == above:
            folder.mkdir(mode=0o700)
        said = exposure(folder)
        assert bool(said) == is_exposed
        if is_exposed:
            assert said == f"can be replaced by other users, who can write to {above} (mode 0777)"


@pytest.mark.parametrize(("mode", "is_own"), [(0o600, True), (0o644, True), (0o664, False), (0o646, False)])
def test_whose_a_file_is(tmp_path, mode, is_own):
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    with path.open("rb") as file:
        assert is_ours(file.fileno()) == is_own
