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
from runner.request.schema import GPUS, KEYS, SIMULATOR, TimingMode, TimingRequest, TrackName
from simulator.options import Schedule

if TYPE_CHECKING:
    from runner.command.plan import Command, PreparedJob

HYDRA_KEYS = re.compile(r"hydra(\.mode|\.sweeper\.params|\.searchpath)\b")
"""Keys of Hydra's own section that symlab reads, beside those of launchers."""


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
    there, here = (GPUS, "these are simulated") if is_simulated else (SIMULATOR, "these are GPUs")
    for key in sorted(given & set(KEYS)):
        if KEYS[key].of == there and not key.startswith("timing."):
            yield key, f"it is of the {there}, and {here}"
    if is_simulated and request.fabric.schedule == Schedule.fair and "fabric.seed" in given:
        yield "fabric.seed", "fabric.schedule=fair is one order, give fabric.schedule=random"
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
        named or job.composed.configuration["timing"] != dataclasses.asdict(TimingRequest())
    )
