"""What git says of the commits that records name: known or not, its sources, its date."""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from runner.environment.repository import git, source_digests
from symlab.evidence.audit.items import Outcome
from symlab.evidence.replay.commits import commits, has_kernel, kernels_in
from tests.reports.synthetic import record, with_environment

MADE = "2026-01-01T00:00:00+00:00"


def run_git(root, *lines):
    names = "-c user.name=a -c user.email=a@b"
    environment = {
        "GIT_COMMITTER_DATE": MADE,
        "GIT_AUTHOR_DATE": MADE,
        "PATH": "/usr/bin:/bin",
        "HOME": str(root.parent),
    }
    for line in lines:
        subprocess.run(["git", *names.split(), *line.split()], cwd=root, check=True, env=environment)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A repository with one commit, made an hour before the invented records began; a test takes a copy."""
    root = tmp_path_factory.mktemp("first") / "project"
    for name, text in {"kernels/a.py": "a = 1\n", "conf/config.yaml": "op: all_reduce\n"}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text, encoding="utf-8")
    run_git(root, "init -q -b main", "add .", "commit -q -m first")
    return root


@pytest.fixture
def root(first, tmp_path):
    return Path(shutil.copytree(first, tmp_path / "project"))


def made_in(root, **changes):
    """A record that was made there now."""
    found = git(root, {})
    found.pop("diff")
    made = record(is_timed=False)
    made = dataclasses.replace(made, started="2026-01-01T01:00:00Z", ended="2026-01-01T01:00:01Z")
    return with_environment(made, git=found | changes, sources=source_digests(root))


def committed(root, **files):
    """Add files to the commit; a double underscore in a name is a slash."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    run_git(root, "add .", "commit -q --amend -m first")


def changed(root):
    (root / "kernels" / "a.py").write_text("a = 2\n", encoding="utf-8")


def different(root, made):
    return "\n".join(one.evidence for one in commits([made], root) if one.outcome is Outcome.FINDING)


def test_a_commit_that_git_does_not_have_is_unknown(root):
    for name in ("f" * 40, "main", "HEAD", "--output=x", "a" * 65, "v1.0"):
        (point,) = commits([made_in(root, commit=name)], root)
        assert point.outcome is Outcome.NOT_COMPARABLE
        assert point.evidence.startswith(f"commit unknown here: {name[:12]} (")


def test_a_commit_that_git_has_is_known_and_its_sources_and_time_are_compared(root):
    made = made_in(root)
    (point,) = commits([made], root)
    assert (point.outcome, point.share) == (Outcome.VERIFIED, (1, 1))
    early = dataclasses.replace(made, started="2025-12-30T01:00:00Z", ended="2025-12-30T01:00:01Z")
    assert "it was made 47.0 hours after the record began" in different(root, early)
    changed(root)
    lied = with_environment(made, sources=source_digests(root))
    assert "its kernels/ is not what the record has a digest of" in different(root, lied)


def test_a_record_of_another_schema_than_the_commits_code_writes(root):
    """An older one would be excused from what came later."""
    committed(root, cases__record="SCHEMA_VERSION = 8\n")
    assert different(root, made_in(root)) == ""
    older = dataclasses.replace(made_in(root), schema=2)
    assert "its code writes records of schema 8, this one has schema 2" in different(root, older)
    committed(root, cases__other="SCHEMA_VERSION = 9\n")
    assert different(root, dataclasses.replace(made_in(root), schema=2)) == "", "which one it writes is unknown"


def test_folders_that_were_changed_are_not_the_commits_and_others_are(root):
    changed(root)
    made = made_in(root)
    assert different(root, made) == ""
    lied = with_environment(made, sources={**made.environment.sources, "conf": "sha256:" + "0" * 64})
    assert "its conf/ is not what the record has a digest of" in different(root, lied)


def test_a_commit_of_another_project_says_nothing_of_the_records(root):
    """Installed into an environment within the repository of another project, git gives that project's commit."""
    run_git(root, "rm -q -r kernels conf", "commit -q --allow-empty -m other")
    (root / "a.txt").write_text("a", encoding="utf-8")
    committed(root)
    (point,) = commits([made_in(root)], root)
    assert point.evidence.endswith("(it is a commit of another project)")


def test_the_names_of_a_commits_kernels_are_read_and_its_catalogue_is_not_run(tmp_path):
    path = tmp_path / "kernels" / "catalogue.py"
    assert kernels_in(tmp_path) == ((), ())
    path.parent.mkdir()
    for text, names in (
        ('FILES: dict[str, str] = {"a/b": "c"}\nNVSHMEM_FILES: dict[str, str] = {"d/e": "f"}\n', (("a/b",), ("d/e",))),
        ('NAMES: tuple[str, ...] = ("a/b",)\nraise SystemExit\n', (("a/b",), ())),
        ("FILES: dict[str, str] = made()\n", ((), ())),
        ("FILES: dict[str, str] = {", ((), ())),
    ):
        path.write_text(text, encoding="utf-8")
        assert kernels_in(tmp_path) == names
        assert has_kernel(tmp_path, "a/b") is bool(names[0])
    (path.parent / "a").mkdir()
    (path.parent / "a" / "b.py").touch()
    assert has_kernel(tmp_path, "a/b"), "once its name was its file's"
