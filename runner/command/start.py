"""What `symlab run` does: compose, check, run, store, show; or show the help, or a configuration.

Nearly everything is imported only when it is needed: --help and --cfg have to be quick.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from runner.command.leading import led
from runner.request_error import RequestError
from runner.world.launcher import find

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from runner.command.console import Console
    from runner.command.plan import Command
    from runner.command.running import Tools
    from runner.custom.description import CustomJob
    from runner.request.compose import ComposedJob
    from runner.request.launching import LaunchRequest
    from runner.request.options import RunOptions
    from runner.world.launched import Leader, OwnCommand
    from runner.world.launcher import Outer


LEAST_SPREAD = 4
"""Minimum number of jobs of a sweep that says how more cores would help."""

ROUNDED = "sizes: rounded down so that all ranks have equal chunks, as in nccl-tests"
ROUNDED_TOTALS = "sizes: rounded down so that each rank's total is divisible by the number of ranks"
"""Of an op whose chunks differ by counts: a size is what a rank sends to all of them."""


def start(given: Sequence[str], options: RunOptions, tools: Tools | None = None) -> int:
    """Do what a command line asks for, in each process that a launcher started. Returns the exit code.

    given is the command line as records keep it, options what it says, tools what tests work with. RequestError for a
    wrong request.
    """

    def compose() -> OwnCommand:
        from runner.command.joined import composed_command

        return composed_command(options)

    return led(lambda leader: _answer(given, options, tools, leader), compose, options.runs)


def _answer(given: Sequence[str], options: RunOptions, tools: Tools | None, leader: Leader | None) -> int:
    if options.version:
        from kernels.toolkit import version_of

        symlab, hydra_core = (version_of(name) or "(not installed)" for name in ("symlab", "hydra-core"))
        print(f"symlab {symlab} (Hydra {hydra_core})")
        return 0
    if options.help:
        from runner.request.usage import usage

        print(usage(options.config_dir, options.shows_all), end="")
        return 0
    # Hydra takes a fifth of a second to import: after the options have been looked at.
    from runner.request.compose import compose_command, hydra_over

    with hydra_over(options.config_dir) as hydra:
        if options.cfg:
            _show_configuration(options)
            return 0
        if options.info:
            compose_command(options.overrides, options.multirun)
            with _logging_restored():
                hydra.show_info(options.info, config_name="config", overrides=_plain(options.overrides))
            return 0
        jobs, launch = compose_command(options.overrides, options.multirun)
    if launch is not None and leader is not None:
        raise RequestError(
            f"{leader.outer.launcher} started the ranks of one world (hydra/launcher={launch.name}), start the sweep "
            f"without {leader.outer.launcher}, or leave the launcher out"
        )
    if options.plan:
        _show_plan(given, jobs, launch)
        return 0
    return _run(given, jobs, tools, leader, options.quiet, launch)


def _show_plan(given: Sequence[str], jobs: Sequence[ComposedJob], launch: LaunchRequest | None) -> None:
    """--plan: what would run, what would be refused, the memory, the time. RequestError if nothing can run."""
    from runner.command.forecast import plan_text
    from runner.command.refusals import refuse_if_nothing_can_run

    command = prepared(given, jobs, find(os.environ), launch)
    print(plan_text(command, headline(command)), flush=True)
    refuse_if_nothing_can_run(command)


def _run(
    given: Sequence[str],
    jobs: Sequence[ComposedJob],
    tools: Tools | None,
    leader: Leader | None,
    is_quiet: bool,
    launch: LaunchRequest | None,
) -> int:
    from dataclasses import replace

    from runner.command.running import Tools
    from runner.command.session import run_command
    from runner.world.fabrics import FabricName, joining

    if launch is not None:
        from runner.launch.slurm import check_here

        check_here(launch)
    command, console = ready(given, jobs, leader.outer if leader else None, is_quiet, launch=launch)
    if leader is not None:
        if any(job.request.fabric.name == FabricName.nvshmem for job in command.jobs):
            from runner.command.joined import command_of

            tools = replace(tools or Tools(), make_world=joining(leader, command_of(jobs)))
        else:
            leader.tell_end(0)  # the simulator needs one process
    return run_command(command, console, tools)


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
    from runner.command.launched import groups_for
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


def headline(command: Command) -> list[str]:
    """What is going to run, and on what."""
    from reports.table.text import counted
    from runner.case.cases import names_of, sizes_of
    from runner.command.unused_keys import unused_keys

    request = command.jobs[0].request
    if command.jobs[0].custom is not None and len(command.jobs) == 1:
        return [_custom_line(command.jobs[0].custom), *command.fabric_lines, *unused_keys(command)]
    sweep = f"{counted(len(command.jobs), 'job')}, " if len(command.jobs) > 1 else ""
    if sweep:
        what = f"symlab: {command.label}: {sweep}{counted(command.case_count, 'case')}"
    else:
        arithmetic = f"{request.dtype}/{request.accumulator} {request.reduction}"
        places = ", out of place and in place" if len(request.placement.placements) > 1 else ""
        does = f"{request.dtype}, moves data" if request.reduction == "none" else arithmetic
        what = (
            f"symlab: {request.op} {does}, "
            f"{counted(request.world_size, 'rank')}, {counted(len(sizes_of(request)), 'size')} x "
            f"{counted(len(names_of(request)), 'algorithm')}{places} = {counted(command.case_count, 'case')}"
        )
    brought = dict.fromkeys(f"kernel: {one.spec.name} from {one.place}" for job in command.jobs for one in job.brought)
    tables = dict.fromkeys(
        line for job in command.jobs if job.request.chooser is not None for line in job.request.chooser.said(job.cases)
    )
    notes = [*_rounded_lines(command), *command.fabric_lines, *unused_keys(command), *_spread_lines(command)]
    return [what, *brought, *tables, *notes]


def _rounded_lines(command: Command) -> list[str]:
    """Why sizes are not those that were asked for, and which became the same one, which runs once."""
    from runner.case.cases import rounded_sizes
    from runner.request.sizes import format_bytes

    found: dict[str, dict[str, None]] = {}
    for job in command.jobs:
        if job.custom is not None:
            continue
        by_size = rounded_sizes(job.request)
        if all(asked == [size] for size, asked in by_size.items()):
            continue
        same = found.setdefault(ROUNDED_TOTALS if job.request.op == "all_to_all_v" else ROUNDED, {})
        for size, asked in by_size.items():
            if len(asked) > 1:
                names = [format_bytes(one) for one in asked]
                same[f"{', '.join(names[:-1])} and {names[-1]} became {format_bytes(size)}"] = None
    return ["; ".join([line, *same]) for line, same in found.items()]


def _spread_lines(command: Command) -> list[str]:
    """Which workers a command gets; of a simulated sweep without any, when more cores would help, and how."""
    from reports.table.text import counted
    from runner.environment.host import usable_cores

    if command.launch is not None:
        from runner.command.launched import groups_for

        workers = " + ".join(counted(group.workers, "worker") for group in groups_for(command.launch, command))
        return [f"launcher: {command.launch.name}, {workers}"]
    cores = usable_cores()
    simulated = sum(job.request.fabric.simulated for job in command.jobs)
    if simulated < LEAST_SPREAD or simulated < len(command.jobs) or cores < 2 or find(os.environ) is not None:
        return []
    most = min(cores, len(command.jobs))
    return [
        f"cores: this simulated sweep runs on 1 of {cores}; hydra/launcher=joblib runs {most} of its jobs at once, "
        "which pays where it takes minutes"
    ]


def _custom_line(custom: CustomJob) -> str:
    """What a custom kernel is going to run on."""
    from reports.table.text import counted

    buffers = ", ".join(f"{one.name} {one.dtype} {list(one.shape)}" for one in custom.spec.buffers)
    launch = custom.spec.launch
    threads = f"{counted(launch.blocks, 'block')} x {counted(launch.threads, 'thread')}" if launch else "its own launch"
    return f"symlab: custom {custom.place}, {counted(custom.case.world_size, 'rank')}, {threads}, {buffers} = 1 case"


def _show_configuration(options: RunOptions) -> None:
    """--cfg: the composed configuration as YAML, or one part of it; a document for each job of a sweep."""
    from runner.request.compose import plan_jobs
    from runner.request.composer import Composer, composed

    composer = Composer()
    planned = plan_jobs(options.overrides, options.multirun, composer)
    # Hydra's own section takes a compose in full for each job.
    compose = composed if options.cfg != "job" else lambda lines: composer.composition(lines).config
    documents = [_document(compose(lines), options) for lines in planned]
    if len(documents) == 1:
        print(documents[0], end="")
        return
    for number, (lines, document) in enumerate(zip(planned, documents, strict=True)):
        print(f"---\n# job {number + 1} of {len(planned)}: {' '.join(lines)}\n{document}", end="")


def _document(config: DictConfig, options: RunOptions) -> str:
    """What --cfg shows of one job."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from runner.request_error import first_line

    shown = config.hydra if options.cfg == "hydra" else config
    missing = object()
    part = OmegaConf.select(shown, options.package, default=missing) if options.package else shown
    if part is missing:
        raise RequestError(f"no '{options.package}' in the configuration (--package), give a key such as fabric")
    if not OmegaConf.is_config(part):
        return f"{part}\n"
    try:
        return OmegaConf.to_yaml(part, resolve=options.resolve)
    except OmegaConfBaseException as error:
        raise RequestError(f"{first_line(error)} ({error.full_key}), give a value") from error


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    """Hydra's --info prints through handlers that it leaves in the root logger."""
    import logging

    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _plain(overrides: Sequence[str]) -> list[str]:
    """Overrides as Hydra itself takes them."""
    return [f"+{one}" if one.startswith("exp=") else one for one in overrides]


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
