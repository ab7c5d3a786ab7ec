"""symlab explore: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from runner.request.options import Overrides
from runner.verb import Seconds, called, option, verb
from simulator.options import Interleaving, Schedule

EPILOG = """\
A run is one case under one seed and one schedule, in a world of its own; a run that ends wrong, with a fault or in a
deadlock, and with check.races=true one with a race, ends the search. The failure is then shrunk to few switches
between warps, printed as an interleaving, and kept in a file. Nothing found proves no absence.

Exit codes: 0 nothing was found; 1 a failure was found (with --replay: it fails again); 2 the request is wrong;
130 Ctrl-C, with what was done.
"""

DECIDED = {
    "fabric.schedule": "give --schedule",
    "fabric.granularity": "leave it out",
    "fabric.seed": "give --first-seed",
}
"""Keys that an exploration decides, with what to do instead."""


def orders_of(schedule: str, seed: int) -> tuple[Interleaving, ...]:
    """Return the orders that a seed stands for; schedule: that of the simulator, or both."""
    schedules = (Schedule.random, Schedule.adversarial) if schedule == "both" else (Schedule(schedule),)
    return tuple(Interleaving(one, seed=seed) for one in schedules)


@dataclass(frozen=True, slots=True)
class Options(Overrides):
    """What `symlab explore` was asked."""

    case: str = option("Only cases whose id has this text; default: all.", default="", metavar="TEXT")
    seeds: int | None = option(
        "Number of seeds; default: as many as the time takes.", type=click.IntRange(1), metavar="N"
    )
    seconds: float | None = option(
        "Seconds for the search; default: 60, with --seeds no end.", type=Seconds(0, min_open=True), metavar="S"
    )
    first_seed: int = option("The first seed.", default=0, type=click.IntRange(0), metavar="N")
    schedule: str = option(
        "Who runs next: drawn, or rather what is likely to break.",
        default="both",
        type=click.Choice(("random", "adversarial", "both")),
    )
    shrink_s: float = option(
        "Seconds for the search for fewer switches.", "--shrink", default=30.0, type=Seconds(0), metavar="S"
    )
    processes: int | None = option(
        "Number of processes; default: one a processor.", type=click.IntRange(1, 256), metavar="N"
    )
    output: Path | None = option("The JSON file for a failure; default: explore-CASE-SCHEDULE-SEED.json.", "-o")
    replay: Path | None = option("Run the failure of a file again.")

    @property
    def orders(self) -> tuple[Interleaving, ...]:
        """The orders that are tried, of the first seed."""
        return orders_of(self.schedule, self.first_seed)


@verb("explore", Options, epilog=EPILOG, alone="an exploration starts its own worlds")
def explore(options: Options, given: tuple[str, ...], tools: Any) -> int:
    """Run an experiment under many orders of threads.

    The first run that fails ends it. OVERRIDES are those of symlab run; all cases are simulated.
    """
    return called("symlab.checks.explore.command:explore", options)
