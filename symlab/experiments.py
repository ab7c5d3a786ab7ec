"""Run an experiment as the command `symlab run` does."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

from runner.request_error import RequestError
from symlab.loading import Records


@dataclass(frozen=True, slots=True)
class Experiment:
    """How an experiment ended; experiment() returns it.

    exit_code is the command's: 0 if at least one case passed, and all others passed, were refused or are of a library
    that did not finish; else 1. folder has the records' files.
    """

    exit_code: int
    folder: Path
    records: Records


def experiment(
    *overrides: str,
    multirun: bool = False,
    quiet: bool = False,
    config_dir: Path | str | None = None,
) -> Experiment:
    """Run what `symlab run OVERRIDES` runs, and return its records: the same files, table, tracking and messages.

    overrides: as on the command line, such as "+exp=all_reduce_bf16" or "sizes=[4K,1M]". multirun: -m, a sweep over
    several values of a key. quiet: print errors and warnings only. config_dir: --config-dir.

    Raises ValueError for a wrong request and if every case would be refused, before anything runs, and
    KeyboardInterrupt after an interrupt, when what was finished is kept in the folder.

    >>> import symlab
    >>> done = symlab.experiment("algorithms=[one_shot]", "sizes=[1K,4K]", "track=none", quiet=True)
    >>> done.exit_code, [record.case.size_bytes for record in done.records]
    (0, [1024, 4096])
    """
    from runner.command.runnable_jobs import ready
    from runner.command.session import run_within
    from runner.request.compose import compose_jobs, hydra_over
    from runner.world.launcher import find

    if (outer := find(os.environ)) is not None:
        raise RequestError(f"an experiment of the Python API starts its own ranks, start it without {outer.launcher}")
    folder = () if config_dir is None else ("--config-dir", str(config_dir))
    arguments = [*folder, *(("-m",) if multirun else ()), *overrides]
    with hydra_over(None if config_dir is None else Path(config_dir)):
        jobs = compose_jobs(overrides, multirun)
    command, console = ready(arguments, jobs, is_quiet=quiet, stream=io.StringIO() if quiet else None)
    ended = run_within(command, console)
    if ended.interrupt is not None:
        raise ended.interrupt
    return Experiment(ended.exit_code, ended.folder, Records(ended.records))
