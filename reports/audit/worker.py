"""Runs runner/audit_worker.py in a process of its own: it composes configurations and makes inputs again.

Both need Hydra and torch, which reports may not import.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cases.documents import encoded
from cases.record.record import Record, RecordedEnvironment, RecordedRequest
from reports.second_process import PROJECT, module_command

MODULE = "runner.audit_worker"

CLOSING_S = 20.0
"""Time limit for the worker to end after SIGTERM: git may have to remove a worktree."""

PATIENCE_S = 600.0
"""Time limit of the worker. Inputs of 2,000 cases up to 1 MiB on 8 ranks take half a minute."""

INPUTS_UP_TO_BYTES = 1 << 20
"""Default maximum size of inputs to make again: 256 MiB on 8 ranks take half a minute a case."""


RERUN_S = 20.0
"""By default, no case is run again that is not begun within this time, and no input made again after as long."""

_NO_LIMIT_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Rerun:
    """How many cases to run again: number of them (None: all), as seed chooses them. None is begun after patience_s
    seconds (None: no limit). at_commit: where sources have changed, they run by the code of their commit, too."""

    number: int | None = None
    seed: int = 0
    patience_s: float | None = RERUN_S
    at_commit: bool = False


def ask(
    records: Sequence[Record],
    up_to_bytes: int = INPUTS_UP_TO_BYTES,
    say: Callable[[str], None] = lambda text: None,
    command: Sequence[str] = (),
    patience_s: float | None = None,
    places: Sequence[Path] = (),
    code: Sequence[Path] = (),
    rerun: Rerun | None = None,
) -> tuple[dict[str, Any] | None, str]:
    """Return the worker's answer and "", or None and the reason, which the caller must report.

    command: what to run in place of the worker. places: where the records were read: files there are not run for them.
    code: folders whose files may be run for records, beside those of the project and of the working folder. rerun: how
    many cases to run again. patience_s: the worker's time limit; None: PATIENCE_S, and the time of running again.
    """
    rerun = rerun or Rerun()
    if patience_s is None:
        patience_s = PATIENCE_S + (_NO_LIMIT_S if rerun.patience_s is None else rerun.patience_s)
    asked_for: dict[str, Any] = {"inputs_up_to_bytes": up_to_bytes, "folder": os.getcwd()}
    asked_for |= {"places": [os.path.abspath(one) for one in places]}
    asked_for |= {"code": [os.path.abspath(one.expanduser()) for one in code]}
    asked_for |= {"rerun": asdict(rerun)}
    asked_for["predictions"] = predictions_asked(records)
    asked_for["prediction_reasons"] = [one.prediction.reason if one.prediction is not None else "" for one in records]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as asked, tempfile.TemporaryFile("w+") as complaints:
        asked.writelines(question_of(records, asked_for))
        asked.seek(0)
        try:
            process = subprocess.Popen(
                list(command) or module_command(MODULE),
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=PROJECT,
                encoding="utf-8",
                start_new_session=True,  # a terminal's Ctrl-C comes once, from here
            )
        except OSError as error:
            return None, f"the worker can't be started ({error.strerror or error})"
        late = threading.Event()
        answer = _followed(process, say, patience_s, late)
        complaints.seek(0)
        said = complaints.read().strip().splitlines()
    if answer is None and late.is_set():
        return None, f"the worker took longer than {patience_s:.0f} s"
    if answer is None:
        return None, f"the worker gave no answer ({said[-1][:200] if said else f'exit code {process.returncode}'})"
    return answer, ""


def question_of(records: Sequence[Record], asked_for: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a question: what is wanted, with the environments and requests that records share, then a
    record a line, without its timing, with the places of its environment and request."""
    places: dict[str, int] = {}
    by_object: dict[int, int] = {}
    for part in (part for record in records for part in (record.environment, record.request)):
        if id(part) not in by_object:
            by_object[id(part)] = places.setdefault(json.dumps(encoded(part), sort_keys=True), len(places))
    yield json.dumps({**asked_for, "shared": list(places)}) + "\n"
    nothing: dict[str, Any] = {"timing": None, "prediction": None}
    nothing |= {"environment": RecordedEnvironment(), "request": RecordedRequest()}
    for record in records:
        parts = {"environment": by_object[id(record.environment)], "request": by_object[id(record.request)]}
        yield json.dumps({**encoded(replace(record, **nothing)), **parts}) + "\n"


def predictions_asked(records: Sequence[Record]) -> list[list[Any]]:
    """Return [place among records, predicted time as JSON, the timing's footprint in bytes and its median in us] of
    each record with a predicted time: the worker gets no timings."""
    return [
        [place, encoded(one.prediction.time), one.timing.footprint_bytes, one.timing.median_us]
        for place, one in enumerate(records)
        if one.prediction is not None and one.prediction.time is not None and one.timing is not None
    ]


def _followed(
    process: subprocess.Popen[str], say: Callable[[str], None], patience_s: float, late: threading.Event
) -> dict[str, Any] | None:
    """Report progress until the process ends; return its answer, None if it gave none."""

    def give_up() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(patience_s, give_up)
    timer.start()
    answer = None
    try:
        assert process.stdout is not None
        with _terminated_by_exception():
            for line in process.stdout:
                with contextlib.suppress(ValueError):
                    document = json.loads(line)
                    if isinstance(document, dict) and "progress" in document:
                        say(str(document["progress"]))
                    elif isinstance(document, dict) and "configurations" in document:
                        answer = document
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
