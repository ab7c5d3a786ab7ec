"""The command that prints the matrix, as a click object. With --codes it compiles the catalogue, and writes its code to
kernels/matrix/codes.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cases.ops import COLLECTIVES, collective
from kernels.catalogue import SPECS
from kernels.matrix import codes
from kernels.matrix.matrix import LEGEND, rows
from kernels.matrix.proofs import proofs
from kernels.matrix.sheets import markdown, text
from kernels.spec import KernelSpec

README = Path(__file__).resolve().parent / "matrix" / "README.md"
CACHE = Path("~/.cache/symlab/kernels")
"""Where the runner keeps compiled kernels, too (cache_dir)."""

PAGE = """# What each kernel takes, and where it is proven

Made by `symlab kernels --readme`; the lines below the table explain its words.

{}"""


def _ops(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [op for op in [one.op for one in COLLECTIVES] if op.startswith(incomplete)]


@click.command(
    "kernels",
    epilog="\n\n".join([*LEGEND, "Exit codes: 0 done; 1 --codes found other code; 2 the request is wrong."]),
)
@click.option("--op", default="", metavar="OP", shell_complete=_ops, help="One op only, such as all_gather.")
@click.option("--readme", is_flag=True, help="Write the matrix into kernels/matrix/README.md.")
@click.option(
    "--codes", "is_codes", is_flag=True, help=f"Compile all kernels (minutes); {codes.PLACE.name} has their code then."
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=CACHE,
    metavar="DIR",
    show_default=True,
    help="Compiled kernels, for --codes.",
)
@click.pass_obj
def kernels(specs: Sequence[KernelSpec] | None, op: str, readme: bool, is_codes: bool, cache: Path) -> int:
    """Print what each kernel takes, and where it is proven.

    The matrix has a line for each algorithm of each op. It is made from the specs: what is not listed is refused, with
    the reason.
    """
    if op and collective(op).product:
        raise ValueError(f"{op} is not in the matrix (--op), its kernels and their figures are in kernels/README.md")
    if readme and is_codes:
        raise ValueError("--readme and --codes exclude each other: give one of them")
    if op and (readme or is_codes):
        raise ValueError(f"--{'readme' if readme else 'codes'} takes the whole matrix; leave --op out")
    if is_codes:
        return _compile_all(SPECS if specs is None else specs, cache.expanduser())
    if readme:
        README.write_text(page(), encoding="utf-8")
        print("kernels/matrix/README.md: has the matrix as it is now")
        return 0
    proven = proofs()
    print(text(rows(proven, op, codes.codes(codes.PLACE)), proven), end="")
    return 0


def _compile_all(specs: Sequence[KernelSpec], cache_dir: Path) -> int:
    """Compile the kernels, and write codes.json if it has other code of one: then 1 is returned, else 0.

    Raises ValueError if a kernel can't be compiled.
    """
    from kernels.matrix.variants import codes_of

    place, found = codes.PLACE, {}
    known = codes.codes(place) if place.is_file() else {}
    try:
        for name, code in codes_of([spec.name for spec in specs], cache_dir):
            found[name] = code
            other = "" if known.get(name) == code else f", other code than in {place.name}"
            print(f"{name}: {code.variants} variants{other}", flush=True)
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    if found == known:
        print(f"all {len(found)} kernels have the code of {place.name}")
        return 0
    place.write_text(codes.written(found), encoding="utf-8")
    changed = sum(known.get(name) != found.get(name) for name in {**known, **found})
    print(f"{place.name}: has other code of {changed} kernels now; if that is intended, run symlab kernels --readme")
    return 1


def page() -> str:
    """Return the page of the matrix as it is now."""
    proven = proofs()
    return PAGE.format(markdown(rows(proven, known=codes.codes(codes.PLACE)), proven))
