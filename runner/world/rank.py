"""A rank in a process of its own: opens its fabric, runs the programs that its parent sends, reports how each ended.

The main thread runs the programs. A second one listens to the parent: it answers where the main thread is, however long
that is in a program, and ends the process when the parent is gone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import memory.fabric
from memory.fabric import Fabric, FabricError, WrongCall, rank_of, work_of
from memory.meeting import OPENING, Store, lost, tcp_store
from memory.pickling import dumps
from memory.process_group import join_world
from memory.sealed_store import SealedStore
from runner.world.channel import Channel
from runner.world.world import Outcomes, described, described_frame, innermost_frame, leak_of

if TYPE_CHECKING:
    from memory.nvshmem_fabric import NvshmemFabric

CONNECT_S = 30.0


FabricOpener = Callable[["Store", int, int], "NvshmemFabric"]
"""opener(store, rank, world_size), run in the rank's process: it must be importable there, so that it can be sent."""

Answer = tuple[Any, ...]
"""How a program ended on a rank: ("result", packed) or ("failure", kind, text, traceback, the rank that it names, the
work that it says did not end)."""

Work = tuple[Callable[[Fabric, Any], object], Any]
"""A program and its argument."""


def execute(
    fabric: NvshmemFabric,
    number: int,
    unpacked: Callable[[], Work],
    packed: Callable[[object], object],
    deadline_s: float | None,
) -> Answer:
    """Run a program on this rank, and tell the other ranks how it ended. Never raises.

    unpacked gives the program and its argument as they came, packed makes of a result what is sent.
    """
    error: BaseException | None = None
    result: object = None
    try:
        fabric.begin(number)
        fabric.set_deadline(None if deadline_s is None else time.monotonic() + deadline_s)
        program, argument = unpacked()
        result = packed(program(fabric, argument))
        error = leak_of(fabric.live_regions())
        _empty_cache()
    except BaseException as raised:
        error = raised
    try:
        fabric.leave("" if error is None else described(error))
    except BaseException as raised:
        error = error or raised
    return ("result", result) if error is None else failure_answer(error)


def failure_answer(error: BaseException) -> Answer:
    """An error as plain values: it may hold what can't be sent, or not be known on the other side."""
    kinds = [one.__name__ for one in type(error).__mro__ if one.__module__ == memory.fabric.__name__]
    trace = "".join(traceback.format_exception(error)[-20:])
    return ("failure", kinds[0] if kinds else "", described(error), trace, rank_of(error), work_of(error))


def take_answer(run: Outcomes, rank: int, answer: Answer, unpacked: Callable[[Any], object] = pickle.loads) -> None:
    """Put how a rank's program ended into the run's outcomes: the other half of execute()."""
    if answer[0] == "result":
        try:
            run.results[rank] = unpacked(answer[1])
        except Exception as raised:
            run.errors[rank] = FabricError(f"its result can't be read: {described(raised)}")
        return
    _, kind, text, trace, named, work = answer
    error = _error_kind(kind)(text, rank=named)
    if isinstance(error, FabricError):
        error.work = work
    error.add_note(f"On rank {rank}:\n{trace}")
    run.errors[rank] = error


def _error_kind(name: str) -> Callable[..., Exception]:
    """The error of memory.fabric that has the name; FabricError for any other name."""
    found = getattr(memory.fabric, name, None)
    known = isinstance(found, type) and issubclass(found, (FabricError, WrongCall))
    return found if known and found is not None else FabricError


def pickled_work(program: Callable[..., Any], argument: object) -> bytes:
    """(program, argument) for other processes. ValueError for what can't be sent."""
    try:
        return dumps((program, argument))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"a program for other processes has to be a function of a module, with an argument that pickles: {error}"
        ) from error


def whereabouts(thread_id: int | None, fabric: Fabric | None) -> tuple[str, bool]:
    """Where a rank's thread is, and whether that is in a call of its fabric."""
    frame = innermost_frame(thread_id)
    if frame is None:
        return described_frame(frame), False
    homes = {str(Path(memory.fabric.__file__).parent)}
    module = sys.modules.get(type(fabric).__module__)
    files = {getattr(module, "__file__", None)} if fabric is not None else set()
    file = frame.f_code.co_filename
    return described_frame(frame), file in files or str(Path(file).parent) in homes


def pickled(result: object) -> bytes:
    """A result for another process. FabricError if it can't be sent."""
    try:
        return dumps(result)
    except Exception as error:
        raise FabricError(f"its result can't be sent: {described(error)}") from error


def _empty_cache() -> None:
    """Give what torch keeps of a GPU's memory back: the next program may want it through NVSHMEM, or NCCL."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class _Rank:
    """The process: what it was told to be, its fabric, and its two threads."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._orders: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._fabric: NvshmemFabric | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def serve(self) -> int:
        """Everything that the main thread does. Gives the exit code."""
        _, *opening = self._orders.get()
        try:
            self._open(*opening)
        except BaseException as error:
            self._channel.send(*failure_answer(error))
            return 1
        self._channel.send("ready")
        while True:
            order = self._orders.get()
            if order[0] == "close":
                return self._close()
            assert self._fabric is not None
            self._channel.send(*self._executed(self._fabric, *order[1:]))

    def _executed(self, fabric: NvshmemFabric, number: int, work: bytes, deadline_s: float | None) -> Answer:
        """Run what the parent sent: a pickle, which came through a pair of sockets that no other process has."""
        return execute(fabric, number, lambda: pickle.loads(work), pickled, deadline_s)

    def _open(self, rank: int, world_size: int, port: int, key: bytes, opener: bytes) -> None:
        import torch

        # Ranks share one machine's cores: torch would give each of them all.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world_size))

        connect = partial(tcp_store, "127.0.0.1", port, CONNECT_S)
        store = SealedStore(connect(), key)
        join_world(rank, world_size, connect)
        try:
            self._fabric = pickle.loads(opener)(store, rank, world_size)
        except BaseException as error:
            with contextlib.suppress(Exception):
                lost(store, OPENING, rank, described(error))
            raise

    def _close(self) -> int:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_initialized():
            distributed.destroy_process_group()
        if self._fabric is not None:
            self._fabric.close()
        return 0

    def _listen(self) -> None:
        """The second thread: takes what the parent says, in or out of a program."""
        while True:
            message = self._channel.receive()
            if message is None:
                os._exit(1)
            if message[0] == "where":
                with contextlib.suppress(OSError):
                    self._channel.send("here", *whereabouts(threading.main_thread().ident, self._fabric))
            else:
                self._orders.put(message)


def main(descriptor: int) -> None:
    """The life of a rank's process. descriptor: its end of the socket pair."""
    # The parent decides what a Ctrl-C or a closed terminal means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    faulthandler.enable(file=2, all_threads=False)
    # For a main thread that keeps Python from running: then the second thread can't answer either.
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)
    os.set_inheritable(descriptor, False)
    code = 1
    try:
        code = _Rank(Channel(socket.socket(fileno=descriptor))).serve()
    except BaseException:
        traceback.print_exc()
    # At once: the fabric is closed, or the world is about to end: nothing is left to wait for.
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
