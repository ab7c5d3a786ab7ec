"""What git says of the commits that records name: known or not, its sources, its date, the kept difference."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import PUBLISHED_SCHEMA, SCHEMA_VERSION, KernelInfo, Record
from runner.environment.repository import git, source_digests
from symlab.evidence.replay.commits import commits, tree_of
from tests.reports.synthetic import record, with_environment

KERNEL = KernelInfo("all_reduce/one_shot", "entry", "sm_90a", "sha256:0", "", "sha256:0", "", 1, 32)

MADE = "2026-01-01T00:00:00+00:00"


def run_git(root: Path, *lines: str) -> None:
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
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit, made an hour before the invented records began; a test takes a copy."""
    root = tmp_path_factory.mktemp("first") / "project"
    for name, text in {"kernels/a.py": "a = 1\n", "conf/config.yaml": "op: all_reduce\n"}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text, encoding="utf-8")
    run_git(root, "init -q -b main", "add .", "commit -q -m first")
    return root


@pytest.fixture
def root(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "project"))


def made_in(root: Path, folder: Path | None = None, **changes: Any) -> Record:
    """A record that was made there now; what differs from the commit is kept in folder."""
    found = git(root, {})
    assert found is not None
    difference = found.pop("diff")
    if difference and folder is not None:
        (folder / "source.diff").write_text(difference, encoding="utf-8")
        digest = f"sha256:{hashlib.sha256(difference.encode()).hexdigest()}"
        found["kept_diff"] = {"file": "source.diff", "digest": digest, "bytes": 1, "left_out_bytes": 0}
    made = record(is_timed=False)
    made = dataclasses.replace(made, started="2026-01-01T01:00:00Z", ended="2026-01-01T01:00:01Z")
    return with_environment(made, git=found | changes, sources=source_digests(root))


def committed(root: Path, **files: str) -> None:
    """Add files to the commit; a double underscore in a name is a slash."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    run_git(root, "add .", "commit -q --amend -m first")


def changed(root: Path) -> None:
    (root / "kernels" / "a.py").write_text("a = 2\n", encoding="utf-8")


def different(root: Path, made: Record, *places: Path) -> str:
    found = commits([made], places, root)
    return "\n".join(what for _, what in found["different"])


def test_a_commit_that_git_does_not_have_is_unknown(root: Path) -> None:
    for name in ("f" * 40, "main", "HEAD", "--output=x", "a" * 65, "v1.0"):
        found = commits([made_in(root, commit=name)], (), root)
        assert (found["known"], found["different"]) == (0, [])
        assert found["unknown"][0][0] == name
        assert found["unknown"][0][1]


def test_a_commit_that_git_has_is_known_and_its_sources_and_time_are_compared(root: Path) -> None:
    made = made_in(root)
    assert commits([made], (), root) == {"known": 1, "compared": 1, "unknown": [], "different": []}
    early = dataclasses.replace(made, started="2025-12-30T01:00:00Z", ended="2025-12-30T01:00:01Z")
    assert "it was made 47.0 hours after the record began" in different(root, early)
    changed(root)
    lied = with_environment(made, sources=source_digests(root))
    assert "its kernels/ is not what the record has a digest of" in different(root, lied)


def test_folders_that_were_changed_are_not_the_commits_and_others_are(root: Path, tmp_path: Path) -> None:
    changed(root)
    made = made_in(root, tmp_path)
    assert different(root, made, tmp_path) == ""
    assert made.environment.sources is not None
    lied = with_environment(made, sources={**made.environment.sources, "conf": "sha256:" + "0" * 64})
    assert "its conf/ is not what the record has a digest of" in different(root, lied, tmp_path)


def test_of_two_commands_each_has_the_difference_of_its_own_folder(root: Path, tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("first", "second")]
    made = []
    for place, file in zip(places, ("a", "b"), strict=True):
        place.mkdir()
        (root / "kernels" / f"{file}.py").write_text("changed\n", encoding="utf-8")
        run_git(root, "add .")
        made.append(made_in(root, place))
    assert commits(made, places, root)["different"] == []


def test_a_difference_is_from_the_commit_and_of_the_files_that_are_named(root: Path, tmp_path: Path) -> None:
    changed(root)
    made = made_in(root, tmp_path)
    path = tmp_path / "source.diff"
    text = path.read_text(encoding="utf-8")
    (index,) = [line for line in text.splitlines() if line.startswith("index ")]
    path.write_text(text.replace(index, index.replace(index[6:13], "0123456")), encoding="utf-8")
    assert "changes a kernels/a.py that is not the commit's" in different(root, made, tmp_path)
    path.write_text(text.replace("a.py", "b.py"), encoding="utf-8")
    assert "changes other files than the record names: kernels/a.py" in different(root, made, tmp_path)


def test_a_name_that_leaves_the_folder_is_not_read(root: Path, tmp_path: Path) -> None:
    changed(root)
    folder = tmp_path / "records"
    folder.mkdir()
    made = made_in(root, folder)
    (folder / "source.diff").rename(tmp_path / "outside.diff")
    kept = {"file": "../outside.diff", "digest": "", "bytes": 1, "left_out_bytes": 0}
    assert made.environment.git is not None
    assert different(root, with_environment(made, git={**made.environment.git, "kept_diff": kept}), folder) == ""


def test_a_record_has_the_schema_that_the_commits_code_writes(root: Path) -> None:
    today, before = SCHEMA_VERSION, PUBLISHED_SCHEMA
    committed(root, cases__record__record=f"SCHEMA_VERSION = {today}\n", tests__record="SCHEMA_VERSION = 1\n")
    made = made_in(root)
    assert made.schema == today
    assert different(root, made) == ""
    older = dataclasses.replace(made, schema=before)
    assert f"its code writes records of schema {today}, this one has schema {before}" in different(root, older)
    committed(root, cases__record__record=f"SCHEMA_VERSION = {before}\n")
    assert f"its code writes records of schema {before}, this one has schema {today}" in different(root, made_in(root))
    (root / "cases" / "record" / "record.py").write_text(f"SCHEMA_VERSION = {today}\n", encoding="utf-8")
    assert different(root, made_in(root)) == "", "the schema was changed in that tree"


def test_a_record_has_the_digests_that_the_commits_code_writes(root: Path) -> None:
    committed(root, runner__environment__repository='DIGESTED = ("conf", "kernels")\n')
    made = made_in(root)
    assert different(root, made) == ""
    for lacking in (None, {}, {"conf": (made.environment.sources or {})["conf"]}):
        assert "its code writes digests of" in different(root, with_environment(made, sources=lacking))
    before = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True)
    assert before.stdout.strip() in str(made.environment.git)


def test_a_kernel_has_the_digest_of_the_commits_sources(root: Path) -> None:
    here = Path(__file__).parents[4] / "kernels"
    for name in ("kernels", "cases"):
        (root / name).mkdir(exist_ok=True)
        (root / name / "__init__.py").touch()
    files = {f"kernels__{name}": (here / f"{name}.py").read_text(encoding="utf-8") for name in ("sources", "family")}
    files["kernels__catalogue"] = 'NAMES: tuple[str, ...] = ("all_reduce/one_shot",)\n'
    committed(root, **files, kernels__all_reduce__one_shot="a = 1\n")
    made = dataclasses.replace(made_in(root), kernel=KERNEL)
    tree = tree_of(root, str((made.environment.git or {})["commit"]))
    assert not isinstance(tree, str)
    right = dataclasses.replace(KERNEL, source_digest=tree.code.kernels["all_reduce/one_shot"])
    assert different(root, dataclasses.replace(made, kernel=right)) == ""
    assert "its sources of all_reduce/one_shot are not what the record has a digest of" in different(root, made)
    brought = dataclasses.replace(made.request, brought={"one_shot": {"place": "mine.py:SPEC"}})
    assert different(root, dataclasses.replace(made, request=brought)) == "", "what was brought is in no commit"
    changed(root)
    other = dataclasses.replace(made_in(root), kernel=KERNEL)
    assert different(root, other) == "", "kernels/ was changed in that tree"


def test_a_commit_of_another_project_says_nothing_of_the_records(root: Path) -> None:
    """Installed into an environment within the repository of another project, git gives that project's commit."""
    run_git(root, "rm -q -r kernels conf", "commit -q --allow-empty -m other")
    (root / "a.txt").write_text("a", encoding="utf-8")
    committed(root)
    found = commits([made_in(root)], (), root)
    assert (found["known"], found["different"]) == (0, [])
    assert found["unknown"][0][1] == "it is a commit of another project"
