"""ThreadWorld: ranks as threads of this process, over the simulator.

The machine stops kernels at the deadline; a rank that is stuck in ordinary Python code can't be stopped: it is named,
with the line it is at, and the world is abandoned.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from cases.finding import Finding
from memory.fabric import DeadlineExceeded, Fabric, FabricError
from runner.world.world import (
    GRACE_S,
    LINGER_S,
    POLL_S,
    Argument,
    Outcomes,
    Result,
    WorldFailure,
    described_frame,
    failure_of,
    innermost_frame,
    leak_of,
)
from simulator.options import Memory, Schedule
from simulator.world import SimulatedWorld, SimulatorOptions

__tracebackhide__ = True
"""pytest shows the test's own lines, and none of this file."""


RACE_SEEDS = (0, 1)
"""Seeds of the orders by priority in which the race checker looks, too, where the world's own order is fair: there
flags and counters may pair rightly by chance."""
RACE_TIME = 2.0
"""CPU time that these may take in all, as a multiple of the fair run's: none begins that would take longer."""
LEAST_RACE_S = 0.25
"""CPU time that they may take however short the fair run was."""
CUT_RACE = 10.0
"""An order is cut short after this many times the fair run's time, and CUT_RACE seconds at least."""


@dataclass(slots=True)
class _Run(Outcomes):
    """One run of a program: its threads, and what the ranks ended with."""

    threads: list[threading.Thread] = field(default_factory=list)
    ended: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = field(default_factory=queue.SimpleQueue)

    def wait(self, until_s: float) -> None:
        """Take what ranks end with, until all have ended or the time (monotonic) is up. Interrupts get through."""
        while self.unfinished():
            left_s = min(POLL_S, until_s - time.monotonic())
            if left_s <= 0:
                return
            with contextlib.suppress(queue.Empty):
                rank, result, error = self.ended.get(timeout=left_s)
                if error is None:
                    self.results[rank] = result
                else:
                    self.errors[rank] = error
                    until_s = min(until_s, time.monotonic() + LINGER_S)


class ThreadWorld:
    """Ranks as threads of this process over one machine: the simulator's, unless another is given."""

    def __init__(
        self, world_size: int, options: SimulatorOptions | None = None, machine: SimulatedWorld | None = None
    ) -> None:
        self.world_size = world_size
        options = options or SimulatorOptions()
        self._machine = machine or SimulatedWorld(world_size, options)
        self._options = options
        self._is_checked = options.races
        self._found: list[Finding] = []
        self._orders: list[str] = []
        self.healthy = True

    def counters(self) -> dict[str, Any]:
        """What the machine counted; race_orders: in which further orders the race checker looked."""
        counted = self._machine.counters()
        return {**counted, "race_orders": list(self._orders)} if self._orders else counted

    def findings(self) -> tuple[Finding, ...] | None:
        if not self._is_checked:
            return None
        found = self._machine.findings
        known = {one.accesses for one in found}
        return (*found, *(one for one in self._found if one.accesses not in known))

    def close(self) -> None:
        self.healthy = False
        self._machine.close()

    def set_seed(self, seed: int) -> None:
        """Set the seed of the orders in which the programs run that begin from now on."""
        self._machine.set_seed(seed)

    def run(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, deadline_s: float | None
    ) -> list[Result]:
        """program(fabric, argument) on every rank; the results by rank. deadline_s None: no limit.

        A world that looks for races in fair order then runs it again, in new worlds, in orders by priority (of
        RACE_SEEDS), as many as RACE_TIME allows; their results are dropped.

        Raises WorldFailure naming the rank where it began; a symmetric tensor that a rank left behind is one, too.
        """
        if not self.healthy:
            raise FabricError("this world was closed or hurt by a failure: make a new one")
        ends_s = math.inf if deadline_s is None else time.monotonic() + deadline_s
        self._machine.set_deadline(None if deadline_s is None else ends_s)
        self._found, self._orders = [], []
        run, began_s, cpu_s = _Run(self.world_size), time.monotonic(), time.process_time()
        try:
            self._start(run, program, argument)
            run.wait(ends_s)
            if run.unfinished():
                self._end(run)
        except BaseException as interrupt:
            self.healthy = False
            self._machine.abort(FabricError(f"the run was ended by {type(interrupt).__name__}"))
            run.wait(time.monotonic() + GRACE_S)
            raise
        if run.failed():
            self.healthy = False
            raise failure_of(run, deadline_s)
        if self._is_checked and (self._options.schedule, self._options.memory) == (Schedule.fair, Memory.strong):
            most_s = max(LEAST_RACE_S, RACE_TIME * (time.process_time() - cpu_s))
            cut_s = CUT_RACE * max(1.0, time.monotonic() - began_s)
            self._run_by_priority(program, argument, most_s, min(ends_s, time.monotonic() + cut_s))
        return [run.results[rank] for rank in range(self.world_size)]

    def _run_by_priority(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, most_s: float, ends_s: float
    ) -> None:
        """Look for races in further orders: the first, and more within most_s seconds of CPU time, until a time
        (monotonic). An order that is cut short does not count."""
        begins_s, longest_s = time.process_time(), 0.0
        for seed in RACE_SEEDS:
            began_s = time.process_time()
            left_s = ends_s - time.monotonic()
            if left_s <= 0 or (longest_s and began_s - begins_s + longest_s > most_s):
                return
            order = f"fabric.schedule=priority fabric.seed={seed}"
            world = ThreadWorld(self.world_size, replace(self._options, schedule=Schedule.priority, seed=seed))
            try:
                world.run(program, argument, left_s)
            except WorldFailure as failure:
                if failure.status == "TIMEOUT":
                    return
                self.healthy = False
                raise WorldFailure(
                    failure.status, failure.rank, f"{failure.message} (with {order})", failure.errors
                ) from failure.__cause__
            finally:
                known = {one.accesses for one in self._found}
                self._found += [
                    replace(one, order=order) for one in world.findings() or () if one.accesses not in known
                ]
                world.close()
            self._orders.append(order)
            longest_s = max(longest_s, time.process_time() - began_s)

    def _start(self, run: _Run, program: Callable[[Fabric, Argument], Result], argument: Argument) -> None:
        # All fabrics before the first thread: a rank that has none yet would look like one that has left.
        fabrics = [self._machine.fabric(rank) for rank in range(self.world_size)]
        for rank, fabric in enumerate(fabrics):
            body = (rank, fabric, program, argument, run.ended)
            # Daemons: a rank that is stuck must not keep the process from ending.
            run.threads.append(threading.Thread(target=self._rank, args=body, name=f"rank {rank}", daemon=True))
        for thread in run.threads:
            thread.start()

    def _rank(
        self,
        rank: int,
        fabric: Fabric,
        program: Callable[[Fabric, Argument], Result],
        argument: Argument,
        ended: queue.SimpleQueue[tuple[int, Any, BaseException | None]],
    ) -> None:
        """The body of a rank's thread. However the program ends, the machine and the run hear of it."""
        result: Result | None = None
        error: BaseException | None = None
        try:
            result = program(fabric, argument)
            error = leak_of(self._machine.live_regions(rank))
        except BaseException as raised:
            error = raised
        try:
            self._machine.leave(rank, error)
        except BaseException as raised:
            error = error or raised
        ended.put((rank, result, error))

    def _end(self, run: _Run) -> None:
        """The time is up, or others failed: what does not end by itself is noted as late, and ended by an abort."""
        run.wait(time.monotonic() + GRACE_S)
        for rank in run.unfinished():
            frame = innermost_frame(run.threads[rank].ident)
            run.late[rank] = described_frame(frame)
            if frame is not None and frame.f_code.co_qualname.startswith(f"{type(self._machine).__name__}."):
                run.waiting.add(rank)
        if run.late:
            self._machine.abort(DeadlineExceeded("the deadline has passed"))
            run.wait(time.monotonic() + GRACE_S)
