"""Work that a second process does while this one goes on: what it finds comes back when it is asked for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Found = TypeVar("Found")


def started(work: Callable[[], Found], is_alone: bool) -> Callable[[], Found]:
    """Gives a function that waits for what work found, to be called once.

    is_alone: this process has no other threads and no GPU, so that it may be forked; the copy sees all that this one
    has. Else, with one core, or when the copy dies, the work is done here, when it is asked for.
    """
    if not is_alone or not hasattr(os, "fork") or (os.cpu_count() or 1) < 2:
        return work
    import multiprocessing

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, sender), daemon=True)
    process.start()
    sender.close()

    def found() -> Found:
        try:
            result: Found = receiver.recv()
        except EOFError:
            return work()
        process.join()
        return result

    return found


def _send(work: Callable[[], Found], sender: Connection) -> None:
    """In the copy: what it finds, or nothing, if that fails: then the error comes where it can be seen. Ctrl-C is for
    who started it, and ends the copy, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sender.send(work())
    except Exception:
        sender.close()
