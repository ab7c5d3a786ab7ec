"""python -m runner, and the console script symlab: compose, check, run, store, show.

Nearly everything is imported only within main(): before, a Ctrl-C would end in a traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from runner.interrupt import exit_code_of, interruptible

if TYPE_CHECKING:
    import argparse

    from omegaconf import DictConfig

    from runner.command.plan import Command
    from runner.command.session import Tools
    from runner.request.compose import ComposedJob
    from runner.request_error import RequestError
    from runner.world.launched import Leader


ROUNDED = "sizes: rounded down so that all ranks have equal chunks, as in nccl-tests"


def main(arguments: Sequence[str] | None = None, tools: Tools | None = None) -> int:
    """Do what a command line asks for. Gives the exit code; wrong requests are one line on stderr and 2.

    tools are what it's done with; tests put their own in.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    with interruptible():
        try:
            return _answered(given, tools)
        except KeyboardInterrupt as interrupt:
            print("symlab: interrupted before anything ran", file=sys.stderr)
            return exit_code_of(interrupt)


def _answered(given: list[str], tools: Tools | None) -> int:
    from runner.request_error import RequestError

    try:
        return _dispatch(given, tools)
    except RequestError as error:
        return _wrong(error)


def _wrong(error: RequestError) -> int:
    """Say what is wrong with the request, in one line and at once; the exit code."""
    print(f"symlab: error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    return 2


def _dispatch(given: list[str], tools: Tools | None) -> int:
    from runner.request.options import parse_options
    from runner.request_error import RequestError
    from runner.world.launcher import find

    outer = find(os.environ)
    if given[:1] == ["replay"]:
        from runner.replay.replay import replay

        if outer is not None:
            raise RequestError(f"a replay starts worlds of its own (replay), start it without {outer.launcher}")
        return replay(given[1:], tools)
    options = parse_options(given)
    if outer is None:
        return _answer(given, options, tools, None)
    # One of many processes that a launcher started: rank 0 alone speaks.
    from runner.world.launched import Leader, follow

    if outer.rank > 0:
        looks = options.version or options.help or options.cfg or options.info or options.plan
        return 0 if looks else follow(outer)
    if options.version or options.help or options.cfg or options.info or options.plan:
        return _answer(given, options, tools, None)
    leader = Leader(outer)
    code = 1
    try:
        code = _answer(given, options, tools, leader)
    except KeyboardInterrupt as interrupt:
        code = exit_code_of(interrupt)
        raise
    except RequestError as error:
        code = _wrong(error)  # now: the others may take a while to hear of the end
    finally:
        leader.end(code)
    return code


def _answer(given: list[str], options: argparse.Namespace, tools: Tools | None, leader: Leader | None) -> int:
    from pathlib import Path

    if options.version:
        print(f"symlab {_version()}")
        return 0
    # Hydra takes a fifth of a second to import: after the options have been looked at.
    from runner.request.compose import compose_jobs, hydra_over

    config_dir = Path(options.config_dir) if options.config_dir else None
    if options.help:
        from runner.request.usage import usage

        print(usage(config_dir), end="")
        return 0
    with hydra_over(config_dir) as hydra:
        if options.cfg:
            _show_configuration(options)
            return 0
        if options.info:
            compose_jobs(options.overrides, options.multirun)
            with _logging_restored():
                hydra.show_info(options.info, config_name="config", overrides=_plain(options.overrides))
            return 0
        jobs = compose_jobs(options.overrides, options.multirun)
    if options.plan:
        _show_plan(given, jobs)
        return 0
    return _run(given, jobs, tools, leader)


def _show_plan(given: list[str], jobs: Sequence[ComposedJob]) -> None:
    """--plan: what would run, what would be refused, the memory, the time. RequestError if nothing can run."""
    from runner.command.forecast import plan_text
    from runner.command.plan import prepare
    from runner.command.refusals import refuse_if_nothing_can_run
    from runner.world.launcher import find

    command = prepare(given, jobs, find(os.environ))
    print(plan_text(command, headline(command)), flush=True)
    refuse_if_nothing_can_run(command)


def _run(given: list[str], jobs: Sequence[ComposedJob], tools: Tools | None, leader: Leader | None) -> int:
    from dataclasses import replace

    from reports.table.table import varying
    from runner.command.console import Console
    from runner.command.plan import prepare
    from runner.command.refusals import refuse_if_nothing_can_run
    from runner.command.session import Tools, run_command
    from runner.world.fabrics import FabricName, joining

    command = prepare(given, jobs, leader.outer if leader else None)
    refuse_if_nothing_can_run(command)
    if leader is not None:
        if any(job.request.fabric.name == FabricName.nvshmem for job in command.jobs):
            tools = replace(tools or Tools(), make_world=joining(leader))
        else:
            leader.tell_end(0)  # the simulator needs one process
    differing = varying([job.composed.overrides for job in command.jobs])
    console = Console(heading=headline(command), differing=differing)
    return run_command(command, console, tools)


def headline(command: Command) -> list[str]:
    """What is going to run, and on what."""
    from reports.table.text import counted
    from runner.case.cases import names_of, sizes_of
    from runner.command.plan import timing_notes

    request = command.jobs[0].request
    algorithms = names_of(request)
    sweep = f"{len(command.jobs)} jobs, " if len(command.jobs) > 1 else ""
    if sweep:
        what = f"symlab: {command.label}: {sweep}{counted(command.case_count, 'case')}"
    else:
        arithmetic = f"{request.dtype}/{request.accumulator} {request.reduction}"
        does = f"{request.dtype}, moves data" if request.reduction == "none" else arithmetic
        what = (
            f"symlab: {request.op} {does}, "
            f"{counted(request.world_size, 'rank')}, {counted(len(sizes_of(request)), 'size')} x "
            f"{counted(len(algorithms), 'algorithm')} = {counted(command.case_count, 'case')}"
        )
    rounded = any(set(sizes_of(job.request)) != set(job.request.sizes_bytes) for job in command.jobs)
    return [what, *([ROUNDED] if rounded else []), *command.fabric_lines, *timing_notes(command)]


def _show_configuration(options: argparse.Namespace) -> None:
    """--cfg: the composed configuration as YAML, or one part of it; a document for each job of a sweep."""
    from runner.request.compose import plan_jobs
    from runner.request.composer import Composer, composed

    planned = plan_jobs(options.overrides, options.multirun)
    # Hydra's own section takes a compose in full for each job.
    composer = Composer()
    compose = composed if options.cfg != "job" else lambda lines: composer.composition(lines).config
    documents = [_document(compose(lines), options) for lines in planned]
    if len(documents) == 1:
        print(documents[0], end="")
        return
    for number, (lines, document) in enumerate(zip(planned, documents, strict=True)):
        print(f"---\n# job {number + 1} of {len(planned)}: {' '.join(lines)}\n{document}", end="")


def _document(config: DictConfig, options: argparse.Namespace) -> str:
    """What --cfg shows of one job."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from runner.request_error import RequestError, first_line

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


def _plain(overrides: list[str]) -> list[str]:
    """Overrides as Hydra itself takes them."""
    return [f"+{one}" if one.startswith("exp=") else one for one in overrides]


def _version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("symlab")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def command() -> NoReturn:
    """The console script. Leaves at once when all is done: taking down torch's modules would take half a second."""
    code = 1
    try:
        if sys.stdout is None:
            _complain("standard output is closed")
        else:
            code = main()
            with contextlib.suppress(BrokenPipeError):
                sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        code = exit_code_of(interrupt)
    except OSError as error:
        # What fails on a file has its name; standard output has none.
        if error.filename is not None:
            raise
        code = 1
        _complain(f"can't write to standard output: {error.strerror}")
    os._exit(code)


def _complain(problem: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"symlab: error: {problem}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    command()
