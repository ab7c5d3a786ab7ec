"""Recorded cases run again by the code of the commit that their records name, for audits.

The code is that which git has, below HEAD or a local branch of this repository, in a worktree that is removed again.
Its command line first says which keys it knows (`--cfg job`, which every version has); then it runs the cases, by op,
algorithms and sizes and by the keys whose recorded values are not its defaults. So code without a replay runs, too.
Nothing else of a record goes there: neither the difference from the commit nor the files of brought or custom kernels,
and only names of kernels that the commit has. Time, memory and the size of files are limited.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from reports.record.bundle import read
from reports.record.leaves import by_dotted_path
from reports.record.record import Record
from runner.case.bringing import recorded_place
from runner.environment.commits import tree_of
from runner.environment.worktree import SAME, SHORT, recorded_commit, worktree
from runner.replay.recorded_code import Bounds, run_code
from runner.request.validate import CONF, CUSTOM

BOUNDS = Bounds(time_s=300.0, memory_bytes=8 << 30, file_bytes=1 << 30)
"""Of one start of the recorded code. Four kernels take it 20 s of one core and 2 GB."""

MOST_COMMITS = 4
"""Maximum number of commits to build: each takes seconds to check out, and as long as its cases to run."""

MOST_STARTS = 16
"""Maximum number of starts of one commit's code: one for all cases that differ in algorithm and size alone."""

DEADLINE_S = 60.0

HERE = ("fabric=simulator", "track=none")

_NAME = re.compile("[a-z0-9_]+/[a-z0-9_]+")

_KEY = re.compile("[a-z0-9_]+(\\.[a-z0-9_]+)*")

_VALUE = re.compile("[A-Za-z0-9_.+-]+")
"""Texts that may go to a command line: no quotes, no interpolation, no file."""

_OF_THE_CASE = ("op", "dtype", "accumulator", "reduction", "world_size")

_ELSEWHERE = frozenset(
    {
        *_OF_THE_CASE,
        "algorithms",
        "baselines",
        "sizes",
        "records",
        "cache_dir",
        "track",
        "custom",
        "tuned",
        "deadline_s",
    }
)
"""Keys that the case says, or that name files and servers; host memory is that of GPUs."""


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
    try:
        with tempfile.TemporaryDirectory(prefix="symlab-audit-") as into, worktree(root, commit) as code:
            asked = run_code(code, ["--cfg", "job", *HERE], bounds)
            known = _leaves_of(asked.said)
            if not known:
                raise OSError(asked.complaint or "it does not say its keys")
            starts = _starts(records, known, answers.reasons)
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


@dataclass(frozen=True, slots=True)
class _Start:
    """A command of the recorded code: overrides that its cases share, and the numbers of their records."""

    overrides: tuple[str, ...]
    numbers: list[int] = field(default_factory=list)

    def words(self, records: Mapping[int, Record]) -> list[str]:
        """Return the overrides, with all algorithms and all sizes of the cases."""
        cases = [records[number].case for number in self.numbers]
        names = ",".join(dict.fromkeys(case.algorithm for case in cases))
        sizes = ",".join(str(size) for size in sorted({case.size_bytes for case in cases}))
        return [*self.overrides, f"algorithms=[{names}]", f"sizes.list=[{sizes}]"]


def _starts(records: Mapping[int, Record], known: Mapping[str, Any], reasons: dict[int, str]) -> list[_Start]:
    """Return the commands that run records; reasons gets why others can't be asked for. known: the keys of the recorded
    code, with their defaults."""
    starts: dict[tuple[str, ...], _Start] = {}
    for number, record in records.items():
        try:
            overrides = _overrides(record, known)
        except ValueError as error:
            reasons[number] = str(error)
        else:
            starts.setdefault(overrides, _Start(overrides)).numbers.append(number)
    return list(starts.values())


def _overrides(record: Record, known: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the overrides that a case needs, but for its algorithm and size. Raises ValueError for a configuration
    that the recorded code can't have had."""
    case = record.case
    there = {key: getattr(case, key) for key in _OF_THE_CASE}
    words = [f"{key}={value}" for key, value in there.items() if value != "none"]
    words.append("baselines=none")
    recorded = by_dotted_path(record.request.configuration or {})
    for key, value in recorded.items():
        if key.partition(".")[0] in _ELSEWHERE or key in ("fabric.name", "host_memory"):
            continue
        if key not in known:
            raise ValueError(f"its configuration has the key {key!r:.60}, which the code of its commit does not know")
        if value != known[key]:
            words.append(f"{key}={_text(key, value)}")
    deadline_s = recorded.get("deadline_s")
    if isinstance(deadline_s, (int, float)) and "deadline_s" in known:
        words.append(f"deadline_s={min(float(deadline_s), DEADLINE_S)}")
    return tuple(words)


def _text(key: str, value: Any) -> str:
    """Return a value as the command line takes it. Raises ValueError for what may not go there."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)) or (isinstance(value, str) and _VALUE.fullmatch(value)):
        return str(value)
    raise ValueError(f"the value of {key} in its configuration is not handed to other code")


def _leaves_of(said: str) -> dict[str, Any]:
    """Return the keys and defaults that the recorded code printed; none if it printed something else."""
    try:
        document = yaml.safe_load(said)
    except yaml.YAMLError:
        return {}
    found = by_dotted_path(document) if isinstance(document, dict) else {}
    return {key: value for key, value in found.items() if _KEY.fullmatch(key)}


def _read(folder: Path) -> Iterable[Record]:
    try:
        return read([folder]) if folder.is_dir() else ()
    except ValueError:
        return ()  # the recorded code was stopped while it wrote
