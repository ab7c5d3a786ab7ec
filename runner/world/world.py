"""What a world of ranks is, and how one failure for people is made of what all ranks ended with.

Two worlds keep the protocol: threads over the simulator (runner.world.threads), and a process a rank on GPUs
(runner.world.processes; runner.world.launched where an outer launcher started the processes). What a world must keep:
run() ends, whatever the ranks do.
"""

from __future__ import annotations

import contextlib
import linecache
import signal
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol, TypeVar

from cases.finding import Finding
from kernels.compile_error import CompilationError
from memory.fabric import DeadlineExceeded, Deadlock, Fabric, FabricError, PeerLost, Place, Region, rank_of, work_of

Result = TypeVar("Result")
Argument = TypeVar("Argument")

POLL_S = 0.2
"""How long one wait for the ranks lasts at most: an interrupt of the main thread is seen after this time."""

GRACE_S = 1.0
"""How long ranks get, after the deadline or an abort, to end by themselves before they count as stuck."""

LINGER_S = 5.0
"""How long the others get once a rank has failed: their next call of the fabric tells them."""

ROOT = Path(__file__).resolve().parents[2]
"""The project's folder: places in its files are given relative to it."""


class WorldFailure(RuntimeError):
    """A program failed on some rank; the world is not to be used again.

    status is a record's: "FAILED", "DEADLOCK" or "TIMEOUT". rank is where it began; None if all ended with the same.
    message is one line for people, which names that rank. errors holds what each rank ended with; __cause__ is the one
    it began with. places: the threads of kernels that it is about, in the simulator; block, thread, ptx_line and source
    ("file.py:12") are those of the first one, None if there is none. seed: of the schedule that it happened under, if
    symlab.simulate ran it, else None.

    >>> import symlab
    >>> def program(rank, argument):
    ...     if rank.rank == 1:
    ...         raise ValueError("no data")
    ...     rank.barrier()
    >>> with symlab.world(ranks=2) as world:
    ...     world.run(program)
    Traceback (most recent call last):
    ...
    runner.world.world.WorldFailure: rank 1: no data
    """

    def __init__(
        self, status: str, rank: int | None, message: str, errors: Mapping[int, BaseException] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.rank = rank
        self.message = message
        self.errors = dict(errors or {})
        self.seed: int | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        return self.__cause__.places if isinstance(self.__cause__, FabricError) else ()

    @property
    def block(self) -> int | None:
        return self.places[0].block if self.places else None

    @property
    def thread(self) -> int | None:
        return self.places[0].thread if self.places else None

    @property
    def ptx_line(self) -> int | None:
        return self.places[0].ptx_line or None if self.places else None

    @property
    def source(self) -> str | None:
        return self.places[0].source or None if self.places else None


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

    def findings(self) -> tuple[Finding, ...] | None:
        """What the race checker found during the last run; None where nothing was checked."""
        ...

    def close(self) -> None:
        """Give everything back. The world can't be used any more."""
        ...


@dataclass(slots=True)
class Outcomes:
    """What the ranks of one run ended with so far, in the order they ended.

    late says, by rank, where those were that the deadline or a failure of others didn't end. Those in waiting were in a
    call of the fabric, and so not themselves what took so long.
    """

    world_size: int
    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    late: dict[int, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)

    def unfinished(self) -> list[int]:
        return [rank for rank in range(self.world_size) if rank not in self.results and rank not in self.errors]

    def failed(self) -> bool:
        return bool(self.errors or self.late or self.unfinished())


def failure_of(run: Outcomes, deadline_s: float | None) -> WorldFailure:
    """One failure for people out of what all ranks ended with: where it began, not its echoes."""
    # Errors are in the order in which the ranks ended. What the late ones ended with, the abort has caused.
    timely = {rank: error for rank, error in run.errors.items() if rank not in run.late}
    causes = {rank: error for rank, error in timely.items() if not isinstance(error, (PeerLost, DeadlineExceeded))}
    if not causes and run.late:
        # Who waits in a call of the fabric, even one that no deadline ends, waits for somebody.
        stuck = set(run.unfinished()) or set(run.late)
        rank = min(stuck - run.waiting or stuck)
        place = run.late.get(rank, "an unknown place: its process does not answer")
        message = f"rank {rank}: still running after {deadline_s} s, at {place}"
        return WorldFailure("TIMEOUT", rank, message, run.errors)
    exceeded = {rank: error for rank, error in timely.items() if isinstance(error, DeadlineExceeded)}
    found = causes or exceeded or timely
    # Who ended first began it; but where all ranks ended with the same kind, who was first is chance. Of deadlines that
    # passed, one that names the work tells most: others waited for that rank.
    alike = len(found) == run.world_size and len({type(error) for error in found.values()}) == 1
    telling = [] if causes else sorted(rank for rank, error in found.items() if work_of(error))
    rank = telling[0] if telling else min(found) if alike else next(iter(found))
    error = found[rank]
    everywhere = run.world_size > 1 and [str(one) for one in run.errors.values()] == [str(error)] * run.world_size
    message = described(error)
    if not everywhere and rank_of(error) != rank:
        message = f"rank {rank}: {message}"
    failure = WorldFailure(status_of(error), None if everywhere else rank, message, run.errors)
    failure.__cause__ = error
    return failure


def status_of(error: BaseException) -> str:
    """The status of a record for what a program was ended by."""
    if isinstance(error, Deadlock):
        return "DEADLOCK"
    return "TIMEOUT" if isinstance(error, DeadlineExceeded) else "FAILED"


def described(error: BaseException) -> str:
    """What was raised in one line; where, too, if it isn't one of the errors that say it themselves."""
    if isinstance(error, (FabricError, ValueError, CompilationError)):
        return str(error) or type(error).__name__
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = _raised_at(error.__traceback__)
    return f"{text} ({place})" if place else text


def _raised_at(traceback: TracebackType | None) -> str:
    """The innermost place of ours that an error came by, or just the innermost; "" where there is none."""
    places: list[tuple[str, int]] = []
    while traceback is not None:
        places.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    if not places:
        return ""
    file, line = next((place for place in reversed(places) if not is_foreign(place[0])), places[-1])
    return f"{_shown(file)}:{line}"


def ended(code: int | None) -> str:
    """How a process ended, in words; None: it has cut its connection, and goes on."""
    if code is None:
        return "cut its connection"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"ended by {signal.Signals(-code).name}"
        return f"ended by signal {-code}"
    return f"ended with exit code {code}"


def leak_of(regions: Sequence[Region]) -> FabricError | None:
    """What a program that ended well has left behind, as an error; None if nothing."""
    names = ", ".join(f'"{region.name}"' for region in regions)
    return FabricError(f"leak: symmetric tensor {names} was never released") if names else None


def innermost_frame(thread_id: int | None) -> FrameType | None:
    """Where a thread is: its innermost frame that is neither Python's library's nor an installed package's."""
    innermost = sys._current_frames().get(thread_id or 0)
    frame = innermost
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return frame or innermost


def is_foreign(file: str) -> bool:
    """Whether a file of code is Python's own or an installed package's."""
    return file.startswith("<frozen") or any(
        Path(file).is_relative_to(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")
    )


def described_frame(frame: FrameType | None) -> str:
    """The file (relative to the project's root), line, function and source line of a frame."""
    if frame is None:
        return "its end"
    return described_place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def described_place(file: str, line: int, function: str) -> str:
    """A place in code for people, with the line's text."""
    text = linecache.getline(file, line).strip()
    return f"{_shown(file)}:{line} in {function}" + (f": {text}" if text else "")


def _shown(file: str) -> Path:
    """A file relative to the project's root, if it lies there."""
    path = Path(file)
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
