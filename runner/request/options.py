"""The options of `symlab run`, and those that other verbs share; and how a command was started, as records say it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from runner.verb import argument, option

FOLDER = click.Path(file_okay=False, path_type=Path)
"""The type of a folder of configurations."""

ALLOWED: Any = {"default": (), "type": click.Path(exists=True, file_okay=False, path_type=Path), "metavar": "DIR"}
"""Settings of --code, a folder whose files may be run for records."""


def words(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the words that an override can go on with."""
    from runner.request.words import is_folder, words_for

    if is_folder(incomplete):
        return [CompletionItem(incomplete, type="dir")]
    given = list(ctx.params.get("overrides") or ())
    config_dir = ctx.params.get("config_dir")
    for name, value in itertools.pairwise(given):  # behind the first override, options are not parsed while completing
        if name in ("--config-dir", "-cd"):
            config_dir = Path(value)
    found = words_for(incomplete, given, config_dir)
    return [CompletionItem(word.text, help=word.help, is_open=word.is_open) for word in found]


@dataclass(frozen=True, slots=True)
class Overrides:
    """What verbs have in common that take the overrides of `symlab run`."""

    overrides: tuple[str, ...] = argument((), nargs=-1, shell_complete=words)
    multirun: bool = option("Take all cases of a sweep, such as world_size=2,4,8.", "-m", default=False)
    config_dir: Path | None = option("A folder of configurations beside conf/.", "-cd", type=FOLDER, metavar="DIR")


@dataclass(frozen=True, slots=True)
class RunOptions(Overrides):
    """What a command line of `symlab run` asks for, its flags as Hydra means them.

    cfg and plan show something instead of running; shows_all: help shows rare keys, too. What each does, the help of
    usage.py says.
    """

    cfg: str | None = option("", "-c", type=click.Choice(("job",)))
    help: bool = option("", "-h", default=False)
    shows_all: bool = option("", "--all", default=False)
    quiet: bool = option("", "-q", default=False)
    plan: bool = option("", default=False)

    @property
    def runs(self) -> bool:
        """Whether cases are to run; otherwise something is only shown."""
        return not (self.cfg or self.help or self.plan)


def config_dir_of(arguments: Sequence[str]) -> str:
    """Return the folder that a command line names with --config-dir, as it was written; "" without one."""
    for number, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            return value or (arguments[number + 1] if number + 1 < len(arguments) else "")
    return ""


def command_line(first_argument: str, arguments: Sequence[str]) -> list[str]:
    """Return the whole command line of this process: from sys.argv[0], and the arguments of its verb.

    They begin with the verb itself where it is another one than run.
    """
    started = tuple(Path(first_argument).parts[-2:])
    given = list(arguments)
    if started == ("runner", "__main__.py"):
        return ["python", "-m", "runner", *given]
    program = ["python", "-m", "symlab"] if started == ("symlab", "__main__.py") else ["symlab"]
    return [*program, *given] if given[:1] in (["replay"], ["resume"], ["tune"]) else [*program, "run", *given]
