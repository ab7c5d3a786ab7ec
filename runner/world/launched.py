"""The world that an outer launcher started: rank 0 leads, the others follow, through a store they all reach.

Rank 0 alone carries the command out. It gives orders (open the fabric, run a program, close it), one after another;
every rank answers each. Orders and answers are pickles, signed with a key that only this user's processes have
(runner/world/launcher.py): what a process without the key writes itself is never unpickled.

A rank's programs run in a thread of their own, so that the main thread can say where they hang, and can
end the process. Such a world can't be replaced after a failure, for its processes are the launcher's: what is left of
the command fails at once, and says why.
"""

from __future__ import annotations

import base64
import contextlib
import math
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from memory.fabric import Fabric, FabricError
from memory.pickling import dumps
from memory.process_group import join_world
from runner.world.launcher import Outer
from runner.world.loopback import keep_on_loopback
from runner.world.rank import (
    Answer,
    FabricOpener,
    Work,
    execute,
    failure_answer,
    pickled,
    pickled_work,
    take_answer,
    whereabouts,
)
from runner.world.world import GRACE_S, LINGER_S, Argument, Outcomes, Result, WorldFailure, failure_of

if TYPE_CHECKING:
    from memory.meeting import Store
    from memory.nvshmem_fabric import NvshmemFabric
START_DEADLINE_S = 120.0
CLOSE_S = 10.0
"""How long the fabrics get to close together."""

FAREWELL_S = 30.0
"""How long rank 0 stays for the others' farewells, where it serves the store: they may still import torch."""

FIRST_SLEEP_S, LONGEST_SLEEP_S = 0.0005, 0.02
TICK_S = 0.1

END = "end"


@dataclass(frozen=True, slots=True)
class Order:
    """What every rank is to do: "open", "run" or "close".

    limit_s is when rank 0 gives up, None: never. content is a pickle: of an "open" the opener, of a "run" the program
    and its argument.
    """

    do: str
    limit_s: float | None
    content: bytes = b""


class _RankThread:
    """One rank: opens its fabric and runs programs, all in one thread; its owner gives orders and takes answers."""

    def __init__(self, outer: Outer) -> None:
        self._outer = outer
        self._orders: queue.SimpleQueue[Callable[[], Answer]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._fabric: NvshmemFabric | None = None
        self._thread = threading.Thread(target=self._serve, name=f"rank {outer.rank}", daemon=True)
        self._thread.start()

    def order(self, work: Callable[[], Answer]) -> None:
        """Let the thread do something: one of the methods below."""
        self._orders.put(work)

    def answer(self, seconds: float) -> Answer | None:
        """How the last order ended, once it has; None after that many seconds. Interrupts get through."""
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=seconds) if seconds > 0 else self._answers.get_nowait()
        return None

    def late(self) -> Answer:
        """Where the rank is that has not answered."""
        return ("late", *whereabouts(self._thread.ident, self._fabric))

    def open(self, opener: FabricOpener) -> Answer:
        """In the thread: open the fabric."""
        outer = self._outer
        if outer.is_local:
            keep_on_loopback(os.environ)
        join_world(outer.rank, outer.world_size, outer.connect_unsigned)
        self._fabric = opener(outer.connect(), outer.rank, outer.world_size)
        return ("result", None)

    def run(
        self,
        number: int,
        unpacked: Callable[[], Work],
        packed: Callable[[object], object],
        deadline_s: float | None,
    ) -> Answer:
        """In the thread: run a program."""
        if self._fabric is None:
            raise FabricError("an order to run came before the one to open the fabric")
        return execute(self._fabric, number, unpacked, packed, deadline_s)

    def close(self) -> Answer:
        """In the thread: close the fabric."""
        if self._fabric is not None:
            self._fabric.close()
        return ("result", None)

    def _serve(self) -> None:
        while True:
            work = self._orders.get()
            try:
                answer = work()
            except BaseException as error:
                answer = failure_answer(error)
            self._answers.put(answer)


class JoinedWorld:
    """The launcher's world, as rank 0 has it. It lasts as long as the command: close() leaves it to its leader."""

    def __init__(self, outer: Outer, store: Store) -> None:
        self._outer = outer
        self._store = store
        self._rank = _RankThread(outer)
        self._order = 0
        self.problem = ""
        """What has hurt this world; "" as long as it can be used."""

    @property
    def world_size(self) -> int:
        return self._outer.world_size

    @property
    def healthy(self) -> bool:
        return not self.problem

    def counters(self) -> dict[str, Any]:
        return {}

    def findings(self) -> None:
        return None

    def close(self) -> None:
        """Nothing yet: the processes are the launcher's, and the next job needs them. Leader.end() gives all back."""

    def open(self, opener: FabricOpener) -> None:
        """Open the fabrics of all ranks. Raises WorldFailure."""
        self._do(Order("open", START_DEADLINE_S, dumps(opener)), lambda: self._rank.open(opener))

    def run(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, deadline_s: float | None
    ) -> list[Result]:
        """program(fabric, argument) on every rank, as in ProcessWorld; the results by rank.

        ValueError for what can't be sent to other processes.
        """
        if self.problem:
            raise FabricError(f"this world was hurt, and there is no other: {self.problem}")
        order = Order("run", deadline_s, pickled_work(program, argument))
        number = self._order + 1
        return self._do(order, lambda: self._rank.run(number, lambda: (program, argument), _as_it_is, deadline_s))

    def finish(self) -> None:
        """Close the fabrics of all ranks. Raises WorldFailure."""
        self._do(Order("close", CLOSE_S), self._rank.close)

    def _do(self, order: Order, work: Callable[[], Answer]) -> list[Any]:
        """Let all ranks carry out an order; work is this rank's part of it."""
        limit_s = order.limit_s
        run = Outcomes(self.world_size)
        try:
            self._order += 1
            self._store.set(f"order/{self._order}", _sent(order))
            self._rank.order(work)
            self._gather(run, math.inf if limit_s is None else time.monotonic() + limit_s)
            if run.failed():
                raise failure_of(run, limit_s)
        except BaseException as error:
            self.problem = str(error) or type(error).__name__
            raise
        self._store.delete_key(f"order/{self._order}")
        return [run.results[rank] for rank in range(self.world_size)]

    def _gather(self, run: Outcomes, ends_s: float) -> None:
        """Take all answers. Followers say by themselves that they are late, GRACE_S after the deadline."""
        sleep_s = FIRST_SLEEP_S
        until_s = ends_s + 2 * GRACE_S
        missing = set(range(self.world_size))
        while missing and time.monotonic() < until_s:
            found = self._answered(missing)
            for rank, answer in found.items():
                self._take(run, rank, answer)
                missing.discard(rank)
            if run.errors or run.late:
                until_s = min(until_s, time.monotonic() + LINGER_S) if found else until_s
            if 0 in missing and time.monotonic() > ends_s + GRACE_S:
                self._take(run, 0, self._rank.late())
                missing.discard(0)
            sleep_s = FIRST_SLEEP_S if found else min(2 * sleep_s, LONGEST_SLEEP_S)
            time.sleep(sleep_s if missing else 0)
        if missing and not run.errors:
            for rank in missing:
                run.late[rank] = "an unknown place: its process does not answer"

    def _answered(self, missing: set[int]) -> dict[int, Answer]:
        """The answers that are here now, by rank."""
        found: dict[int, Answer] = {}
        for rank in sorted(missing):
            key = f"answer/{self._order}/{rank}"
            if rank == self._outer.rank:
                answer = self._rank.answer(0)
                if answer is not None:
                    found[rank] = answer
            elif self._store.check([key]):
                found[rank] = self._received(key)
                self._store.delete_key(key)
        return found

    def _received(self, key: str) -> Answer:
        """Another rank's answer. What no rank wrote is that rank's failure."""
        try:
            return cast("Answer", _received(self._store.get(key)))
        except Exception as error:  # not signed, or a pickle of what is not here
            return failure_answer(error)

    def _take(self, run: Outcomes, rank: int, answer: Answer) -> None:
        """Put a rank's answer into the outcomes of an order."""
        if answer[0] == "late":
            run.late[rank] = answer[1]
            if answer[2]:
                run.waiting.add(rank)
        else:
            take_answer(run, rank, answer, _as_it_is if rank == self._outer.rank else pickle.loads)


class Leader:
    """Rank 0's side of an outer world: makes the one world that there is, and tells the others how the command ends."""

    def __init__(self, outer: Outer) -> None:
        self.outer = outer
        self._store: Store | None = None
        self._world: JoinedWorld | None = None
        self._opener: FabricOpener | None = None
        self._server: object = None
        self._ended = False

    def world(self, opener: FabricOpener) -> JoinedWorld:
        """The world, with its fabrics opened by the opener. Raises WorldFailure after any failure of it."""
        if self._world is None:
            self._store = self._store or self._connected()
            self._world = JoinedWorld(self.outer, self._store)
            self._opener = opener
            self._world.open(opener)
        if self._world.problem:
            raise WorldFailure(
                "FAILED",
                None,
                f"not run: the world that {self.outer.launcher} started was hurt before ({self._world.problem}) "
                "and can't be replaced from within",
            )
        if opener != self._opener:
            raise WorldFailure("FAILED", None, f"not run: a world of {self.outer.launcher}'s has one fabric (fabric)")
        return self._world

    def _connected(self) -> Store:
        """A connection to the store, which this process serves unless the launcher does."""
        if not self.outer.served and self._server is None:
            self._server = self.outer.serve()
        return self.outer.connect()

    def tell_end(self, code: int) -> None:
        """Tell the other ranks to exit with the code, after closing the fabrics if that is possible. Once."""
        if self._ended:
            return
        self._ended = True
        world = self._world
        if world is not None and world.healthy:
            with contextlib.suppress(WorldFailure):
                world.finish()
        with contextlib.suppress(Exception):
            self._store = self._store or self._connected()
            self._store.set(END, str(code))

    def end(self, code: int) -> None:
        """The end of the command: the other ranks know it, too, when this process goes."""
        self.tell_end(code)
        if self._store is not None:
            with contextlib.suppress(Exception):
                self._await_farewells(self._store)

    def _await_farewells(self, store: Store) -> None:
        """Where this process serves the store, the others must have read the end before it goes."""
        if self.outer.served:
            return
        ends_s = time.monotonic() + FAREWELL_S
        wanted = [f"farewell/{rank}" for rank in range(1, self.outer.world_size)]
        while time.monotonic() < ends_s and not store.check(wanted):
            time.sleep(LONGEST_SLEEP_S)


def follow(outer: Outer) -> int:
    """The life of every rank but 0: do what rank 0 orders, end as it says, print nothing but why it has no key. Gives
    the exit code.

    The main thread alone decides: it ends even where a program hangs in the other.
    """
    if threading.current_thread() is threading.main_thread():
        # Rank 0 decides what a Ctrl-C means; a signal that ends this process need not wait.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Neither the launcher nor rank 0 may be there any more: that is for them to tell.
    with contextlib.suppress(Exception):
        try:
            store = outer.connect()
        except FabricError as error:
            print(f"symlab: error: rank {outer.rank}: {error}", file=sys.stderr)
            return 1
        code = _Follower(outer, store).follow()
        store.set(f"farewell/{outer.rank}", "")
        return code
    return 1


class _Follower:
    """A rank that follows rank 0."""

    def __init__(self, outer: Outer, store: Store) -> None:
        self._outer = outer
        self._store = store
        self._rank = _RankThread(outer)

    def follow(self) -> int:
        """Carry out one order after another until the end; returns the exit code."""
        number = 0
        while True:
            number += 1
            code = self._wait_for(f"order/{number}")
            if code is None:
                code = self._carry_out(number)
            if code is not None:
                return code

    def _wait_for(self, key: str) -> int | None:
        """Wait until there is an order; the exit code if there is none any more."""
        sleep_s = FIRST_SLEEP_S
        while not self._store.check([key]):
            if self._store.check([END]):
                return int(self._store.get(END))
            sleep_s = min(1.2 * sleep_s, LONGEST_SLEEP_S)
            time.sleep(sleep_s)
        return None

    def _carry_out(self, number: int) -> int | None:
        """Carry out an order and answer it; the exit code if the end comes first."""
        answer: Answer | None = None
        late_s = math.inf
        try:
            order = cast("Order", _received(self._store.get(f"order/{number}")))
        except Exception as error:  # likewise
            answer = failure_answer(error)
        else:
            if order.limit_s is not None:
                late_s = time.monotonic() + order.limit_s + GRACE_S
            self._rank.order(lambda: self._done(number, order))
        while answer is None:
            answer = self._rank.answer(TICK_S)
            if answer is None and self._store.check([END]):
                return int(self._store.get(END))
            if answer is None and time.monotonic() > late_s:
                answer = self._rank.late()
        self._store.set(f"answer/{number}/{self._outer.rank}", _sent(answer))
        return None

    def _done(self, number: int, order: Order) -> Answer:
        """In the rank's thread: do what an order says."""
        if order.do == "run":
            return self._rank.run(number, lambda: pickle.loads(order.content), pickled, order.limit_s)
        kind, result = self._rank.open(pickle.loads(order.content)) if order.do == "open" else self._rank.close()
        return kind, pickled(result)


def _sent(message: object) -> str:
    """A message as the store takes it."""
    return base64.b64encode(dumps(message)).decode("ascii")


def _received(text: bytes) -> object:
    """What _sent was given. The text was signed: the store has seen to that."""
    return pickle.loads(base64.b64decode(text))


def _as_it_is(value: Any) -> Any:
    """Rank 0's own arguments and results, which stay in its process."""
    return value
