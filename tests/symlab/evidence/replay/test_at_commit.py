"""Recorded cases run again by the code of their commit: which go there, what goes, its limits, and what is left."""

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from cases.record.record import Status
from reports.record.bundle import read
from runner.environment.worktree import recorded_commit, worktree
from symlab.evidence import published
from symlab.evidence.audit.worker import Rerun
from symlab.evidence.replay import at_commit
from symlab.evidence.replay.at_commit import MOST_COMMITS, MOST_STARTS, at_commits
from symlab.evidence.replay.recorded_code import Bounds, Ran, run_code
from symlab.evidence.replay.rerun import SOURCES, rerun
from tests.golden import same_text
from tests.patience import NEVER_S, until
from tests.reports.synthetic import record, with_case, with_request
from tests.repository import git

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with tags v0, .., each of a commit with other kernels, and today's."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "kernels" / "all_reduce").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for number in range(MOST_COMMITS + 2):
        (folder / "kernels" / "all_reduce" / "one_shot.py").write_text(f"a = {number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", f"v{number}")
        git(folder, "tag", f"v{number}")
    return folder


@pytest.fixture(scope="module")
def commits(repository):
    return [git(repository, "rev-parse", f"v{number}") for number in range(MOST_COMMITS + 2)]


def test_the_code_of_a_commit_is_asked_for_what_it_knows(repository, commits, monkeypatch):
    """Cases that differ in size alone are one command. Of the recorded configuration only what is not that code's
    default goes there, for it may refuse keys that have no effect; and no place that a record names."""
    fabric = {"name": "nvshmem", "arch": "sm_90a", "schedule": "random"}
    carried = {"custom": {"kernel": "mine.py:f"}, "track": {"name": "mlflow", "uri": "http://liar"}}
    made = of_commit(commits[0], fabric=fabric, launches=3, deadline_s=9e9, **carried)
    size = made.case.size_bytes
    recorded = Recorded(monkeypatch, [made])
    found = at_commits([made, with_case(made, size_bytes=4 * size)], silent, repository)
    assert found.records[0].duration_s == 7.0
    assert recorded.commits == [commits[0]]
    (words,) = recorded.asked
    case = record().case
    asked = {"op=all_reduce", f"dtype={case.dtype}", f"accumulator={case.accumulator}", f"reduction={case.reduction}"}
    asked |= {f"world_size={case.world_size}", "baselines=none", "fabric.schedule=random", "launches=3"}
    asked |= {f"deadline_s={at_commit.DEADLINE_S}", f"algorithms=[{case.algorithm}]", f"sizes.list=[{size},{4 * size}]"}
    asked |= {"fabric=simulator", "track=none"}
    assert {word for word in words if not word.startswith(("records=", "cache_dir="))} == asked


def of_commit(commit, dirty=False, **configuration):
    made = record(is_timed=False, environment={"git": {"commit": commit, "dirty": dirty}})
    there = {**DEFAULTS, **configuration}
    return dataclasses.replace(made, request=dataclasses.replace(made.request, configuration=there))


DEFAULTS = {
    **{"op": "all_reduce", "dtype": "auto", "accumulator": "auto", "reduction": "auto", "world_size": 2, "seed": 0},
    **{"check": True, "launches": 2, "deadline_s": 120.0, "inputs": "normal"},
    "fabric": {"name": "simulator", "arch": "sm_90a", "schedule": "fair"},
    "timing": {"mode": "graph", "calls": None},
}
"""What the recorded code says of its keys."""


RAN = Ran(0, "", "")


class Recorded:
    """Stands for the recorded code: says its keys, keeps what it was asked for, and runs some records again."""

    def __init__(self, monkeypatch, runs=(), ran=RAN):
        self.asked = []
        self.commits = []
        self._runs = runs
        self._ran = ran
        monkeypatch.setattr(at_commit, "worktree", self._worktree)
        monkeypatch.setattr(at_commit, "run_code", self._run)

    @contextmanager
    def _worktree(self, root, commit):
        self.commits.append(commit)
        yield root

    def _run(self, code, words, bounds):
        assert "fabric=simulator" in words, "GPUs are never asked"
        assert bounds == at_commit.BOUNDS
        if words[0] == "--cfg":
            return Ran(0, yaml.safe_dump(DEFAULTS), "")
        self.asked.append(list(words))
        (folder,) = (Path(word.removeprefix("records=")) for word in words if word.startswith("records="))
        folder.mkdir()
        for one in self._runs:
            if f"seed={one.case.seed}" in words or not one.case.seed:
                (folder / f"{one.id}.json").write_text(dataclasses.replace(one, duration_s=7.0).to_json())
        return self._ran


def silent(text):
    pass


def test_what_does_not_go_there_has_its_reason(repository, commits, monkeypatch):
    recorded = Recorded(monkeypatch)
    first = of_commit(commits[0])
    cases = [
        with_request(first, brought={"one_shot": {"place": "mine.py:SPEC"}}),
        with_case(first, algorithm="two_shot"),
        of_commit(commits[0], dirty=True),
        of_commit("0" * 40),
        with_request(first, configuration=None),
        of_commit(commits[0], hydra={"run": {"dir": "x"}}),
        of_commit(commits[0], inputs="${oc.env:HOME}"),
        of_commit(commits[0], inputs="a b=c"),
    ]
    found = [at_commits([one], silent, repository) for one in cases]
    assert ([one.records for one in found], recorded.asked) == ([{}] * len(cases), [])
    same_text("\n".join(one.reasons[0] for one in found), "[0-9a-f]{12}")
    found_today = at_commits([of_commit(commits[-1])], silent, repository)
    assert (found_today.records, found_today.reasons, recorded.asked) == ({}, {0: ""}, []), "no worktree is needed"


def test_one_id_with_other_configurations_runs_in_starts_of_its_own(repository, commits, monkeypatch):
    some = [with_case(of_commit(commits[0], seed=seed), seed=seed) for seed in range(1, MOST_STARTS + 2)]
    recorded = Recorded(monkeypatch, some)
    found = at_commits(some, silent, repository)
    assert recorded.commits == commits[:1]
    assert sorted(found.records) == list(range(MOST_STARTS))
    assert "more than 16 configurations" in found.reasons[MOST_STARTS]


def test_no_more_commits_are_built_than_the_maximum(repository, commits, monkeypatch):
    some = [of_commit(commit) for commit in commits[: MOST_COMMITS + 1]]
    recorded = Recorded(monkeypatch, some[:1])
    found = at_commits(some, silent, repository)
    assert recorded.commits == commits[:MOST_COMMITS]
    assert found.reasons == {MOST_COMMITS: "the set has more than 4 commits"}


def test_code_that_can_not_run_here_says_why(repository, commits, monkeypatch):
    Recorded(monkeypatch, ran=Ran(1, "", "ImportError: no module named cutlass"))
    found = at_commits([of_commit(commits[0])], silent, repository)
    assert found.records == {}
    assert found.reasons[0].endswith("did not run it here (ImportError: no module named cutlass)")

    def full(root, commit):
        raise OSError("No space left on device")

    monkeypatch.setattr(at_commit, "worktree", full)
    found = at_commits([of_commit(commits[0])], silent, repository)
    assert found.reasons[0].endswith("can't be run here (No space left on device)")


BOUNDED = """
import pathlib, resource, sys, time
while resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:  # set last, from outside
    time.sleep(0.01)
{what}
pathlib.Path("made").touch()
print("made", flush=True)
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
def test_the_recorded_code_has_limits(what, bounds, complaint, made, tmp_path, monkeypatch):
    code = tmp_path / "code"
    (code / "runner").mkdir(parents=True)
    (code / "runner" / "__init__.py").touch()
    (code / "runner" / "__main__.py").write_text(BOUNDED.format(what=what, never_s=NEVER_S))

    class Late(subprocess.Popen[bytes]):
        """Its time is over when it has made what it makes."""

        def wait(self, timeout=None):
            if timeout != NEVER_S:
                return super().wait(timeout)
            until(lambda: self.poll() is not None or (code / "made").exists(), "its end or a file")
            if self.poll() is None:
                raise subprocess.TimeoutExpired(self.args, timeout)
            return self.returncode

        def terminate(self):
            raise AssertionError("what it started is killed with it: it might outlive a process that ends by itself")

    monkeypatch.setattr(subprocess, "Popen", Late)
    ran = run_code(code, [], bounds)
    assert (ran.exit_code, int((code / "made").exists())) == (1, made)
    assert complaint in ran.complaint


def older_commit():
    """The latest commit with other sources, of those that decide what the simulator does, than today's."""
    decide = [f"{name}/*.py" for name in SOURCES]
    for commit in git(ROOT, "rev-list", "--max-count=200", "HEAD").split():
        if subprocess.run(["git", "diff", "--quiet", commit, "--", *decide], cwd=ROOT, check=False).returncode:
            return commit
    pytest.skip("git has no commit of other code")


def edited(record, part, **changes):
    there = getattr(record, part)
    changed = {**there, **changes} if isinstance(there, dict) else dataclasses.replace(there, **changes)
    return dataclasses.replace(record, **{part: changed})


@pytest.mark.slow
def test_what_sources_that_changed_would_hide_is_found_at_the_commit(tmp_path):
    """The real code of an earlier commit makes records; honest ones agree, and edited ones don't."""
    commit = older_commit()
    keys = ["algorithms=[one_shot,two_shot]", "sizes=[64]", "world_size=2", "track=none", "fabric=simulator"]
    with worktree(ROOT, commit) as code:
        line = [sys.executable, "-m", "symlab", "run", "-q", *keys, f"records={tmp_path / 'recorded'}"]
        subprocess.run(line, cwd=code, check=True, env={**os.environ, "PYTHONPATH": str(code)})
    one, two = read([tmp_path / "recorded"])
    assert (one.environment.git["commit"], one.environment.git["dirty"]) == (commit, False)
    counted = json.loads(json.dumps(one.counters))
    counted["accesses"]["own_read"]["count"] += 1
    hidden = {"source_digest": "sha256:" + "6" * 64}
    lies = edited(edited(one, "kernel", **hidden, grid=99), "counters", **counted)
    wanted = Rerun(patience_s=None, at_commit=True)
    found = rerun([one, two], wanted, silent)
    assert (found.parts.data.different, found.parts.code.different, found.parts.counters.different) == ([], [], [])
    assert found.parts.code.stated == found.parts.counters.stated == []
    assert (len(found.parts.data.agree), found.at_commit) == (2, 2)
    found = rerun([lies, two], wanted, silent)
    ((case, what),) = found.parts.code.different
    assert (case, "source_digest is" in what, "grid is 99 in the record" in what) == (one.id, True, True)
    ((case, what),) = found.parts.counters.different
    assert (case, "own_read.count" in what) == (one.id, True)
    assert len(found.parts.data.agree) == 2, "the data is right all the same"


@pytest.mark.slow
def test_a_published_record_runs_by_the_code_of_its_commit():
    """That code knows neither `replay` nor half of today's keys."""
    records = published.machines(ROOT)["h200-x2"]
    wanted = [one for one in records if one.case.name in ("all_reduce/ll", "broadcast/bulk") and one.check is not None]
    some = [next(one for one in wanted if one.case.name == name) for name in ("all_reduce/ll", "broadcast/bulk")]
    if any(recorded_commit([one], ROOT)[1] for one in some):
        pytest.skip("git has only a part of the history")
    found = at_commits(some, silent)
    assert (sorted(found.records), found.reasons) == ([0, 1], {})
    assert all(one.status is Status.PASSED for one in found.records.values())
