"""What git says of the commits that records name: known or not, its sources, its date, the kept difference."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reports.record.record import Record
from runner.environment.commits import commits
from runner.environment.repository import git, source_digests
from tests.reports.synthetic import record, with_environment

MADE = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit, made an hour before the invented records began."""
    root = tmp_path / "project"
    (root / "kernels").mkdir(parents=True)
    (root / "conf").mkdir()
    (root / "kernels" / "a.py").write_text("a = 1\n", encoding="utf-8")
    (root / "conf" / "config.yaml").write_text("op: all_reduce\n", encoding="utf-8")
    for line in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -q -m first"):
        subprocess.run(
            ["git", *line.split()],
            cwd=root,
            check=True,
            env={"GIT_COMMITTER_DATE": MADE, "GIT_AUTHOR_DATE": MADE, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
    return root


def made_in(root: Path, folder: Path | None = None, **changes: Any) -> Record:
    """A record that was made there now; what differs from the commit is kept in folder."""
    found = git(root, {})
    assert found is not None
    difference = found.pop("diff")
    if difference and folder is not None:
        (folder / "source.diff").write_text(difference, encoding="utf-8")
        found["kept_diff"] = {"file": "source.diff", "digest": "", "bytes": 1, "left_out_bytes": 0}
    made = record(is_timed=False)
    made = dataclasses.replace(made, started="2026-01-01T01:00:00Z", ended="2026-01-01T01:00:01Z")
    return with_environment(made, git=found | changes, sources=source_digests(root))


def different(root: Path, made: Record, *places: Path) -> str:
    found = commits([made], places, root)
    return "\n".join(what for _, what in found["different"])


def test_a_commit_that_git_has_is_known_and_its_sources_are_compared(root: Path) -> None:
    assert commits([made_in(root)], (), root) == {"known": 1, "compared": 1, "unknown": [], "different": []}


@pytest.mark.parametrize("name", ["f" * 40, "main", "HEAD", "--output=x", "a" * 65, "v1.0"])
def test_a_commit_that_git_does_not_have_is_unknown(name: str, root: Path) -> None:
    found = commits([made_in(root, commit=name)], (), root)
    assert (found["known"], found["different"]) == (0, [])
    assert found["unknown"][0][0] == name
    assert found["unknown"][0][1]


def test_other_sources_than_the_commit_has_are_found(root: Path) -> None:
    made = made_in(root)
    (root / "kernels" / "a.py").write_text("a = 2\n", encoding="utf-8")
    lied = with_environment(made, sources=source_digests(root))
    assert "its kernels/ is not what the record has a digest of" in different(root, lied)


def test_folders_that_were_changed_are_not_the_commits_and_others_are(root: Path, tmp_path: Path) -> None:
    (root / "kernels" / "a.py").write_text("a = 2\n", encoding="utf-8")
    made = made_in(root, tmp_path)
    assert different(root, made, tmp_path) == ""
    assert made.environment.sources is not None
    lied = with_environment(made, sources={**made.environment.sources, "conf": "sha256:" + "0" * 64})
    assert "its conf/ is not what the record has a digest of" in different(root, lied, tmp_path)


def test_a_record_is_no_older_than_its_commit(root: Path) -> None:
    made = dataclasses.replace(made_in(root), started="2025-12-30T01:00:00Z", ended="2025-12-30T01:00:01Z")
    assert "it was made 47.0 hours after the record began" in different(root, made)


def test_a_difference_is_from_the_commit_and_of_the_files_that_are_named(root: Path, tmp_path: Path) -> None:
    (root / "kernels" / "a.py").write_text("a = 2\n", encoding="utf-8")
    made = made_in(root, tmp_path)
    path = tmp_path / "source.diff"
    text = path.read_text(encoding="utf-8")
    (index,) = [line for line in text.splitlines() if line.startswith("index ")]
    path.write_text(text.replace(index, index.replace(index[6:13], "0123456")), encoding="utf-8")
    assert "changes a kernels/a.py that is not the commit's" in different(root, made, tmp_path)
    path.write_text(text.replace("a.py", "b.py"), encoding="utf-8")
    assert "changes other files than the record names: kernels/a.py" in different(root, made, tmp_path)


def test_a_name_that_leaves_the_folder_is_not_read(root: Path, tmp_path: Path) -> None:
    (root / "kernels" / "a.py").write_text("a = 2\n", encoding="utf-8")
    folder = tmp_path / "records"
    folder.mkdir()
    made = made_in(root, folder)
    (folder / "source.diff").rename(tmp_path / "outside.diff")
    kept = {"file": "../outside.diff", "digest": "", "bytes": 1, "left_out_bytes": 0}
    assert made.environment.git is not None
    assert different(root, with_environment(made, git={**made.environment.git, "kept_diff": kept}), folder) == ""
