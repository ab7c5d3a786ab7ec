"""What symlab resume says before it goes on: what is left, and what of the code has changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases.record.record import Status
from cases.record.request import RecordedEnvironment
from reports.table.text import counted, summary
from runner.command.console import Console
from runner.command.plan import Command
from runner.command.recorded_jobs import UNTRACKED
from runner.command.unfinished_cases import Left
from runner.environment.packages import canonical
from runner.records.command_json import exit_code_for


def changed_since(left: Left, command: Command, now: RecordedEnvironment) -> list[str]:
    """What is not as it was when the last of the records was made, in words: commit, sources, packages, and the files
    of brought kernels."""
    records = [one.record for one in left.kept]
    if not records:
        return []
    today = {one.spec.algorithm: one.digest for job in command.jobs for one in job.brought}
    today |= {job.custom.case.algorithm: job.custom.digest for job in command.jobs if job.custom is not None}
    brought = [(record.case.op, *pair) for record in records for pair in (record.request.brought or {}).items()]
    others = [f"{op}/{name}" for op, name, one in brought if today.get(name) not in (None, one.get("digest"))]
    lines = [f"kernel {name}: its files changed" for name in dict.fromkeys(others)]
    said: list[tuple[str, Any, Any]] = []
    for was, is_now in zip(*map(_code, (max(records, key=lambda one: one.started).environment, now)), strict=True):
        names = sorted({*was, *is_now}) if was and is_now else ()  # one alone: it was not captured in the other
        said += [(name, is_now.get(name), was.get(name)) for name in names if is_now.get(name) != was.get(name)]
    return [f"{name}: {str(new)[:19]}, was {str(old)[:19]}" for name, new, old in said] + lines


def _code(environment: RecordedEnvironment) -> tuple[dict[str, Any], ...]:
    """What counts as code: versions and digests by name, such as "package torch", by kind. Records of before name
    packages that are not installed, too, some in other letters."""
    git, python = environment.git or {}, environment.python or {}
    packages = {f"package {canonical(name)}": one for name, one in (environment.packages or {}).items() if one}
    return (
        {"commit": git.get("commit"), "uncommitted changes": git.get("diff_digest")} if git else {},
        {"Python": python.get("version")} if python else {},
        {f"sources {name}": digest for name, digest in (environment.sources or {}).items()},
        packages,
    )


def console_of(left: Left, command: Command, changed: Sequence[str], is_quiet: bool) -> Console:
    """The console of what is left of a command, which says first what is left and what has changed."""
    from reports.table.compare import varying

    differing = varying([job.overrides for job in left.document.jobs])
    return Console(heading=_heading(left, command, changed), differing=differing, is_quiet=is_quiet)


def _heading(left: Left, command: Command, changed: Sequence[str]) -> list[str]:
    document = left.document
    all_cases = counted(len(document.cases), "case")
    lines = [f"symlab resume: {document.command}, {document.outcome}: {len(left.undone):,} of {all_cases} left"]
    lines += not_again(left)
    lines += list(left.remarks)
    lines += [f"set aside: {name}" for name in left.set_aside]
    if changed:
        lines.append("changed since the first part, which is kept in the records and in command.json:")
        lines += [f"  {line}" for line in changed]
    elif left.kept:
        lines.append("code: as in the first part (commit, sources and packages)")
    fabrics = dict.fromkeys(str(job.request.fabric.name) for job in command.jobs)
    return [*lines, *(f"fabric: {name} (as the command began)" for name in fabrics)]


def not_again(left: Left) -> list[str]:
    """A line of the cases that ended and did not pass: they count as done."""
    number = sum(one.record.status not in (Status.PASSED, Status.REFUSED) for one in left.kept)
    if not number:
        return []
    verbs = ("was", "is") if number == 1 else ("were", "are")
    return [
        f"{counted(number, 'case')} that {verbs[0]} wrong or failed {verbs[1]} not run again: "
        "symlab replay runs recorded cases again"
    ]


def nothing_left(folder: Path, left: Left, uri: str) -> int:
    """Say that there is nothing to do. Gives the exit code of what is there."""
    records = [one.record for one in left.kept]
    print(f"symlab resume: nothing is left to do in {folder.name}: {summary(records, len(left.document.cases))}")
    for line in not_again(left):
        print(line)
    if uri and uri != UNTRACKED:
        later = shlex.join(["symlab", "track", str(folder), "--uri", uri])
        print(f"symlab resume: --uri has no effect on a complete command; send its records with: {later}")
    return exit_code_for(records)
