"""Second processes: a copy of this one that works while it goes on, or a module of this project by itself."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Found = TypeVar("Found")

PROJECT = Path(__file__).resolve().parent.parent
"""The folder that this project's packages lie in."""

_PROGRAM = (
    "import importlib, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "sys.exit(importlib.import_module(sys.argv.pop(1)).main())"
)


def module_command(module: str) -> list[str]:
    """Return the command line that runs a module's main() in a new interpreter, from whatever folder.

    The interpreter is this one, and the module comes from the tree that this one's packages come from.
    """
    return [sys.executable, "-P", "-c", _PROGRAM, str(PROJECT), module]


def started(work: Callable[[], Found], is_alone: bool) -> Callable[[], Found]:
    """Gives a function that waits for what work found, to be called once.

    is_alone: this process has no other threads and no GPU, so that it may be forked; the copy sees all that this one
    has. Else, with one core, or when the copy dies, the returned function does the work itself.
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
