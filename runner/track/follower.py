"""The process that sends records to MLflow beside the work: see background.py."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from cases.documents import decoded
from cases.record.record import load
from cases.record.request import RecordedRequest
from cases.record.shared import Known
from runner.track.names import Kept
from runner.track.problems import told
from runner.track.send import CommandRun


def follow(messages: IO[str], answers: IO[str]) -> None:
    """Do what the messages say until they end; answer once: {"problem": a clause or "", "remarks": [what is missing of
    the report], "place": where the charts are}."""
    run: CommandRun | None = None
    kept: dict[Path, Kept] = {}
    remarks: list[str] = []
    uri, problem, ending = "", "", "KILLED"
    try:
        for line in _drained(messages):
            message = json.loads(line)
            if "open" in message:
                opening = message["open"]
                uri = str(opening["uri"])
                request = decoded(RecordedRequest, opening["request"], "request")
                run = CommandRun(**opening | {"request": request})
                if "earlier" in message:
                    some = _loaded(message["earlier"])
                    kept |= some
                    run.resume(list(some.values()))
            elif "send" in message and run is not None:
                some = _loaded(message["send"])
                kept |= some
                run.send(list(some.values()))
            elif "finish" in message and run is not None:
                remarks = run.finish(list(kept.values()))
                break
    except Exception as error:
        problem, ending = told(error, uri), "FAILED"
    finally:
        if run is not None:
            run.close(ending)
    with contextlib.suppress(OSError, ValueError):
        place = run.place if run is not None else ""
        answers.write(json.dumps({"problem": problem, "remarks": remarks, "place": place}) + "\n")
        answers.flush()


def _loaded(paths: Sequence[str]) -> dict[Path, Kept]:
    known = Known()
    return {Path(path): Kept(Path(path), load(path, known)) for path in paths}


def _drained(messages: IO[str]) -> Iterator[str]:
    """The lines, read by a thread as they come: a slow server must not fill the pipe and hold up the work."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def drain() -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in messages:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=drain, name="symlab-mirror-drain", daemon=True).start()
    while (line := lines.get()) is not None:
        yield line


def main() -> None:
    """The follower's process. Its arguments are the descriptor of its lock, if it has one, and the lock's path. What
    MLflow prints is kept away from the answer."""
    *inherited, path = sys.argv[1:]
    for descriptor in inherited:
        os.set_inheritable(int(descriptor), False)  # a process that MLflow starts must not keep the lock
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    follow(sys.stdin, answers)
    if inherited:
        with contextlib.suppress(OSError):
            os.unlink(path)  # while the lock is held: a process that waits for this file notices that it is gone
    # Exit at once: the teardown of MLflow's modules would delay the waiting command by half a second.
    os._exit(0)
