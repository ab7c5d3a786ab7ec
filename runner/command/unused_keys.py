"""Which keys that a command was given have no effect, and why: one line each, before anything runs.

A key counts as given if an override names it; a section of timing also if an experiment changes it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cases.stress import NO_STRESS
from runner.request.chooser import BEST
from runner.request.launching import is_of_launcher
from runner.request.schema import FabricSchema, TimingMode, TimingSchema, TrackName
from simulator.options import Schedule

if TYPE_CHECKING:
    from runner.command.plan import Command, PreparedJob

HYDRA_KEYS = re.compile(r"hydra(\.mode|\.sweeper\.params|\.searchpath)\b")
"""Keys of Hydra's own section that symlab reads, beside those of launchers."""

OF_BOTH_FABRICS = ("name", "heap_bytes", "gpu", "share_gpus")
"""Keys of fabric that are not the simulator's alone."""


def unused_keys(command: Command) -> list[str]:
    """Return a line for each given key that has no effect in some of a command's jobs, with the reason."""
    found: dict[str, int] = {}
    for job in command.jobs:
        for line in dict.fromkeys(_of_job(job)):
            found[line] = found.get(line, 0) + 1
    every = len(command.jobs)
    return [
        line if jobs == every else line.replace("has no effect", f"has no effect in {jobs} of {every} jobs", 1)
        for line, jobs in found.items()
    ]


def _of_job(job: PreparedJob) -> Iterator[str]:
    for key, reason in _reasons(job):
        yield f"{key} has no effect: {reason}"


def _reasons(job: PreparedJob) -> Iterator[tuple[str, str]]:
    """Pairs of a key and why it has no effect in a job."""
    request = job.request
    lines = [line.lstrip("+~") for line in job.composed.overrides]
    given = {line.partition("=")[0] for line in lines}
    is_simulated = request.fabric.simulated
    if _timing_given(job):
        if is_simulated:
            yield "timing.*", "the simulator has no clock"
        elif not request.check:
            yield "timing.*", "with check=false nothing is timed"
    if not is_simulated:
        for field in dataclasses.fields(FabricSchema):
            if field.name not in OF_BOTH_FABRICS and f"fabric.{field.name}" in given:
                yield f"fabric.{field.name}", "it belongs to the simulator, and these are GPUs"
    elif request.fabric.schedule == Schedule.fair and "fabric.seed" in given:
        yield "fabric.seed", "fabric.schedule=fair is one order, give fabric.schedule=random"
    if is_simulated and "library.nccl_graph_mixing" in given:
        yield "library.nccl_graph_mixing", "the simulator runs no NCCL"
    if "tuned" in given and job.custom is None and BEST not in job.composed.request.algorithms:
        yield "tuned", "a table chooses for algorithms=best alone"
    if request.op == "barrier" and "inputs" in given:
        yield "inputs", "a barrier moves no data"
    if request.stress == NO_STRESS and "stress_seeds" in given:
        yield "stress_seeds", "there is no stress, give one such as stress=late_rank"
    if request.track.name == TrackName.none:
        for key in sorted(given & {"track.uri", "track.experiment"}):
            yield key, "track=none sends nothing"
    for line in lines:
        key = line.partition("=")[0]
        if key.startswith("hydra.") and not HYDRA_KEYS.match(key) and not is_of_launcher(line):
            yield key, "symlab runs jobs itself; records=FOLDER says where they are stored"


def _timing_given(job: PreparedJob) -> bool:
    named = any(re.match(r"\+*timing[.=]", line) for line in job.composed.overrides)
    return job.request.timing.mode != TimingMode.none and (
        named or job.composed.configuration["timing"] != dataclasses.asdict(TimingSchema())
    )
