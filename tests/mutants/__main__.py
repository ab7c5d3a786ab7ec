"""python -m tests.mutants: weaken our kernels at every place, one at a time, and tell how each mutant is found."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.matrix.running import cores
from tests.mutants.arguments import PLACE as ARGUMENTS
from tests.mutants.arguments import Argument, argued, arguments
from tests.mutants.mutant_runs import FAIR, OWN, SHAPES, Compiled, tries
from tests.mutants.mutate import Mutant

README = Path(__file__).resolve().parent / "README.md"
TABLE = re.compile(r"(<!-- mutants -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CHECKED = tuple(one for one in FAIR if one.shape == next(iter(SHAPES)))
"""How mutants run that are argued."""

SEEDS = 6
"""Seeds of each way that a mutant is searched by before it has to be argued."""


@dataclass(frozen=True, slots=True)
class Result:
    """A mutant of a kernel: how it was found ("" if nothing was), and why it needn't be."""

    kernel: str
    mutant: Mutant
    found: str
    argument: Argument | None

    @property
    def kind(self) -> str:
        """The column of the table: checker, orders, judge, argued, open."""
        if not self.found and self.argument:
            return "judge" if self.argument.litmus else "argued"
        if not self.found:
            return "open"
        return "checker" if self.found.startswith("finding") else "orders"


def results(kernel: str, seeds: int = SEEDS) -> list[Result]:
    """Run all mutants of a kernel: those that are argued by the checker alone, in the first shape."""
    known = arguments(ARGUMENTS.read_text(encoding="utf-8"))
    compiled = Compiled(OWN[kernel])
    found = []
    for one in compiled.mutants:
        argument = argued(known, kernel, one)
        found.append(Result(kernel, one, compiled.found(one, CHECKED if argument else tries(seeds)), argument))
    return found


def table(found: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the table: a kernel a line, then the arguments with the number of mutants that each is for."""
    columns = ("checker", "orders", "judge", "argued", "open")
    yield f"| kernel | mutants | {' | '.join(columns)} |"
    yield f"| --- | ---: |{' ---: |' * len(columns)}"
    for kernel in dict.fromkeys(one.kernel for one in found):
        counts = Counter(one.kind for one in found if one.kernel == kernel)
        yield f"| {kernel} | {counts.total()} | {' | '.join(str(counts[one]) for one in columns)} |"
    counts = Counter(one.kind for one in found)
    yield f"| all | {counts.total()} | {' | '.join(str(counts[one]) for one in columns)} |"
    reasons = Counter(one.argument for one in found if one.argument and not one.found)
    if reasons:
        yield ""
        yield "| mutants | of | where | change | why no run finds it |"
        yield "| ---: | --- | --- | --- | --- |"
        for why, count in reasons.items():
            judge = f" (judge: litmus/{why.litmus}.litmus)" if why.litmus else ""
            yield f"| {count} | {why.kernel} | `{why.opcode}` in {why.place} | {why.change} | {why.why}{judge} |"


def included(readme: str, lines: Sequence[str]) -> str:
    """Return the README's text with the table."""
    assert TABLE.search(readme), "tests/mutants/README.md has no place for the table"
    return TABLE.sub(lambda match: match[1] + "\n" + "\n".join(lines) + "\n\n" + match[3], readme)


def main(given: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if each mutant is found or argued, 1 if one is neither, 2 for a wrong request."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--kernel", default="", help="only kernels with this in their name, such as all_reduce/ll")
    parser.add_argument("--list", action="store_true", help="print every mutant, and how it was found")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of each way (%(default)s)")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (the cores: %(default)s)")
    parser.add_argument("--readme", action="store_true", help="write the table into tests/mutants/README.md")
    options = parser.parse_args(given)
    chosen = [name for name in OWN if options.kernel in name]
    if not chosen or (options.readme and options.kernel):
        why = "--readme writes all, leave out --kernel" if chosen else f"no kernel has '{options.kernel}' in its name"
        print(f"tests.mutants: error: {why}", file=sys.stderr)
        return 2
    found: list[Result] = []
    for part in _all(chosen, options.seeds, min(options.jobs, len(chosen))):
        found += part
        for one in part:
            if options.list or one.kind == "open":
                print(f"{one.kernel}: {one.mutant.name}: {one.found or one.kind}", flush=True)
    lines = list(table(found))
    print("\n".join(lines))
    if options.readme:
        README.write_text(included(README.read_text(encoding="utf-8"), lines), encoding="utf-8")
    return int(any(one.kind == "open" for one in found))


def _all(chosen: Sequence[str], seeds: int, jobs: int) -> Iterator[list[Result]]:
    if jobs == 1:
        yield from (results(name, seeds) for name in chosen)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(results, chosen, [seeds] * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
