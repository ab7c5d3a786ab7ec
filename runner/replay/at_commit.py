"""Recorded cases run again by the code of the commit that their records name, for audits.

The code is that which git has, below HEAD or a local branch of this repository, in a worktree that is removed again
(runner/replay/in_turns.py). What goes to it of a record is the case, its check and its configuration: neither the
difference from the commit nor the files of brought or custom kernels, and only names of kernels that the commit has.
Time, memory and the size of files are limited.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reports.record.bundle import read
from reports.record.record import Record, RecordedEnvironment
from runner.case.bringing import recorded_place
from runner.environment.commits import tree_of
from runner.environment.worktree import SAME, SHORT, recorded_commit, worktree
from runner.replay.in_turns import Bounds, run_recorded
from runner.request.validate import CONF, CUSTOM

BOUNDS = Bounds(time_s=300.0, memory_bytes=8 << 30, file_bytes=1 << 30)
"""Of one start of the recorded code. Four kernels take it 20 s of one core and 2 GB."""

MOST_COMMITS = 4
"""Maximum number of commits to build: each takes seconds to check out, and as long as its cases to run."""

MOST_STARTS = 4
"""Maximum number of starts of one commit's code: a second is only for cases of one id with other configurations."""

DEADLINE_S = 60.0

ARGUMENTS = ("--fabric", "simulator")

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
    if not _NAME.fullmatch(record.case.name) or f"kernels/{record.case.name}.py" not in tree.blobs:
        return f"the commit {commit[:SHORT]} has no kernel of its name"
    return ""


def _run(commit: str, records: Mapping[int, Record], root: Path, bounds: Bounds, answers: Answers) -> None:
    """Run records by the code of a commit, into answers."""
    starts = _starts(records)
    for number in (number for some in starts[MOST_STARTS:] for number in some):
        answers.reasons[number] = f"the set has it with more than {MOST_STARTS} configurations"
    try:
        with tempfile.TemporaryDirectory(prefix="symlab-audit-") as into, worktree(root, commit) as code:
            for some in starts[:MOST_STARTS]:
                turn = run_recorded(code, [_sent(records[one]) for one in some], ARGUMENTS, Path(into), bounds)
                made = {record.id: record for folder in turn.folders for record in _read(folder)}
                why = turn.complaint[:200] if turn.exit_code else ""
                for number in some:
                    record = made.get(records[number].id)
                    if record is not None:
                        answers.records[number] = record
                    else:
                        answers.reasons[number] = f"the code of commit {commit[:SHORT]} did not run it here" + (
                            f" ({why})" if why else ""
                        )
    except OSError as error:
        missing = [number for number in records if number not in answers.records and number not in answers.reasons]
        answers.reasons.update(dict.fromkeys(missing, f"commit {commit[:SHORT]} can't be checked out here ({error})"))


def _starts(records: Mapping[int, Record]) -> list[list[int]]:
    """Return the numbers of records in groups in which each id is there once."""
    starts: list[list[int]] = []
    seen: dict[str, int] = {}
    for number, record in records.items():
        at = seen[record.id] = seen.get(record.id, -1) + 1
        if at == len(starts):
            starts.append([])
        starts[at].append(number)
    return starts


def _sent(record: Record) -> Record:
    """Return what the recorded code gets to know of a record."""
    configuration = dict(record.request.configuration or {})
    configuration |= {key: value for key, value in _HARMLESS.items() if key in configuration}
    deadline_s = configuration.get("deadline_s")
    if isinstance(deadline_s, (int, float)):
        configuration["deadline_s"] = min(float(deadline_s), DEADLINE_S)
    request = replace(
        record.request, configuration=configuration, brought=None, config_dir=None, replays=None, command_line=()
    )
    return replace(record, timing=None, prediction=None, environment=RecordedEnvironment(), request=request)


_HARMLESS = {"custom": None, "records": "records", "track": {"name": "none"}, "host_memory": "check"}
"""Values of the configuration that name files or servers, and memory that GPUs have and simulated ranks need not."""


def _read(folder: Path) -> Iterable[Record]:
    try:
        return read([folder])
    except ValueError:
        return ()  # the recorded code was stopped while it wrote
