"""The recorded code in turns with today's: which commits can be run, what runs, in which order, and what is left."""

import contextlib
import dataclasses
import json
import re
from pathlib import Path

import pytest

from reports.record.bundle import read
from runner.__main__ import main
from runner.environment import worktree as worktrees
from runner.environment.worktree import recorded_commit, worktree
from symlab.evidence.audit.order import pairs
from symlab.evidence.replay import in_turns, replay
from symlab.evidence.replay.in_turns import Turn, run_recorded
from symlab.evidence.replay.recorded_code import Bounds, run_code
from tests.golden import same_text
from tests.patience import NEVER_S, pressed, within
from tests.reports.synthetic import record
from tests.repository import git

ROOT = Path(__file__).parents[4]

COMMIT = "c0ffee" * 6 + "c0ff"

PROGRAM = """
import json, os, pathlib, sys, time
arguments = sys.argv[1:]
pathlib.Path(os.environ["SAID"]).write_text(json.dumps([arguments, os.getcwd(), __file__]))
if os.environ.get("ENDS"):
    sys.exit(os.environ["ENDS"])
time.sleep(float(os.environ.get("SLEEPS", "0")))
if "--cfg" in arguments:
    print("{op: all_reduce, dtype: auto, accumulator: auto, reduction: auto, world_size: 2, seed: 0}")
    sys.exit()
(place,) = (word.removeprefix("records=") for word in arguments if word.startswith("records="))
folder = pathlib.Path(place) / "20260101T000000Z-x"
folder.mkdir(parents=True)
(folder / "command.json").write_text("{}")
"""


@pytest.fixture
def repository(tmp_path):
    """A repository of two commits that have other code; tags first and second name them."""
    folder = tmp_path / "repository"
    (folder / "runner").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "runner" / "__init__.py").touch()
    (folder / "kernels" / "all_reduce").mkdir(parents=True)
    (folder / "kernels" / "all_reduce" / "one_shot.py").touch()
    for name in ("first", "second"):
        (folder / "runner" / "__main__.py").write_text(f"{PROGRAM}\n# {name}\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", name)
        git(folder, "tag", name)
    return folder


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Where the recorded code says how it was called."""
    monkeypatch.setenv("SAID", str(tmp_path / "said.json"))
    return tmp_path / "said.json"


def of_commit(commit, dirty=False, world=0):
    made = record(world=world, environment={"git": {"commit": commit, "dirty": dirty}})
    return dataclasses.replace(made, request=dataclasses.replace(made.request, configuration={"op": "all_reduce"}))


def test_what_can_not_be_run_has_its_reason(repository, tmp_path):
    first, second = (git(repository, "rev-parse", name) for name in ("first", "second"))
    assert recorded_commit([of_commit(first), of_commit(first, world=1)], repository) == (first, "")
    stray = git(repository, "commit-tree", f"{first}^{{tree}}", "-m", "of no branch")
    reasons = []
    for records in (
        [of_commit(first), of_commit(second)],
        *([of_commit(name)] for name in ("", "--help", "main")),
        *([of_commit(first, dirty=dirty)] for dirty in (True, None)),
        *([of_commit(commit)] for commit in ("0" * 40, stray, second)),
    ):
        commit, reason = recorded_commit(records, repository)
        assert commit == ""
        reasons.append(reason)
    same_text("\n".join(reasons), "[1-9a-f][0-9a-f]{11}|0[0-9a-f]{10}[1-9a-f]")
    git(repository, "tag", "fetched", stray)
    assert recorded_commit([of_commit(stray)], repository)[0] == "", "tags come with what is fetched from others"
    git(repository, "branch", "kept", stray)
    assert recorded_commit([of_commit(stray)], repository) == (stray, "")
    assert recorded_commit([of_commit(first)], tmp_path)[1].startswith("git here does not have")
    (repository / "runner" / "__main__.py").write_text("print('changed')")
    assert recorded_commit([of_commit(second)], repository) == (second, "")


def test_a_worktree_has_the_commits_sources_and_is_gone_afterwards(repository):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    with worktree(repository, git(repository, "rev-parse", "first")) as code:
        assert "# first" in (code / "runner" / "__main__.py").read_text()
        assert not (code / "ran").exists(), "hooks do not run"
    assert not code.exists()
    assert git(repository, "worktree", "list").count("\n") == 0
    with pytest.raises(OSError, match="0000"), worktree(repository, "0" * 40):
        pass


def test_the_recorded_code_runs_the_records_in_its_own_folder(repository, tmp_path, said):
    into = tmp_path / "into"
    into.mkdir()
    turn = run_recorded(repository, [of_commit(COMMIT)], "auto", into)
    assert turn == Turn(0, (into / "20260101T000000Z-x",), "")
    assert (into / "20260101T000000Z-x" / "command.json").is_file()
    assert [path.name for path in into.iterdir()] == ["20260101T000000Z-x"], "nothing else stays"
    arguments, folder, program = json.loads(said.read_text())
    assert {"fabric=auto", "track=none", "op=all_reduce", "algorithms=[one_shot]"} <= set(arguments)
    assert Path(folder) == Path(program).parents[1] == repository


@pytest.mark.usefixtures("said")
def test_a_commit_that_can_not_replay_says_why(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("ENDS", "symlab: error: no command 'replay'")
    turn = run_recorded(repository, [of_commit(COMMIT)], "auto", tmp_path)
    assert turn == Turn(1, (), "symlab: error: no command 'replay'")


@pytest.mark.usefixtures("ctrl_c_raises")
def test_an_interrupt_ends_the_recorded_code(repository, tmp_path, said, monkeypatch):
    """And of code with limits it is raised."""
    monkeypatch.setenv("SLEEPS", str(NEVER_S))
    with within(), pressed(said.exists):
        assert run_recorded(repository, [of_commit(COMMIT)], "auto", tmp_path) == Turn(130, (), "")
    said.unlink()
    with within(), pytest.raises(KeyboardInterrupt), pressed(said.exists):
        run_code(repository, [], Bounds(NEVER_S, 8 << 30, 1 << 30))


class Turns:
    """Stands for the recorded code: notes when its turn is, and leaves a copy of the records as a new world's."""

    def __init__(self, monkeypatch, fails_at=0, exit_code=0, of=COMMIT):
        self.sides = ""
        self._of = of
        self._fails_at, self._exit_code = fails_at, exit_code
        monkeypatch.setattr(replay._Replay, "_is_timed", lambda _: True)
        monkeypatch.setattr(worktrees, "recorded_commit", lambda *_: (COMMIT, ""))
        monkeypatch.setattr(worktrees, "worktree", lambda root, commit: contextlib.nullcontext(Path("nowhere")))
        monkeypatch.setattr(in_turns, "run_recorded", self._run)
        launch = replay._Replay._launch

        def launched(*arguments):
            self.sides += "B"
            return launch(*arguments)

        monkeypatch.setattr(replay._Replay, "_launch", launched)

    def _run(self, code, records, arguments, into):
        self.sides += "A"
        if self.sides.count("A") == self._fails_at:
            return Turn(self._exit_code, (), "an invented complaint")
        folder = into / f"recorded{len(self.sides)}"
        folder.mkdir()
        for one in records:
            request = dataclasses.replace(one.request, command=folder.name)
            environment = dataclasses.replace(one.environment, git={"commit": self._of, "dirty": False})
            made = dataclasses.replace(one, request=request, environment=environment)
            (folder / f"{one.id}.json").write_text(made.to_json())
        return Turn(0, (folder,), "")


@pytest.fixture
def replayed(symlab, script, capsys):
    """Replay records of the stub in so many launches: the exit code, what was said, and the folder."""

    def run(launches):
        folder = symlab("sizes=[8]").folder
        arguments = ["replay", str(folder / "records"), "--launches", str(launches), "--records", str(folder / "again")]
        code = main(arguments, script.tools())
        said = capsys.readouterr()
        return code, said.out + said.err, next((folder / "again").iterdir())

    return run


@pytest.mark.slow
def test_a_replay_alternates(replayed, monkeypatch):
    turns = Turns(monkeypatch)
    _, said, folder = replayed(3)
    assert "gave no record" not in said
    (seed,) = re.findall(
        r"in turns with the recorded code \(commit c0ffeec0ffee\), in an order drawn by seed (\d+)", said
    )
    assert turns.sides == "".join(pairs(3, seed))
    assert {(one.request.replays or {}).get("order_seed") for one in read([folder])} >= {int(seed)}
    assert len({one.request.command for one in read([folder])}) == 6


NOT_ANY_MORE = "apart in time: the recorded code gave no record of its commit, and is not run any more: "


def test_records_of_another_commit_are_not_the_recorded_codes(replayed, monkeypatch):
    turns = Turns(monkeypatch, of="b" * 40)
    _, said, folder = replayed(2)
    assert turns.sides in ("ABB", "BAB")
    assert f"{NOT_ANY_MORE}exit code 0" in said
    assert len({one.request.command for one in read([folder])}) == 2 + 1, "and the one of another commit"


def test_recorded_code_that_gives_nothing_is_not_run_again(replayed, monkeypatch):
    turns = Turns(monkeypatch, fails_at=2, exit_code=2)
    _, said, folder = replayed(4)
    assert sorted(turns.sides) == list("AABBBB")
    assert f"{NOT_ANY_MORE}an invented complaint" in said
    assert (folder / "verdict.json").is_file()


def test_an_interrupt_of_the_recorded_code_ends_the_replay(replayed, monkeypatch):
    turns = Turns(monkeypatch, fails_at=1, exit_code=130)
    code, said, folder = replayed(4)
    assert code == 130
    assert turns.sides in ("A", "BA"), "which side begins is drawn"
    assert "interrupted in launch 1 of 4: no verdict" in said
    assert not (folder / "verdict.json").exists()


@pytest.mark.slow
def test_why_it_does_not_alternate_is_said(replayed, monkeypatch):
    assert "in turns" not in replayed(1)[1], "nothing is timed in the simulator"
    monkeypatch.setattr(replay._Replay, "_is_timed", lambda _: True)
    said = "apart in time: the recorded code is not run in turns with today's: the records name no commit"
    assert said in replayed(1)[1]


@pytest.mark.slow
def test_the_code_of_head_replays_its_own_records(tmp_path):
    """The real program, in a worktree, in the simulator."""
    keys = ["algorithms=[two_shot]", "sizes=[64]", "world_size=2", "track=none"]
    assert main([*keys, f"records={tmp_path / 'recorded'}"]) == 0
    recorded = read([tmp_path / "recorded"])
    into = tmp_path / "into"
    into.mkdir()
    with worktree(ROOT, git(ROOT, "rev-parse", "HEAD")) as code:
        turn = run_recorded(code, recorded, "auto", into)
    assert (turn.exit_code, len(turn.folders)) == (0, 1), turn.complaint
    (again,) = read(turn.folders)
    assert again.id == recorded[0].id
    assert again.environment.git["dirty"] is False
    assert again.check.output_digests == recorded[0].check.output_digests
