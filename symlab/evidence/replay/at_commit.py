"""Recorded cases run again by the code of the commit that their records name, for audits.

The code is that which git has, below HEAD or a local branch of this repository, in a worktree that is removed again.
It runs them by commands that every version takes (recorded_commands.py). Nothing else of a record goes
there: neither the difference from the commit nor the files of brought or custom kernels,
and only names of kernels that the commit has. Time, memory and the size of files are limited.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cases.record.record import Record
from reports.record.bundle import read
from runner.case.bringing import recorded_place
from runner.environment.worktree import SAME, SHORT, recorded_commit, worktree
from runner.request.experiments import CONF
from runner.request.validate import CUSTOM
from symlab.evidence.replay.commits import tree_of
from symlab.evidence.replay.recorded_code import Bounds, run_code
from symlab.evidence.replay.recorded_commands import commands_of, known_keys

BOUNDS = Bounds(time_s=300.0, memory_bytes=8 << 30, file_bytes=1 << 30)
"""Of one start of the recorded code. Four kernels take it 20 s of one core and 2 GB."""

MOST_COMMITS = 4
"""Maximum number of commits to build: each takes seconds to check out, and as long as its cases to run."""

MOST_STARTS = 16
"""Maximum number of starts of one commit's code: one for all cases that differ in algorithm and size alone."""

DEADLINE_S = 60.0
"""Of a launch of the recorded code."""

HERE = ("fabric=simulator", "track=none")

_NAME = re.compile("[a-z0-9_]+/[a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Answers:
    """What the recorded code made: records by the number of the recorded case. For others the reason, "" where today's
    code is that of the commit, so that what ran here is the answer."""

    records: dict[int, Record] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)


def at_commits(
    records: Sequence[Record], say: Callable[[str], None], root: Path = CONF.parent, bounds: Bounds = BOUNDS
) -> Answers:
    """Run records again, each by the code of its commit. root: the repository."""
    answers = Answers()
    known: dict[tuple[str, bool], tuple[str, str]] = {}
    by_commit: dict[str, dict[int, Record]] = {}
    for number, record in enumerate(records):
        commit, reason = _commit_of(record, root, known)
        if commit and not (reason := _refused(record, commit, root)):
            by_commit.setdefault(commit, {})[number] = record
        else:
            answers.reasons[number] = "" if reason.startswith(SAME) else reason
    for at, (commit, some) in enumerate(by_commit.items()):
        if at < MOST_COMMITS:
            say(f"running {len(some)} cases again by the code of commit {commit[:SHORT]}")
            _run(commit, some, root, bounds, answers)
        else:
            answers.reasons.update(dict.fromkeys(some, f"the set has more than {MOST_COMMITS} commits"))
    return answers


def _commit_of(record: Record, root: Path, known: dict[tuple[str, bool], tuple[str, str]]) -> tuple[str, str]:
    """Return the commit whose code can run a record, or "" and why there is none. known: what was asked before."""
    git = record.environment.git or {}
    key = str(git.get("commit") or ""), git.get("dirty") is False
    if key not in known:
        known[key] = recorded_commit([record], root)
    return known[key]


def _refused(record: Record, commit: str, root: Path) -> str:
    """Return why a record does not go to the code of a commit; "" if it does."""
    if record.case.op == CUSTOM or recorded_place(record):
        return "its kernel was brought, and is in no commit"
    if record.request.configuration is None:
        return "the record holds no configuration"
    tree = tree_of(root, commit)
    if isinstance(tree, str):
        return tree
    name = record.case.name
    is_there = name in (*tree.names, *tree.nvshmem_names) or f"kernels/{name}.py" in tree.files
    if not _NAME.fullmatch(name) or not is_there:
        return f"the commit {commit[:SHORT]} has no kernel of its name"
    return ""


def _run(commit: str, records: Mapping[int, Record], root: Path, bounds: Bounds, answers: Answers) -> None:
    """Run records by the code of a commit, into answers."""
    try:
        with tempfile.TemporaryDirectory(prefix="symlab-audit-") as into, worktree(root, commit) as code:
            known = known_keys(run_code(code, ["--cfg", "job", *HERE], bounds))
            starts = commands_of(records, known, answers.reasons, DEADLINE_S)
            for number in (number for some in starts[MOST_STARTS:] for number in some.numbers):
                answers.reasons[number] = f"the set has more than {MOST_STARTS} configurations"
            for at, start in enumerate(starts[:MOST_STARTS]):
                place = Path(into, str(at))
                kept = [f"records={place}", f"cache_dir={Path(into, 'cache')}"]
                ran = run_code(code, [*start.words(records), *HERE, *kept], bounds)
                made = {record.id: record for record in _read(place)}
                for number in start.numbers:
                    record = made.get(records[number].id)
                    if record is not None:
                        answers.records[number] = record
                    else:
                        says = f" ({ran.complaint[:200]})" if ran.exit_code and ran.complaint else ""
                        answers.reasons[number] = f"the code of commit {commit[:SHORT]} did not run it here{says}"
    except OSError as error:
        missing = [number for number in records if number not in answers.records and number not in answers.reasons]
        answers.reasons.update(dict.fromkeys(missing, f"commit {commit[:SHORT]} can't be run here ({error})"))


def _read(folder: Path) -> Iterable[Record]:
    try:
        return read([folder]) if folder.is_dir() else ()
    except ValueError:
        return ()  # the recorded code was stopped while it wrote
