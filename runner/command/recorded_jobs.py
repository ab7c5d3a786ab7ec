"""The jobs of a recorded command, rebuilt from what its command.json says they were composed to; conf/ is not read."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cases.record.request import RecordedEnvironment, as_today
from reports.tracking import database_path, resolved_uri
from runner.case.allowed_code import AllowedCode
from runner.case.bringing import refuse_requested
from runner.command.plan import Command, PreparedJob
from runner.command.runnable_jobs import prepared
from runner.command.unfinished_cases import Left
from runner.records.command_json import COMMAND_JSON, AskedJob, CommandDocument
from runner.records.scrub import WITHHELD, scrubbed
from runner.request.compose import ComposedJob
from runner.request.configured import merged
from runner.request.launching import LaunchRequest
from runner.request.schema import TrackName
from runner.request.validate import validate
from runner.request_error import RequestError, first_line

if TYPE_CHECKING:
    from runner.world.launched import Leader

UNTRACKED = "none"
"""In place of a tracking URI: what is left is not sent to MLflow."""


def rebuilt(
    folder: Path, left: Left, uri: str, leader: Leader | None, code: AllowedCode, launch: LaunchRequest | None
) -> Command:
    """The command with the cases that are left. RequestError if they can't be the same as they were."""
    undone = set(left.undone)
    asked = [job for job in left.document.jobs if any((job.number, case) in undone for case in job.cases)]
    base = working_folder(folder, left.document)
    # Without a case that is left, the command still has to be brought to its end.
    composed = [_composed(folder, job, base, uri) for job in asked or left.document.jobs[:1]]
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


def _same_cases(job: AskedJob, prepared: PreparedJob, undone: set[tuple[int, str]], left: Left) -> tuple[Any, ...]:
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


def _begun_from(left: Left) -> str:
    """The commit that the command began from, in parentheses."""
    environment = left.kept[0].record.environment if left.kept else RecordedEnvironment()
    commit = str((environment.git or {}).get("commit") or "")
    return f"(commit {commit[:12] or 'unknown'})"


def _composed(folder: Path, job: AskedJob, base: Path | None, uri: str) -> ComposedJob:
    """A job from its plan. Records, MLflow and compiled kernels are where they were."""
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


def working_folder(folder: Path, document: CommandDocument) -> Path | None:
    """The folder that the command was started in: from where its records lie, else this one; None if neither has the
    name that it had."""
    root = Path(str(document.jobs[0].plan.configuration.get("records", "")))
    candidates = [Path.cwd()]
    parts = root.parts
    if not root.is_absolute() and folder.parent.parts[len(folder.parent.parts) - len(parts) :] == parts:
        candidates.insert(0, Path(*folder.parent.parts[: len(folder.parent.parts) - len(parts)]))
    named = (one for one in candidates if Path(scrubbed(str(one))).name == document.working_folder)
    return next(named, None)
