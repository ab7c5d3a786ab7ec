"""python -m tests.symlab.checks.litmus.agreement: hold the checker to the judge, on programs of message passing by seed.

The judge says of a program whether its executions have a data race; the checker has to find one in a single run in the
fair order just where they do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.world import SimulatorOptions
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import parsed
from symlab.checks.trials.races import run
from tests.museum.ways import WAYS
from tests.symlab.checks.litmus.messages import message

PROGRAMS = 2_000
HEAP_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the judge says of the program of a seed (whether it has a race), and what the checker finds in it."""

    seed: int
    shape: str
    judge: bool
    findings: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Return whether they say the same."""
        return self.judge == bool(self.findings)


def verdicts(seed: int) -> Verdicts:
    """Judge the program of a seed, and run it once under the checker."""
    text = message(seed)
    program = parsed(text, str(seed))
    has_race = any(one.has_race for one in judged(program, is_explained=False).allowed)
    found = run(program, SimulatorOptions(heap_bytes=HEAP_BYTES, **WAYS["races"].options)).findings
    sentences = tuple(one.sentence() for one in found if one.severity != "advisory")
    return Verdicts(seed, text.split(": ")[1].split(",")[0], has_race, sentences)


def table(found: Sequence[Verdicts]) -> str:
    """Return a table: programs of each shape, those with a race, those found, and the differences."""
    lines = ["| shape | programs | with a race | found | false alarms | missed |", f"| --- |{' ---: |' * 5}"]
    shapes = [*dict.fromkeys(sorted(one.shape for one in found)), "all"]
    for shape in shapes:
        counts = Counter((one.judge, bool(one.findings)) for one in found if shape in (one.shape, "all"))
        race = counts[True, True] + counts[True, False]
        numbers = (counts.total(), race, counts[True, True], counts[False, True], counts[True, False])
        lines.append(f"| {shape} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if they agree on all programs, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.symlab.checks.litmus.agreement", description=__doc__)
    parser.add_argument("--count", type=int, default=PROGRAMS, help="number of programs (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (%(default)s)")
    options = parser.parse_args(given)
    began = time.monotonic()
    found = [verdicts(seed) for seed in range(options.first, options.first + options.count)]
    for one in found:
        if not one.agrees:
            print(f"seed {one.seed}: the judge says {'a race' if one.judge else 'none'}, the checker: {one.findings}")
            print(message(one.seed))
    print(table(found))
    print(
        f"{len(found)} programs in {time.monotonic() - began:.0f} s, they agree on {sum(one.agrees for one in found)}"
    )
    return int(not all(one.agrees for one in found))


if __name__ == "__main__":
    sys.exit(main())
