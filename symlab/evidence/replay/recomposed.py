"""Configurations composed again from recorded overrides, and the cases that they ask for, for audits.

conf/ is that of the record's commit where it has changed since and the repository has it. What differs where the
recorded tree had other files in conf/ than its commit is not comparable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from cases.documents import encoded
from cases.gathered import gathered
from cases.record.record import WHOLE_SINCE, Record
from cases.record.request import as_today, overrides_today
from reports.record.leaves import by_dotted_path
from runner.case.allowed_code import AllowedCode, allowed_code
from runner.case.todays_code import MALFORMED
from runner.environment.of_command import added_digest
from runner.environment.repository import FAILURES, complaint, source_digests
from runner.environment.worktree import files_at
from runner.records.scrub import scrubbed_values
from runner.request.compose import hydra_over, plan_jobs
from runner.request.composer import Composer
from runner.request.configured import plain_configuration
from runner.request.experiments import CONF
from runner.request.schema import Schema
from runner.request_error import RequestError
from symlab.evidence.audit.items import Tally

Say = Callable[[str], None]
Job = tuple[str, int]
"""A command, and the number of one of its jobs."""

_ELSEWHERE = ("records", "cache_dir", "track")
"""Keys that say where things are kept. They are composed, too, but home folders and passwords are not kept."""

_FORMER_DEFAULTS: dict[str, Any] = {"check.races": False}
"""Defaults that were others before: what they decide of kernels that are not brought is what today's do."""

_OVERRIDE = re.compile(r"[+~]*[A-Za-z_][A-Za-z0-9_.@/]*=.*", re.DOTALL)

_TAKES_A_WORD = frozenset({"-cd", "--config-dir", "-c", "--cfg", "-p", "--package", "-i", "--info"})


def jobs_of(records: Iterable[Record]) -> dict[Job, list[Record]]:
    """The records by command and job, in order of appearance."""
    return gathered(((record.request.command, record.request.job), record) for record in records)


def configurations(
    jobs: dict[Job, list[Record]], say: Say, folder: Path | None = None, code: AllowedCode | None = None
) -> tuple[dict[Job, dict[str, Any]], Tally]:
    """Return every job's configuration composed again from its overrides, and how they compare.

    conf/ is that of the record's commit where it has changed since and the repository has it; what differs where the
    recorded tree had other files in conf/ than its commit is not comparable. A key that was not there then, and that
    stands at its default, makes no difference. A folder of --config-dir is searched where it holds what it held then,
    and code allows it. folder is where its relative path begins; None: the working folder.
    """
    folder, code = folder or Path.cwd(), code or allowed_code(folder=folder)
    recomposed: dict[Job, dict[str, Any]] = {}
    found = Tally()
    by_source = gathered(
        ((_commit_to_ask(members[0]), *_added_folder(members[0], folder, code)), job) for job, members in jobs.items()
    )
    for (commit, added, missing), some in by_source.items():
        with _configurations_of(commit) as (conf, problem), hydra_over(added, primary=conf):
            composer = Composer()
            planned: dict[tuple[str, ...], int] = {}
            for job in some:
                say(f"composing configurations: {len(recomposed)} of {len(jobs)}")
                record = jobs[job][0]
                name = f"job {job[1] + 1} of {job[0]}"
                not_kept = _not_kept(record, conf) if commit and not problem else ""
                again, what, is_sure = _recomposed(composer, record, problem or missing or not_kept)
                if again is not None:
                    recomposed[job] = again
                    what, is_sure = _unplanned(record, planned, problem or missing), not not_kept
                    what = f"{not_kept}; {what}" if what and not_kept else what
                if apart := _apart(jobs[job]):
                    what, is_sure = apart, True
                if what:
                    (found.different if is_sure else found.unsure).append((name, what))
                else:
                    found.agree.append((name,))
    return recomposed, found


def _unplanned(record: Record, planned: dict[tuple[str, ...], int], problem: str) -> str:
    """What the command line asks for that a job's record denies: more jobs than the record says there were; "" where it
    agrees, or can't be planned here. planned: numbers of jobs of command lines so far."""
    request = record.request
    line = tuple(request.command_line)
    if problem or not line or request.replays is not None or request.jobs is None:
        return ""
    if line not in planned:
        try:
            is_sweep = any(word in ("-m", "--multirun") for word in line)
            planned[line] = len(plan_jobs(overrides_today(_given(line)), is_sweep))
        except (RequestError, *MALFORMED):
            planned[line] = 0
    if planned[line] <= request.jobs:
        return ""
    return f"the command line asks for {planned[line]} jobs, the record says {request.jobs}"


def _given(command_line: Sequence[str]) -> list[str]:
    """Return the overrides among the words of a command line."""
    pairs = zip(("", *command_line), command_line, strict=False)
    return [
        word
        for before, word in pairs
        if not word.startswith("-") and before not in _TAKES_A_WORD and _OVERRIDE.fullmatch(word)
    ]


def _apart(members: Sequence[Record]) -> str:
    """What the records of one job do not agree in, although they were made from one request; "" where they agree.

    Commit and sources are compared among those that one process made: a resumed command says in its command.json what
    has changed before it went on.
    """
    requests = [
        {key: value for key, value in encoded(one.request).items() if key not in ("brought", "kernel", "resumed")}
        for one in members
    ]
    if odd := _odd(members, "request", requests):
        return odd
    parts = gathered((one.request.resumed, one) for one in members)
    found = (
        _odd(some, "commit or sources", [[one.environment.git, one.environment.sources] for one in some])
        for some in parts.values()
    )
    return next(filter(None, found), "")


def _odd(members: Sequence[Record], what: str, values: Sequence[Any]) -> str:
    """Which records have not the value that most have; "" where all have it."""
    texts = [json.dumps(value, sort_keys=True) for value in values]
    usual = max(set(texts), key=texts.count)
    odd = [record.id for record, text in zip(members, texts, strict=True) if text != usual]
    if not odd:
        return ""
    more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
    return f"the records of the job have not one {what}: {odd[0]} differs{more}"


def _recomposed(composer: Composer, record: Record, problem: str) -> tuple[dict[str, Any] | None, str, bool]:
    """Compose one job again. Return its configuration, or None, what differs, and whether that is sure."""
    recorded = record.request.configuration
    if recorded is None:
        return None, "the record holds no configuration", False
    if record.request.replays is not None:
        return None, "a replay: its configuration was rebuilt from records, not composed", False
    try:
        composition = composer.composition(overrides_today(record.request.overrides))
        again = plain_configuration(composition.config)
    except RequestError as error:
        return None, problem or f"can't be composed any more: {error}", not problem
    again = scrubbed_values(again)
    differs = _differing(by_dotted_path(as_today(recorded)), by_dotted_path(again))
    if not differs and record.schema >= WHOLE_SINCE and record.request.experiment != composition.experiment:
        differs = f"the experiment is {record.request.experiment!r} in the record, {composition.experiment!r} here"
    if not differs:
        return again, "", True
    return None, f"{problem}; {differs}" if problem else differs, not problem


def _added_folder(record: Record, folder: Path, code: AllowedCode) -> tuple[Path | None, str]:
    """The folder that a command added with --config-dir; None, with the reason, if it is not the same here, and ""
    for a command without one."""
    said = record.request.config_dir
    if said is None:
        added = any(re.match(r"--config-dir(=|$)|-cd", word) for word in record.request.command_line)
        return None, "the files of its --config-dir are not recorded" if added else ""
    name, recorded = str(said.get("folder")), str(said.get("digest"))
    place = (folder / Path(name).expanduser()).resolve()
    if not place.is_dir():
        return None, f"its --config-dir {name} is not here"
    if reason := code.refuses((place / "exp",)):
        return None, f"its --config-dir {name} was not read: {reason}"
    here = added_digest(place)
    if here != recorded:
        return None, f"its --config-dir {name} is not as it was (recorded {recorded[:19]}.., here {here[:19]}..)"
    return place, ""


def _commit_to_ask(record: Record) -> str:
    """The commit whose conf/ this record was composed from; "" where the present one is the same, or may be used."""
    digest = (record.environment.sources or {}).get("conf")
    if digest and digest == sources_of(CONF.parent)["conf"]:
        return ""
    git = record.environment.git
    return str(git.get("commit") or "unknown") if git else "unknown"


def _not_kept(record: Record, conf: Path) -> str:
    """Why the conf/ that a record was composed from is not conf, which is that of its commit; "" where its tree was
    clean, or its digest of conf/ says that it is the commit's. A record that claims changes is one of a changed tree,
    as the last line of the audit says."""
    digest = (record.environment.sources or {}).get("conf")
    is_changed = (record.environment.git or {}).get("dirty") is True and digest != sources_of(conf.parent)["conf"]
    return "its tree had changes in conf/ that its commit lacks, and they are not applied here" if is_changed else ""


@contextmanager
def _configurations_of(commit: str) -> Iterator[tuple[Path, str]]:
    """conf/ as it was at a commit, in a folder; if that is unavailable the present one, and why."""
    if not commit:
        yield CONF, ""
        return
    with ExitStack() as stack:
        conf, problem = CONF, ""
        try:
            if not re.fullmatch("[0-9a-f]{7,64}", commit):
                raise OSError("the record does not name its commit")
            conf = stack.enter_context(files_at(CONF.parent, commit, CONF.name)) / CONF.name
        except FAILURES as error:
            reason = complaint(error).removeprefix("fatal: ")
            problem = f"conf/ of commit {commit[:12]} is unavailable here ({reason}), and may have been another"
        yield conf, problem


@lru_cache(maxsize=4)
def sources_of(root: Path) -> dict[str, str]:
    """The digests of a folder's sources, worked out once: an audit asks for each job."""
    return source_digests(root)


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    """The keys of a configuration with their defaults."""
    schema: Any = OmegaConf.to_container(OmegaConf.structured(Schema), enum_to_str=True)
    return by_dotted_path(schema)


def _differing(recorded: dict[str, Any], again: dict[str, Any]) -> str:
    """Which values are not the same, in words; "" when all are."""
    defaults = _defaults()
    missing = object()
    lines = []
    for key in dict.fromkeys([*recorded, *again]):
        there, here = recorded.get(key, missing), again.get(key, missing)
        was_default = there is missing or (key in _FORMER_DEFAULTS and there == _FORMER_DEFAULTS[key])
        if there == here or (was_default and here == defaults.get(key, missing)) or key.partition(".")[0] in _ELSEWHERE:
            continue
        texts = ["nothing" if one is missing else json.dumps(one) for one in (there, here)]
        lines.append(f"{key}: recorded {texts[0]}, composed {texts[1]}")
    return "; ".join(lines)
