"""python -m kernels: the matrix of what there is: op, algorithm, what each takes and needs, and where it is proven.

With --verify or --codes it compiles the catalogue, to compare the code with kernels/matrix/codes.json or to write that.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kernels.catalogue import SPECS, collective
from kernels.matrix import codes
from kernels.matrix.matrix import LEGEND, rows
from kernels.matrix.proofs import proofs
from kernels.matrix.sheets import json_text, markdown, text
from kernels.spec import KernelSpec

README = Path(__file__).resolve().parent / "README.md"
CACHE = Path("~/.cache/symlab/kernels")
"""Where the runner keeps compiled kernels, too (cache_dir)."""

INCLUDED = re.compile(r"(<!-- matrix -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class _Parser(argparse.ArgumentParser):
    """One line for a wrong command line, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None, specs: Sequence[KernelSpec] = SPECS) -> int:
    """Return the exit code: 0 done, 1 --verify found other code, 2 the request is wrong, in one line on stderr.

    specs are those that --verify and --codes compile.
    """
    code = 0
    try:
        code = _run(_parser().parse_args(arguments), specs)
        sys.stdout.flush()
    except (ValueError, RuntimeError) as error:
        print(f"symlab: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Ignore a closed stdout (such as | head).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m kernels",
        description="The matrix of what there is: a line for each algorithm of each op, with what it takes and needs, "
        "and where it is proven. It is asked of the specs: what is not listed is refused, with the reason.",
        epilog="\n".join([*LEGEND, "exit codes: 0 done; 1 --verify found other code; 2 the request is wrong"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--format",
        choices=("table", "markdown", "json"),
        default="table",
        help="json has every combination by itself (%(default)s)",
    )
    parser.add_argument("--op", default="", metavar="OP", help="one op only, such as all_gather")
    parser.add_argument(
        "--readme", action="store_true", help="put the Markdown into kernels/README.md, between its marks"
    )
    parser.add_argument(
        "--verify", action="store_true", help=f"compile all kernels (minutes) and compare them with {codes.PLACE.name}"
    )
    parser.add_argument(
        "--codes", action="store_true", help=f"compile all kernels (minutes) and write {codes.PLACE.name}"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=CACHE,
        metavar="DIR",
        help="compiled kernels, for --verify and --codes (%(default)s)",
    )
    return parser


def _run(options: argparse.Namespace, specs: Sequence[KernelSpec]) -> int:
    if options.op:
        collective(options.op)
    if options.readme + options.verify + options.codes > 1:
        raise ValueError("--readme, --verify and --codes exclude each other: give one of them")
    for name in ("readme", "verify", "codes"):
        if getattr(options, name) and (options.op or options.format != "table"):
            raise ValueError(f"--{name} takes the whole matrix; leave --op and --format out")
    if options.verify or options.codes:
        return _compile_all(options, specs)
    if options.readme:
        README.write_text(included(README.read_text(encoding="utf-8")), encoding="utf-8")
        print("kernels/README.md: has the matrix as it is now")
        return 0
    proven = proofs()
    found = rows(proven, options.op, codes.codes(codes.PLACE))
    if options.format == "json":
        print(json_text(found), end="")
    else:
        print((markdown if options.format == "markdown" else text)(found, proven), end="")
    return 0


def _compile_all(options: argparse.Namespace, specs: Sequence[KernelSpec]) -> int:
    """Compile the kernels, then write codes.json, or compare with it: 1 if a kernel's code is not what it says."""
    from kernels.matrix.variants import codes_of

    known = codes.codes(codes.PLACE) if options.verify else {}
    found = {}
    for name, code in codes_of([spec.name for spec in specs], options.cache.expanduser()):
        found[name] = code
        differs = options.verify and known.get(name) != code
        print(
            f"{name}: {code.variants} variants{', other code than in ' + codes.PLACE.name if differs else ''}",
            flush=True,
        )
    if options.codes:
        codes.PLACE.write_text(codes.written(found), encoding="utf-8")
        print(f"{codes.PLACE.name}: has the code of {len(found)} kernels")
        return 0
    differing = [name for name in {**known, **found} if known.get(name) != found.get(name)]
    if differing:
        print(
            f"{len(differing)} of {len(found)} kernels differ from {codes.PLACE.name}: if the change is intended, run "
            "python -m kernels --codes, then python -m kernels --readme"
        )
        return 1
    print(f"all {len(found)} kernels have the code of {codes.PLACE.name}")
    return 0


def included(readme: str) -> str:
    """Return the README's text with the matrix as it is now. Raises ValueError if it has no place for it."""
    if not INCLUDED.search(readme):
        raise ValueError(
            "kernels/README.md: no place for the matrix; add the lines '<!-- matrix -->' and '<!-- end -->'"
        )
    proven = proofs()
    made = markdown(rows(proven, known=codes.codes(codes.PLACE)), proven)
    return INCLUDED.sub(lambda match: f"{match[1]}\n{made}\n{match[3]}", readme)


if __name__ == "__main__":
    sys.exit(main())
