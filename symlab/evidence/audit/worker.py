"""Runs audit_worker.py in a process of its own: it composes configurations, makes inputs and runs cases again.

All of that needs Hydra and torch, which reports may not import. The worker reads one line of JSON, what is wanted, then
the lines of a bundle; it writes lines of JSON: {"progress": ..}, and last {"points": .., "level": ..}.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from cases.record.record import Record
from memory.forked import forked
from reports.record.bundle import unsorted_lines
from reports.second_process import PROJECT, module_command
from symlab.evidence.audit.items import Point
from symlab.evidence.audit.level import Recomputed
from symlab.evidence.audit.material import Answer, Material, name_of

MODULE = "symlab.evidence.audit_worker"

CLOSING_S = 20.0
"""Time limit for the worker to end after SIGTERM: git may have to remove a worktree."""

PATIENCE_S = 600.0
"""Time limit of the worker, beside that of running again. Inputs of 2,000 cases up to 1 MiB on 8 ranks take half a
minute."""

RERUN_S = 20.0
"""By default, no case is run again that is not begun within this time, and no input made again after as long."""

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
    """What to recompute. inputs_up_to_bytes: maximum size of the cases whose inputs are made again, and of those that
    are compared with the reference: 256 MiB on 8 ranks take half a minute a case. code: folders whose files may be run
    for records, beside those of the project and of the working folder."""

    inputs_up_to_bytes: int = 1 << 20
    code: Sequence[Path] = ()
    rerun: Rerun = field(default_factory=Rerun)


def ask(
    material: Material | Callable[[], Material],
    wanted: Wanted,
    say: Callable[[str], None] = lambda text: None,
    command: Sequence[str] = (),
    patience_s: float | None = None,
) -> Answer:
    """Return what the worker recomputes of a set. material: or what makes it, in a copy of this process, so that its
    memory is gone before the worker begins. command: what to run in place of the worker. patience_s: its time limit;
    None: PATIENCE_S, and the time of running again."""
    if patience_s is None:
        patience_s = PATIENCE_S + (_NO_LIMIT_S if wanted.rerun.patience_s is None else wanted.rerun.patience_s)
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile("w+") as complaints, _terminated_by_exception():
        if callable(material):
            forked(lambda: _ask(asked, material(), wanted))
        else:
            _ask(asked, material, wanted)
        asked.seek(0)
        try:
            process = subprocess.Popen(
                list(command) or module_command(MODULE),
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=PROJECT,
                env={**os.environ, **_LITTLE_MEMORY},
                encoding="utf-8",
                start_new_session=True,  # a terminal's Ctrl-C comes once, from here
            )
        except OSError as error:
            return Answer(problem=f"the worker can't be started ({error.strerror or error})")
        late = threading.Event()
        answer = _followed(process, say, patience_s, late)
        complaints.seek(0)
        said = complaints.read().strip().splitlines()
    if answer is None and late.is_set():
        return Answer(problem=f"the worker took longer than {patience_s:.0f} s")
    if answer is None:
        why = said[-1][:200] if said else f"exit code {process.returncode}"
        return Answer(problem=f"the worker gave no answer ({why})")
    return answer


def _ask(file: IO[bytes], material: Material, wanted: Wanted) -> None:
    """Write all that the worker reads, in place of what a copy of this process wrote that hung."""
    file.seek(0)
    file.truncate()
    file.write(f"{json.dumps(_question(material, wanted))}\n".encode())
    file.writelines(unsorted_lines(map(_untimed, material.records)))
    file.flush()


def _question(material: Material, wanted: Wanted) -> dict[str, Any]:
    """Return what is wanted as JSON, with absolute paths. not_run: the cases that each command with a command.json did
    not come to."""
    return {
        "inputs_up_to_bytes": wanted.inputs_up_to_bytes,
        "code": [os.path.abspath(one.expanduser()) for one in wanted.code],
        "rerun": asdict(wanted.rerun),
        "folder": os.getcwd(),
        "places": [os.path.abspath(one) for one in material.places],
        "not_run": {
            name: [list(one) for one in sorted(material.not_run.get(name, ()))]
            for name in (name_of(folder, document) for folder, document in material.commands.items())
        },
    }


def _untimed(record: Record) -> Record:
    """A record without its timing, which nothing here is held to."""
    return replace(record, timing=None)


def _followed(
    process: subprocess.Popen[str], say: Callable[[str], None], patience_s: float, late: threading.Event
) -> Answer | None:
    """Report progress until the process ends; return its answer, None if it gave none."""

    def give_up() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(patience_s, give_up)
    timer.start()
    answer = None
    try:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict) and "progress" in document:
                    say(str(document["progress"]))
                elif isinstance(document, dict) and "points" in document:
                    points = {name: tuple(map(Point.read, some)) for name, some in document["points"].items()}
                    answer = Answer(points, Recomputed(**document["level"]))
    finally:
        timer.cancel()
        if process.poll() is None and sys.exc_info()[0]:
            _end(process)
        process.wait()
        process.stdout.close() if process.stdout else None
    return answer


@contextlib.contextmanager
def _terminated_by_exception() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP that would end this process raise SystemExit: the worker is not to go on alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    wanted = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for number in wanted:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, signal.SIG_DFL)


def _end(process: subprocess.Popen[str]) -> None:
    """End the worker by SIGTERM, so that it removes what it made, such as a worktree; kill it if that takes long."""
    try:
        process.send_signal(signal.SIGTERM)
        process.wait(CLOSING_S)
    except subprocess.TimeoutExpired:
        process.kill()
    except KeyboardInterrupt:
        process.kill()
        raise
