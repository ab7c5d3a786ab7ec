"""symlab run and symlab resume: their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.request.options import ALLOWED, RunOptions
from runner.request_error import RequestError
from runner.verb import PLACE, argument, option, verb


@verb("run", RunOptions, add_help_option=False)
def run(options: RunOptions, given: tuple[str, ...], tools: Any) -> int:
    """Run an experiment: on GPUs, or in the simulator."""
    from runner.command.start import start

    if options.plan and options.cfg:
        raise RequestError("--plan and --cfg exclude each other (--cfg), give one of them")
    return start(given, options, tools)


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
