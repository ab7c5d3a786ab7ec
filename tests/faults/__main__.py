"""python -m tests.faults: make small faults in product code, one at a time, and tell which tests find them.

First record which tests reach which lines:

    python -m pytest -n auto --dist loadfile -p tests.faults.recording --record-to=FOLDER -m 'not slow and not gpu'
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.chosen import drawn
from tests.faults.kept import DRAWS, README, Draw, page
from tests.faults.made import faults_of
from tests.faults.reached import Reached
from tests.faults.trial import copy_of, tried
from tests.marked import included

ROOT = Path(__file__).resolve().parents[2]


def main(given: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if all faults were looked at and found, 1 if some were not, 2 for a wrong request."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--recorded", type=Path, help="the folder that --record-to wrote")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository whose HEAD is looked at (this one)")
    parser.add_argument("--seed", default="", help="what the draw is by (the commit's hash)")
    parser.add_argument("--count", type=int, default=100, help="number of faults (%(default)s)")
    parser.add_argument("--name", default="", help="the draw's name (the first 8 characters of the seed)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no fault after so long")
    parser.add_argument("--list", action="store_true", help="print the faults, and run nothing")
    parser.add_argument("--readme", action="store_true", help="write tests/README.md's table from what is stored")
    parser.add_argument("--draws", type=Path, default=DRAWS, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    try:
        return _readme(options.draws) if options.readme else _look(options)
    except (ValueError, subprocess.CalledProcessError) as error:
        print(f"tests.faults: error: {error}", file=sys.stderr)
        return 2


def _look(options: argparse.Namespace) -> int:
    ends_s = time.monotonic() + options.seconds
    if options.recorded is None:
        raise ValueError("no records of who reaches what (--recorded), give the folder that --record-to wrote")
    reached = Reached(options.recorded)
    commit = _git(options.root, "rev-parse", "HEAD").strip()
    seed = options.seed or commit
    draw = Draw(options.draws / f"{options.name or seed[:8]}.json", seed, commit)
    if not draw.found:
        _draw(options, draw, reached)
    if options.list:
        for one in draw.found:
            print(one.said)
        return 0
    wanted = [one for one, known in draw.found.items() if known is None]
    with copy_of(options.root) as copy:
        for number, one in enumerate(wanted, 1):
            if time.monotonic() > ends_s or (found := tried(copy, one, reached, ends_s)) is None:
                print(f"{len(wanted) - number + 1} of {len(wanted)} are left: the same command goes on", flush=True)
                return 1
            draw.add(one, found)
            said = f"{found.how} {found.by}" if found.how else f"NOT FOUND by {found.tests} tests"
            print(f"[{number}/{len(wanted)}] {one.said}: {said} ({found.seconds:.0f} s)", flush=True)
    return int(not all(known is None or known.how for known in draw.found.values()))


def _draw(options: argparse.Namespace, draw: Draw, reached: Reached) -> None:
    """Draw the faults, of lines that tests run."""
    faults = []
    for path in sorted(reached.paths):
        lines = reached.lines(path)
        text = _git(options.root, "show", f"HEAD:{path}")
        faults += [one for one in faults_of(path, text) if not lines.isdisjoint(range(one.first, one.last + 1))]
    for one in sorted(drawn(faults, options.count, draw.seed), key=lambda one: (one.path, one.line)):
        draw.add(one, None)


def _readme(draws: Path) -> int:
    lines = page([Draw(place) for place in sorted(draws.glob("*.json"))])
    README.write_text(included(README.read_text(encoding="utf-8"), "faults", lines), encoding="utf-8")
    return 0


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
