"""python -m tests.museum: run all exhibits by all ways, and print or write the table of how each bug was found."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.museum.all_exhibits import EXHIBITS
from tests.museum.ways import WAYS, Search, Shown, search

TABLE = Path(__file__).resolve().parent / "table.md"
MENDED_SEEDS = 20
"""Number of seeds of each way for a mended kernel."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What each way came to, on the kernel with the bug and on the mended one."""

    shown: Shown
    searches: tuple[Search, ...]
    mended: tuple[Search, ...]

    @property
    def is_found(self):
        """Whether each way found the bug that is said to find it."""
        found = {one.way for one in self.searches if one.is_found}
        return found.issuperset(self.shown.ways)

    @property
    def is_clean(self):
        """Whether all runs of the mended kernel were."""
        return all(one.seen.outcome == "clean" for one in self.mended)

    @property
    def row(self):
        """A line of the table."""
        cells = [_cell(one) for one in self.searches]
        runs = sum(one.tried for one in self.mended)
        unclean = [f"{one.way}: {one.seen.outcome}" for one in self.mended if one.seen.outcome != "clean"]
        cells += [", ".join(unclean) or f"clean in {runs} runs"]
        return f"| {self.shown.name} | {self.shown.defect} | {' | '.join(cells)} |"


def _cell(one):
    if not one.is_found:
        return "" if one.seen.outcome == "clean" else one.seen.outcome
    return one.seen.outcome if WAYS[one.way].seeds == 1 else f"{one.seen.outcome}, {one.tried}"


def outcome(shown):
    """Run both kernels of an exhibit by all ways."""
    searches = tuple(search(shown, way) for way in WAYS)
    return Outcome(shown, searches, tuple(search(shown, way, True, MENDED_SEEDS) for way in WAYS))


def page(found):
    """Return the page with the table."""
    lines = ["# How each bug was found", "", "`python -m tests.museum --write` writes this page.", ""]
    lines += [f"| bug | what is wrong | {' | '.join(WAYS)} | mended |", f"| --- | --- |{' --- |' * len(WAYS)} --- |"]
    return "\n".join([*lines, *(one.row for one in found), ""])


def main(arguments=None):
    """Return the exit code: 0 if all bugs are found and all mended kernels clean, 1 if not, 2 for a wrong request."""
    parser = argparse.ArgumentParser(prog="python -m tests.museum", description=__doc__)
    parser.add_argument("--only", default="", help="only exhibits with this in their name")
    parser.add_argument("--write", action="store_true", help="write tests/museum/table.md")
    options = parser.parse_args(arguments)
    chosen = [one for one in EXHIBITS if options.only in one.name]
    if not chosen or (options.write and options.only):
        why = "--write takes all, leave out --only" if chosen else f"no exhibit has '{options.only}' in its name"
        print(f"tests.museum: error: {why}", file=sys.stderr)
        return 2
    found = []
    for one in chosen:
        found.append(outcome(one))
        print(found[-1].row, flush=True)
    if options.write:
        TABLE.write_text(page(found), encoding="utf-8")
    return int(not all(one.is_found and one.is_clean for one in found))


if __name__ == "__main__":
    sys.exit(main())
