"""symlab calibrate: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.request.options import FOLDER, words
from runner.verb import argument, called, option, verb

EPILOG = """\
Each floor is of one small kernel (kernels/floors/): an empty node of a graph, a flag to and fro, a load whose address
depends on the load before it, a copy, a sum in own memory, a bulk copy, all to one. Each is checked, timed by the GPU's
clock and recorded as any case. A probe that fails has no floor, and then no file is written.

The file of -o is like the type but for its floors. conf/gpu has committed floors only from records, as symlab calibrate
--from RECORDS prints them.

Exit codes: 0 every probe passed; 1 one did not; 2 the request is wrong, or there are no GPUs; 130 Ctrl-C.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What `symlab calibrate` was asked. type: the name of a type of conf/gpu; "": the one that names the device."""

    overrides: tuple[str, ...] = argument((), nargs=-1, shell_complete=words)
    config_dir: Path | None = option("A folder of configurations beside conf/.", "-cd", type=FOLDER, metavar="DIR")
    output: Path | None = option("A new file of a type of GPU; without it the floors are printed.", "-o")
    type: str = option(
        "The type of GPU; default: the one of conf/gpu that names the device.", default="", metavar="NAME"
    )
    records: tuple[Path, ...] = option(
        "Take floors from records of earlier calibrations; repeatable. Nothing runs.",
        "--from",
        default=(),
        metavar="RECORDS",
    )


@verb("calibrate", Options, epilog=EPILOG, alone="a calibration starts its own world")
def calibrate(options: Options, given: tuple[str, ...], tools: Any) -> int:
    """Measure the floors of a type of GPU by small kernels.

    It takes 2 or more GPUs. OVERRIDES are those of symlab run, such as world_size=4 or timing.samples=20.
    """
    return called("symlab.speed.calibrate.command:calibrate", options, given)
