"""python -m kernels: the matrix of what there is: op, algorithm, what each takes and needs, and where it is proven."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kernels.catalogue import collective
from kernels.matrix.matrix import LEGEND, rows
from kernels.matrix.proofs import proofs
from kernels.matrix.sheets import json_text, markdown, text

README = Path(__file__).resolve().parent.parent / "README.md"
INCLUDED = re.compile(r"(<!-- matrix -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class _Parser(argparse.ArgumentParser):
    """One line for a wrong command line, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Gives the exit code: 0 done, 2 the request is wrong, in one line on stderr."""
    try:
        _run(_parser().parse_args(arguments))
        sys.stdout.flush()
    except ValueError as error:
        print(f"symlab: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough (| head).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m kernels",
        description="The matrix of what there is: a line for each algorithm of each op, with what it takes and needs, "
        "and where it is proven. It is asked of the specs: what is not listed is refused, with the reason.",
        epilog="\n".join([*LEGEND, "exit codes: 0 done; 2 the request is wrong"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--format",
        choices=("table", "markdown", "json"),
        default="table",
        help="json has every combination by itself (%(default)s)",
    )
    parser.add_argument("--op", default="", metavar="OP", help="one op only, such as all_gather")
    parser.add_argument("--readme", action="store_true", help="put the Markdown into README.md, between its marks")
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.op:
        collective(options.op)
    if options.readme:
        if options.op or options.format != "table":
            raise ValueError("--readme takes the whole matrix as Markdown; leave --op and --format out")
        README.write_text(included(README.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{README.name}: has the matrix as it is now")
        return
    proven = proofs()
    found = rows(proven, options.op)
    if options.format == "json":
        print(json_text(found), end="")
    else:
        print((markdown if options.format == "markdown" else text)(found, proven), end="")


def included(readme: str) -> str:
    """The README's text with the matrix as it is now. ValueError where it has no place for it."""
    if not INCLUDED.search(readme):
        raise ValueError("README.md: no place for the matrix; add the lines '<!-- matrix -->' and '<!-- end -->'")
    proven = proofs()
    made = markdown(rows(proven), proven)
    return INCLUDED.sub(lambda match: f"{match[1]}\n{made}\n{match[3]}", readme)


if __name__ == "__main__":
    sys.exit(main())
