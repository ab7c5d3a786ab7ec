"""The verbs of `symlab`: which there are, in which order --help lists them, and where each one's click command is.

A verb is imported when it is used, so that none waits for another's imports.
"""

from __future__ import annotations

import importlib.metadata
import shlex
from typing import Any

import click

from symlab.command import loaded
from symlab.rooms import LOOK, MAINTAIN, MORE, RECORDS, ROOMS, RUN, Verb, check, is_here

RARE = (RECORDS, MAINTAIN)
"""Headings that only --help --all shows."""

_CORE = (
    Verb("run", "runner.command.verbs", RUN, "Run an experiment: on GPUs, or in the simulator."),
    Verb("resume", "runner.command.verbs", RUN, "Run what an interrupted, killed or failed command left undone."),
    Verb("table", "reports.commands", LOOK, "Print the table that a run ends with."),
    Verb("html", "reports.commands", LOOK, "Write one HTML file with tables, figures and environment."),
    Verb("figure", "reports.commands", LOOK, "Draw times and bandwidths over sizes."),
    Verb("dashboard", "runner.track.commands", MORE, "Open MLflow's dashboard on what was tracked."),
    Verb("kernels", "kernels.commands", MORE, "Print what each kernel takes, and where it is proven."),
    Verb("completion", "symlab.completion", MORE, "Print a script that completes words in a shell."),
    Verb("export", "reports.commands", RECORDS, "Make a table of which all-reduce, or settings of NCCL, to take when."),
    Verb("track", "runner.track.commands", RECORDS, "Send records to MLflow that were not sent."),
)

_ORDER = (RUN, LOOK, MORE, RECORDS, MAINTAIN)
VERBS = {
    verb.name: verb
    for heading in _ORDER
    for verb in (*_CORE, *(verb for name, room in ROOMS.items() if is_here(name) for verb in room.verbs))
    if verb.heading == heading
}


SHOWS_ALL = "symlab.verbs.shows_all"
"""Where a context keeps whether --help shows all verbs."""


class Verbs(click.Group):
    """The group of all verbs. Names the right command for the form without a verb, which older versions had."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return loaded(VERBS[cmd_name].place) if cmd_name in VERBS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args and not ctx.resilient_parsing else ""
        if first[:1] in ("+", "~") or ("=" in first and not first.startswith("-")):
            raise ValueError(f"'{first}' is not a command, type: symlab run {shlex.join(args)}")
        ctx.meta[SHOWS_ALL] = "--all" in args
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not ctx.resilient_parsing:
            if any(args[0] == verb.name for room in ROOMS.values() for verb in room.verbs):
                check(args[0])
            from runner.request_error import near

            raise click.UsageError(f"unknown command '{args[0]}', {near(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem[Any]]:
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            click.shell_completion.CompletionItem(verb.name, help=verb.line)
            for verb in VERBS.values()
            if verb.name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in dict.fromkeys(verb.heading for verb in VERBS.values()):
            if heading not in RARE or ctx.meta[SHOWS_ALL]:
                shown = [(f"{verb.name:<10}", verb.line) for verb in VERBS.values() if verb.heading == heading]
                with formatter.section(heading):
                    formatter.write_dl(shown)


def version() -> str:
    """The installed version."""
    try:
        return importlib.metadata.version("symlab")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"symlab {version()}")
        ctx.exit()


@click.command(
    "symlab",
    cls=Verbs,
    no_args_is_help=False,
    subcommand_metavar="COMMAND ...",
    epilog="Start with: symlab run +exp=allreduce_bf16. Each command has its own --help; symlab --help --all lists "
    f"also {', '.join(verb.name for verb in VERBS.values() if verb.heading in RARE)}.",
)
@click.option("--all", is_flag=True, expose_value=False, help="With --help: list all commands.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print the version."
)
def symlab() -> None:
    """Collectives over symmetric memory: described in YAML, run on GPUs or in a simulator, checked against torch."""
