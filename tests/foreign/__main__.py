"""python -m tests.foreign: run the kernels of others in the simulator, and tell what came of each."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import simulator
from tests.foreign.cases import HEAD, Outcome, outcome
from tests.foreign.catalogue import KERNELS

README = Path(simulator.__file__).resolve().parent / "README.md"
PLACE = re.compile(r"(<!-- kernels of others -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if every kernel kept its promise, 1 if one did not, 2 if nothing can be compiled here."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__)
    parser.add_argument("--kernel", default="", help="only those with this in their name")
    parser.add_argument("--readme", action="store_true", help="write the table into simulator/README.md")
    options = parser.parse_args(arguments)
    chosen = [kernel for kernel in KERNELS if options.kernel in kernel.name]
    reasons = sorted({kernel.absent for kernel in chosen} - {""})
    if reasons or not chosen or (options.readme and options.kernel):
        why = "; ".join(reasons) or ("--readme writes all kernels, leave out --kernel" if chosen else "no such kernel")
        print(f"tests.foreign: error: {why}", file=sys.stderr)
        return 2
    found = []
    for kernel in chosen:
        found.append(outcome(kernel))
        print(found[-1].row, flush=True)
    if options.readme:
        README.write_text(included(README.read_text(encoding="utf-8"), found), encoding="utf-8")
    return int(any(one.verdict != one.kernel.promise for one in found))


def included(readme: str, found: Sequence[Outcome]) -> str:
    """Return the README's text with the table as it is now."""
    assert PLACE.search(readme), "simulator/README.md has no place for the kernels of others"
    table = "\n".join([HEAD, *(one.row for one in found)])
    return PLACE.sub(lambda match: f"{match[1]}\n{table}\n\n{match[3]}", readme)


def rows(readme: str) -> list[str]:
    """Return the lines of the README's table, without its head."""
    place = PLACE.search(readme)
    assert place
    return [line for line in place[2].splitlines() if line.startswith("|")][2:]


if __name__ == "__main__":
    sys.exit(main())
