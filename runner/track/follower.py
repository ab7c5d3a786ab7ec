"""The process that sends records to MLflow beside the work: see runner/command/to_mlflow.py."""

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
from cases.record.shared import Known, SharedError
from runner.records.command_json import COMMAND_JSON
from runner.records.lock import MIRROR_LOCK_NAME, FolderInUse, held_if_possible
from runner.track.names import Kept, begun
from runner.track.problems import told
from runner.track.send import CommandRun

PATIENCE_S = 60.0
"""How long to wait for another process that sends records of the folder: it outlives a command that was killed, and
would open a run beside the one that goes on, or end it."""


class _Records:
    """The records of a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = Known()
        self._read: dict[Path, Kept] = {}

    def matching(self, pattern: str) -> list[Kept]:
        """Those whose files match a pattern, in the order in which they were begun."""
        paths = [path for path in self._folder.glob(pattern) if path.name != COMMAND_JSON]
        for path in paths:
            try:
                self._read[path] = self._read.get(path) or Kept(path, load(path, self._known))
            except SharedError:
                raise
            except ValueError:
                continue  # no record
        return sorted((self._read[path] for path in paths if path in self._read), key=begun)


def follow(messages: IO[str], answers: IO[str]) -> None:
    """Do what the messages say until they end; answer once: {"problem": a clause or "", "remarks": [what is missing of
    the report], "place": where the charts are}."""
    run: CommandRun | None = None
    remarks: list[str] = []
    sent: set[Path] = set()
    uri, problem, ending = "", "", "KILLED"
    try:
        for line in _drained(messages):
            message = json.loads(line)
            if "open" in message:
                opening = message["open"]
                uri = str(opening["uri"])
                records = _Records(Path(opening["folder"]))
                request = decoded(RecordedRequest, opening["request"], "request")
                run = CommandRun(**opening | {"request": request})
                if "earlier" in message:
                    some = [one for one in records.matching("*.json") if one.path.name in message["earlier"]]
                    run.resume(some)
                    sent |= {one.path for one in some}
            elif "send" in message and run is not None:
                some = records.matching(message["send"])
                run.send(some)
                sent |= {one.path for one in some}
            elif "finish" in message and run is not None:
                kept = records.matching("*.json")
                left = {one.record.request.job for one in kept if one.path not in sent}
                run.send([one for one in kept if one.record.request.job in left])
                remarks = run.finish(kept)
                break
    except Exception as error:
        problem, ending = told(error, uri), "FAILED"
    finally:
        if run is not None:
            run.close(ending)
    _answer(answers, problem, remarks, run.place if run is not None else "")


def _answer(answers: IO[str], problem: str, remarks: Sequence[str] = (), place: str = "") -> None:
    with contextlib.suppress(OSError, ValueError):
        answers.write(json.dumps({"problem": problem, "remarks": remarks, "place": place}) + "\n")
        answers.flush()


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
    """The follower's process, whose argument is the folder. What MLflow prints is kept away from the answer."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        with held_if_possible(Path(sys.argv[1]), MIRROR_LOCK_NAME, PATIENCE_S):
            follow(sys.stdin, answers)
    except FolderInUse as error:
        _answer(answers, f"{error}, and sends records to MLflow")
    # Exit at once: the teardown of MLflow's modules would delay the waiting command by half a second.
    os._exit(0)
