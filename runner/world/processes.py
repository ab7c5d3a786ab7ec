"""ProcessWorld: a spawned process a rank, kept between programs.

run() ends whatever the ranks do: this process watches them, asks where they are when the time is up, and after any
failure kills and reaps all of them before it reports the failure. Nothing outlives a world: the store's port belongs
to this process, what ranks print lies in files without a name, and the kernel ends ranks whose parent is gone.

Orders and results are pickles, through a pair of sockets for each rank, which no other process has. What ranks say to
each other goes through a store on this machine's loopback interface, signed with a key that only they and this process
know. The ranks' libraries stay on that interface as well (runner/world/loopback.py).
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from memory.fabric import DeadlineExceeded, Fabric, FabricError, PeerLost
from memory.meeting import OPENING, Store, lost, tcp_store
from memory.pickling import dumps
from memory.sealed_store import SealedStore
from memory.worker_process import started
from runner.interrupt import shielded
from runner.world.channel import SEND_LIMIT_S, Channel
from runner.world.loopback import keep_on_loopback
from runner.world.preload import Preloaded, loaded_first
from runner.world.rank import FabricOpener, pickled_work, take_answer
from runner.world.world import (
    GRACE_S,
    LINGER_S,
    POLL_S,
    Argument,
    Outcomes,
    Result,
    WorldFailure,
    described_place,
    ended,
    failure_of,
    is_foreign,
)

START_DEADLINE_S = 60.0
SILENCE_S = 2.0
"""A start that takes longer is worth a line."""

ANSWER_S = 0.5
"""How long a rank gets to say where it is."""

CLOSE_S = 8.0
"""How long ranks get to give everything back in good order."""

REAP_S = 30.0
"""How long a killed process may take to go: a driver may have to take its memory down."""

_DUMPED = re.compile(r'^  File "(.+)", line (\d+) in (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _RankProcess:
    """One rank as its parent sees it. words is a file without a name that takes what the rank prints."""

    process: subprocess.Popen[bytes]
    channel: Channel
    words: IO[bytes]

    def last_words(self) -> str:
        """ "; its last words: ..." or "": the end of what the rank printed, in one line."""
        said, _, dump = self.printed(-16384).partition("Fatal Python error:")
        kept = [" ".join(line.split()) for line in said.splitlines() if line.strip()][-3:]
        # A crash dumps the stack: where it was says more than the end of that.
        kept += [f"it was at {_dumped_place(dump)}"] if dump else []
        return f"; its last words: {' | '.join(kept)[-400:]}" if kept else ""

    def printed(self, start: int) -> str:
        """What the rank printed from a place in the file on; counted from the end if negative."""
        size = os.fstat(self.words.fileno()).st_size
        start = max(0, size + start) if start < 0 else start
        return os.pread(self.words.fileno(), size - start, start).decode(errors="replace")


class _ProcessEnded(FabricError):
    """A rank's process ended before its program did; the message has its last words."""


class ProcessWorld:
    """Ranks as processes of this machine. Made and used by one thread, which has to outlive it."""

    def __init__(
        self,
        world_size: int,
        opener: FabricOpener,
        *,
        start_deadline_s: float = START_DEADLINE_S,
        say: Callable[[str], None] | None = None,
        nccl: Preloaded | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start all ranks, and wait until each has opened its fabric. Calls say if that takes a while. nccl: the NCCL
        that they load first; variables: what their environment has beside this process's.

        Raises WorldFailure, with nothing left behind, if a rank could not.
        """
        self.world_size = world_size
        self._ranks: list[_RankProcess] = []
        self._selector = selectors.DefaultSelector()
        self._store: Store | None = None
        self.port: int | None = None
        """The port of the ranks' store on the loopback interface; None before the start and after the end."""
        self._number = 0
        self._places: dict[int, tuple[str, bool]] = {}
        self._healthy = True
        self._nccl = nccl
        self._variables = dict(variables or {})
        try:
            self._start(dumps(opener), start_deadline_s, say)
        except BaseException:
            self._kill()
            raise

    @property
    def healthy(self) -> bool:
        return self._healthy and all(one.process.poll() is None for one in self._ranks)

    @property
    def processes(self) -> tuple[int, ...]:
        """The ranks' process ids, by rank; () after the end."""
        return tuple(one.process.pid for one in self._ranks)

    def counters(self) -> dict[str, Any]:
        return {}

    def findings(self) -> None:
        return None

    def run(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, deadline_s: float | None
    ) -> list[Result]:
        """program(fabric, argument) on every rank; the results by rank. deadline_s None: no limit.

        program is a function of a module, for the ranks import it. Raises WorldFailure naming the rank where it began;
        a symmetric tensor that a rank left behind is one, too. ValueError for what can't be sent to other processes.
        """
        if not self._healthy:
            raise FabricError("this world was closed or hurt by a failure: make a new one")
        work = pickled_work(program, argument)
        ends_s = math.inf if deadline_s is None else time.monotonic() + deadline_s
        run = Outcomes(self.world_size)
        try:
            self._number += 1
            self._tell(run, range(self.world_size), "run", self._number, work, deadline_s)
            self._wait(run, ends_s)
            if run.unfinished():
                self._end(run)
            if run.failed():
                raise failure_of(run, deadline_s)
        except BaseException:
            self._kill()
            raise
        return [run.results[rank] for rank in range(self.world_size)]

    def close(self) -> None:
        """End all ranks: in good order if they can within seconds, else by force. Nothing is left of them."""
        if not self._ranks:
            self._kill()
            return
        try:
            if self.healthy:
                run = Outcomes(self.world_size)
                self._tell(run, range(self.world_size), "close")
                ends_s = time.monotonic() + CLOSE_S
                for one in self._ranks:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        one.process.wait(max(0.0, ends_s - time.monotonic()))
        finally:
            self._kill()

    def _start(self, opener: bytes, limit_s: float, say: Callable[[str], None] | None) -> None:
        began_s = time.monotonic()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(socket.SOMAXCONN)
        self.port = port = listener.getsockname()[1]
        with listener:
            for _ in range(self.world_size):
                with shielded():  # a process that was started is known here
                    self._ranks.append(_launched(self._nccl, self._variables))
                self._selector.register(self._ranks[-1].channel, selectors.EVENT_READ, len(self._ranks) - 1)
            # While the ranks import torch, so does this process: they find the port open all the same.
            key = secrets.token_bytes()
            self._store = SealedStore(tcp_store("127.0.0.1", port, START_DEADLINE_S, listener), key)
        run = Outcomes(self.world_size)
        for rank in range(self.world_size):
            self._tell(run, [rank], "open", rank, self.world_size, port, key, opener)
        self._wait(run, min(began_s + SILENCE_S, began_s + limit_s), GRACE_S)
        if say is not None and run.unfinished() and not run.errors:
            say(f"starting {self.world_size} rank processes ...")
        self._wait(run, began_s + limit_s, GRACE_S)
        if run.failed():
            raise self._start_failure(run, limit_s)

    def _start_failure(self, run: Outcomes, limit_s: float) -> WorldFailure:
        """Why the world did not come up."""
        if run.errors:
            found = failure_of(run, None)
            rank = found.rank if found.rank is not None else min(run.errors)
            words = "" if isinstance(run.errors.get(rank), _ProcessEnded) else self._ranks[rank].last_words()
            failure = WorldFailure("FAILED", found.rank, f"{found.message}{words} (while starting)", run.errors)
            failure.__cause__ = found.__cause__
            return failure
        places = self._whereabouts(run.unfinished())
        # Who is not in a call of the fabric keeps the others waiting.
        rank = min([one for one in places if not places[one][1]] or places)
        words = self._ranks[rank].last_words()
        error = DeadlineExceeded(f"not ready {limit_s:g} s after its start, at {places[rank][0]}{words}")
        return WorldFailure("TIMEOUT", rank, f"rank {rank}: {error}", {rank: error})

    def _tell(self, run: Outcomes, ranks: Iterable[int], *message: object) -> None:
        """Send the same to some ranks. Who is gone is noticed later; who takes nothing has failed."""
        for rank in ranks:
            try:
                self._ranks[rank].channel.send(*message, limit_s=SEND_LIMIT_S)
            except TimeoutError:
                run.errors[rank] = FabricError(f"its process takes no orders for {SEND_LIMIT_S:g} s")
            except OSError:
                continue

    def _wait(self, run: Outcomes, until_s: float, linger_s: float = LINGER_S) -> None:
        """Take what ranks end with, until all have ended or the time (monotonic) is up. Interrupts get through.

        Once a rank has failed, the others get linger_s.
        """
        limit_s = math.inf
        while run.unfinished():
            if run.errors and limit_s == math.inf:
                limit_s = time.monotonic() + linger_s
            left_s = min(POLL_S, until_s - time.monotonic(), limit_s - time.monotonic())
            if left_s <= 0:
                return
            self._listen(run, left_s)
            for rank in run.unfinished():
                if self._ranks[rank].process.poll() is not None:
                    self._hear(run, rank)
                    self._bury(run, rank)

    def _listen(self, run: Outcomes, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            self._hear(run, key.data)

    def _hear(self, run: Outcomes, rank: int) -> None:
        """Take what a rank has sent."""
        channel = self._ranks[rank].channel
        for message in channel.arrived():
            if message[0] == "here":
                self._places[rank] = message[1:]
            elif message[0] == "ready":
                run.results[rank] = None
            elif rank in run.unfinished():
                take_answer(run, rank, message)
        if channel.closed:
            with contextlib.suppress(KeyError):
                self._selector.unregister(channel)
            self._bury(run, rank)

    def _bury(self, run: Outcomes, rank: int) -> None:
        """A rank's process is gone, or cut off: note it, if that is news, and let the others know."""
        if rank not in run.unfinished():
            return
        one = self._ranks[rank]
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(GRACE_S)
        text = f"its process {ended(one.process.returncode)}{one.last_words()}"
        run.errors[rank] = _ProcessEnded(text)
        if self._store is not None:
            lost(self._store, self._number or OPENING, rank, text)

    def _end(self, run: Outcomes) -> None:
        """The time is up, or others failed: what does not end by itself is noted as late, and where it is."""
        self._wait(run, time.monotonic() + GRACE_S)
        if any(not isinstance(error, (PeerLost, DeadlineExceeded)) for error in run.errors.values()):
            run.late.update(dict.fromkeys(run.unfinished(), "an unknown place"))
            return
        for rank, (place, waiting) in self._whereabouts(run.unfinished()).items():
            run.late[rank] = place
            if waiting:
                run.waiting.add(rank)

    def _whereabouts(self, ranks: list[int]) -> dict[int, tuple[str, bool]]:
        """Where ranks are, and whether in a call of their fabric. Those that don't answer are asked by a signal."""
        ignored = Outcomes(self.world_size)
        self._places.clear()
        self._tell(ignored, ranks, "where")
        ends_s = time.monotonic() + ANSWER_S
        while not set(ranks) <= set(self._places) and time.monotonic() < ends_s:
            self._listen(ignored, ends_s - time.monotonic())
        silent = [rank for rank in ranks if rank not in self._places]
        starts = {rank: os.fstat(self._ranks[rank].words.fileno()).st_size for rank in silent}
        for rank in silent:
            self._ranks[rank].process.send_signal(signal.SIGUSR1)
        if silent:
            time.sleep(ANSWER_S)
        dumped = {rank: (_dumped_place(self._ranks[rank].printed(starts[rank])), False) for rank in silent}
        return {rank: self._places.get(rank) or dumped[rank] for rank in ranks}

    def _kill(self) -> None:
        """End and reap all ranks by force, and close what belongs to them. Twice is as good as once."""
        self._healthy = False
        with shielded():
            for one in self._ranks:
                one.process.kill()
            ends_s = time.monotonic() + REAP_S
            for one in self._ranks:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.process.wait(max(0.0, ends_s - time.monotonic()))
                one.channel.close()
                one.words.close()
            self._ranks = []
            self._selector.close()
            self._store = self.port = None  # the server ends with the store, and with that the port


def _launched(nccl: Preloaded | None, variables: Mapping[str, str]) -> _RankProcess:
    """A rank's process."""
    words = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the rank
    environment = {**os.environ, **variables}
    keep_on_loopback(environment)
    loaded_first(environment, nccl)
    process, ours = started("runner.world.rank", words, environment)
    return _RankProcess(process, Channel(ours), words)


def _dumped_place(dump: str) -> str:
    """The innermost place of ours in what faulthandler printed."""
    places = [(file, int(line), function) for file, line, function in _DUMPED.findall(dump)]
    ours = [place for place in places if not is_foreign(place[0])] or places
    return f"{described_place(*ours[0])} (in native code)" if ours else "an unknown place (its process does not answer)"
