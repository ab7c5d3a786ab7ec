"""The world that an outer launcher started: rank 0 leads, the others follow, through a store they all reach.

Rank 0 alone knows the command. It gives orders (open the fabric, run a program, end), one after another; every rank
answers each. A rank's programs run in a thread of their own, so that the main thread can say where they hang, and can
end the process. Such a world can't be replaced after a failure, for its processes are the launcher's: what is left of
the command fails at once, and says why.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memory.fabric import Fabric, FabricError
from memory.process_group import join_world
from runner.world.launcher import Outer
from runner.world.rank import (
    Answer,
    FabricOpener,
    RankFabric,
    execute,
    failure_answer,
    pickled_work,
    take_answer,
    whereabouts,
)
from runner.world.world import GRACE_S, LINGER_S, Argument, Outcomes, Result, WorldFailure, failure_of

if TYPE_CHECKING:
    from memory.meeting import Store
START_DEADLINE_S = 120.0
CLOSE_S = 10.0
"""How long the fabrics get to close together."""

FAREWELL_S = 30.0
"""How long rank 0 stays for the others' farewells, where it serves the store: they may still import torch."""

FIRST_SLEEP_S, LONGEST_SLEEP_S = 0.0005, 0.02
TICK_S = 0.1

END = "end"


class _RankThread:
    """One rank: opens its fabric and runs programs, all in one thread; its owner gives orders and takes answers."""

    def __init__(self, outer: Outer) -> None:
        self._outer = outer
        self._orders: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._fabric: RankFabric | None = None
        self._thread = threading.Thread(target=self._serve, name=f"rank {outer.rank}", daemon=True)
        self._thread.start()

    def order(self, *order: Any) -> None:
        self._orders.put(order)

    def answer(self, seconds: float) -> Answer | None:
        """How the last order ended, once it has; None after that many seconds. Interrupts get through."""
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=seconds) if seconds > 0 else self._answers.get_nowait()
        return None

    def late(self) -> Answer:
        """Where the rank is that has not answered."""
        return ("late", *whereabouts(self._thread.ident, self._fabric))

    def _serve(self) -> None:
        while True:
            kind, *rest = self._orders.get()
            try:
                answer = self._done(kind, *rest)
            except BaseException as error:
                answer = failure_answer(error)
            self._answers.put(answer)

    def _done(self, kind: str, *rest: Any) -> Answer:
        if kind == "run":
            assert self._fabric is not None
            return execute(self._fabric, *rest)
        if kind == "open":
            outer = self._outer
            join_world(outer.rank, outer.world_size, outer.connect)
            self._fabric = pickle.loads(rest[0])(outer.connect(), outer.rank, outer.world_size)
        elif self._fabric is not None:
            self._fabric.close()
        return ("result", pickle.dumps(None))


class JoinedWorld:
    """The launcher's world, as rank 0 has it. It lasts as long as the command: close() leaves it to its leader."""

    def __init__(self, outer: Outer, store: Store) -> None:
        self._outer = outer
        self._store = store
        self._rank = _RankThread(outer)
        self._order = 0
        self._problem = ""

    @property
    def world_size(self) -> int:
        return self._outer.world_size

    @property
    def healthy(self) -> bool:
        return not self._problem

    @property
    def problem(self) -> str:
        """What has hurt this world; "" as long as it can be used."""
        return self._problem

    def counters(self) -> dict[str, Any]:
        return {}

    def findings(self) -> None:
        return None

    def close(self) -> None:
        """Nothing yet: the processes are the launcher's, and the next job needs them. Leader.end() gives all back."""

    def open(self, opener: FabricOpener) -> None:
        """Open the fabrics of all ranks. Raises WorldFailure."""
        self._do(START_DEADLINE_S, "open", pickle.dumps(opener))

    def run(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, deadline_s: float | None
    ) -> list[Result]:
        """program(fabric, argument) on every rank, as in ProcessWorld; the results by rank."""
        if self._problem:
            raise FabricError(f"this world was hurt, and there is no other: {self._problem}")
        return self._do(deadline_s, "run", self._order + 1, pickled_work(program, argument), deadline_s)

    def finish(self) -> None:
        """Close the fabrics of all ranks. Raises WorldFailure."""
        self._do(CLOSE_S, "close")

    def _do(self, limit_s: float | None, *order: Any) -> list[Any]:
        run = Outcomes(self.world_size)
        try:
            self._order += 1
            self._store.set(f"order/{self._order}", pickle.dumps((limit_s, order)))  # type: ignore[arg-type]  # bytes do
            self._rank.order(*order)
            self._gather(run, math.inf if limit_s is None else time.monotonic() + limit_s)
            if run.failed():
                raise failure_of(run, limit_s)
        except BaseException as error:
            self._problem = str(error) or type(error).__name__
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
                _take(run, rank, answer)
                missing.discard(rank)
            if run.errors or run.late:
                until_s = min(until_s, time.monotonic() + LINGER_S) if found else until_s
            if 0 in missing and time.monotonic() > ends_s + GRACE_S:
                _take(run, 0, self._rank.late())
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
                found[rank] = pickle.loads(self._store.get(key))
                self._store.delete_key(key)
        return found


class Leader:
    """Rank 0's side of an outer world: makes the one world that there is, and tells the others how the command ends."""

    def __init__(self, outer: Outer) -> None:
        self.outer = outer
        self._store: Store | None = None
        self._world: JoinedWorld | None = None
        self._opener: FabricOpener | None = None
        self._ended = False

    def world(self, opener: FabricOpener) -> JoinedWorld:
        """The world, with its fabrics opened by the opener. Raises WorldFailure after any failure of it."""
        if self._world is None:
            self._store = self._store or self.outer.connect()
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
            self._store = self._store or self.outer.connect()
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
    """The life of every rank but 0: do what rank 0 orders, print nothing, end as it says. Gives the exit code.

    The main thread alone decides: it ends even where a program hangs in the other.
    """
    if threading.current_thread() is threading.main_thread():
        # Rank 0 decides what a Ctrl-C means; a signal that ends this process need not wait.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Neither the launcher nor rank 0 may be there any more: that is for them to tell.
    with contextlib.suppress(Exception):
        store = outer.connect()
        code = _follow(outer, store)
        store.set(f"farewell/{outer.rank}", "")
        return code
    return 1


def _follow(outer: Outer, store: Store) -> int:
    rank = _RankThread(outer)
    number = 0
    while True:
        number += 1
        key = f"order/{number}"
        sleep_s = FIRST_SLEEP_S
        while not store.check([key]):
            if store.check([END]):
                return int(store.get(END))
            sleep_s = min(1.2 * sleep_s, LONGEST_SLEEP_S)
            time.sleep(sleep_s)
        limit_s, order = pickle.loads(store.get(key))
        late_s = math.inf if limit_s is None else time.monotonic() + limit_s + GRACE_S
        rank.order(*order)
        answer: Answer | None = None
        while answer is None:
            answer = rank.answer(TICK_S)
            if answer is None and store.check([END]):
                return int(store.get(END))
            if answer is None and time.monotonic() > late_s:
                answer = rank.late()
        store.set(f"answer/{number}/{outer.rank}", pickle.dumps(answer))  # type: ignore[arg-type]


def _take(run: Outcomes, rank: int, answer: Answer) -> None:
    """Put a rank's answer into the outcomes of an order."""
    if answer[0] == "late":
        run.late[rank] = answer[1]
        if answer[2]:
            run.waiting.add(rank)
    else:
        take_answer(run, rank, answer)
