"""symlab tune: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from runner.request.options import Overrides
from runner.request_error import RequestError
from runner.verb import Seconds, called, option, verb

EPILOG = """\
On a type of GPU with floors (conf/gpu, symlab calibrate) the model of symlab predict ranks all candidates, and the
six that it ranks best of each size are measured; --exhaustive measures all, by successive halving. It does not rank
matmuls: for their m, n and k (-m m=512,4096 for two shapes) all candidates are measured.

Each candidate's results are checked before it is timed and after. One that hangs, faults or is wrong is out, and the
search goes on. A search that was cut short goes on with the same command: what it measured is in FILE.search. The
finalists of each size are then run side by side, with records, and the table's figures are those of these records.

--sample N writes no table: it runs N random tunings beside the catalogue's own, from which symlab predict --score
RECORDS tells how far the model can be trusted with tunings.

Exit codes: 0 every case has a choice (--regret, --unseen: the regret is at most 1 % in the median, at no size surely
above 3 %, and no choice is surely slower than the catalogue's tuning); 1 otherwise; 2 the request is wrong; 130 Ctrl-C:
the same command goes on.
"""


@dataclass(frozen=True, slots=True)
class Options(Overrides):
    """What `symlab tune` was asked."""

    output: Path | None = option("The table, in which other entries stay; default: tuned-GPU.json.", "-o")
    seconds: float | None = option(
        "Seconds for the search from the command's start, without the finalists; the model takes half of them at most; "
        "default: no limit.",
        type=Seconds(0, min_open=True),
        metavar="S",
    )
    exhaustive: bool = option("Measure all candidates; ask no model first.", default=False)
    processes: int | None = option(
        "Number of processes that compile and simulate; default: one a processor.",
        type=click.IntRange(1, 256),
        metavar="N",
    )
    unseen: bool = option("Run the table's choices at twenty sizes that were not searched.", default=False)
    regret: tuple[Path, ...] = option(
        "Print how much slower a table's choices were than the quickest beside them; repeatable.",
        default=(),
        metavar="RECORDS",
    )
    sample: int | None = option(
        "Search nothing: run N random tunings beside the catalogue's own, with records to score the model by.",
        type=click.IntRange(1),
        metavar="N",
    )
    seed: int = option(
        "Of --sample and --unseen: another one draws others.", default=0, type=click.IntRange(0), metavar="S"
    )


@verb("tune", Options, epilog=EPILOG, alone="a search starts its own worlds")
def tune(options: Options, given: tuple[str, ...], tools: Any) -> int:
    """Search the best kernel and tuning for each size, for algorithms=best.

    OVERRIDES are those of symlab run, an op at least; algorithms are the project's own, and entries of YAML files, of
    which all parameters are searched. Where no sizes are given, they are the powers of four from 1K to 256M. It needs
    GPUs.
    """
    if options.regret and (options.overrides or options.unseen):
        raise RequestError("--regret only reads records (--regret), leave overrides and --unseen out")
    if options.sample and (options.regret or options.unseen or options.exhaustive or options.output):
        raise RequestError("--sample only runs tunings (--sample), leave other options out")
    if options.unseen and options.exhaustive:
        raise RequestError("--unseen runs the choices of a table (--unseen), leave --exhaustive out")
    if not (options.overrides or options.regret or options.unseen):
        raise RequestError(
            "a search times kernels on GPUs at each size, for --seconds or to its end, and needs an op (op), such as: "
            "symlab tune op=all_reduce world_size=2 --seconds 60"
        )
    return called("symlab.speed.tune.command:tune", options, given, tools)
