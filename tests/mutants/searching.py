"""Weaken our kernels at every place, one at a time, and tell how each mutant is found.

Not in __main__.py: a process that is started for a part of the work imports what it is to call, and can't import that.
"""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from memory.worker_process import end_with_parent
from tests.mutants.arguments import PLACE as ARGUMENTS
from tests.mutants.arguments import Argument, argued, arguments
from tests.mutants.matmul_runs import CHECKED as MATMULS_CHECKED
from tests.mutants.matmul_runs import MATMULS, CompiledMatmul, matmul_tries
from tests.mutants.mutant_runs import OWN, Compiled, Try, tries
from tests.mutants.mutate import Mutant
from tests.mutants.recorded import Recorded, code_digest, recorded, try_of, write

COMMAND = "python -m tests.mutants --table --seeds 0"
"""Brings results.json and the page up to date."""

TABLE = Path(__file__).resolve().parent / "table.md"
WRITTEN_BY = "`python -m tests.mutants --table` writes this page; [README](README.md) says what its words mean."
CHECKED = (Try("races"), Try("races", is_patient=True), Try("races", late=0), Try("races", behind=0, is_patient=True))
"""How mutants run that are argued: so that each wait is reached, with flags that are there and flags that are not."""

SEEDS = 6
"""Seeds of each way that a mutant is searched by before it has to be argued."""


NAMES = (*OWN, *MATMULS)
"""All kernels of ours that have mutants."""


@dataclass(frozen=True, slots=True)
class Result:
    """A mutant of a kernel: how it was found ("" if nothing was), and why it needn't be."""

    kernel: str
    mutant: Mutant
    found: str
    argument: Argument | None

    @property
    def kind(self):
        """The column of the table: checker, orders, judge, argued, open."""
        if not self.found and self.argument:
            return "judge" if self.argument.litmus else "argued"
        if not self.found:
            return "open"
        return "checker" if self.found.startswith("finding") else "orders"


def compiled_kernel(name):
    """Return what runs a kernel's mutants."""
    return CompiledMatmul(name) if name in MATMULS else Compiled(OWN[name])


def results(kernel, seeds=SEEDS):
    """Run all mutants of a kernel: those that are argued by the checker alone, in the first shape; of the others, what
    is recorded to have found it comes first."""
    known = arguments(ARGUMENTS.read_text(encoding="utf-8"))
    compiled = compiled_kernel(kernel)
    checked, searched = (MATMULS_CHECKED, matmul_tries) if kernel in MATMULS else (CHECKED, tries)
    before = recorded().get(kernel)
    is_known = before is not None and before.code == code_digest(compiled.executable.ptx)
    texts = before.found if is_known and len(before.found) == len(compiled.mutants) else ()
    found = []
    for number, one in enumerate(compiled.mutants):
        argument = argued(known, kernel, one)
        how, first = (checked, None) if argument else (searched(seeds), try_of(texts[number]) if texts else None)
        found.append(Result(kernel, one, compiled.found(one, how, first), argument))
    return found


@cache
def today(kernel):
    """Return the digest of a kernel's code as it is now, and its mutants."""
    compiled = compiled_kernel(kernel)
    return code_digest(compiled.executable.ptx), compiled.mutants


def told(rows, kernels=NAMES):
    """Return what rows say of all mutants of today's kernels, without those that gaps() names."""
    known = arguments(ARGUMENTS.read_text(encoding="utf-8"))
    found = []
    for kernel in kernels:
        row, (code, mutants) = rows.get(kernel), today(kernel)
        if row and row.code == code:
            pairs = zip(mutants, row.found, strict=False)
            found += [Result(kernel, one, text, argued(known, kernel, one)) for one, text in pairs]
    return found


def gaps(rows, kernels=NAMES):
    """Return a line for each kernel whose rows are not about its mutants of today, and for each mutant that is neither
    found nor argued, or both."""
    lines = [f"{name}: there is no such kernel" for name in rows if name not in NAMES]
    for kernel in kernels:
        row, (code, mutants) = rows.get(kernel), today(kernel)
        if row is None or row.code != code or len(row.found) != len(mutants):
            lines.append(f"{kernel}: its code is not what results.json is about: {COMMAND} --kernel {kernel}")
    for one in told(rows, kernels):
        if one.kind == "open":
            lines.append(f"{one.kernel}: {one.mutant.name}: neither found nor argued")
        elif one.found and one.argument:
            lines.append(f"{one.kernel}: {one.mutant.name}: argued to be harmless, and found: {one.found}")
        elif one.found and try_of(one.found) is None:
            lines.append(f"{one.kernel}: {one.mutant.name}: no try is named '{one.found}'")
    return lines


def again(kernel):
    """Run each mutant of a kernel by the try that found it. Returns those that it finds no more."""
    compiled, row = compiled_kernel(kernel), recorded()[kernel]
    lost = []
    for one, text in zip(compiled.mutants, row.found, strict=True):
        how = try_of(text)
        if how is not None and f"{compiled.outcome(one, how)} ({how.text})" != text:
            lost.append(f"{one.name}: {text}")
    return lost


def record(found):
    """Write a kernel's results into results.json."""
    (kernel,) = {one.kernel for one in found}
    write({**recorded(), kernel: Recorded(today(kernel)[0], tuple(one.found for one in found))}, list(NAMES))


def page():
    """The text of table.md."""
    lines = table(told(recorded()))
    return "\n".join(["# Mutants of each kernel, and what finds them", "", WRITTEN_BY, "", *lines, ""])


def table(found):
    """Yield the lines of the table: a kernel a line."""
    columns = ("checker", "orders", "judge", "argued", "open")
    yield f"| kernel | mutants | {' | '.join(columns)} |"
    yield f"| --- | ---: |{' ---: |' * len(columns)}"
    for kernel in dict.fromkeys(one.kernel for one in found):
        counts = Counter(one.kind for one in found if one.kernel == kernel)
        yield f"| {kernel} | {counts.total()} | {' | '.join(str(counts[one]) for one in columns)} |"
    counts = Counter(one.kind for one in found)
    yield f"| all | {counts.total()} | {' | '.join(str(counts[one]) for one in columns)} |"


def all_results(chosen, seeds, jobs):
    """Run all mutants of kernels, each kernel's in one of a number of processes."""
    if jobs == 1:
        yield from (results(name, seeds) for name in chosen)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent) as pool:
        yield from pool.map(results, chosen, [seeds] * len(chosen))
