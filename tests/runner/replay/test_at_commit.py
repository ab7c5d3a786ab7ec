"""Recorded cases run again by the code of their commit: which go there, what goes, its limits, and what is left."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reports.record.bundle import read
from reports.record.record import Record
from runner.environment.worktree import worktree
from runner.replay import at_commit
from runner.replay.at_commit import MOST_COMMITS, MOST_STARTS, at_commits
from runner.replay.in_turns import Bounds, Turn, run_recorded
from runner.replay.rerun import SOURCES, Wanted, rerun
from tests.patience import NEVER_S, until
from tests.reports.synthetic import record

ROOT = Path(__file__).parents[3]


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with tags first, .., each of a commit with other kernels, and today's."""
    folder = tmp_path / "repository"
    (folder / "kernels" / "all_reduce").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for number in range(MOST_COMMITS + 2):
        (folder / "kernels" / "all_reduce" / "one_shot.py").write_text(f"a = {number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", f"v{number}")
        git(folder, "tag", f"v{number}")
    return folder


def of_commit(commit: str, dirty: bool = False, **configuration: Any) -> Record:
    made = record(is_timed=False, environment={"git": {"commit": commit, "dirty": dirty}})
    there = {**(made.request.configuration or {}), **configuration}
    return dataclasses.replace(made, request=dataclasses.replace(made.request, configuration=there))


class Recorded:
    """Stands for the recorded code: keeps what it got, and gives it back with another duration."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, turn: Turn | None = None) -> None:
        self.got: list[list[Record]] = []
        self.commits: list[str] = []
        self._turn = turn
        monkeypatch.setattr(at_commit, "worktree", self._worktree)
        monkeypatch.setattr(at_commit, "run_recorded", self._run)

    @contextmanager
    def _worktree(self, root: Path, commit: str) -> Iterator[Path]:
        self.commits.append(commit)
        yield root

    def _run(self, code: Path, records: Sequence[Record], arguments: Sequence[str], into: Path, bounds: Bounds) -> Turn:
        assert tuple(arguments) == ("--fabric", "simulator"), "GPUs are never asked"
        assert bounds == at_commit.BOUNDS
        self.got.append(list(records))
        if self._turn is not None:
            return self._turn
        folder = into / f"made{len(self.got)}"
        folder.mkdir()
        for one in records:
            (folder / f"{one.id}.json").write_text(dataclasses.replace(one, duration_s=7.0).to_json())
        return Turn(0, (folder,), "")


def silent(text: str) -> None:
    pass


def test_a_case_runs_by_the_code_of_its_commit(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    commit = git(repository, "rev-parse", "v0")
    found = at_commits([of_commit(commit)], silent, repository)
    assert (found.records[0].duration_s, found.reasons) == (7.0, {})
    assert recorded.commits == [commit]


def test_nothing_that_a_record_carries_goes_there(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    commit = git(repository, "rev-parse", "v0")
    made = of_commit(
        commit, custom={"kernel": "mine.py:f"}, track={"name": "mlflow", "uri": "http://liar"}, deadline_s=9e9
    )
    brought = dataclasses.replace(
        made.request, brought={"other": {"place": "mine.py:SPEC"}}, config_dir={"folder": "x"}
    )
    git_of = made.environment.git or {}
    environment = dataclasses.replace(made.environment, git={**git_of, "kept_diff": {"file": "source.diff"}})
    at_commits([dataclasses.replace(made, request=brought, environment=environment)], silent, repository)
    text = recorded.got[0][0].to_json()
    assert [word for word in ("mine.py", "liar", "source.diff", 'config_dir":{') if word in text] == []
    assert (recorded.got[0][0].request.configuration or {})["deadline_s"] == at_commit.DEADLINE_S


def test_what_does_not_go_there_has_its_reason(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    first = of_commit(git(repository, "rev-parse", "v0"))
    brought = dataclasses.replace(first.request, brought={"one_shot": {"place": "mine.py:SPEC"}})
    case = dataclasses.replace(first.case, algorithm="two_shot")
    cases: tuple[tuple[Record, str], ...] = (
        (dataclasses.replace(first, request=brought), "its kernel was brought, and is in no commit"),
        (
            dataclasses.replace(first, case=case, id=first.id.replace("one_shot", "two_shot")),
            "has no kernel of its name",
        ),
        (of_commit(git(repository, "rev-parse", "v0"), dirty=True), "were not those of their commit"),
        (of_commit("0" * 40), "git here does not have the recorded commit"),
        (
            dataclasses.replace(first, request=dataclasses.replace(first.request, configuration=None)),
            "the record holds no configuration",
        ),
    )
    found = at_commits([one for one, _ in cases], silent, repository)
    assert (found.records, recorded.got) == ({}, [])
    for number, (_, says) in enumerate(cases):
        assert says in found.reasons[number]


def test_todays_commit_needs_no_worktree(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    found = at_commits([of_commit(git(repository, "rev-parse", "HEAD"))], silent, repository)
    assert (found.records, found.reasons, recorded.got) == ({}, {0: ""}, [])


def test_one_id_with_other_configurations_runs_in_starts_of_its_own(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(monkeypatch)
    commit = git(repository, "rev-parse", "v0")
    found = at_commits([of_commit(commit, seed=seed) for seed in range(MOST_STARTS + 1)], silent, repository)
    assert recorded.commits == [commit]
    assert sorted(found.records) == list(range(MOST_STARTS))
    assert "more than 4 configurations" in found.reasons[MOST_STARTS]


def test_no_more_commits_are_built_than_the_maximum(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    commits = [git(repository, "rev-parse", f"v{number}") for number in range(MOST_COMMITS + 1)]
    found = at_commits([of_commit(commit) for commit in commits], silent, repository)
    assert recorded.commits == commits[:MOST_COMMITS]
    assert found.reasons == {MOST_COMMITS: "the set has more than 4 commits"}


def test_code_that_can_not_run_here_says_why(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Recorded(monkeypatch, Turn(1, (), "ImportError: no module named cutlass"))
    found = at_commits([of_commit(git(repository, "rev-parse", "v0"))], silent, repository)
    assert found.records == {}
    assert found.reasons[0].endswith("did not run it here (ImportError: no module named cutlass)")


def test_a_commit_that_can_not_be_checked_out_says_why(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(root: Path, commit: str) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(at_commit, "worktree", full)
    found = at_commits([of_commit(git(repository, "rev-parse", "v0"))], silent, repository)
    assert found.reasons[0].endswith("can't be checked out here (No space left on device)")


BOUNDED = """
import pathlib, resource, sys, time
while resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:  # set last, from outside
    time.sleep(0.01)
{what}
folder = pathlib.Path(sys.argv[sys.argv.index("--records") + 1]) / "x"
folder.mkdir(parents=True)
(folder / "command.json").write_text("{{}}")
time.sleep({never_s})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "bounds", "complaint", "made"),
    [
        ("", Bounds(NEVER_S, 8 << 30, 1 << 30), f"stopped after {NEVER_S:.0f} s", 1),
        ("bytearray(1 << 30)", Bounds(NEVER_S, 1 << 28, 1 << 30), "MemoryError", 0),
        ("open('big', 'wb').write(bytes(1 << 20))", Bounds(NEVER_S, 8 << 30, 1 << 16), "File too large", 0),
    ],
)
def test_the_recorded_code_has_limits(
    what: str, bounds: Bounds, complaint: str, made: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    (code / "runner").mkdir(parents=True)
    (code / "runner" / "__init__.py").touch()
    (code / "runner" / "__main__.py").write_text(BOUNDED.format(what=what, never_s=NEVER_S))
    into = tmp_path / "into"
    into.mkdir()

    class Late(subprocess.Popen[bytes]):
        """Its time is over when it has made what it makes."""

        def wait(self, timeout: float | None = None) -> int:
            if timeout != NEVER_S:
                return super().wait(timeout)
            until(lambda: self.poll() is not None or list(into.rglob("command.json")), "its end or a folder")
            if self.poll() is None:
                raise subprocess.TimeoutExpired(self.args, timeout)
            return self.returncode

    monkeypatch.setattr(subprocess, "Popen", Late)
    turn = run_recorded(code, [record()], (), into, bounds)
    assert (turn.exit_code, len(turn.folders)) == (1, made)
    assert complaint in turn.complaint


def older_commit() -> str:
    """The latest commit with other sources, of those that decide what the simulator does, than today's."""
    decide = [f"{name}/*.py" for name in SOURCES]
    for commit in git(ROOT, "rev-list", "--max-count=200", "HEAD").split():
        if subprocess.run(["git", "diff", "--quiet", commit, "--", *decide], cwd=ROOT, check=False).returncode:
            return commit
    pytest.skip("git has no commit of other code")


def edited(record: Record, part: str, **changes: Any) -> Record:
    there = getattr(record, part)
    changed = {**there, **changes} if isinstance(there, dict) else dataclasses.replace(there, **changes)
    return dataclasses.replace(record, **{part: changed})


@pytest.mark.slow
def test_what_sources_that_changed_would_hide_is_found_at_the_commit(tmp_path: Path) -> None:
    """The real code of an earlier commit makes records; honest ones agree, and edited ones don't."""
    commit = older_commit()
    keys = ["algorithms=[one_shot,two_shot]", "sizes=[64]", "world_size=2", "track=none", "fabric=simulator"]
    with worktree(ROOT, commit) as code:
        line = [sys.executable, "-m", "symlab", "run", "-q", *keys, f"records={tmp_path / 'recorded'}"]
        subprocess.run(line, cwd=code, check=True, env={**os.environ, "PYTHONPATH": str(code)})
    one, two = read([tmp_path / "recorded"])
    assert one.environment.git is not None
    assert (one.environment.git["commit"], one.environment.git["dirty"]) == (commit, False)
    counted = json.loads(json.dumps(one.counters))
    counted["accesses"]["own_read"]["count"] += 1
    hidden = {"source_digest": "sha256:" + "6" * 64}
    assert one.kernel is not None
    lies = edited(edited(one, "kernel", **hidden, grid=99), "counters", **counted)
    wanted = Wanted(patience_s=None, at_commit=True)
    found = rerun([one, two], wanted, silent)
    assert (found["different"], found["code"]["different"], found["counters"]["different"]) == ([], [], [])
    assert found["code"]["stated"] == found["counters"]["stated"] == []
    assert (len(found["agree"]), found["at_commit"]) == (2, 2)
    found = rerun([lies, two], wanted, silent)
    ((case, what),) = found["code"]["different"]
    assert (case, "source_digest is" in what, "grid is 99 in the record" in what) == (one.id, True, True)
    ((case, what),) = found["counters"]["different"]
    assert (case, "own_read.count" in what) == (one.id, True)
    assert len(found["agree"]) == 2, "the data is right all the same"
