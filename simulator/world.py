"""SimulatedWorld: the simulated GPUs of all ranks and the switch between them, behind the ranks' fabrics.

Ranks are threads that run ordinary code. The world advances only when every rank that is still there is blocked in
one of its fabric's calls: the last one to block runs the kernels of all. So a run is a function of its seed and of
nothing else.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from memory.fabric import (
    DeadlineExceeded,
    Deadlock,
    Disagreement,
    Executable,
    FabricError,
    Launch,
    PeerLost,
    Region,
    Traits,
    rank_of,
)
from memory.ranks import named
from simulator.fabric import SimulatorFabric
from simulator.memory.heaps import Allocation
from simulator.observe.counters import Counters
from simulator.observe.events import HostEvent, LaunchBegan, tell
from simulator.observe.printed import Printer
from simulator.options import Schedule
from simulator.parts import SimulatorOptions as SimulatorOptions
from simulator.parts import described, made_clock, made_races, made_space, made_streams, register_counts
from simulator.run.machine import Batch, Scratch
from simulator.run.queued import Queued
from simulator.run.schedule import Scheduler
from simulator.run.streams import Streams
from simulator.run.waiting import waiting_places, waiting_report

if TYPE_CHECKING:
    from cases.finding import Finding
    from simulator.clock.profile import LaunchProfile
    from simulator.run.choices import Choice
    from simulator.run.residency import Places, Resident

MAX_WORLD_SIZE = 72


class SimulatedWorld:
    """world_size simulated GPUs behind one simulated switch. After any FabricError it is broken: make a new one."""

    def __init__(self, world_size: int, options: SimulatorOptions) -> None:
        if not 1 <= world_size <= MAX_WORLD_SIZE:
            raise ValueError(f"world_size is {world_size}; the simulator has 1 to {MAX_WORLD_SIZE} ranks")
        self.world_size = world_size
        self.options = options
        self.space, self.order = made_space(world_size, options)
        self.scratch = Scratch()
        self.scheduler = self._scheduler()
        self.deadline: float | None = None
        self.tally = Counters(world_size)
        self.printer = Printer()
        self.races = made_races(self.space, options)
        self.clock = made_clock(self.space, options)
        for listener in (self.tally, self.printer, self.races, self.clock):
            if listener is not None:
                self.space.events.add(listener)
        self.turn = threading.Condition()
        self.states = ["away"] * world_size  # away, running, exchange, synchronize, pause, left
        self.notes = [""] * world_size
        self.answers: list[tuple[str, ...] | None] = [None] * world_size
        self.streams = self._no_launches()
        self.residents: dict[str, Resident] = {}  # by kernel: the last launch's
        self.batches: list[Batch] = []
        self.is_launch_due = False
        self.regions: list[dict[int, Allocation]] = [{} for _ in range(world_size)]
        self.broken: BaseException | None = None
        self.culprit: int | None = None

    # For the world's owner

    @property
    def traits(self) -> Traits:
        """What the fabrics of all ranks can do."""
        return described(self.world_size, self.options, self._registers if self.options.gpu is not None else "")

    @cached_property
    def _registers(self) -> str:
        return register_counts()

    @property
    def printed(self) -> list[str]:
        """What kernels printed so far: "rank 0, block 1, thread 2: text"."""
        return self.printer.lines

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The accesses that nothing orders, found since the ranks came in; () of a world that does not look."""
        return self.races.findings() if self.races is not None else ()

    @property
    def profiles(self) -> tuple[LaunchProfile, ...]:
        """What the launches since the ranks came in took and moved; () of a world that does not measure."""
        return tuple(self.clock.profiles) if self.clock is not None else ()

    def fabric(self, rank: int) -> SimulatorFabric:
        """The rank's fabric; the rank counts as running from now on, until leave(rank)."""
        with self.turn:
            if all(state in ("away", "left") for state in self.states):
                self._begin()
            self.states[rank] = "running"
        return SimulatorFabric(self, rank)

    def _begin(self) -> None:
        self.states = ["away"] * self.world_size
        self.scheduler = self._scheduler()
        self.scheduler.deadline = self.deadline
        self.streams = self._no_launches()
        is_fair = self.streams.together and self.streams.follows is None
        self.scheduler.is_launch_due = None if is_fair else self._is_launch_due
        if self.order is not None:
            self.order.space.seed = self.options.seed
            self.order.restart()
        self.residents = {}
        self.tally.reset()
        if self.races is not None:
            self.races.forget()
            self.races.restart()
        if self.clock is not None:
            self.clock.forget()

    def _is_launch_due(self) -> bool:
        self.is_launch_due = self.streams.is_due(self.batches, self.scheduler.steps)
        return self.is_launch_due

    def set_seed(self, seed: int) -> None:
        """Set the seed of the programs that begin from now on."""
        with self.turn:
            self.options = replace(self.options, seed=seed)

    def _no_launches(self) -> Streams:
        return made_streams(self.world_size, self.options, self.scheduler.order)

    def _scheduler(self) -> Scheduler:
        options = self.options
        return Scheduler(self.space, options, options.step_budget, options.records_choices)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What schedule and weak memory chose since the ranks came in; () unless options.records_choices."""
        late = () if self.order is None else self.order.space.chance.kept
        return (*late, *self.scheduler.choices)

    def leave(self, rank: int, error: BaseException | None) -> None:
        """The rank's thread is done.

        With an error the world breaks: the others get PeerLost from their next fabric call. Raises FabricError where
        work of the rank was never waited for, because it would run, or go on, in the next program.
        """
        with self.turn:
            self.states[rank] = "left"
            if error is None and self.broken is None and self.has_work(rank):
                error = FabricError("it ended with launched kernels that it never waited for (synchronize)")
                self._break(_lost(rank, error), rank)
                raise error
            if error is not None and self.broken is None:
                self._break(_lost(rank, error), rank)
            self._drive()

    def abort(self, error: BaseException) -> None:
        """Break the world from outside: every rank's current or next fabric call raises, kernels stop at once."""
        # Before the lock: who runs kernels holds it until they are done.
        self.scheduler.aborted = error
        with self.turn:
            if self.broken is None:
                self._break(error, None)

    def close(self) -> None:
        """Break the world and give its memory back, also if a fabric or an exception still refers to it."""
        self.abort(FabricError("the world was closed"))
        with self.turn:
            self.streams = self._no_launches()
            self.batches = []
            self.space.release()

    def set_deadline(self, monotonic_s: float | None) -> None:
        """Set when kernels must stop: those of this program and of later ones."""
        self.deadline = self.scheduler.deadline = monotonic_s

    def counters(self) -> dict[str, Any]:
        """Since the ranks came in: lane instructions, steps, trace, accesses and bytes by kind and link, of which
        launches they are, and what each of these did (Counters.summary); with a GPU, how many blocks fit at once."""
        summary = self.tally.summary()
        if self.residents:
            summary["residency"] = {name: one.document() for name, one in sorted(self.residents.items())}
        return {
            "instructions": summary.pop("instructions"),
            "steps": self.scheduler.steps,
            "trace": f"{self.scheduler.trace:08x}",
            **summary,
        }

    def live_regions(self, rank: int) -> tuple[Region, ...]:
        return tuple(Region(one.name, address, one.end - one.start) for address, one in self.regions[rank].items())

    def resident(self, executable: Executable, launch: Launch) -> Resident | None:
        """Return how a kernel's blocks share a GPU; None where no limits hold. ValueError for what can never run."""
        gpu = self.options.gpu
        if gpu is None:
            return None
        from simulator.run.residency import resident

        found = resident(gpu, executable, launch, self.options.arch)
        self.residents[executable.name] = found
        return found

    def enqueue(self, rank: int, executable: Executable, launch: Launch, arguments: tuple[bytes, ...]) -> None:
        """Put a launch with its packed arguments at the end of the rank's queue."""
        with self.turn:
            self.check(rank)
            one = self.streams.add(rank, executable, launch, arguments)
            self._report("enqueued", (rank,), one.number, one.after)

    def wait_stream(self, rank: int, stream: int | None, other: int | None) -> None:
        """Let later launches of a rank's stream wait for what another one has now."""
        with self.turn:
            self.check(rank)
            for number in self.streams.wait(rank, stream, other):
                self._report("ordered", (rank,), number)

    def has_work(self, rank: int) -> bool:
        """Return whether the rank has launches that are not done."""
        return self.streams.queued(rank) or any(batch.rank_alive.get(rank) for batch in self.batches)

    def report_synchronized(self, rank: int) -> None:
        """Tell the listeners that the rank's host has waited for its launches. The caller holds the lock."""
        self._report("synchronized", (rank,), self.streams.numbers[rank])

    def _report(self, action: str, ranks: tuple[int, ...], launch: int, after: tuple[int, ...] = ()) -> None:
        events = self.space.events
        if events.host:
            tell(events.host, HostEvent(action, ranks, launch, after))

    # Blocking and driving

    def _break(self, error: BaseException, culprit: int | None) -> None:
        self.broken, self.culprit = error, culprit
        self.turn.notify_all()

    def check(self, rank: int) -> None:
        """Raise what broke the world: the error itself for its culprit and where it concerns all, else PeerLost."""
        if self.broken is None:
            return
        if isinstance(self.broken, PeerLost | Deadlock | DeadlineExceeded | Disagreement) or rank == self.culprit:
            raise self.broken
        if self.culprit is None:
            raise PeerLost(f"the world was ended: {type(self.broken).__name__}: {self.broken}")
        raise _lost(self.culprit, self.broken)

    def wait(self, rank: int, state: str, note: str) -> tuple[str, ...] | None:
        """Block the rank until the others let it go on; the last one to block runs the world."""
        with self.turn:
            self.check(rank)
            self.states[rank], self.notes[rank] = state, note
            self._drive()
            while self.states[rank] == state and self.broken is None:
                self.turn.wait(timeout=1.0)
            # Who was let go has its answer, even if a faster rank has failed since: all ranks learn the same.
            if self.states[rank] == state:
                self.check(rank)
            answer, self.answers[rank] = self.answers[rank], None
            return answer

    def _drive(self) -> None:
        """If every rank is blocked, run kernels until some rank can go on. The caller holds the lock."""
        if self.broken is not None or "running" in self.states or all(one in ("away", "left") for one in self.states):
            return
        self.space.version += 1  # the hosts ran, and may have written through their views
        try:
            while True:
                quiet = self._run_kernels()
                if self._release() or (quiet and not self._start(forced=True) and self._is_pause_over()):
                    self.turn.notify_all()
                    return
        except BaseException as error:
            if self.broken is None:
                self._break(error, rank_of(error))

    def _run_kernels(self) -> bool:
        """Run what is launched. False: stopped early, with work left that can go on."""
        self._start(forced=not self.batches)
        quiet = True
        while self.batches and quiet:
            quiet = self.scheduler.run(self.batches)
            self.batches = [batch for batch in self.batches if any(batch.rank_alive.values())]
            if quiet and not self._start(forced=True):
                return True
        return quiet or not self.batches

    def _start(self, forced: bool) -> bool:
        """Begin launches (Streams.begin), and say whether any began. One batch for equal ones that begin together."""
        found = self.streams.begin(self.batches, self.scheduler.steps, forced)
        is_due, self.is_launch_due = self.is_launch_due, False
        for ranks, queued in found:
            self.scheduler.begun(zip(ranks, [one.number for one in queued], strict=True), is_due)
            try:
                batch = self._batch(ranks, queued)
            except Exception as error:
                self._break(error, ranks[0])
                raise
            self.batches.append(batch)
            events = self.space.events
            if self.races is not None:
                self.races.expect(batch.executable.ptx, batch.shared.shape[1], batch.program.kernel)
            if self.clock is not None:
                self.clock.expect(batch.program)
            if events.launch_began:
                tell(events.launch_began, LaunchBegan(batch.launched, events.step))
        return bool(found)

    def _batch(self, ranks: list[int], queued: list[Queued]) -> Batch:
        """One batch of equal launches on some ranks."""
        how = (self.options.multimem, self._places(queued[0], ranks), self.options.is_by_block)
        return Batch(self.space, self.scratch, ranks, queued, *how)

    def _places(self, one: Queued, ranks: list[int]) -> Places | None:
        """The places for the blocks of a launch on some ranks."""
        found = self.resident(one.executable, one.launch)
        if found is None:
            return None
        options = self.options
        random = None
        if options.schedule != Schedule.fair and options.seed % 2:
            random = np.random.default_rng([options.seed, ranks[0], one.number])
        from simulator.run.residency import Places

        return Places(found, one.launch.grid, len(ranks), random)

    def _release(self) -> bool:
        """Let ranks go on whose wait is over. An exchange is over when every rank is in one."""
        busy = {rank for batch in self.batches for rank, alive in batch.rank_alive.items() if alive}
        free = [
            r
            for r, state in enumerate(self.states)
            if state == "synchronize" and r not in busy and not self.streams.queued(r)
        ]
        for rank in free:
            self.report_synchronized(rank)
            self.states[rank] = "running"
        if all(state == "exchange" for state in self.states):
            self._report("barrier", tuple(range(self.world_size)), -1)
            for rank in range(self.world_size):
                self.answers[rank] = tuple(self.notes)
                self.states[rank] = "running"
            return True
        return bool(free)

    def _is_pause_over(self) -> bool:
        """Nothing else can happen: let the first rank go on that paused. Raises where none did."""
        paused = [rank for rank, state in enumerate(self.states) if state == "pause"]
        if not paused:
            self._stuck()
        self.states[paused[0]] = "running"
        return True

    def _stuck(self) -> NoReturn:
        """Nothing can advance: a deadlock of kernels, or ranks that wait for one that has left."""
        waiting = [rank for rank, state in enumerate(self.states) if state == "exchange"]
        hosts = [f"rank {rank} waits on the host in {self.notes[rank]!r}" for rank in waiting]
        gone = [rank for rank, state in enumerate(self.states) if state in ("left", "away")]
        hosts += [f"rank {rank} has left" for rank in gone]
        if self.batches:
            places = waiting_places(self.batches)
            report = waiting_report(self.space, self.batches)
            lines = "\n  ".join([report, *hosts[:8]])
            raise Deadlock(
                f"deadlock in {self.batches[0].executable.name} after {self.scheduler.steps:,} steps: "
                f"nothing can change any more\n  {lines}",
                places=places,
            )
        wait = "waits" if len(waiting) == 1 else "wait"
        raise PeerLost(
            f"{named(waiting)} {wait} for all in {self.notes[waiting[0]]!r}, but {'; '.join(hosts[len(waiting) :])}"
        )


def _lost(rank: int, error: BaseException) -> PeerLost:
    """What the other ranks are told of a rank's failure."""
    return PeerLost(f"rank {rank} failed: {type(error).__name__}: {error}", rank=rank)
