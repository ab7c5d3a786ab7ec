"""Bundles that were published change only with a recorded reason; a machine that is new needs none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.record import bundle
from reports.record.bundle import LEVEL_NAME
from symlab.evidence.accepted import ACCEPTED, PLACE, changed_bundles, unaccepted
from tests.symlab.evidence.audit.complete_set import records

MACHINE = "invented-x4"
NAME = f"{PLACE.as_posix()}/{MACHINE}/all_reduce.jsonl.xz"


def commit(root: Path) -> None:
    for line in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *line], cwd=root, check=True, capture_output=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    folder = root / PLACE / MACHINE
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("by which commands\n", encoding="utf-8")
    (root / PLACE / "README.md").write_text(
        f"# Published\n\n<!-- published: {MACHINE} -->\n<!-- end -->\n", encoding="utf-8"
    )
    (root / "README.md").write_text("# Title\n", encoding="utf-8")
    bundle.write(records(), root / NAME)
    assert main(["published", "--root", str(root)]) == 0
    commit(root)
    return root


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "project"))


def refused(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    capsys.readouterr()
    assert main(["published", "--root", str(root), *more]) == 2
    return capsys.readouterr().err


def test_what_is_as_in_head_needs_no_reason(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published", "--root", str(project)]) == 0
    assert main(["published", "--root", str(project), "--check"]) == 0
    assert "there is nothing to accept" in refused(project, capsys, "--accept", "why not")


def test_a_changed_bundle_is_refused_and_accepted_with_a_reason(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle.write(records()[:-1], project / NAME)
    table = project / PLACE / MACHINE / "table.md"
    before = table.read_bytes()
    for more in ([], ["--check"]):
        said = refused(project, capsys, *more)
        assert f"{NAME} differs from HEAD's: what is published changes only with --accept REASON" in said
    assert table.read_bytes() == before
    for reason in ("", "two\nlines", "a | b"):
        assert "is no reason" in refused(project, capsys, "--accept", reason)
    assert main(["published", "--root", str(project), "--accept", "a world was not calibrated"]) == 0
    assert table.read_bytes() != before
    text = (project / PLACE / ACCEPTED).read_text(encoding="utf-8")
    (was, now) = changed_bundles(project)[NAME]
    assert f"| {NAME} | {was} | {now} | a world was not calibrated |" in text
    assert main(["published", "--root", str(project), "--check"]) == 0


def test_a_second_change_needs_a_second_reason(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle.write(records()[:-1], project / NAME)
    assert main(["published", "--root", str(project), "--accept", "first"]) == 0
    bundle.write(records()[:-2], project / NAME)
    assert "differs from HEAD's" in refused(project, capsys)
    commit(project)
    assert f"is not the one that {ACCEPTED} says was accepted last" in refused(project, capsys)


def test_a_bundle_that_is_gone_or_added_is_a_change_and_a_new_machine_is_not(project: Path) -> None:
    added = (project / NAME).with_name("more.jsonl.xz")
    shutil.copy(project / NAME, added)
    assert list(changed_bundles(project)) == [NAME.replace("all_reduce", "more")]
    added.unlink()
    other = project / PLACE / "other-x2"
    other.mkdir()
    shutil.copy(project / NAME, other)
    assert unaccepted(project) == []
    (project / NAME).unlink()
    assert unaccepted(project) == [f"{NAME} differs from HEAD's"]


def test_a_level_that_was_lowered_needs_a_reason_and_a_first_one_does_not(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = project / PLACE / MACHINE / LEVEL_NAME
    level.write_text('{"recomputed": 9}\n', encoding="utf-8")
    assert unaccepted(project) == []
    commit(project)
    level.write_text('{"recomputed": 0}\n', encoding="utf-8")
    assert f"{MACHINE}/{LEVEL_NAME} differs from HEAD's" in refused(project, capsys)
    assert main(["published", "--root", str(project), "--accept", "cases were taken out"]) == 0
    assert unaccepted(project) == []
    level.unlink()
    assert len(unaccepted(project)) == 1


def test_without_git_nothing_is_compared(project: Path) -> None:
    shutil.rmtree(project / ".git")
    bundle.write(records()[:-1], project / NAME)
    assert unaccepted(project) == []
