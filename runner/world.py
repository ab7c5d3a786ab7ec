"""Worlds: one function run on every rank, its results brought home, and one clear failure when a rank has any.

ThreadWorld runs ranks as threads over the simulator. What a world must keep: run() ends, whatever the ranks do. The
machine stops kernels at the deadline; a rank that is stuck in ordinary Python code can't be stopped, so it is named,
with the line it is at, and the world is abandoned.
"""

from __future__ import annotations

import contextlib
import linecache
import math
import queue
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar

from memory.fabric import DeadlineExceeded, Deadlock, Fabric, FabricError, PeerLost, Region
from simulator.world import SimulatedWorld, SimulatorOptions

Result = TypeVar("Result")
Argument = TypeVar("Argument")

POLL_S = 0.2
"""How long one wait for the ranks lasts at most: an interrupt of the main thread is seen after this time."""

GRACE_S = 1.0
"""How long ranks get, after the deadline or an abort, to end by themselves before they count as stuck."""

LINGER_S = 5.0
"""How long the others get once a rank has failed: their next call of the fabric tells them."""


class WorldFailure(RuntimeError):
    """A program failed on some rank; the world is not to be used again.

    status is a record's: "FAILED", "DEADLOCK" or "TIMEOUT". rank is where it began; None if all ended with the same.
    message is one line for people. errors holds what each rank ended with; __cause__ is the one it began with.
    """

    def __init__(
        self, status: str, rank: int | None, message: str, errors: Mapping[int, BaseException] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.rank = rank
        self.message = message
        self.errors = dict(errors or {})


class World(Protocol):
    """world_size ranks that run programs together. After a WorldFailure healthy is False: make a new world then."""

    @property
    def world_size(self) -> int: ...

    @property
    def healthy(self) -> bool: ...

    def run(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, deadline_s: float | None
    ) -> list[Result]:
        """program(fabric, argument) on every rank; the results by rank. Raises WorldFailure."""
        ...

    def counters(self) -> dict[str, Any]:
        """What the fabric counted during the last run; {} where nothing counts."""
        ...

    def close(self) -> None:
        """Give everything back. The world can't be used any more."""
        ...


class Machine(Protocol):
    """What ThreadWorld needs of the world behind the fabrics: simulator.world.SimulatedWorld has it."""

    def fabric(self, rank: int) -> Fabric: ...
    def leave(self, rank: int, error: BaseException | None) -> None: ...
    def set_deadline(self, monotonic_s: float | None) -> None: ...
    def counters(self) -> dict[str, Any]: ...
    def live_regions(self, rank: int) -> tuple[Region, ...]: ...
    def abort(self, error: BaseException) -> None: ...


@dataclass(slots=True)
class _Run:
    """One run of a program: its threads, and what the ranks ended with so far, in the order they ended.

    late says, by rank, where those were that the deadline or a failure of others didn't end. Those in waiting were in a
    call of the fabric, and so not themselves what took so long.
    """

    threads: list[threading.Thread] = field(default_factory=list)
    ended: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = field(default_factory=queue.SimpleQueue)
    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    late: dict[int, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)

    def unfinished(self) -> list[int]:
        return [rank for rank in range(len(self.threads)) if rank not in self.results and rank not in self.errors]

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
        self, world_size: int, options: SimulatorOptions | None = None, machine: Machine | None = None
    ) -> None:
        self._world_size = world_size
        self._machine = machine or SimulatedWorld(world_size, options or SimulatorOptions())
        self._healthy = True

    @property
    def world_size(self) -> int:
        return self._world_size

    @property
    def healthy(self) -> bool:
        return self._healthy

    def counters(self) -> dict[str, Any]:
        return self._machine.counters()

    def close(self) -> None:
        self._healthy = False

    def run(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, deadline_s: float | None
    ) -> list[Result]:
        """program(fabric, argument) on every rank; the results by rank. deadline_s None: no limit.

        Raises WorldFailure naming the rank where it began; a symmetric tensor that a rank left behind is one, too.
        """
        if not self._healthy:
            raise FabricError("this world was closed or hurt by a failure: make a new one")
        ends_s = math.inf if deadline_s is None else time.monotonic() + deadline_s
        self._machine.set_deadline(None if deadline_s is None else ends_s)
        run = _Run()
        try:
            self._start(run, program, argument)
            run.wait(ends_s)
            if run.unfinished():
                self._end(run)
        except BaseException as interrupt:
            self._healthy = False
            self._machine.abort(FabricError(f"the run was ended by {type(interrupt).__name__}"))
            run.wait(time.monotonic() + GRACE_S)
            raise
        if run.errors or run.unfinished() or run.late:
            self._healthy = False
            raise _failure(run, deadline_s)
        return [run.results[rank] for rank in range(self._world_size)]

    def _start(self, run: _Run, program: Callable[[Fabric, Argument], Result], argument: Argument) -> None:
        # All fabrics before the first thread: a rank that has none yet would look like one that has left.
        fabrics = [self._machine.fabric(rank) for rank in range(self._world_size)]
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
            left_behind = ", ".join(f'"{region.name}"' for region in self._machine.live_regions(rank))
            if left_behind:
                error = FabricError(f"leak: symmetric tensor {left_behind} was never released")
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
            frame = _innermost_frame(run.threads[rank])
            run.late[rank] = _described_frame(frame)
            if frame is not None and frame.f_code.co_qualname.startswith(f"{type(self._machine).__name__}."):
                run.waiting.add(rank)
        if run.late:
            self._machine.abort(DeadlineExceeded("the deadline has passed"))
            run.wait(time.monotonic() + GRACE_S)


def _failure(run: _Run, deadline_s: float | None) -> WorldFailure:
    """One failure for people out of what all ranks ended with: where it began, not its echoes."""
    # Errors are in the order in which the ranks ended. What the late ones ended with, the abort has caused.
    timely = {rank: error for rank, error in run.errors.items() if rank not in run.late}
    causes = {rank: error for rank, error in timely.items() if not isinstance(error, (PeerLost, DeadlineExceeded))}
    if not causes and run.late:
        rank = min(set(run.unfinished()) or set(run.late) - run.waiting or run.late)
        message = f"rank {rank}: still running after {deadline_s} s, at {run.late[rank]}"
        return WorldFailure("TIMEOUT", rank, message, run.errors)
    exceeded = {rank: error for rank, error in timely.items() if isinstance(error, DeadlineExceeded)}
    found = causes or exceeded or timely
    # Who ended first began it; but where all ranks ended with the same kind, who was first is chance.
    alike = len(found) == len(run.threads) and len({type(error) for error in found.values()}) == 1
    rank = min(found) if alike else next(iter(found))
    error = found[rank]
    everywhere = len(run.threads) > 1 and [str(one) for one in run.errors.values()] == [str(error)] * len(run.threads)
    message = _described(error)
    if not everywhere and not message.startswith(f"rank {rank}"):
        message = f"rank {rank}: {message}"
    failure = WorldFailure(_status(error), None if everywhere else rank, message, run.errors)
    failure.__cause__ = error
    return failure


def _status(error: BaseException) -> str:
    """The status of a record for what a program was ended by."""
    if isinstance(error, Deadlock):
        return "DEADLOCK"
    return "TIMEOUT" if isinstance(error, DeadlineExceeded) else "FAILED"


def _described(error: BaseException) -> str:
    """What was raised in one line; where, too, if it isn't one of the errors that say it themselves."""
    if isinstance(error, (FabricError, ValueError)):
        return str(error) or type(error).__name__
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return text
    return f"{text} ({traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno})"


def _innermost_frame(thread: threading.Thread) -> FrameType | None:
    """Where a thread is: its innermost frame that is neither Python's library's nor an installed package's."""
    innermost = sys._current_frames().get(thread.ident or 0)
    foreign = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    frame = innermost
    while frame is not None and any(Path(frame.f_code.co_filename).is_relative_to(folder) for folder in foreign):
        frame = frame.f_back
    return frame or innermost


def _described_frame(frame: FrameType | None) -> str:
    """The file (relative to the project's root), line, function and source line of a frame."""
    if frame is None:
        return "its end"
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    path = Path(code.co_filename)
    root = Path(__file__).resolve().parent.parent
    place = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{place}:{frame.f_lineno} in {code.co_name}" + (f": {line}" if line else "")
