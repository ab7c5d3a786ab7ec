"""Runs a step in a copy of this process, so that code of others which ends its process does not end this one.

The copy is forked, and not started anew: a function of a notebook, of `__main__` or within another function can't be
found again by file and name, and a copy has it, with all that it refers to, at no cost of imports. A fork copies the
calling thread alone, so a lock that another thread holds stays locked there for good: a copy that has not computed for
HUNG_S seconds is given up, and its step is taken here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import pickle
import re
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, TypeVar

from memory.held_interrupts import ending_signals
from memory.owned_folder import owned_folder
from memory.worker_process import kill_with

log = logging.getLogger(__name__)
T = TypeVar("T")

HUNG_S = 30
"""A copy that has had no processor time for so long waits for a lock that nothing in it will open."""

LOOK_S = 0.5
"""How often a copy that says nothing is looked at."""

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frame:
    """A place that Python was at."""

    file: str
    line: int
    function: str


class ProcessEnded(RuntimeError):
    """A copy ended by itself. how: "by SIGSEGV" or "with exit code 3"; frames: where it was, innermost first, as far as
    that is known."""

    def __init__(self, how: str, frames: tuple[Frame, ...]) -> None:
        super().__init__(f"its process ended {how}")
        self.how = how
        self.frames = frames


def forked(step: Callable[[], T], hung_s: float = HUNG_S) -> T:
    """Return what a step returns that runs in a copy of this process. What it returns, and raises, is pickled.

    What it changes in memory is lost. Raises what the step raises, and ProcessEnded if the copy ends by itself. A copy
    that hangs is ended with a warning, and the step runs in this process; so it does where no copy can be made.
    """
    with owned_folder("symlab-forked-") as folder, open(Path(folder, "trace"), "w+", encoding="utf-8") as trace:
        reading, writing = os.pipe()
        parent = os.getpid()
        try:
            child = _fork()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            log.warning("no process can be made (%s): going on in this one", error.strerror)
            return step()
        if child == 0:
            os.close(reading)
            _live(step, parent, writing, folder, trace)
        os.close(writing)
        content = None
        try:
            content = _read(reading, child, hung_s)
        finally:
            os.close(reading)
            if content is None:  # it hangs, or this process was interrupted
                os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if content is None:
            log.warning("a process beside this one had no processor time for %.0f s: going on in this one", hung_s)
            return step()
        if status or not content:
            trace.seek(0)
            frames = tuple(Frame(file, int(line), name) for file, line, name in _FRAME.findall(trace.read()))
            raise ProcessEnded(_how(status), frames)
    value, raised = pickle.loads(content)
    if raised is not None:
        raise raised
    result: T = value
    return result


def _fork() -> int:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # else the copy writes it once more
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: HUNG_S is the answer to them
        return os.fork()


def _read(reading: int, child: int, hung_s: float) -> bytes | None:
    """Return all that a copy writes until it ends; None if it hangs."""
    content, used, since_s = bytearray(), -1, time.monotonic()
    while True:
        if select.select([reading], [], [], LOOK_S)[0]:
            part = os.read(reading, 1 << 20)
            if not part:
                return bytes(content)
            content += part
            continue
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return bytes(content)  # another process, forked meanwhile, has the other end as well
        now_used = _used(child)
        if now_used != used:
            used, since_s = now_used, time.monotonic()
        elif time.monotonic() - since_s > hung_s:
            return None


def _used(child: int) -> int:
    """Return the processor time of a process in the system's ticks; one that is stopped, by a debugger say, is busy."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return time.monotonic_ns() if fields[0] in "tT" else int(fields[11]) + int(fields[12])


def _live(step: Callable[[], object], parent: int, writing: int, folder: str, trace: IO[str]) -> None:
    """The copy's whole life."""
    left = 1
    end = os._exit
    try:
        kill_with(parent)
        for number in ending_signals():
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent, which then ends it
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        tempfile.tempdir = folder  # what it leaves there goes with the folder
        faulthandler.enable(trace, all_threads=False)

        def noted_end(status: int) -> NoReturn:
            faulthandler.dump_traceback(trace, all_threads=False)
            end(status)

        os._exit = noted_end
        with open(writing, "wb") as answer:
            answer.write(_answer(step))
        left = 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        end(left)


def _answer(step: Callable[[], object]) -> bytes:
    """Return a pickle of what a step returned and of what it raised, one of which is None."""
    try:
        return pickle.dumps((step(), None))
    except Exception as error:
        with contextlib.suppress(Exception):
            content = pickle.dumps((None, error))
            pickle.loads(content)
            return content
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
    except BaseException as error:  # SystemExit would end the parent
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))


def _how(status: int) -> str:
    return f"with exit code {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
