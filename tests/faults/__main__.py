"""python -m tests.faults: make small faults in product code, one at a time, and tell which tests find them.

First record which tests reach which lines:

    python -m pytest -n auto --dist loadfile -p tests.faults.recording --record-to=FOLDER -m 'not slow and not gpu'
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.chosen import drawn
from tests.faults.made import faults_of
from tests.faults.reached import Reached
from tests.faults.stored_draws import DRAWS, README, Draw, kinds, stored_draws, table
from tests.faults.trial import LAYERS, copy_of, tried
from tests.marked import included

ROOT = Path(__file__).resolve().parents[2]


def main(given=None):
    """Return the exit code: 0 if all faults were looked at and found, 1 if some were not, 2 for a wrong request."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--recorded", type=Path, help="the folder that --record-to wrote")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository whose HEAD is looked at (this one)")
    parser.add_argument("--seed", default="", help="what the draw is by (the commit's hash)")
    parser.add_argument("--count", type=int, default=100, help="number of faults (%(default)s)")
    parser.add_argument("--name", default="", help="the draw's name (the first 8 characters of the seed)")
    parser.add_argument(
        "--of", choices=LAYERS, default="quick", help="the layer (quick); full: what quick did not find"
    )
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


def _look(options):
    ends_s = time.monotonic() + options.seconds
    if options.recorded is None:
        raise ValueError("no records of who reaches what (--recorded), give the folder that --record-to wrote")
    reached = Reached(options.recorded)
    commit = _git(options.root, "rev-parse", "HEAD")
    seed = options.seed or commit
    draw = Draw(options.draws / f"{options.name or seed[:8]}.json", seed, commit)
    faults = _drawn(options, draw, reached)
    draw.keep(faults)
    if options.list:
        for one in faults:
            print(one.said)
        return 0
    wanted = [one for one in faults if _is_wanted(draw, one, options.of)]
    with copy_of(options.root) as copy:
        for number, one in enumerate(wanted, 1):
            if time.monotonic() > ends_s or (found := tried(copy, one, reached, options.of, ends_s)) is None:
                print(f"{len(wanted) - number + 1} of {len(wanted)} are left: the same command goes on", flush=True)
                return 1
            draw.add(one, options.of, found)
            said = f"{found.how} {found.by}" if found.how else f"NOT FOUND by {found.tests} tests"
            print(f"[{number}/{len(wanted)}] {one.said}: {said} ({found.seconds:.0f} s)", flush=True)
    results = [draw.found(one, options.of) for one in faults]
    return int(not all(found is None or found.how for found in results))


def _is_wanted(draw, fault, layer):
    quick = draw.found(fault, "quick")
    if layer == "full" and quick is not None and quick.how:
        return False
    return draw.found(fault, layer) is None


def _drawn(options, draw, reached):
    """The draw's faults as they are stored, whatever was recorded since; of a new draw those that its seed draws."""
    if kept := draw.faults():
        return kept
    faults = []
    for path in sorted(reached.paths):
        text = _git(options.root, "show", f"HEAD:{path}", strip=False)
        lines = reached.lines(path)
        faults += [one for one in faults_of(path, text) if not lines.isdisjoint(range(one.first, one.last + 1))]
    return sorted(drawn(faults, options.count, draw.seed), key=lambda one: (one.path, one.line))


def _readme(draws):
    lines = [*kinds(), "", *table(stored_draws(draws))]
    README.write_text(included(README.read_text(encoding="utf-8"), "faults", lines), encoding="utf-8")
    return 0


def _git(root, *words, strip=True):
    done = subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip() if strip else done.stdout


if __name__ == "__main__":
    sys.exit(main())
