"""Which sources ran: states of a repository, and digests that say the same without one."""

import hashlib
import subprocess

import pytest

from runner.environment import repository
from runner.environment.repository import DIGESTED, source_digests


def git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path):
    """A repository with one commit of two files."""
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "a b.txt").write_text("x\n" * 20)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def look(root):
    missing = {}
    found = repository.git(root, missing)
    assert not missing
    return found


def test_states(root):
    clean = look(root)
    assert clean == {
        "commit": git(root, "rev-parse", "HEAD"),
        "branch": "trunk",
        "dirty": False,
        "changed_files": 0,
        "untracked_files": 0,
        "changed": [],
        "untracked": [],
        "diff_digest": "",
        "diff": "",
    }
    (root / "other").write_text("new\n")
    assert look(root) == clean | {"dirty": True, "untracked_files": 1, "untracked": ["other"]}
    (root / "file").write_text("two\n")
    first = look(root)
    assert first["changed"] == ["file"]
    assert first["changed_files"] == 1
    assert first["diff_digest"] == f"sha256:{hashlib.sha256(first['diff'].encode()).hexdigest()}"
    assert "-one\n+two\n" in first["diff"]
    git(root, "add", "file")
    assert look(root)["diff_digest"] == first["diff_digest"]
    (root / "file").write_text("three\n")
    assert look(root)["diff_digest"] != first["diff_digest"]


def test_names_with_spaces_and_of_renamed_files(root):
    git(root, "mv", "a b.txt", "c d.txt")
    (root / "file").unlink()
    assert sorted(look(root)["changed"]) == ["c d.txt", "file"]


def test_only_some_files_are_named_and_all_are_counted(root, monkeypatch):
    monkeypatch.setattr(repository, "MAX_NAMES", 2)
    for name in "xyz":
        (root / name).touch()
    found = look(root)
    assert found["untracked_files"] == 3
    assert found["untracked"] == ["x", "y"]


def test_before_the_first_commit(tmp_path):
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "file").touch()
    found = look(tmp_path)
    assert found["commit"] == "(initial)"
    assert found["untracked"] == ["file"]


def test_digests_are_over_names_and_contents(tmp_path):
    for name in DIGESTED:
        (tmp_path / name / "deeper").mkdir(parents=True)
        (tmp_path / name / "deeper" / "one.py").write_text("1")
    first = source_digests(tmp_path)
    assert set(first) == set(DIGESTED)
    assert all(value.startswith("sha256:") for value in first.values())
    (tmp_path / "kernels" / "note.txt").write_text("no module")
    assert source_digests(tmp_path) == first
    (tmp_path / "conf" / "note.txt").write_text("any file counts")
    (tmp_path / "kernels" / "deeper" / "one.py").write_text("2")
    (tmp_path / "runner" / "deeper" / "one.py").rename(tmp_path / "runner" / "deeper" / "two.py")
    changed = source_digests(tmp_path)
    assert {name for name in DIGESTED if changed[name] != first[name]} == {"conf", "kernels", "runner"}
    assert source_digests(tmp_path / "nowhere") == dict.fromkeys(DIGESTED, "")
