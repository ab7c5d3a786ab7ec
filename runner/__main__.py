"""python -m runner, and the console script symlab: compose, check, run, store, show."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runner.config import RequestError, first_line
from runner.interrupt import exit_code_of, interruptible

if TYPE_CHECKING:
    from runner.compose import ComposedJob
    from runner.session import Command, Tools

INFO_TOPICS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


class _Parser(argparse.ArgumentParser):
    """argparse with this project's way to say an error."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message} (command line), see symlab --help")


def main(arguments: Sequence[str] | None = None, tools: Tools | None = None) -> int:
    """Do what a command line asks for. Gives the exit code; wrong requests are one line on stderr and 2.

    tools are what it's done with; tests put their own in.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    with interruptible():
        try:
            return _dispatch(given, tools)
        except RequestError as error:
            print(f"symlab: error: {_one_line(error)}", file=sys.stderr)
            return 2
        except KeyboardInterrupt as interrupt:
            print("symlab: interrupted before anything ran", file=sys.stderr)
            return exit_code_of(interrupt)


def _dispatch(given: list[str], tools: Tools | None) -> int:
    options = _options(given)
    if options.version:
        print(f"symlab {_version()}")
        return 0
    # Hydra takes a fifth of a second to import: after the options have been looked at.
    from runner.compose import compose_jobs, hydra_over

    config_dir = Path(options.config_dir) if options.config_dir else None
    if options.help:
        from runner.usage import usage

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
    return _run(given, jobs, tools)


def _run(given: list[str], jobs: Sequence[ComposedJob], tools: Tools | None) -> int:
    from runner.console import Console
    from runner.session import prepare, run_command

    command = prepare(given, jobs)
    console = Console()
    for line in headline(command):
        console.say(line)
    return run_command(command, console, tools)


def headline(command: Command) -> list[str]:
    """What is going to run, and on what."""
    request = command.jobs[0].request
    sweep = f"{len(command.jobs)} jobs, " if len(command.jobs) > 1 else ""
    if sweep:
        what = f"symlab: {command.label}: {sweep}{command.case_count} cases"
    else:
        what = (
            f"symlab: {request.op} {request.dtype}/{request.accumulator} {request.reduction}, "
            f"{request.world_size} ranks, {len(request.sizes_bytes)} sizes x {len(request.algorithms)} algorithms = "
            f"{command.case_count} cases"
        )
    return [what, *command.fabric_lines]


def _options(given: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="symlab", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-cd", "--config-dir")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=INFO_TOPICS)
    return parser.parse_intermixed_args(given)


def _show_configuration(options: argparse.Namespace) -> None:
    """--cfg: the composed configuration as YAML, or one part of it."""
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    from runner.compose import composed

    config = composed(options.overrides)
    with open_dict(config):
        shown = config.hydra if options.cfg == "hydra" else config
        if options.cfg == "job":
            del config["hydra"]
    missing = object()
    part = OmegaConf.select(shown, options.package, default=missing) if options.package else shown
    if part is missing:
        raise RequestError(f"no '{options.package}' in the configuration (--package), give a key such as fabric")
    if not OmegaConf.is_config(part):
        print(part)
        return
    try:
        print(OmegaConf.to_yaml(part, resolve=options.resolve), end="")
    except OmegaConfBaseException as error:
        raise RequestError(f"{first_line(error)} ({error.full_key}), give a value") from error


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    """Hydra's --info prints through handlers that it leaves in the root logger."""
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
    try:
        return importlib.metadata.version("symlab")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _one_line(error: RequestError) -> str:
    return " ".join(str(error).split())


def command() -> NoReturn:
    """The console script. Leaves at once when all is done: taking down torch's modules would take half a second."""
    code = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    command()
