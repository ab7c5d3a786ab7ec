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
from memory.fabric import Executable, Launch
from simulator.run.choices import Turn
from simulator.run.machine import Batch
from simulator.run.orders import OLDEST_EVERY, Fair
from simulator.run.schedule import Scheduler
from simulator.run.streams import Streams
from simulator.world import SimulatedWorld
from tests.kernels.conftest import make_fit_case
from tests.kernels.launching import Launches
from tests.kernels.sabotaged import KERNELS
from tests.museum.exhibit import ARCH, CACHE
from tests.museum.ways import WAYS as MUSEUM
from tests.museum.ways import Way
from tests.mutants.mutate import Mutant, mutants_of

LAUNCHES = 3
SHAPES: Mapping[str, Mapping[str, int]] = {
    "even": {"size_bytes": 1_536},
    "odd": {"size_bytes": 1_542, "offset": 1},
    "long": {"size_bytes": 36_864},
}
"""Sizes and offsets of a case: vectors alone; unaligned, with a head and a tail; many pieces a thread."""

PATIENCE_NS = 1 << 40
"""So long that no wait gives up; but the kernel takes the code that looks at the clock."""

STEP_BUDGET = 20_000
PATIENT_STEP_BUDGET = 10_000
"""In random orders a wait with a time limit takes some hundred steps, or more than any number: it never sleeps."""

TURNS_OF_OTHERS = 8
"""Number of steps that others take for one of a rank that is late, where waits have a time limit."""

WAYS = {**MUSEUM, "races in orders": Way({"schedule": "random", "granularity": "block", "races": True}, 12)}
"""The museum's ways, and the checker in orders that bring other instructions to see a flag."""

PATIENT_SEEDS = 4
"""How many more seeds they have than others: only in some orders do they get anywhere."""

OWN = {spec.name: spec for spec in KERNELS if spec.algorithm != "two_shot_pushed"}
"""Our kernels by name, with small launches."""


class Apart(Streams):
    """Launches of several ranks never share a batch, so that one of them can fall behind."""

    def add(self, rank: int, executable: Executable, launch: Launch, arguments: tuple[bytes, ...]) -> int:
        number = super().add(rank, executable, launch, arguments)
        queue = self._queues[rank][launch.stream]
        queue[-1] = replace(queue[-1], delay=rank)
        return number


@dataclass(slots=True)
class Behind(Fair):
    """The fair order, but one rank takes a step when the others have taken TURNS_OF_OTHERS."""

    late: int = 0

    def turn(self, batches: list[Batch]) -> Turn:
        able = [number for number, batch in enumerate(batches) if batch.ready]
        slow = [number for number in able if self.late in batches[number].rank_alive]
        fast = [number for number in able if number not in slow]
        turns, over = divmod(self.steps, TURNS_OF_OTHERS)
        self.steps += 1
        chosen = fast if fast and (over or not slow) else slow
        batch = batches[number := chosen[(turns if chosen is slow else self.steps) % len(chosen)]]
        if batch.steps % OLDEST_EVERY == 0:
            index = min(batch.ready, key=lambda one: (batch.last_run.get(one, 0), one))
        else:
            index = min(batch.ready)
        return Turn(number, index, batch.take(index))


def late_world(late: int) -> type[SimulatedWorld]:
    """Return a world in which one rank falls behind all others.

    A wait with a time limit never sleeps, so that there is no moment at which all others wait for a late rank.
    """

    class LateWorld(SimulatedWorld):
        def _no_launches(self) -> Streams:
            return Apart(self.world_size, self.options.seed, together=False)

        def _scheduler(self) -> Scheduler:
            scheduler = super()._scheduler()
            scheduler.order = Behind(late=late)
            return scheduler

    return LateWorld


@dataclass(frozen=True, slots=True)
class Try:
    """A run that may show a mutant: a way of WAYS, its seed, whether waits have a time limit, which rank is late, and
    the shape of the case, of SHAPES."""

    way: str
    seed: int = 0
    is_patient: bool = False
    late: int | None = None
    shape: str = "even"

    @property
    def options(self) -> Mapping[str, Any]:
        return {**WAYS[self.way].options, "seed": self.seed}

    @property
    def text(self) -> str:
        """How it is named in tables."""
        seed = "" if WAYS[self.way].seeds == 1 else f" {self.seed}"
        limit = ", with a time limit" if self.is_patient else ""
        shape = "" if self.shape == "even" else f", {self.shape}"
        return f"{self.way}{seed}{limit}{'' if self.late is None else f', rank {self.late} late'}{shape}"


FAIR = tuple(
    Try("races", is_patient=is_patient, late=late, shape=shape)
    for shape in SHAPES
    for late in (None, 0, 1)
    for is_patient in (False, True)
)
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
        shapes = {"even": {}} if spec.op == "barrier" else SHAPES
        self.cases = {name: make_fit_case(spec, **root, **shape) for name, shape in shapes.items()}
        self.executable = executable(spec, self.cases["even"], ARCH, cache_dir)
        self.mutants = mutants_of(self.executable.ptx)
        self._last: dict[tuple[str, str, int], Try] = {}

    def changed(self, mutant: Mutant | None) -> Executable:
        """Return what a mutant compiles to; None: the kernel as it is."""
        if mutant is None:
            return self.executable
        text = mutant.applied(self.executable.ptx)
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        return replace(self.executable, ptx=text, digest=digest, cubin=b"")

    def outcome(self, mutant: Mutant | None, how: Try) -> str:
        """Run it once: "" if nothing is wrong (or if it takes too many steps to tell), or what is."""
        if how.shape not in self.cases:
            return ""
        patience, late, world = 0, how.late, SimulatedWorld
        if how.is_patient:
            patience, late = PATIENCE_NS, None
            world = SimulatedWorld if how.late is None else late_world(how.late)
        work = Launches(
            self.spec, self.cases[how.shape], self.changed(mutant), count=LAUNCHES, patience=patience, late=late,
            world=world,
        )  # fmt: skip
        budget = PATIENT_STEP_BUDGET if how.is_patient else STEP_BUDGET
        ran = work.run(step_budget=budget, **how.options)
        seen = work.seen()
        if seen == "DeadlineExceeded":  # the step budget: waits that look at the clock never sleep
            return ""
        if seen != "right":
            return seen
        return "finding" if any(one.severity != "advisory" for one in getattr(ran, "findings", ())) else ""

    def found(self, mutant: Mutant, how: tuple[Try, ...]) -> str:
        """Run it until something is wrong: what, and by which try; "" if nothing ever was.

        What found the last change of the same instruction, or of one like it, is tried first.
        """
        like = [one for one in (self._last.get((mutant.opcode, mutant.place, nth)) for nth in (mutant.nth, 0)) if one]
        for one in dict.fromkeys([*(one for one in like if one in how), *how]):
            if what := self.outcome(mutant, one):
                self._last |= dict.fromkeys(((mutant.opcode, mutant.place, nth) for nth in (mutant.nth, 0)), one)
                return f"{what} ({one.text})"
        return ""
