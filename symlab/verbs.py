"""The verbs of `symlab`: which there are, in which order --help lists them, and where each one's click command is.

A verb is imported when it is used, so that none waits for another's imports.
"""

from __future__ import annotations

import importlib.metadata
import shlex
from dataclasses import dataclass
from typing import Any

import click

from symlab.command import loaded


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its name, "module:name" of its click command, the heading it is listed under, its line there."""

    name: str
    place: str
    heading: str
    line: str


_RUN, _LOOK, _MLFLOW, _MORE = "Run cases", "Look at records", "MLflow", "More"

VERBS = {
    verb.name: verb
    for verb in (
        Verb("run", "runner.commands:run", _RUN, "Run an experiment: on GPUs, or in the simulator."),
        Verb("explore", "runner.commands:explore", _RUN, "Run an experiment under many orders of threads."),
        Verb(
            "tune",
            "runner.commands:tune",
            _RUN,
            "Search the best kernel and tuning for each size, for algorithms=best.",
        ),
        Verb("calibrate", "runner.commands:calibrate", _RUN, "Measure the floors of a type of GPU by small kernels."),
        Verb("predict", "runner.commands:predict", _RUN, "Predict times on a type of GPU, on a machine without any."),
        Verb("publish", "runner.commands:publish", _RUN, "Run experiments in several worlds each, for publication."),
        Verb("replay", "runner.commands:replay", _RUN, "Run recorded cases again and compare the results."),
        Verb(
            "resume", "runner.commands:resume", _RUN, "Run what an interrupted, killed or failed command left undone."
        ),
        Verb("table", "reports.commands:table", _LOOK, "Print the table that a run ends with."),
        Verb("html", "reports.commands:html", _LOOK, "Write one HTML file with tables, figures and environment."),
        Verb("figure", "reports.commands:figure", _LOOK, "Draw times and bandwidths, samples, or errors over sizes."),
        Verb("study", "reports.commands:study", _LOOK, "Print errors over world sizes, for each accumulator."),
        Verb("bundle", "reports.commands:bundle", _LOOK, "Pack records into one compressed file."),
        Verb("audit", "reports.commands:audit", _LOOK, "Check records against a list of items, or compare two sets."),
        Verb("history", "reports.commands:history", _LOOK, "Show how cases changed over commits and libraries."),
        Verb("export", "reports.commands:export", _LOOK, "Make a table that NCCL, vLLM or SGLang loads."),
        Verb("sign", "reports.commands:sign", _LOOK, "Vouch for a folder of records with an SSH key."),
        Verb("track", "runner.track.commands:track", _MLFLOW, "Send records to MLflow that were not sent."),
        Verb("dashboard", "runner.track.commands:dashboard", _MLFLOW, "Open MLflow's dashboard on what was tracked."),
        Verb("kernels", "kernels.commands:kernels", _MORE, "Print what each kernel takes, and where it is proven."),
        Verb(
            "check", "simulator.commands:check", _MORE, "Check which forms of a PTX file the simulator does not have."
        ),
        Verb(
            "litmus",
            "simulator.commands:litmus",
            _MORE,
            "Print the final states of small programs that PTX allows, those that the machine showed, and races.",
        ),
        Verb("completion", "symlab.completion:completion", _MORE, "Print a script that completes words in a shell."),
    )
}


class Verbs(click.Group):
    """The group of all verbs. Names the right command for the form without a verb, which older versions had."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return loaded(VERBS[cmd_name].place) if cmd_name in VERBS else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and self._lacks_run(args):
            raise ValueError(f"'{args[0]}' is not a command, type: symlab run {shlex.join(args)}")
        return super().parse_args(ctx, args)

    def _lacks_run(self, args: list[str]) -> bool:
        """Whether the arguments are those of `symlab run`, without the "run"."""
        if not args or args[0] in VERBS:
            return False
        if not args[0].startswith("-"):
            return args[0][0] in "+~" or "=" in args[0]
        if args[0] in ("-h", "--help", "--version"):
            return False
        run = {name for parameter in loaded(VERBS["run"].place).params for name in parameter.opts}
        return args[0].partition("=")[0] in run

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
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{verb.name:<10}", verb.line) for verb in VERBS.values() if verb.heading == heading]
                )


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
    epilog="Start with: symlab run +exp=allreduce_bf16. Each command has its own --help.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print the version."
)
def symlab() -> None:
    """Collectives over symmetric memory: described in YAML, run on GPUs or in a simulator, checked against torch."""
