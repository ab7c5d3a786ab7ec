"""Running mutants of our kernels: first under the checker, then by orders and weak memory, seed after seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernels.catalogue import collective
from kernels.compile import executable
from kernels.spec import KernelSpec
from memory.fabric import Executable
from tests.kernels.conftest import make_fit_case
from tests.kernels.launching import Launches
from tests.kernels.sabotaged import KERNELS
from tests.museum.exhibit import ARCH, CACHE
from tests.museum.ways import WAYS as MUSEUM
from tests.museum.ways import Way
from tests.mutants.mutate import Mutant, mutants_of

LAUNCHES = 3
SIZE_BYTES = 1_536
PATIENCE_NS = 1 << 40
"""So long that no wait gives up; but the kernel takes the code that looks at the clock."""

STEP_BUDGET = 20_000
PATIENT_STEP_BUDGET = 3_000
"""In random orders a wait with a time limit takes some hundred steps, or more than any number: it never sleeps."""

WAYS = {**MUSEUM, "races in orders": Way({"schedule": "random", "granularity": "block", "races": True}, 12)}
"""The museum's ways, and the checker in orders that bring other instructions to see a flag."""

PATIENT_SEEDS = 4
"""How many more seeds they have than others: only in some orders do they get anywhere."""

OWN = {spec.name: spec for spec in KERNELS if spec.algorithm != "two_shot_pushed"}
"""Our kernels by name, with small launches."""


@dataclass(frozen=True, slots=True)
class Try:
    """A run that may show a mutant: a way of WAYS, its seed, whether waits have a time limit, which rank is late."""

    way: str
    seed: int = 0
    is_patient: bool = False
    late: int | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        return {**WAYS[self.way].options, "seed": self.seed}

    @property
    def text(self) -> str:
        """How it is named in tables."""
        seed = "" if WAYS[self.way].seeds == 1 else f" {self.seed}"
        limit = ", with a time limit" if self.is_patient else ""
        return f"{self.way}{seed}{limit}{'' if self.late is None else f', rank {self.late} late'}"


FAIR = (Try("races"), Try("races", is_patient=True), Try("races", late=0), Try("races", late=1))
"""Runs of the checker in the fair order: waits find flags that are there, and flags that are not."""


def tries(seeds: int) -> tuple[Try, ...]:
    """Return what is tried, in order: the checker, then seeds of the ways that the simulator has.

    Waits with a time limit are tried by steps of blocks alone, for they take many.
    """
    searched = [name for name in ("races in orders", "weak", "adversarial", "random") if WAYS[name].is_there]
    found = list(FAIR if WAYS["races"].is_there else ())
    if "races in orders" in searched:
        found += [Try("races in orders", seed, is_patient=True) for seed in range(PATIENT_SEEDS * seeds)]
    for seed in range(seeds):
        found += [Try(name, seed) for name in searched]
    return tuple(found)


class Compiled:
    """A kernel of ours: its PTX, its mutants, and how to run them."""

    def __init__(self, spec: KernelSpec, cache_dir: Path = CACHE) -> None:
        self.spec = spec
        root = {"root": 1} if collective(spec.op).rooted else {}
        size = {} if spec.op == "barrier" else {"size_bytes": SIZE_BYTES}
        self.case = make_fit_case(spec, **root, **size)
        self.executable = executable(spec, self.case, ARCH, cache_dir)
        self.mutants = mutants_of(self.executable.ptx)

    def changed(self, mutant: Mutant | None) -> Executable:
        """Return what a mutant compiles to; None: the kernel as it is."""
        if mutant is None:
            return self.executable
        text = mutant.applied(self.executable.ptx)
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        return replace(self.executable, ptx=text, digest=digest, cubin=b"")

    def outcome(self, mutant: Mutant | None, how: Try) -> str:
        """Run it once: "" if nothing is wrong (or if it takes too many steps to tell), or what is."""
        patience = PATIENCE_NS if how.is_patient else 0
        work = Launches(self.spec, self.case, self.changed(mutant), count=LAUNCHES, patience=patience, late=how.late)
        budget = PATIENT_STEP_BUDGET if how.is_patient else STEP_BUDGET
        world = work.run(step_budget=budget, **how.options)
        seen = work.seen()
        if seen == "DeadlineExceeded":  # the step budget: waits that look at the clock never sleep
            return ""
        if seen != "right":
            return seen
        return "finding" if any(one.severity != "advisory" for one in getattr(world, "findings", ())) else ""

    def found(self, mutant: Mutant, how: tuple[Try, ...]) -> str:
        """Run it until something is wrong: what, and by which try; "" if nothing ever was."""
        for one in how:
            if what := self.outcome(mutant, one):
                return f"{what} ({one.text})"
        return ""
