"""symlab replay: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from runner.request.options import ALLOWED
from runner.request.sizes import parse_bytes
from runner.verb import argument, called, option, verb
from runner.world.fabrics import FabricName
from symlab.evidence.audit.gate import Gate

EPILOG = """\
Data is BIT-EQUAL when the digests of all outputs are; where only a bound is promised it is WITHIN BOUND. Speed has a
verdict (SAME, FASTER, SLOWER, INCONCLUSIVE) from four worlds on either side that alternate in time: where git has the
recorded commit, each launch is a world of that code and one of today's, in random order. Else it is INSIDE or
OUTSIDE the band.
What can't be compared is named with the reason. Records of GPUs are run again in the simulator where there is no GPU.

Exit codes: 0 the results are the same; 1 they are not; 2 the request is wrong, or nothing could be compared;
130 Ctrl-C.
"""


def _band(ctx: click.Context, parameter: click.Parameter, text: str) -> float:
    from symlab.evidence.audit.statistics import parse_band

    try:
        return parse_band(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def _size(ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_bytes(text, parameter.opts[0])


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request for a replay.

    what: a file, a folder or a bundle of records. band: the share within which two speeds are the same. up_to_bytes
    None: see Wishes. code: folders whose files records may name, beside the usual ones.
    """

    what: str = argument(metavar="RECORDS", type=click.Path())
    launches: int = option("New worlds.", default=1, type=click.IntRange(1, 100), metavar="N")
    band: float = option(
        "Maximum change of a time that counts as SAME.", default="2%", type=str, metavar="PERCENT", callback=_band
    )
    gate: Gate = option(
        "The findings that decide the exit code.",
        default=Gate.ANY,
        type=click.Choice(tuple(map(str, Gate))),
        callback=lambda ctx, parameter, word: Gate(word),
    )
    fabric: str = option(
        "What the cases run on; auto is the recorded fabric.",
        default="auto",
        type=click.Choice(tuple(map(str, FabricName))),
    )
    up_to_bytes: int | None = option(
        "Maximum size of the cases that run again. Without it all do, but of GPUs' records in the simulator up to 1M.",
        "--up-to",
        type=str,
        metavar="SIZE",
        callback=_size,
    )
    records: Path = option("The folder for new records.", default=Path("records"), metavar="DIR")
    code: tuple[Path, ...] = option("A folder whose files may be run for records, too; repeatable.", **ALLOWED)
    changed_code: bool = option("Run brought files that are not those that ran, too.", default=False)


@verb("replay", Wanted, epilog=EPILOG, alone="a replay starts worlds of its own")
def replay(wanted: Wanted, given: tuple[str, ...], tools: Any) -> int:
    """Run recorded cases again and compare the results.

    RECORDS is a record file, a folder or a bundle. Everything is taken from the records.
    """
    return called("symlab.evidence.replay.replay:replay", wanted, tools)
