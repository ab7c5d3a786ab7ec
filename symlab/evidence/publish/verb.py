"""symlab publish: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from runner.request.options import FOLDER, words
from runner.request_error import RequestError
from runner.verb import PLACE, argument, called, option, verb

EPILOG = """\
The plan is kept in FOLDER, and so is each finished world, at once: a later call, also on another machine that has a
copy of FOLDER, goes on with what is missing and runs nothing twice. Without other options FOLDER's plan is taken. A
world that fails is named, does not stop the others, and runs again with the next call. Worlds run in an empty folder:
give paths in overrides in full.

Exit codes: 0 all worlds are there and passed; 1 a world or a case failed, or the audit has a finding; 2 the request is
wrong; 130, 143 Ctrl-C and SIGTERM (timeout 8m symlab publish FOLDER), with what was stored: the same command goes on.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What `symlab publish` was asked. worlds: None is what the plan has, or LEAST_WORLDS."""

    folder: Path = argument(metavar="FOLDER", type=PLACE, required=False)
    overrides: tuple[str, ...] = argument((), nargs=-1, shell_complete=words)
    experiments: tuple[str, ...] = option(
        "An experiment, as in +exp=NAME; repeatable.", "-e", "--experiment", default=(), metavar="NAME"
    )
    worlds: int | None = option(
        "Number of worlds of each experiment; default: 5.", type=click.IntRange(1, 100), metavar="N"
    )
    multirun: bool = option("The overrides have a sweep, such as world_size=2,4.", "-m", default=False)
    config_dir: Path | None = option("A folder of configurations beside conf/.", "-cd", type=FOLDER, metavar="DIR")
    derive: bool = option(
        "Alone, without FOLDER: make all that follows from the bundles in reports/published.", default=False
    )


@verb("publish", Options, epilog=EPILOG, alone="publish starts its own worlds")
def publish(options: Options, given: tuple[str, ...], tools: Any) -> int:
    """Run experiments in several worlds each, for publication.

    FOLDER gets a bundle for each world, table, figure, kernels and a README.md that says what ran, and is audited.
    OVERRIDES are those of symlab run, and hold for all experiments. Of the sets that were moved to reports/published,
    --derive makes the rest: sections of pages, tables and figures; kernels and profiles that are missing; the score of
    symlab predict; the manifest.
    """
    if options.derive:
        if given != ("--derive",):
            raise RequestError("--derive is of all that is published (--derive), give it alone, without FOLDER")
        return called("symlab.evidence.publish.derived:derive")
    if options.folder is None:
        raise RequestError("no folder for the set (FOLDER), give one, such as records/h200-x2")
    return called("symlab.evidence.publish.command:publish", options)
