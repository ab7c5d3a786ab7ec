"""symlab resume: do what an interrupted, killed or stopped command left undone.

Everything is taken from the folder of its records: command.json says what every job was composed to and which cases
it has, and the records say which of them ran. The rest runs with the same configuration, into the same folder and the
same run of MLflow; conf/ is not read. Nothing runs unless the cases can be rebuilt as they were. What has changed in
the code is said first, and kept in command.json.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cases.documents import decoded
from cases.record.record import Record, Status, load
from cases.record.request import RecordedEnvironment, as_today
from cases.record.shared import Known, SharedError
from reports.record.code_changes import code_changes
from reports.record.seal import MANIFEST, faults
from reports.table.text import counted
from reports.tracking import database_path, resolved_uri
from runner.case.allowed_code import AllowedCode, allowed_code
from runner.case.bringing import refuse_requested
from runner.command.console import Console, summary
from runner.command.joined import JoinedCommand, command_of
from runner.command.launched import check_no_worker
from runner.command.plan import Command, PreparedJob
from runner.command.running import Earlier, Tools
from runner.command.session import exit_code_for, run_command
from runner.command.start import prepared
from runner.launch import slurm
from runner.launch.started import check_folder
from runner.records.command_json import (
    COMMAND_JSON,
    AskedJob,
    CommandDocument,
    Resumption,
    command_document_of,
)
from runner.records.lock import MIRROR_LOCK_NAME, FolderInUse, FolderLock, wait_for
from runner.records.scrub import WITHHELD, scrubbed
from runner.records.store import Store, StoreError, file_stem
from runner.request.compose import ComposedJob, gpu_asked, launcher_of
from runner.request.configured import merged
from runner.request.experiments import CONF
from runner.request.launching import LaunchRequest
from runner.request.options import config_dir_of
from runner.request.schema import TimingMode, TrackName
from runner.request.validate import CUSTOM, check_database_folder, check_uri, validate
from runner.request_error import RequestError, first_line
from runner.track.names import Kept
from runner.world.fabrics import joining

if TYPE_CHECKING:
    from runner.world.launched import Leader

UNTRACKED = "none"
"""In place of a tracking URI: what is left is not sent to MLflow."""

MIRROR_PATIENCE_S = 60.0
"""How long to wait for the process that sends the records of the command's first part to MLflow."""


def resume(
    folder: Path,
    uri: str = "",
    tools: Tools | None = None,
    leader: Leader | None = None,
    is_quiet: bool = False,
    code: Sequence[Path] = (),
    launcher: Sequence[str] | None = None,
) -> int:
    """Do what the command of a records folder left undone. Gives the exit code, which is of the whole command.

    uri is where the command's run of MLflow is, if that is not where its configuration says: needed for a server whose
    password is not kept, and for a relative path if the folder was moved; "none" sends nothing. leader is that of a
    launcher's world, if this process leads one. is_quiet: only errors, warnings and the last lines are said.
    code: folders whose files the command's configuration may name, beside those of the project and the working folder.
    launcher: lines such as hydra/launcher=joblib, in place of those that the command had; None: as the command had it.
    RequestError, in one line, for what can't be resumed.
    """
    if uri and uri != UNTRACKED:
        check_uri(uri, "--uri")
        check_database_folder(uri, "--uri")
    folder = folder.absolute()
    _check_folder(folder)
    try:
        lock = FolderLock(folder)
    except FolderInUse as error:
        raise RequestError(f"{error} (RECORDS), resume it after it has ended") from None
    except OSError as error:
        left = _left_in(folder)
        if _is_whole(folder, left):
            return _nothing_left(folder, left, uri)
        raise RequestError(
            f"{folder}: can't be locked, so it is unknown whether the command still runs ({error.strerror}; RECORDS), "
            "copy it to a folder that this user can write to"
        ) from None
    with lock:
        allowed = allowed_code([folder], code, changed=True)
        return _resumed(folder, uri, tools or Tools(), leader, is_quiet, allowed, launcher)


def _check_folder(folder: Path) -> None:
    """RequestError for what is no folder of one command."""
    if (folder / COMMAND_JSON).is_file():
        return
    if not folder.is_dir():
        raise RequestError(f"{folder}: no such folder (RECORDS), give the folder of a command's records")
    inside = sorted(path.parent.name for path in folder.glob(f"*/{COMMAND_JSON}"))
    right = f"give one of the folders in it, such as {inside[-1]}" if inside else "give the folder of a command"
    raise RequestError(f"{folder}: no {COMMAND_JSON} here (RECORDS), {right}")


def _resumed(
    folder: Path,
    uri: str,
    tools: Tools,
    leader: Leader | None,
    is_quiet: bool,
    code: AllowedCode,
    launcher: Sequence[str] | None = None,
) -> int:
    """The same in a locked folder."""
    left = _left_in(folder)
    if _is_whole(folder, left):
        if launcher is not None:
            launcher_of(launcher)  # which refuses a wrong one
        return _nothing_left(folder, left, uri)
    launch = _launch_of(left.document.launcher, launcher)
    slurm.check_here(launch)
    check_folder(launch, folder)
    check_no_worker(folder)
    command = _rebuilt(folder, left, uri, leader, code, launch)
    if uri != UNTRACKED:
        _wait_for_mirror(folder)
    environment = _environment(tools)
    cache_dir = command.jobs[0].request.cache_dir
    changed = _changed(
        left, folder, decoded(RecordedEnvironment, environment, "environment"), cache_dir, is_quiet, code
    )
    document = left.document.resuming(
        Resumption(
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            after=left.document.outcome,
            commit=str((environment.get("git") or {}).get("commit") or ""),
            changed=tuple(map(scrubbed, changed)),
            cases_left=len(left.undone),
            set_aside=left.set_aside,
        )
    )
    if launch is not None:
        document = replace(document, launcher=tuple(map(scrubbed, launch.lines)))
    try:
        store = Store(folder)
        store.reopen()
        for name in left.set_aside:
            store.set_aside(name)
    except StoreError as error:
        raise RequestError(f"{error} (RECORDS)") from error
    tools = replace(tools, capture=lambda root: environment)
    if leader is not None:
        if any(not job.request.fabric.simulated for job in command.jobs):
            tools = replace(tools, make_world=joining(leader, recorded_command(folder, code)))
        else:
            leader.tell_end(0)  # the simulator needs one process
    console = Console(heading=_heading(left, command, changed), differing=_differing(left.document), is_quiet=is_quiet)
    return run_command(command, console, tools, Earlier(store, document, left.kept))


def _launch_of(recorded: Sequence[str], given: Sequence[str] | None) -> LaunchRequest | None:
    """The launcher that was given, else the recorded one. RequestError if a secret of the recorded one is not kept."""
    if given is None and (lines := [line for line in recorded if WITHHELD in line]):
        raise RequestError(
            f"the launcher's line {lines[0]} had a secret, which is not kept (RECORDS), "
            "give the launcher with its options again: --launcher NAME --launcher OPTION=VALUE"
        )
    return launcher_of(recorded if given is None else given)


def recorded_command(folder: Path, code: AllowedCode) -> JoinedCommand:
    """Return the command of a records folder as a rank of a launcher's world has it.

    RequestError if it is not here, or if it names files that may not run.
    """
    folder = folder.absolute()
    _check_folder(folder)
    try:
        document = command_document_of(folder)
    except ValueError as error:
        raise RequestError(f"{error} (RECORDS)") from error
    assert document is not None
    base = _working_folder(folder, document)
    jobs = [_composed(folder, job, base, UNTRACKED) for job in document.jobs]
    for job in jobs:
        refuse_requested(job.request, base, code)
    return command_of(jobs, base)


def _is_whole(folder: Path, left: _Left) -> bool:
    """Whether the command has ended with a record of every case."""
    return not left.undone and left.document.end is not None and (folder / MANIFEST).is_file()


def _nothing_left(folder: Path, left: _Left, uri: str) -> int:
    """Say that there is nothing to do. Gives the exit code of what is there."""
    records = [one.record for one in left.kept]
    print(f"symlab resume: nothing is left to do in {folder.name}: {summary(records, len(left.document.cases))}")
    for line in _not_again(left):
        print(line)
    if uri and uri != UNTRACKED:
        later = shlex.join(["symlab", "track", str(folder), "--uri", uri])
        print(f"symlab resume: --uri has no effect on a complete command; send its records with: {later}")
    return exit_code_for(records)


def _wait_for_mirror(folder: Path) -> None:
    """Wait until the process that sent the command's records to MLflow is gone: it outlives a command that was killed,
    and would open a run beside the one that goes on, or end it. RequestError if that takes too long."""

    def waiting(error: FolderInUse) -> None:
        print(
            f"symlab resume: {error}: it sends the first part's records to MLflow; waiting for it (at most "
            f"{MIRROR_PATIENCE_S:.0f} s)",
            flush=True,
        )

    try:
        wait_for(folder, MIRROR_LOCK_NAME, MIRROR_PATIENCE_S, waiting)
    except FolderInUse as error:
        raise RequestError(
            f"{error}, and sends records to MLflow (RECORDS), resume it after that process has ended, or give --uri "
            f"{UNTRACKED} to send nothing to MLflow"
        ) from None


def _environment(tools: Tools) -> dict[str, Any]:
    """What surrounds this process. No result is lost for its sake."""
    try:
        return dict(tools.capture(CONF.parent))
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"}


@dataclass(frozen=True, slots=True)
class _Left:
    """What is in a folder, and what is not: the records that count, the cases without one, the names of files that
    don't count, and what is not as the command left it."""

    document: CommandDocument
    kept: tuple[Kept, ...]
    undone: tuple[tuple[int, str], ...]
    set_aside: tuple[str, ...]
    remarks: tuple[str, ...]


def _left_in(folder: Path) -> _Left:
    """Look at all records of a folder. RequestError if it is not what a command leaves, or records were changed."""
    try:
        document = command_document_of(folder)
    except ValueError as error:
        raise RequestError(f"{error} (RECORDS)") from error
    assert document is not None
    if any(job.plan is None for job in document.jobs) or not document.jobs:
        raise RequestError(
            f"{folder.name}: its {COMMAND_JSON} does not hold the jobs' configurations, as those of earlier versions "
            "(RECORDS), run the command again"
        )
    kept, damaged = _records_in(folder, document)
    if any(one.record.request.replays is not None for one in kept):
        raise RequestError(f"{folder.name} is part of a replay (RECORDS), replay its records again")
    remarks = _remarks(folder, document, damaged)
    good = [one for one in kept if not _is_untimed(one.record)]
    untimed = [one.path.name for one in kept if _is_untimed(one.record)]
    by_case = {(one.record.request.job, one.record.id): one for one in reversed(good)}
    return _Left(
        document=document,
        kept=tuple(by_case[case] for case in document.cases if case in by_case),
        undone=tuple(case for case in document.cases if case not in by_case),
        set_aside=(*damaged, *untimed),
        remarks=remarks,
    )


def _records_in(folder: Path, document: CommandDocument) -> tuple[list[Kept], list[str]]:
    """The records in a folder, and the names of files that should be records and can't be read."""
    is_sweep = len(document.jobs) > 1
    stems = {file_stem(f"{job:02d}" if is_sweep else "", case) for job, case in document.cases}
    asked = set(document.cases)
    kept, damaged, known = [], [], Known()
    for path in sorted(folder.glob("*.json")):
        stem = path.name.removesuffix(".json")
        if path.name == COMMAND_JSON:
            continue
        try:
            record = load(path, known)
        except SharedError as error:
            raise RequestError(f"{error} (RECORDS), restore that file, or run the command again") from None
        except ValueError:
            if stem in stems or re.sub(r"\.[0-9]+$", "", stem) in stems:
                damaged.append(path.name)
            continue
        if record.request.command != document.command or (record.request.job, record.id) not in asked:
            raise RequestError(f"{path.name} is no record of this command (RECORDS), move it to another folder")
        kept.append(Kept(path, record))
    return kept, damaged


def _remarks(folder: Path, document: CommandDocument, damaged: Sequence[str]) -> tuple[str, ...]:
    """What is not as the command left it, of a command that has ended: such as files that are gone.

    Records that can't be read or are gone are made again. RequestError for a file that was changed: a new manifest
    would hide it.
    """
    if not (folder / MANIFEST).is_file():
        return ()
    try:
        found = faults(folder)
        lines = (folder / MANIFEST).read_bytes().splitlines()
    except (ValueError, OSError) as error:
        raise RequestError(f"{error} (RECORDS)") from error
    listed = {line.decode(errors="replace").partition("  ")[2] for line in lines}
    remarks = []
    for name, sentence in found:
        if name in damaged or (name not in listed and name != MANIFEST):
            continue
        if (folder / name).exists():
            raise RequestError(
                f"{folder.name}: {sentence}, so it is not as the command left it (RECORDS), restore the file, or "
                "run the command again"
            )
        remarks.append(f"not as it was left: {sentence}")
    return tuple(remarks)


def _is_untimed(record: Record) -> bool:
    """Whether a case passed its check and was to be timed, and an interrupt came before."""
    timing = (record.request.configuration or {}).get("timing") or {}
    on_gpus = record.fabric is not None and not record.fabric.simulated
    is_timed = record.case.op != CUSTOM and timing.get("mode") != TimingMode.none
    return on_gpus and record.verified and record.timing is None and is_timed


def _rebuilt(
    folder: Path, left: _Left, uri: str, leader: Leader | None, code: AllowedCode, launch: LaunchRequest | None
) -> Command:
    """The command with the cases that are left. RequestError if they can't be the same as they were."""
    undone = set(left.undone)
    asked = [job for job in left.document.jobs if any((job.number, case) in undone for case in job.cases)]
    base = _working_folder(folder, left.document)
    # Without a case that is left, the command still has to be brought to its end.
    composed = [_composed(folder, job, base, uri) for job in asked or left.document.jobs[:1]]
    composed = [_with_gpu(one, base, left.document.command_line) for one in composed]
    for one in composed:
        refuse_requested(one.request, base, code)
    try:
        all_jobs = len(left.document.jobs)
        outer = leader.outer if leader else None
        command = prepared((), composed, outer, launch, jobs_of_command=all_jobs, folder=base)
    except RequestError as error:
        if "hydra.launcher." in str(error) or "hydra/launcher" in str(error):
            raise  # what the launcher can't give does not depend on the code
        raise RequestError(f"{error}; the command can't go on as it began {_begun_from(left)}") from error
    jobs = []
    for job, found in zip(asked or left.document.jobs[:1], command.jobs, strict=True):
        jobs.append(replace(found, cases=_same_cases(job, found, undone, left)))
    return replace(command, jobs=tuple(jobs))


def _same_cases(job: AskedJob, prepared: PreparedJob, undone: set[tuple[int, str]], left: _Left) -> tuple[Any, ...]:
    """The cases of a job that are left, each as it was asked for: an id has all fields of its case."""
    by_id = {case.id: case for case in prepared.cases}
    missing = [case for case in job.cases if case not in by_id]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RequestError(
            f"job {job.number + 1} can't be rebuilt: its configuration no longer gives the case {missing[0]}{more} "
            f"(RECORDS), resume it with the code that it began with {_begun_from(left)}"
        )
    return tuple(by_id[case] for case in job.cases if (job.number, case) in undone)


def _begun_from(left: _Left) -> str:
    """The commit that the command began from, in parentheses."""
    environment = left.kept[0].record.environment if left.kept else RecordedEnvironment()
    commit = str((environment.git or {}).get("commit") or "")
    return f"(commit {commit[:12] or 'unknown'})"


def _composed(folder: Path, job: AskedJob, base: Path | None, uri: str) -> ComposedJob:
    """A job from its plan. Records, MLflow and compiled kernels are where they were."""
    assert job.plan is not None
    values = as_today(copy.deepcopy(dict(job.plan.configuration)))
    try:
        values["fabric"]["name"] = job.plan.fabric
        values["records"] = str(folder.parent)
        cache_dir = Path(values["cache_dir"]).expanduser()
        values["cache_dir"] = str((base or Path.cwd()) / cache_dir)
        values["track"] = _track(values["track"], base, uri)
        request = validate(_merged(values))
    except (KeyError, TypeError) as error:
        raise RequestError(
            f"job {job.number + 1}: {COMMAND_JSON} holds no whole configuration ({error!r}; RECORDS)"
        ) from None
    return ComposedJob(
        number=job.number,
        overrides=job.overrides,
        experiment=job.plan.experiment,
        configuration=dict(job.plan.configuration),
        request=request,
    )


def _with_gpu(job: ComposedJob, base: Path | None, command_line: Sequence[str]) -> ComposedJob:
    """A job with the type of GPU that it asked for, if its predictions take that type's floors."""
    if job.request.fabric.gpu is None or not job.request.timing.predict:
        return job
    added = config_dir_of(command_line)
    return replace(job, gpu=gpu_asked(job.overrides, (base or Path.cwd()) / added if added else None))


def _merged(values: Mapping[str, Any]) -> DictConfig:
    """The configuration of these values. RequestError for keys and values that the schema does not have."""
    try:
        return merged(values)
    except OmegaConfBaseException as error:
        raise RequestError(
            f"the command's configuration is not one of this version: {first_line(error)} ({error.full_key}), "
            "resume it with the version that it began with"
        ) from None


def _track(section: Mapping[str, Any], base: Path | None, uri: str) -> dict[str, Any]:
    """The track section with an address that is good from here. RequestError where that is unknown."""
    if uri == UNTRACKED:
        return {**section, "name": str(TrackName.none)}
    if section["name"] == TrackName.none and not uri:
        return dict(section)
    if uri:
        return {**section, "name": str(TrackName.mlflow), "uri": uri}
    recorded = str(section["uri"])
    if WITHHELD in recorded:
        raise RequestError(
            f"the password of {recorded} is not kept (--uri), give the whole address, or --uri {UNTRACKED} to send "
            "nothing to MLflow"
        )
    path = database_path(recorded)
    if path is None or path == database_path(recorded, Path("/")):
        return dict(section)  # a server, or an absolute path
    if base is None:
        raise RequestError(
            f"{recorded} is a path from the folder that the command was started in, which is not known (--uri), start "
            "this there, or give --uri"
        )
    return {**section, "uri": recorded if base == Path.cwd() else resolved_uri(recorded, base)}


def _working_folder(folder: Path, document: CommandDocument) -> Path | None:
    """The folder that the command was started in: from where its records lie, else this one; None if neither has the
    name that it had."""
    assert document.jobs[0].plan is not None
    root = Path(str(document.jobs[0].plan.configuration.get("records", "")))
    candidates = [Path.cwd()]
    parts = root.parts
    if not root.is_absolute() and folder.parent.parts[len(folder.parent.parts) - len(parts) :] == parts:
        candidates.insert(0, Path(*folder.parent.parts[: len(folder.parent.parts) - len(parts)]))
    named = (one for one in candidates if Path(scrubbed(str(one))).name == document.working_folder)
    return next(named, None)


def _changed(
    left: _Left, folder: Path, now: RecordedEnvironment, cache_dir: Path, is_quiet: bool, code: AllowedCode
) -> list[str]:
    """What is not as it was when the last of the records was made, in words: commit, sources, packages, kernels."""
    if not left.kept:
        return []
    records = [one.record for one in left.kept]
    before = max(records, key=lambda record: record.started).environment
    base = _working_folder(folder, left.document)
    return code_changes(before, now) + _changed_kernels(records, cache_dir, base, is_quiet, code)


def _changed_kernels(
    records: Sequence[Record], cache_dir: Path, base: Path | None, is_quiet: bool, code: AllowedCode
) -> list[str]:
    """Which of the kernels that ran are not the same any more, by their code's digests. base: see prepare's folder."""
    from runner.case.todays_code import sources

    found = sources(records, cache_dir, (lambda line: None) if is_quiet else print, base, code)
    lines = [f"kernel {name}: its code changed" for name in found["changed"]]
    lines += [f"kernel {name}: there is none any more" for name in found["gone"]]
    lines += [f"kernel {name}: its code can't be compared ({why})" for name, why in found["not_comparable"]]
    return lines


def _heading(left: _Left, command: Command, changed: Sequence[str]) -> list[str]:
    """What is said before anything runs."""
    document = left.document
    all_cases = counted(len(document.cases), "case")
    lines = [f"symlab resume: {document.command}, {document.outcome}: {len(left.undone):,} of {all_cases} left"]
    lines += _not_again(left)
    lines += list(left.remarks)
    lines += [f"set aside: {name}" for name in left.set_aside]
    if changed:
        lines.append("changed since the first part, which is kept in the records and in command.json:")
        lines += [f"  {line}" for line in changed]
    elif left.kept:
        lines.append("code: as in the first part (commit, sources, packages and kernels)")
    fabrics = dict.fromkeys(str(job.request.fabric.name) for job in command.jobs)
    return [*lines, *(f"fabric: {name} (as the command began)" for name in fabrics)]


def _not_again(left: _Left) -> list[str]:
    """A line of the cases that ended and did not pass: they count as done."""
    number = sum(one.record.status not in (Status.PASSED, Status.REFUSED) for one in left.kept)
    if not number:
        return []
    verbs = ("was", "is") if number == 1 else ("were", "are")
    return [
        f"{counted(number, 'case')} that {verbs[0]} wrong or failed {verbs[1]} not run again: "
        "symlab replay runs recorded cases again"
    ]


def _differing(document: CommandDocument) -> set[str]:
    from reports.table.compare import varying

    return set(varying([job.overrides for job in document.jobs]))
