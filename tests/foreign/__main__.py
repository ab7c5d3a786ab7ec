"""python -m tests.foreign: run the kernels of others in the simulator, and tell what came of each."""

import argparse
import sys
from pathlib import Path

from tests.foreign.cases import HEAD, outcome
from tests.foreign.catalogue import KERNELS

TABLE = Path(__file__).resolve().parent / "table.md"


def main(arguments=None):
    """Return the exit code: 0 if every kernel kept its promise, 1 if one did not, 2 if nothing can be compiled here."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__)
    parser.add_argument("--kernel", default="", help="only those with this in their name")
    parser.add_argument("--write", action="store_true", help="write tests/foreign/table.md")
    options = parser.parse_args(arguments)
    chosen = [kernel for kernel in KERNELS if options.kernel in kernel.name]
    reasons = sorted({kernel.absent for kernel in chosen} - {""})
    if reasons or not chosen or (options.write and options.kernel):
        why = "; ".join(reasons) or ("--write takes all kernels, leave out --kernel" if chosen else "no such kernel")
        print(f"tests.foreign: error: {why}", file=sys.stderr)
        return 2
    found = []
    for kernel in chosen:
        found.append(outcome(kernel))
        print(found[-1].row, flush=True)
    if options.write:
        TABLE.write_text(page(found), encoding="utf-8")
    return int(any(one.verdict != one.kernel.promise for one in found))


def page(found):
    """Return the page with the table."""
    head = "# Kernels of others, in the simulator\n\n`python -m tests.foreign --write` writes this page.\n"
    return "\n".join([head, HEAD, *(one.row for one in found), ""])


def rows(page):
    """Return the lines of the page's table, without its head."""
    return [line for line in page.splitlines() if line.startswith("|")][2:]


if __name__ == "__main__":
    sys.exit(main())
