"""Runs recompute.py in a process of its own: it composes configurations and runs cases again.

So the memory of Hydra, torch and the simulator is gone before the audit reads the records with their timings. The
worker gets one pickle, its question, and sends texts of progress, and last an Answer.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cases.record.record import Record
from memory.worker_process import start_worker
from symlab.evidence.audit.material import Answer

MODULE = "symlab.evidence.recompute"

CLOSING_S = 20.0
"""Time limit for the worker to end after SIGTERM: git may have to remove a worktree."""

PATIENCE_S = 600.0
"""Time limit of the worker, beside that of running again."""

RERUN_S = 20.0
"""By default, no case is run again or compared with the reference that is not begun within this time."""

_LITTLE_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
"""Of glibc: ranks are threads, each of which would keep memory of its own; and arrays of 128 KiB or more are given back
when they are freed, where glibc would raise that limit to 32 MiB. Ten thousand records take 200 MB less."""

_NO_LIMIT_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Rerun:
    """How many cases to run again: number of them (None: all), as seed chooses them. None is begun after patience_s
    seconds (None: no limit). at_commit: where sources have changed, they run by the code of their commit, too."""

    number: int | None = None
    seed: int = 0
    patience_s: float | None = RERUN_S
    at_commit: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to recompute. up_to_bytes: maximum size of cases that are compared with the reference: 256 MiB on 8 ranks
    take half a minute a case. code: folders whose files may be run for records, beside those of the project and of the
    working folder."""

    up_to_bytes: int = 1 << 20
    code: Sequence[Path] = ()
    rerun: Rerun = field(default_factory=Rerun)


def ask(
    places: Sequence[Path],
    records: Sequence[Record] | None,
    wanted: Wanted,
    say: Callable[[str], None] = lambda text: None,
    module: str = MODULE,
    patience_s: float | None = None,
) -> Answer:
    """Return what the worker recomputes of records; None: of those in places, which it reads itself. module: what to
    run in place of the worker. patience_s: its time limit; None: PATIENCE_S, and the time of running again."""
    from runner.interrupt import interruptible

    if patience_s is None:
        patience_s = PATIENCE_S + (_NO_LIMIT_S if wanted.rerun.patience_s is None else wanted.rerun.patience_s)
    ends_s = time.monotonic() + patience_s
    try:
        process, connection = start_worker(module, is_quiet=True, variables=_LITTLE_MEMORY)
    except OSError as error:
        return Answer(problem=f"the worker can't be started ({error.strerror or error})")
    try:
        with interruptible():
            connection.send((tuple(places), records, wanted))
            while connection.poll(max(ends_s - time.monotonic(), 0.0)):
                said = connection.recv()
                if isinstance(said, Answer):
                    return said
                say(said)
            return Answer(problem=f"the worker took longer than {patience_s:.0f} s")
    except (EOFError, OSError):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSING_S)
        code = process.returncode
        why = "it closed its connection and goes on" if code is None else f"exit code {code}"
        return Answer(problem=f"the worker gave no answer ({why})")
    finally:
        connection.close()
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the worker by SIGTERM, so that it removes what it made, such as a worktree; kill it if that takes long."""
    try:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSING_S)
    finally:
        process.kill()
        process.wait()
