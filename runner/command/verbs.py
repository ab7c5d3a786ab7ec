"""symlab run and symlab resume: their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from runner.request.options import ALLOWED, RunOptions
from runner.request_error import RequestError
from runner.verb import PLACE, argument, option, verb

REFUSED = {
    ("--run", "-r"): "run decides by -m and hydra.mode, leave it out",
    ("--config-path", "-cp"): "conf/ is always the first folder of configurations, add one with --config-dir",
    ("--config-name", "-cn"): "every run begins with conf/config.yaml, choose an experiment with +exp=NAME",
    ("--experimental-rerun",): "Hydra's pickled jobs are not written, use symlab replay RECORDS",
    ("--shell-completion", "-sc"): "use symlab completion bash",
    ("--hydra-help",): "symlab run --help lists the flags of Hydra that run takes",
}
"""Flags of Hydra's that have no meaning here, each with the reason and what to use."""


def _refused(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    """Refuse a flag of Hydra's, with the reason."""
    names = tuple(parameter.opts)
    if value and not ctx.resilient_parsing:
        raise RequestError(f"{names[0]} is unsupported ({names[0]}), {REFUSED[names]}")


@verb("run", RunOptions, add_help_option=False)
def run(options: RunOptions, given: tuple[str, ...], tools: Any) -> int:
    """Run an experiment: on GPUs, or in the simulator."""
    from runner.command.start import start

    shown = [name for name in ("plan", "cfg", "info") if getattr(options, name)]
    if len(shown) > 1:
        raise RequestError(f"--{shown[0]} and --{shown[1]} exclude each other (--{shown[1]}), give one of them")
    if not options.cfg and not options.help and (options.resolve or options.package):
        name = "--resolve" if options.resolve else "--package"
        raise RequestError(f"{name} has no effect without --cfg ({name}), add --cfg job")
    return start(given, options, tools)


for _names in REFUSED:
    _takes_value = _names[0] in ("--config-path", "--config-name", "--experimental-rerun")
    run.params.append(
        click.Option(_names, is_flag=not _takes_value, expose_value=False, hidden=True, callback=_refused)
    )

EPILOG = """\
Exit codes are those of the whole command: 0 all passed, or some passed and the others were refused; 1 a case was wrong
or failed; 2 the request is wrong, or the folder can't be resumed; 130 Ctrl-C, which leaves it resumable.
"""


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """What `symlab resume` was asked. records: the folder of a command's records.

    uri: where the command's run of MLflow is, if that is not where its configuration says: needed for a server whose
    password is not kept, and for a relative path if the folder was moved. code: folders whose files the command's
    configuration may name, beside those of the project and the working folder. launcher: in place of what the command
    had.
    """

    records: Path = argument(metavar="RECORDS", type=PLACE)
    uri: str = option(
        "Where the command's run of MLflow is, if its configuration no longer says; none sends nothing.",
        default="",
        metavar="URI",
    )
    quiet: bool = option("Say only errors, warnings and the last lines.", "-q", default=False)
    launcher: tuple[str, ...] = option(
        "Launcher of what is left: basic, joblib .., or a line such as hydra.launcher.n_jobs=4; default: as it began.",
        default=(),
        metavar="NAME",
    )
    code: tuple[Path, ...] = option("A folder whose files may be run for records, too; repeatable.", **ALLOWED)


@verb("resume", ResumeOptions, epilog=EPILOG)
def resume(options: ResumeOptions, given: tuple[str, ...], tools: Any) -> int:
    """Run what an interrupted, killed or failed command left undone.

    RECORDS is the folder of the command's records. The rest runs with the same configuration, into the same folder and
    the same run of MLflow.
    """
    from runner.command.leading import led
    from runner.command.resume import resume as resumed

    lines = list(options.launcher) or None
    return led(lambda leader: resumed(options.records, options.uri, tools, leader, options.quiet, options.code, lines))
