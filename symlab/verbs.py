"""The verbs of `symlab`: which there are, in which order --help lists them, and where each one's click command is.

A verb is imported when it is used, so that none waits for another's imports.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import click

from symlab.command import loaded


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its name, the module of its click command, the heading it is listed under, its line there."""

    name: str
    module: str
    heading: str
    line: str

    @property
    def place(self) -> str:
        """ "module:name" of the click command, which has the verb's name."""
        return f"{self.module}:{self.name}"


_RUN, _LOOK, _MORE = "Run cases", "Look at records", "More"
_RECORDS, _MAINTAIN = (
    "More about records and memory models",
    "For maintainers of published records and of types of GPUs",
)

RARE = (_RECORDS, _MAINTAIN)
"""Headings that only --help --all shows."""

VERBS = {
    verb.name: verb
    for verb in (
        Verb("run", "runner.command.verbs", _RUN, "Run an experiment: on GPUs, or in the simulator."),
        Verb("explore", "runner.explore.verb", _RUN, "Run an experiment under many orders of threads."),
        Verb("tune", "runner.tune.verb", _RUN, "Search the best kernel and tuning for each size, for algorithms=best."),
        Verb("predict", "runner.predict.verb", _RUN, "Predict times on a type of GPU, on a machine without any."),
        Verb("replay", "runner.replay.verb", _RUN, "Run recorded cases again and compare the results."),
        Verb("resume", "runner.command.verbs", _RUN, "Run what an interrupted, killed or failed command left undone."),
        Verb("table", "reports.commands", _LOOK, "Print the table that a run ends with."),
        Verb("html", "reports.commands", _LOOK, "Write one HTML file with tables, figures and environment."),
        Verb("figure", "reports.commands", _LOOK, "Draw times and bandwidths, samples, or errors over sizes."),
        Verb("audit", "reports.commands", _LOOK, "Check records against a list of items, or compare two sets."),
        Verb("dashboard", "runner.track.commands", _MORE, "Open MLflow's dashboard on what was tracked."),
        Verb("kernels", "kernels.commands", _MORE, "Print what each kernel takes, and where it is proven."),
        Verb("check", "simulator.commands", _MORE, "Check which forms of a PTX file the simulator does not have."),
        Verb("completion", "symlab.completion", _MORE, "Print a script that completes words in a shell."),
        Verb("study", "reports.commands", _RECORDS, "Print errors over world sizes, for each accumulator."),
        Verb("history", "reports.commands", _RECORDS, "Show how cases changed over commits and libraries."),
        Verb("export", "reports.commands", _RECORDS, "Make a table that NCCL, vLLM or SGLang loads."),
        Verb("track", "runner.track.commands", _RECORDS, "Send records to MLflow that were not sent."),
        Verb(
            "litmus",
            "simulator.commands",
            _RECORDS,
            "Print the final states of small programs that PTX allows, those that the machine showed, and races.",
        ),
        Verb("calibrate", "runner.calibrate.verb", _MAINTAIN, "Measure the floors of a type of GPU by small kernels."),
        Verb("publish", "runner.publish.verb", _MAINTAIN, "Run experiments in several worlds each, for publication."),
        Verb("bundle", "reports.commands", _MAINTAIN, "Pack records into one compressed file."),
        Verb("sign", "reports.commands", _MAINTAIN, "Vouch for a folder of records with an SSH key."),
    )
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
    from kernels.toolkit import version_of

    return version_of("symlab") or "(not installed)"


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
