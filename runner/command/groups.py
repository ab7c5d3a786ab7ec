"""The jobs of a command for a launcher's workers: in groups of workers that are alike, and as they go to one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runner.command.plan import Command, PreparedJob
from runner.launch.workers import SLURM, Group, JobNeeds, groups_of, visible_devices
from runner.records.scrub import scrubbed_values
from runner.request.launching import LaunchRequest
from runner.request.schema import TimingMode, TrackName
from runner.world.fabrics import look


def groups_for(request: LaunchRequest, command: Command) -> list[Group]:
    """Return the groups of a command's jobs on workers. RequestError for what the launcher can't give."""
    needs = [_needs(job) for job in command.jobs]
    has_gpus = request.name != SLURM and any(not one.simulated for one in needs)
    return groups_of(request, needs, visible_devices(look().gpu_count) if has_gpus else ())


def _needs(job: PreparedJob) -> JobNeeds:
    asked = job.request
    timed = not asked.fabric.simulated and asked.timing.mode != TimingMode.none and bool(asked.check)
    fabric = asked.fabric
    number, ranks = job.composed.number, asked.world_size
    return JobNeeds(number, ranks, fabric.simulated, timed, fabric.share_gpus)


def portable(job: PreparedJob) -> Any:
    """A composed job as it goes to a worker: on the fabric that was decided, without secrets and without MLflow."""
    composed = job.composed
    asked = composed.request
    fabric = replace(asked.fabric, name=job.request.fabric.name)
    request = replace(asked, fabric=fabric, track=replace(asked.track, name=TrackName.none, uri=""))
    return replace(composed, request=request, configuration=scrubbed_values(composed.configuration))
