"""Running mutants of our kernels: first under the checker, then by orders and weak memory, seed after seed."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from cases.finding import Finding
from cases.ops import collective
from kernels.compile import executable
from memory.fabric import DeadlineExceeded, Executable
from simulator.observe.events import Listener
from simulator.run.orders import OLDEST_EVERY, Fair, Step, taken
from simulator.run.streams import Streams
from simulator.world import SimulatedWorld
from tests.kernels.conftest import make_fit_case
from tests.kernels.launching import Bound, Found, Launches, numbers
from tests.kernels.sabotaged import KERNELS
from tests.museum.exhibit import ARCH, CACHE
from tests.museum.ways import WAYS as MUSEUM
from tests.museum.ways import Way
from tests.mutants.mutate import mutants_of

LAUNCHES = 3
IN_A_ROW = 6
SHAPES = {
    "even": {"size_bytes": 1_536},
    "odd": {"size_bytes": 1_542, "offset": 1},
    "short": {"size_bytes": 480},
    "middle": {"size_bytes": 17_280},
    "several": {"size_bytes": 34_560},
    "long": {"size_bytes": 110_592},
}
"""Sizes and offsets of a case: vectors alone; unaligned, with a head and a tail; fewer vectors than a block has
threads; two or three vectors a thread; five or six; many."""

PATIENCE_NS = 1 << 40
"""So long that no wait gives up; but the kernel takes the code that looks at the clock."""

STEP_BUDGET = 20_000
PATIENT_STEP_BUDGET = 10_000
"""In random orders a wait with a time limit takes some hundred steps, or more than any number: it never sleeps."""

WARP = 32
TURNS_OF_WARPS = 256
TURNS_IN_A_ROW = 64
"""Of warps, where launches follow each other: ranks are to fall behind by a launch or two, not in the first one."""

STEPS_TO_LOOK = 16
TURNS_OF_OTHERS = 8
"""Number of steps that others take for one of a rank that is late, where waits have a time limit."""

BLOCKS = {"schedule": "random", "granularity": "block"}
WAYS = {
    **MUSEUM,
    "races in orders": Way({**BLOCKS, "races": True}, 12),
    "weak by block": Way({**BLOCKS, "memory": "weak"}, 12),
}
"""The museum's ways; the checker in orders that bring other instructions to see a flag; weak memory in orders of few
steps, for waits that look at the clock."""

WRONG = ("wrong", "changed", "Deadlock", "DeviceFault")
"""How a run of a mutant may end that says that it is wrong; other errors are ours."""

PATIENT_SEEDS = 4
"""How many more seeds they have than others: only in some orders do they get anywhere."""

OWN = {spec.name: spec for spec in KERNELS if spec.algorithm != "two_shot_pushed"}
"""Our kernels by name, with small launches."""


class Apart(Streams):
    """Launches of several ranks never share a batch, so that one of them can fall behind."""

    def add(self, rank, executable, launch, arguments):
        number = super().add(rank, executable, launch, arguments)
        queue = self._queues[rank][launch.stream]
        queue[-1] = replace(queue[-1], delay=rank)
        return number


@dataclass(slots=True)
class Behind(Fair):
    """The fair order, but one rank takes a step when the others have taken TURNS_OF_OTHERS."""

    late: int = 0

    def turn(self, batches):
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
        return Step(number, index, batch.take(index))


@dataclass(slots=True)
class Straggling(Behind):
    """The same of a rank's last warps alone, which signal for others in some kernels. turns: of others, for one."""

    turns: int = TURNS_OF_WARPS

    def turn(self, batches):
        able = [number for number, batch in enumerate(batches) if batch.ready]
        self.steps += 1
        mine = [number for number in able if self.late in batches[number].rank_alive]
        if mine and self.steps % len(able) == 0:
            batch = batches[mine[0]]
            lanes = np.arange(batch.lanes)
            is_last = lanes % batch.block >= batch.block - WARP
            wanted = lanes[is_last == (self.steps % self.turns == 0)]
            for index in sorted(batch.ready):
                if (part := taken(batch, index, wanted)) is not None:
                    return Step(mine[0], index, part)
        others = [number for number in able if number not in mine] or able
        batch = batches[number := others[self.steps % len(others)]]
        is_old = batch.steps % OLDEST_EVERY == 0
        index = min(batch.ready, key=lambda one: (batch.last_run.get(one, 0) if is_old else 0, one))
        return Step(number, index, batch.take(index))


@dataclass(slots=True)
class StragglingInARow(Straggling):
    """The same of launches in a row, which take long: they end with the first finding. found: those so far."""

    turns: int = TURNS_IN_A_ROW
    found: Callable[[], Iterable[Finding]] = tuple

    def turn(self, batches):
        if self.steps % STEPS_TO_LOOK == 0 and any(map(counts, self.found())):
            raise DeadlineExceeded("a finding is enough")
        return Straggling.turn(self, batches)


def counts(finding):
    """Return whether a finding tells that a mutant is wrong."""
    return finding.severity != "advisory"


def late_world(late, order):
    """Return a world in which one rank, or its last warps, falls behind all others.

    A wait with a time limit never sleeps, so that there is no moment at which all others wait for a late rank; and if
    hosts wait for one, it orders more than kernels do.
    """

    class LateWorld(SimulatedWorld):
        def _no_launches(self):
            return Apart(self.world_size, self.options.seed, together=False)

        def _scheduler(self):
            scheduler = super()._scheduler()
            scheduler.order = order(late=late)
            if isinstance(scheduler.order, StragglingInARow):
                scheduler.order.found = self._found_so_far
            return scheduler

        def _found_so_far(self):
            return self.races.found.found.values() if self.races is not None else ()

    return LateWorld


@dataclass(frozen=True, slots=True)
class Try:
    """A run that may show a mutant: a way of WAYS, its seed, whether waits have a time limit, the shape of the case, of
    SHAPES, and a rank that makes others wait.

    late: this rank's host launches when all others wait. behind: this rank's kernels run slowly, or its last warps
    if of_warps (late_world). in_a_row: at least IN_A_ROW launches with no host in between, and half as many again as an
    inbox has banks, so that the accesses of one may end after those of peers' later ones.
    """

    way: str
    seed: int = 0
    is_patient: bool = False
    late: int | None = None
    behind: int | None = None
    of_warps: bool = False
    shape: str = "even"
    in_a_row: bool = False

    @property
    def options(self):
        return {**WAYS[self.way].options, "seed": self.seed}

    @property
    def text(self):
        """How it is named in tables."""
        seed = "" if WAYS[self.way].seeds == 1 else f" {self.seed}"
        words = [f"{self.way}{seed}"]
        words += ["with a time limit"] if self.is_patient else []
        words += [] if self.late is None else [f"rank {self.late} late"]
        words += [] if self.behind is None else [f"{'last warps of ' * self.of_warps}rank {self.behind} behind"]
        words += ["in a row"] if self.in_a_row else []
        return ", ".join([*words, *([] if self.shape == "even" else [self.shape])])


LATECOMERS = (
    {},
    {"is_patient": True},
    {"late": 0},
    {"late": 1},
    {"behind": 0, "is_patient": True},
    {"behind": 1, "is_patient": True},
    {"behind": 0},
    {"behind": 1},
    {"behind": 0, "of_warps": True},
    {"behind": 0, "of_warps": True, "is_patient": True},
)
"""Who waits for whom, so that waits find flags that are there, and flags that are not. A late rank would never launch
while others wait with a time limit."""

FAIR = tuple(Try("races", shape=shape, **given) for shape in SHAPES for given in LATECOMERS)
"""Runs of the checker in the fair order."""

ROWS = tuple(
    Try(way, seed, patient, shape="short", in_a_row=True)
    for seed in range(2)
    for way, patient in (("weak", False), ("weak by block", True))
)
"""Runs in weak memory of launches in a row."""

CHECKED_ROWS = tuple(
    Try("races", shape=shape, in_a_row=True, **given)
    for shape in ("short", "odd")
    for given in LATECOMERS
    if "late" not in given
)
"""Runs of the checker of launches in a row, in which inboxes' banks are taken again, and ranks wait for grants."""


class Reached(Listener):
    """The lines of the PTX that lanes ran, of those that can have mutants."""

    def __init__(self):
        self.lines = set()

    def _add(self, event):
        self.lines.add(event.instruction.line)

    access = fence = barrier_arrived = copies_awaited = _add


def tries(seeds):
    """Return what is tried, in order: the checker, then seeds of the other ways.

    Waits with a time limit are tried by steps of blocks alone, for they take many.
    """
    first = len(LATECOMERS)
    found = [*FAIR[:first], *CHECKED_ROWS, *FAIR[first:], *ROWS]
    found += [Try("races in orders", seed, is_patient=True) for seed in range(PATIENT_SEEDS * seeds)]
    for seed in range(seeds):
        found += [Try(name, seed) for name in ("races in orders", "weak", "adversarial", "random")]
    return tuple(found)


class InARow(Launches):
    """Launches of the same inputs with one host synchronisation at their end; the output is the last one's."""

    def is_right(self, rank, launch):
        return super().is_right(rank, 0)

    def _rank(self, fabric):
        assert isinstance(self.executables, Executable)
        bound = Bound(fabric, self.case, self.spec, self.collective, self.epoch, self.fill)
        arguments = [one.argument(bound.argument(one, self.patience)) for one in self.spec.parameters]
        data = numbers(self.case, 0, fabric.rank).view(torch.uint8)
        bound.take(self.case)
        bound.prepare(data)
        fabric.barrier()
        for _ in range(self.count):
            fabric.launch(self.executables, self.spec.launch(self.case), arguments)
        fabric.synchronize()
        fabric.barrier()
        return Found((bound.output(),) * self.count, {}, tuple(bound.changed(data)), dict(bound.regions))


def mutated(executable, mutant):
    """Return what a mutant compiles to; None: the kernel as it is."""
    if mutant is None:
        return executable
    text = mutant.applied(executable.ptx)
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return replace(executable, ptx=text, digest=digest, cubin=b"")


class Compiled:
    """A kernel of ours: its PTX, its mutants, and how to run them."""

    def __init__(self, spec, cache_dir=CACHE):
        self.spec = spec
        op = collective(spec.op)
        given = {"root": 1} if op.rooted else {"counts": "skewed"} if op.sends else {}
        shapes = {"even": {}} if spec.op == "barrier" else SHAPES
        self.cases = {name: _case(spec, {**given, **shape}) for name, shape in shapes.items()}
        self.executable = executable(spec, self.cases["even"], ARCH, cache_dir)
        self.mutants = mutants_of(self.executable.ptx)
        self.in_a_row = max(IN_A_ROW, spec.choices(self.cases["even"]).get("banks", 0) * 3 // 2)
        self._last = {}
        self._reached = {}

    def changed(self, mutant):
        return mutated(self.executable, mutant)

    def outcome(self, mutant, how, listener=None):
        """Run it once: "" if nothing is wrong (or if it takes too many steps to tell), or what is."""
        patience = PATIENCE_NS if how.is_patient else 0
        straggling = StragglingInARow if how.in_a_row else Straggling
        world = SimulatedWorld if how.behind is None else late_world(how.behind, straggling if how.of_warps else Behind)
        launches, count = (InARow, self.in_a_row) if how.in_a_row else (Launches, LAUNCHES)
        work = launches(
            self.spec, self.cases[how.shape], self.changed(mutant), count=count, patience=patience, late=how.late,
            world=world, listener=listener,
        )  # fmt: skip
        budget = PATIENT_STEP_BUDGET if how.is_patient and not (how.of_warps and how.in_a_row) else STEP_BUDGET
        ran = work.run(step_budget=budget, **how.options)
        seen = work.seen()
        if seen not in ("right", "DeadlineExceeded"):  # the step budget: waits that look at the clock never sleep
            assert seen in WRONG, f"{self.spec.name}: {how.text} ended with {work.errors}"
            return seen
        return "finding" if any(map(counts, getattr(ran, "findings", ()))) else ""

    def reached(self, how):
        """Return the lines that the kernel as it is reaches in a try."""
        if how not in self._reached:
            seen = Reached()
            if how.shape in self.cases:
                assert self.outcome(None, how, seen) == "", f"{self.spec.name} is not clean: {how.text}"
            self._reached[how] = seen.lines
        return self._reached[how]

    def found(self, mutant, how, first=None):
        """Run it until something is wrong: what, and by which try; "" if nothing ever was.

        first, and what found the last change of the same instruction, or of one like it, are tried first. Tries of
        FAIR that do not reach the instruction are left out.
        """
        like = [self._last[key] for nth in (mutant.nth, 0) if (key := (mutant.opcode, mutant.place, nth)) in self._last]
        tells = not mutant.opcode.startswith("mbarrier")  # a wait for one is no event
        like = ([first] if first else []) + [one for one in like if one in how]
        for one in dict.fromkeys([*like, *how]):
            is_left_out = one in FAIR and one != first and tells and mutant.line not in self.reached(one)
            if one.shape not in self.cases or is_left_out:
                continue
            if what := self.outcome(mutant, one):
                self._last |= dict.fromkeys(((mutant.opcode, mutant.place, nth) for nth in (mutant.nth, 0)), one)
                return f"{what} ({one.text})"
        return ""


def _case(spec, changes):
    """Return a case of a shape; of the even size if the kernel does not take this one."""
    case = make_fit_case(spec, **changes)
    if spec.refusal(case, ARCH) is None:
        return case
    return make_fit_case(spec, **{**changes, **SHAPES["even"]})
