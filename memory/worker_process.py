"""Worker processes that don't outlive the one that started them.

A worker of concurrent.futures or multiprocessing waits for its next task on a pipe whose writing end it has itself: so
it waits forever once its parent was killed, when nothing is left that could close the pool. A pool also imports the
main module again, which runs a user's script a second time, and at its end waits for what its workers are at. Where
either matters, start_worker starts a process that does neither.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import IO

EXIT_CODE = 1
"""That of a worker that ended because its parent is gone."""

PR_SET_PDEATHSIG = 1

BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from importlib import import_module
from memory.worker_process import kill_with
kill_with(int(sys.argv[4]))
import_module(sys.argv[2]).main(int(sys.argv[3]))
"""
"""What a worker's interpreter runs: it finds the modules that this one finds, and imports no main module."""


def start_worker(
    module: str, *, is_quiet: bool = False, variables: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that runs main(descriptor) of a module, and return it with the connection to it.

    is_quiet: what it prints is dropped. variables: of its environment, beside this process's. See started.
    """
    output = subprocess.DEVNULL if is_quiet else None
    process, ours = started(module, output, {**os.environ, **(variables or {})})
    return process, Connection(ours.detach())


def started(
    module: str, output: IO[bytes] | int | None, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process that runs main(descriptor) of a module, and return it with one end of a pair of sockets that no
    other process has, of which the descriptor is the process's end. output takes what it prints.

    Linux kills it as soon as the calling thread is gone, whatever it does then. It is in a process group of its
    own: Ctrl-C in a terminal is for the parent, which then ends it.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        paths = json.dumps([os.path.abspath(path) for path in sys.path])
        arguments = [paths, module, str(theirs.fileno()), str(os.getpid())]
        process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", BOOT, *arguments],  # -P: no module of the working folder comes first
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
    return process, ours


def kill_with(parent: int) -> None:
    """Have the system kill this process as soon as the thread that started it is gone, even while code runs that lets
    no other thread of Python's run. Linux only. parent: the process of that thread."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
    if os.getppid() != parent:
        os._exit(EXIT_CODE)


def end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, in whatever way that ended: the initializer of a
    pool's workers. Raises ValueError in a process that multiprocessing did not start."""
    parent = multiprocessing.parent_process()
    if parent is None:
        raise ValueError("this process is no worker: multiprocessing did not start it")

    def watch() -> None:
        parent.join()
        os._exit(EXIT_CODE)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
