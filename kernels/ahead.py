"""Compiles kernels ahead of their use, in processes beside the one that uses them: of a command, a search, the matrix.

What the processes compile lies in the cache (kernels/compile.py), where its user finds it; nothing else comes back. A
kernel that they can't compile is compiled again by its user, and fails there with the compiler's own error. Only
kernels of the catalogue are compiled so: a user's file would be executed once more in each process, and what it prints
while it is traced would be lost.

Processes are started by kernels.ahead and not by multiprocessing (memory/worker_process.py says why). Each imports the
compiler, which takes START_S and 250 to 600 MB, so none is started for less work than that costs.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from cases.case import Case
from kernels.catalogue import find, is_known
from kernels.compile import cache_key, entry_path, executable
from kernels.spec import KernelSpec
from memory.fabric import Executable

START_S = 2.0
"""What a process takes until it compiles, in seconds (2026-11-24, a machine of 2 cores); it gets as much work or is not
started."""

KERNEL_S = 0.3
NVSHMEM_KERNEL_S = 7.0
"""What a kernel takes to compile, and one that calls NVSHMEM's device functions (the same day and machine): most of it
is the assembler's work on the functions that are linked in."""

LEAST_S = 5.0
"""What a command has to compile at least for processes to pay."""

PROCESS_BYTES = 1 << 30
"""Memory that a process may take."""

LOOKED_AT = 500
"""Maximum number of cases that are looked at in one go: a sweep may have a hundred thousand, and has to begin soon."""

WAITING = 512
"""Maximum number of kernels that wait for a process, before no more cases are looked at."""

IDLE_S = 5.0
"""How long a process without work stays."""

CLOSE_S = 5.0
"""How long a process gets to end after SIGTERM, which takes effect at once, except while it writes to the cache."""

NICE = 5
"""Processes that compile give way to the one that runs what they have compiled: so little of that is left to it alone
at the end."""


class Compiler:
    """Compiled kernels from a cache. processes: maximum number of processes that fill it ahead; below 2 there are none,
    and this one compiles. least_s: what has to be compiled at least, in seconds by the estimates above, for processes
    to be started.

    One thread calls it. close() ends the processes.
    """

    def __init__(self, cache_dir: Path, processes: int = 1, least_s: float = 0.0) -> None:
        self.cache_dir = cache_dir
        self._processes = processes
        self._least_s = least_s
        self._coming: deque[tuple[Iterator[Case], str]] = deque()
        self._seen: set[tuple[str, str, str]] = set()
        self._changed = threading.Condition()
        self._waiting: dict[str, tuple[Case, str, float]] = {}
        self._under_way: set[str] = set()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._is_closed = False

    def begin(self, cases: Iterable[Case], arch: str) -> None:
        """Begin to compile cases' kernels, in their order: those that the cache does not have, each once. Cases are
        taken from an iterator as they are needed."""
        if self._processes >= 2:
            self._coming.append((iter(cases), arch))
            self._look()

    def executable(self, spec: KernelSpec, case: Case, arch: str) -> Executable:
        """Return a case's compiled kernel; waits for the process that compiles it. Raises what kernels.compile does."""
        self._look()
        if self._waiting or self._under_way:
            self._wait([cache_key(spec, case, arch)])
        return executable(spec, case, arch, self.cache_dir)

    def wait(self, cases: Iterable[Case], arch: str, timeout_s: float | None = None) -> bool:
        """Wait for those of these cases that processes compile, and for nothing else. Returns False if the time came
        first."""
        self._look()
        keys = [cache_key(find(case.name), case, arch) for case in cases if is_known(case.name)]
        return self._wait(keys, timeout_s)

    def wait_for_all(self) -> None:
        """Wait until nothing is compiled any more."""
        self._look()
        self._wait([*self._under_way, *self._waiting])

    @property
    def count(self) -> int:
        """Number of kernels that processes compile or have still to compile."""
        with self._changed:
            return len(self._under_way) + len(self._waiting) if self._workers else 0

    def close(self) -> None:
        """End the processes, whatever they are at, and remove what they were at."""
        with self._changed:
            self._is_closed = True
            self._coming.clear()
            self._waiting.clear()
            self._changed.notify_all()
            workers = list(self._workers)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(CLOSE_S)
            worker.kill()
            worker.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _look(self) -> None:
        """Look at cases that come, note kernels that the cache does not have, and start processes if they pay."""
        for _ in range(LOOKED_AT):
            if not self._coming or len(self._waiting) >= WAITING:
                break
            cases, arch = self._coming[0]
            case = next(cases, None)
            if case is None:
                self._coming.popleft()
            else:
                # What is wrong with a case is said by what runs it.
                with contextlib.suppress(ValueError, RuntimeError, OSError):
                    self._note(case, arch)
        with self._changed:
            self._start()

    def _note(self, case: Case, arch: str) -> None:
        """Let a case's kernel wait for a process, unless the cache has it or it was noted before."""
        if not is_known(case.name):
            return
        spec = find(case.name)
        known = spec.name, spec.variant(case), arch
        if spec.made is not None or known in self._seen:  # `made` compiles it without a cache
            return
        self._seen.add(known)
        key = cache_key(spec, case, arch)
        if not entry_path(spec, arch, key, self.cache_dir).exists():
            with self._changed:
                self._waiting[key] = case, arch, NVSHMEM_KERNEL_S if spec.nvshmem else KERNEL_S
                self._changed.notify_all()

    def _start(self) -> None:
        """Start processes for what waits: as many as have enough to do."""
        waiting_s = sum(cost_s for _, _, cost_s in self._waiting.values())
        if not self._workers and (len(self._waiting) < 2 or waiting_s < self._least_s):
            return
        from memory.owned_folder import owned_folder
        from memory.worker_process import start_worker

        wanted = min(self._processes, len(self._waiting), math.ceil(waiting_s / START_S))
        while len(self._workers) < wanted and not self._is_closed:
            try:
                if self._folder is None:
                    self._folder = owned_folder("symlab-ahead-")
                worker, connection = start_worker(__name__, is_quiet=True, variables={"TMPDIR": self._folder.name})
            except OSError:  # the system has no room for more: what waits for none is compiled by who wants it
                self._processes = len(self._workers)
                return
            self._workers.append(worker)
            threading.Thread(target=self._feed, args=(worker, connection), name="compiles ahead", daemon=True).start()

    def _feed(self, worker: subprocess.Popen[bytes], connection: Connection) -> None:
        """Give a process one kernel after another, in a thread of its own, until there is none or it has ended."""
        key: str | None = None
        with contextlib.suppress(EOFError, OSError), connection:
            while (task := self._next(worker, key)) is not None:
                key, case, arch = task
                connection.send_bytes(pickle.dumps((case, arch, self.cache_dir)))
                connection.recv_bytes()
            key = None
        if key is not None:  # it ended while it compiled this
            with self._changed:
                self._leave(worker, key)
        worker.wait()

    def _next(self, worker: subprocess.Popen[bytes], done: str | None) -> tuple[str, Case, str] | None:
        """Return what a process compiles next, after what it has done; None if it is to end."""
        with self._changed:
            if done is not None:
                self._under_way.discard(done)
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._is_closed, IDLE_S)
            if not self._waiting:
                self._leave(worker)
                return None
            key = next(iter(self._waiting))
            case, arch, _ = self._waiting.pop(key)
            self._under_way.add(key)
            return key, case, arch

    def _leave(self, worker: subprocess.Popen[bytes], key: str | None = None) -> None:
        """A process is about to end, or has ended while it compiled the kernel of a key."""
        self._workers.remove(worker)
        if key is not None:
            self._under_way.discard(key)
        if not self._workers:
            self._waiting.clear()  # who wants them compiles them
        self._changed.notify_all()

    def _wait(self, keys: Iterable[str], timeout_s: float | None = None) -> bool:
        """Wait until processes have compiled these, which come first now. Returns False if the time came first."""
        with self._changed:
            if not self._workers:
                for key in keys:
                    self._waiting.pop(key, None)  # it is compiled by who wants it
            wanted = {key: self._waiting.pop(key) for key in keys if key in self._waiting}
            self._waiting = {**wanted, **self._waiting}
            awaited = {*wanted, *(key for key in keys if key in self._under_way)}

            def is_done() -> bool:
                return not any(key in self._under_way or key in self._waiting for key in awaited)

            return self._changed.wait_for(is_done, timeout_s)


def processes_for(cores: int, free_bytes: int | None) -> int:
    """Return the maximum number of processes that compile: one a core, and no more than half of the free memory has
    room for (None: unknown)."""
    return cores if free_bytes is None else min(cores, free_bytes // 2 // PROCESS_BYTES)


def main(descriptor: int) -> None:
    """The life of a process: it compiles what it is sent, one kernel after another, into the cache."""
    os.nice(NICE)
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        while True:
            case, arch, cache_dir = pickle.loads(connection.recv_bytes())
            with contextlib.suppress(Exception):  # who wants the kernel compiles it again, and says what is wrong
                executable(find(case.name), case, arch, cache_dir)
            connection.send_bytes(b"")
