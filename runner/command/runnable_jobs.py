"""From composed jobs to a command that can run: each job found possible, here or for a launcher's workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from runner.command.heading import headline

if TYPE_CHECKING:
    from runner.command.console import Console
    from runner.command.plan import Command
    from runner.request.compose import ComposedJob
    from runner.request.launching import LaunchRequest
    from runner.world.launcher import Outer


def ready(
    given: Sequence[str],
    jobs: Sequence[ComposedJob],
    outer: Outer | None = None,
    is_quiet: bool = False,
    stream: TextIO | None = None,
    launch: LaunchRequest | None = None,
) -> tuple[Command, Console]:
    """Return the command that composed jobs make, and the console on which it says how it goes.

    given is the command line, outer the launcher's world that this process leads, launch what spreads the jobs over
    workers. stream: see Console. RequestError for a job that is not possible, and if nothing can run.
    """
    from reports.table.compare import varying
    from runner.command.console import Console
    from runner.command.refusals import refuse_if_nothing_can_run

    command = prepared(given, jobs, outer, launch)
    refuse_if_nothing_can_run(command)
    differing = varying([job.composed.overrides for job in command.jobs])
    return command, Console(stream, headline(command), differing, is_quiet)


def prepared(
    given: Sequence[str],
    jobs: Sequence[ComposedJob],
    outer: Outer | None,
    launch: LaunchRequest | None,
    jobs_of_command: int | None = None,
    folder: Path | None = None,
) -> Command:
    """Return the command of composed jobs, each found possible: on this machine, or on that of a launcher's workers.

    jobs_of_command and folder are those of runner.command.plan.prepare. RequestError for what can't be.
    """
    from dataclasses import replace

    from runner.command.plan import prepare

    part: dict[str, Any] = {"jobs_of_command": jobs_of_command, "folder": folder}
    if launch is None:
        return prepare(given, jobs, outer, **part)
    from runner.command.groups import groups_for
    from runner.environment.host import available_bytes
    from runner.launch.started import check_folder
    from runner.launch.workers import SLURM, offer, workers_given

    if launch.name == SLURM:
        # The nodes have other memory and other GPUs than this machine: a worker looks at its own.
        wanted = [job.request.fabric.name for job in jobs]
        command = prepare(given, jobs, None, machine=lambda: offer(launch, wanted), memory=lambda: None, **part)
    else:
        at_once = min(workers_given(launch), len(jobs))
        here = available_bytes()
        command = prepare(given, jobs, None, memory=lambda: None if here is None else here // at_once, **part)
    check_folder(launch, command.jobs[0].request.records)
    command = replace(command, launch=launch)
    groups_for(launch, command)
    return command


def run_quietly(given: Sequence[str], composed: Sequence[ComposedJob]) -> Path:
    """Run composed jobs as `symlab run -q` does. Returns the folder of their records.

    An interrupt is raised, with a note that says where the records are if a case was finished.
    """
    from reports.table.text import counted
    from runner.command.session import run_within

    command, console = ready(given, composed, is_quiet=True)
    ended = run_within(command, console)
    if ended.interrupt is not None:
        if ended.records:
            ended.interrupt.add_note(f"records of {counted(len(ended.records), 'case')}: {ended.folder}")
        raise ended.interrupt
    return ended.folder
