"""The world that an outer launcher started: rank 0 leads, the others follow, through a store they all reach.

Every rank composes the command from its own command line, and rank 0 alone carries it out. It gives orders (open the
fabric, run a program, end), one after another; every rank answers each. Orders and answers are JSON
(runner/world/plain.py): an order names a program of the project and gives it plain data, and it names kernels by
digests, which each rank looks up in its own command. So a process that reaches the store can't have code of its own
run; with a key in the launcher's environment (runner/world/launcher.py) it can't give an order either.

A rank's programs run in a thread of their own, so that the main thread can say where they hang, and can
end the process. Such a world can't be replaced after a failure, for its processes are the launcher's: what is left of
the command fails at once, and says why.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from memory.fabric import Fabric, FabricError
from memory.process_group import join_world
from runner.world.launcher import Outer
from runner.world.loopback import keep_on_loopback
from runner.world.plain import NotPlain, Vocabulary
from runner.world.rank import Answer, FabricOpener, Work, execute, failure_answer, take_answer, whereabouts
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


class OwnCommand(Protocol):
    """What a rank makes of its own command line."""

    @property
    def digest(self) -> str:
        """Equal on two ranks just when they were asked for the same."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """What orders and answers may speak of, and the kernels that they may name."""
        ...

    def opener(self) -> FabricOpener:
        """What opens the fabric that was asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """What every rank is to do: "open", "run" or "close".

    digest is that of rank 0's command. program and argument are of a "run": the program's name, and JSON. limit_s is
    when rank 0 gives up, None: never.
    """

    do: str
    digest: str
    limit_s: float | None
    program: str = ""
    argument: str = ""

    def to_json(self) -> str:
        return json.dumps([self.do, self.digest, self.limit_s, self.program, self.argument])

    @staticmethod
    def read(text: bytes) -> Order:
        """NotPlain for anything but an order."""
        match _json(text):
            case [
                "open" | "run" | "close" as do,
                str(digest),
                int() | float() | None as limit_s,
                str(program),
                str(argument),
            ] if limit_s is None or math.isfinite(limit_s):
                return Order(do, digest, limit_s, program, argument)
        raise NotPlain("the store holds something else than an order where rank 0 writes its orders")


class _RankThread:
    """One rank: opens its fabric and runs programs, all in one thread; its owner gives orders and takes answers."""

    def __init__(self, outer: Outer, first: Callable[[], object] | None = None) -> None:
        """first is called before anything that is ordered; what it raises is left to a later call of it."""
        self._outer = outer
        self._first = first
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

    def open(self, opener: Callable[[], FabricOpener]) -> Answer:
        """In the thread: open the fabric."""
        outer = self._outer
        if outer.is_local:
            keep_on_loopback(os.environ)
        join_world(outer.rank, outer.world_size, outer.connect_unsigned)
        self._fabric = opener()(outer.connect(), outer.rank, outer.world_size)
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
        if self._first is not None:
            with contextlib.suppress(Exception):
                self._first()
        while True:
            work = self._orders.get()
            try:
                answer = work()
            except BaseException as error:
                answer = failure_answer(error)
            self._answers.put(answer)


class JoinedWorld:
    """The launcher's world, as rank 0 has it. It lasts as long as the command: close() leaves it to its leader."""

    def __init__(self, outer: Outer, store: Store, own: OwnCommand) -> None:
        self._outer = outer
        self._store = store
        self._own = own
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
        order = Order("open", self._own.digest, START_DEADLINE_S)
        self._do(order, lambda: self._rank.open(lambda: opener))

    def run(
        self, program: Callable[[Fabric, Argument], Result], argument: Argument, deadline_s: float | None
    ) -> list[Result]:
        """program(fabric, argument) on every rank, as in ProcessWorld; the results by rank.

        ValueError for a program that orders can't name, and for an argument that is no plain data.
        """
        if self._problem:
            raise FabricError(f"this world was hurt, and there is no other: {self._problem}")
        words = self._own.vocabulary
        order = Order("run", self._own.digest, deadline_s, words.program_name(program), words.written(argument))
        number = self._order + 1
        return self._do(order, lambda: self._rank.run(number, lambda: (program, argument), _as_it_is, deadline_s))

    def finish(self) -> None:
        """Close the fabrics of all ranks. Raises WorldFailure."""
        self._do(Order("close", self._own.digest, CLOSE_S), self._rank.close)

    def _do(self, order: Order, work: Callable[[], Answer]) -> list[Any]:
        """Let all ranks carry out an order; work is this rank's part of it."""
        limit_s = order.limit_s
        run = Outcomes(self.world_size)
        try:
            self._order += 1
            self._store.set(f"order/{self._order}", order.to_json())
            self._rank.order(work)
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
        """Another rank's answer. Where there is something else, that is the rank's failure."""
        try:
            return _read_answer(self._store.get(key))
        except (FabricError, NotPlain) as error:
            return failure_answer(error)

    def _take(self, run: Outcomes, rank: int, answer: Answer) -> None:
        """Put a rank's answer into the outcomes of an order."""
        if answer[0] == "late":
            run.late[rank] = answer[1]
            if answer[2]:
                run.waiting.add(rank)
        else:
            is_own = rank == self._outer.rank
            take_answer(run, rank, answer, _as_it_is if is_own else self._own.vocabulary.read)


class Leader:
    """Rank 0's side of an outer world: makes the one world that there is, and tells the others how the command ends."""

    def __init__(self, outer: Outer) -> None:
        self.outer = outer
        self._store: Store | None = None
        self._world: JoinedWorld | None = None
        self._opener: FabricOpener | None = None
        self._server: object = None
        self._ended = False

    def world(self, opener: FabricOpener, own: OwnCommand) -> JoinedWorld:
        """The world, with its fabrics opened by the opener. own is rank 0's command.

        Raises WorldFailure after any failure of it.
        """
        if self._world is None:
            self._store = self._store or self._connected()
            self._world = JoinedWorld(self.outer, self._store, own)
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


def follow(outer: Outer, compose: Callable[[], OwnCommand]) -> int:
    """The life of every rank but 0: do what rank 0 orders, print nothing, end as it says. Gives the exit code.

    compose makes this rank's command of its own command line; it is called once, in the rank's thread. The main thread
    alone decides: it ends even where a program hangs in the other.
    """
    if threading.current_thread() is threading.main_thread():
        # Rank 0 decides what a Ctrl-C means; a signal that ends this process need not wait.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Neither the launcher nor rank 0 may be there any more: that is for them to tell.
    with contextlib.suppress(Exception):
        store = outer.connect()
        code = _Follower(outer, store, compose).follow()
        store.set(f"farewell/{outer.rank}", "")
        return code
    return 1


class _Follower:
    """A rank that follows rank 0."""

    def __init__(self, outer: Outer, store: Store, compose: Callable[[], OwnCommand]) -> None:
        self._outer = outer
        self._store = store
        self._compose = functools.cache(compose)
        # A sweep of thousands of jobs takes rank 0 as long: both begin at once.
        self._rank = _RankThread(outer, self._compose)

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
            order = Order.read(self._store.get(f"order/{number}"))
        except (FabricError, NotPlain) as error:
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
        self._store.set(f"answer/{number}/{self._outer.rank}", json.dumps(answer))
        return None

    def _done(self, number: int, order: Order) -> Answer:
        """In the rank's thread: do what an order says."""
        own = self._compose()
        if own.digest != order.digest:
            raise FabricError(
                f"its command line asks for something else than that of rank 0 (digests {own.digest[:12]} and "
                f"{order.digest[:12]}): start all ranks with the same one"
            )
        words = own.vocabulary
        if order.do == "open":
            answer = self._rank.open(own.opener)
        elif order.do == "close":
            answer = self._rank.close()
        else:

            def unpacked() -> Work:
                return words.program(order.program), words.read(order.argument)

            return self._rank.run(number, unpacked, words.written, order.limit_s)
        return (answer[0], words.written(answer[1]))


def _read_answer(text: bytes) -> Answer:
    """An answer as another rank wrote it. NotPlain for anything else."""
    match _json(text):
        case ["result", str()] as answer:
            return tuple(answer)
        case ["failure", str(), str(), str(), int() | None, str()] as answer:
            return tuple(answer)
        case ["late", str(), bool()] as answer:
            return tuple(answer)
    raise NotPlain("the store holds something else than an answer where this rank writes its answers")


def _json(text: bytes) -> Any:
    """The value of JSON text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _as_it_is(value: Any) -> Any:
    """Rank 0's own arguments and results, which stay in its process."""
    return value
