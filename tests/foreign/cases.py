"""What a kernel of others is here, and how it is run: on 2, 4 and 8 ranks, in a fair order and in random ones."""

import io
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

import symlab
from symlab.checks.forms import missing_forms
from tests.foreign.environment import Module, absent, versions

RANKS = (2, 4, 8)
SEEDS = 3
"""Number of random orders for each number of ranks."""
BITWISE = "bit for bit"

Outputs = Mapping[str, list[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Case:
    """Launches on a number of ranks: the module, the arguments of symlab.simulate, of which `steps` are those of each
    launch in a row, and a check of what the buffers hold afterwards, which raises AssertionError."""

    module: Module
    launch: Mapping[str, Any]
    check: Callable[[Outputs], None]

    def simulated(self, ranks, **order):
        """Run it. order: other arguments of symlab.simulate."""
        how = {"entry": self.module.facts.get("entry"), **self.launch, **order}
        steps = [{"kernel": self.module.ptx, **one} for one in how.pop("steps", [{}])]
        with redirect_stderr(io.StringIO()):  # what kernels print
            return symlab.simulate(steps, ranks=ranks, **how)


def exact(module, ranks, expected, more=(), **launch):
    """A launch after which buffers hold on each rank what is expected of it, bit for bit. Unless the launch says
    otherwise, its arguments are its buffers and `more`, and all of its buffers are local."""

    def check(outputs):
        for rank in range(ranks):
            for name, one in expected(rank).items():
                held(name, outputs[name][rank], one, rank)

    buffers = list(launch["buffers"])
    return Case(module, {"arguments": [*buffers, *more], "local": buffers, **launch}, check)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A kernel that others wrote, or whose compiler they did.

    name: unique, as the table has it. package: of constraints.txt here, whose version the table states. case: the
    launch on a number of ranks. promise: what the check holds results to, `bit for bit` or a bound; for a kernel with
    forms that the simulator does not have, `unsupported: ` and these forms. race: of a kernel in which the race checker
    is right to find one, the name under which simulator/README.md explains it; "" for those that have to be clean.
    assumption: of cases/assumptions.py, which alone explains all races that a kernel has by PTX; "" for all others.
    """

    name: str
    package: str
    case: Callable[[int], Case]
    promise: str = BITWISE
    race: str = ""
    assumption: str = ""
    ranks: tuple[int, ...] = RANKS
    needs_host_compiler: bool = False

    def __str__(self):
        return self.name

    @property
    def absent(self):
        """Why it can't be compiled here; "" if it can."""
        return absent(self.needs_host_compiler)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a kernel: steps is the number of steps in the fair order, by number of ranks."""

    kernel: Foreign
    steps: tuple[int, ...]
    verdict: str
    races: str = "-"

    @property
    def row(self):
        """The kernel's line of the table."""
        kernel = self.kernel
        steps = " / ".join(f"{one:,}" for one in self.steps) or "-"
        ranks = ", ".join(map(str, kernel.ranks))
        orders = f"fair, {SEEDS} random" if self.steps else "-"
        package = f"{kernel.package} {versions()[kernel.package]}"
        return f"| {kernel.name} | {package} | {ranks} | {orders} | {steps} | {self.races} | {self.verdict} |"


HEAD = (
    "| kernel | from | ranks | orders | steps (fair) | races | outcome |\n| --- | --- | --- | --- | ---: | --- | --- |"
)


@cache
def outcome(kernel):
    """Compile the kernel, list what the simulator lacks of it, run it in all orders on all numbers of ranks, and check
    each result; the race checker watches all of them, and a kernel with an assumption has it in random orders. The
    verdict is the kernel's promise, the unsupported forms, or what went wrong."""
    cases = {ranks: kernel.case(ranks) for ranks in kernel.ranks}
    lacking = sorted({one.form for case in cases.values() for one in missing_forms(case.module.ptx)})
    if lacking:
        return Outcome(kernel, (), f"unsupported: {', '.join(f'`{one}`' for one in lacking)}")
    steps = []
    found, beyond = [], set()
    granted = {"assumptions": [kernel.assumption]} if kernel.assumption else {}
    for ranks, case in cases.items():
        for schedule in ("fair", "random"):
            is_fair = schedule == "fair"
            try:
                done = case.simulated(ranks, schedule=schedule, seeds=SEEDS, races=True, **({} if is_fair else granted))
                for run in done.runs:
                    case.check(run.outputs)
                found += done.findings or () if is_fair else ()
                beyond |= set() if is_fair else {one.sentence() for one in done.findings or () if one.fails}
            except (AssertionError, symlab.WorldFailure) as error:
                what = (str(error).splitlines() or ["its check failed"])[0]
                return Outcome(kernel, tuple(steps), f"FAILED on {ranks} ranks, {schedule}: {what}")
            if schedule == "fair":
                steps.append(done.runs[0].counts["steps"])
    races = {one.sentence() for one in found if one.fails}
    known = kernel.race or kernel.assumption
    if races and kernel.assumption:
        fair = [case.simulated(ranks, schedule="fair", races=True, **granted) for ranks, case in cases.items()]
        beyond |= {one.sentence() for done in fair for one in done.findings or () if one.fails}
    if bool(races) != bool(known):
        what = min(races, default="no race is found, though one is known")
        return Outcome(kernel, tuple(steps), f"FAILED: {what}")
    if beyond and not kernel.race:
        return Outcome(kernel, tuple(steps), f"FAILED with {kernel.assumption or 'random orders'}: {min(beyond)}")
    told = [known] if known else []
    told += ["formal"] if any(one.severity == "formal" for one in found) else []
    return Outcome(kernel, tuple(steps), kernel.promise, ", ".join(told) or "none")


def held(name, found, expected, rank):
    """Hold a buffer to what is expected, bit for bit."""
    same = found.dtype == expected.dtype and found.shape == expected.shape and torch.equal(_raw(found), _raw(expected))
    assert same, f"{name} on rank {rank} is {_first(found)}, expected {_first(expected)}"


def _first(tensor):
    return f"{tensor.flatten()[:4].tolist()}.."


def _raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


def random_rows(ranks, shape, dtype, low, high):
    """Integers from low to high - 1 on each rank, as numbers of a type."""
    made = torch.Generator().manual_seed(17)
    return [torch.randint(low, high, shape, generator=made).to(dtype) for _ in range(ranks)]
