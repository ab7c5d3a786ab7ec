"""A command's records on their way to MLflow, and what the command says of that.

They are sent beside the work, by a process of its own that imports MLflow while the simulation runs: importing and
writing would take turns with the simulation in this one. It is in a session of its own, because a Ctrl-C in the
terminal is not meant for it. It gets messages, one JSON line each, and reads what it sends from the folder of records
(runner/track/follower.py). When its input ends without a word, it ends the runs that are open: none is left RUNNING,
even if the main process was killed. Nothing that happens there can hurt the results.
"""

from __future__ import annotations

import contextlib
import json
import select
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from cases.documents import encoded
from cases.record.request import RecordedRequest
from reports.second_process import module_command
from reports.tracking import database_path
from runner.command.console import Console
from runner.records.scrub import without_secrets
from runner.request.schema import TrackName, TrackRequest
from runner.track.dashboard import told_at

ELSEWHERE = "sqlite:////folder/mlflow.db"
"""How a tracking URI is written, as an example."""

_UNNOTICED_S, PATIENCE_S, _PARTING_S = 3.0, 120.0, 2.0
"""How long to wait for MLflow at the end without a word, and in all; and for the end of a follower that has answered,
or shall send nothing more."""


class Connection(NamedTuple):
    """A follower's streams: messages are written to it, its one answer is read from it. wait waits until it has ended,
    for at most the given number of seconds."""

    messages: IO[str]
    answers: IO[str]
    wait: Callable[[float], object]


class Mirror:
    """The records of a command, whose folder is given, in MLflow: send after each job, finish once.

    Never raises for a tracking server's sake. Where MLflow is not asked for, nothing is done.
    """

    def __init__(self, track: TrackRequest, folder: Path, console: Console) -> None:
        self._track = track
        self._folder = folder
        self._console = console
        self._uri = without_secrets(track.uri)
        self._follower: Connection | None = None
        self._problem = ""

    def begin(
        self,
        request: RecordedRequest,
        connect: Callable[[], Connection] | None = None,
        earlier: Sequence[str] | None = None,
    ) -> None:
        """Begin: in the background MLflow is imported and the parent run opened. request: of the command's first job.

        earlier is given for a command that is resumed: the files of the records that it has. Its runs go on, and those
        of the records that MLflow lacks are sent.
        """
        if self._track.name == TrackName.none:
            return
        from runner.track.problems import problem_of

        self._problem = problem_of(self._track.uri)
        if self._problem:
            warning = self._not_sent(self._problem)
            print(f"symlab: warning: {warning}; the work goes on without MLflow", file=sys.stderr, flush=True)
            return
        self._follower = connect() if connect else in_process(self._folder)
        opening = {
            "uri": self._track.uri,
            "experiment": self._track.experiment,
            "request": encoded(request),
            "folder": str(self._folder),
        }
        self._tell({"open": opening} if earlier is None else {"open": opening, "earlier": list(earlier)})

    def send(self, names: str) -> None:
        """Send the records whose files match a pattern, such as 01-*.json: all that jobs have. Returns at once."""
        self._tell({"send": names})

    def finish(self) -> None:
        """Wait until all is sent, the runs are ended and the follower is gone; say where it is, or why it is not."""
        if self._problem:
            self._console.warn(f"symlab: warning: {self._not_sent(self._problem)}")
        if self._follower is None:
            return
        self._tell({"finish": True})
        if not self._answered(_UNNOTICED_S):
            self._console.say(f"waiting for MLflow at {self._uri} (Ctrl-C leaves it: the records are complete)")
        said: dict[str, Any] = {}
        if self._answered(PATIENCE_S):
            ended = f"MLflow at {self._uri} got no records: the process that sends them ended unexpectedly"
            said = json.loads(self._follower.answers.readline() or json.dumps({"problem": ended}))
        else:
            said = {"problem": f"MLflow at {self._uri} does not answer (within {PATIENCE_S:.0f} s)"}
        self.abandon()
        if problem := said["problem"]:
            self._console.warn(f"symlab: warning: {self._not_sent(problem)}")
            return
        for remark in said["remarks"]:
            self._console.warn(f"symlab: warning: not attached in MLflow: {remark}")
        self._console.say(f"dashboard: {told_at(self._uri, said['place'])}")

    def abandon(self) -> None:
        """Send nothing that is not sent yet. Open runs end as KILLED; that is waited for no longer than a moment."""
        if self._follower is not None:
            with contextlib.suppress(OSError):
                self._follower.messages.close()
            if self._answered(_PARTING_S):
                self._follower.wait(_PARTING_S)

    def _answered(self, patience_s: float) -> bool:
        assert self._follower is not None
        return bool(select.select([self._follower.answers], [], [], patience_s)[0])

    def _tell(self, message: dict[str, Any]) -> None:
        # A follower that has given up has said why: its answer is read at the end.
        if self._follower is not None:
            with contextlib.suppress(OSError, ValueError):
                self._follower.messages.write(json.dumps(message) + "\n")
                self._follower.messages.flush()

    def _not_sent(self, problem: str) -> str:
        """What to say if records are not sent to MLflow, and how to send them later."""
        from runner.track.database import needs_another_place

        uri, path, send = self._uri, database_path(self._uri), "send them later with"
        if path is not None and needs_another_place(path):
            uri, send = ELSEWHERE, "send them to another database later with"
        folder = short_path(self._folder)
        return (
            f"{problem}; the records are kept in {folder}; {send}: "
            f"symlab track {shlex.quote(folder)} --uri {shlex.quote(uri)}"
        )


def short_path(folder: Path) -> str:
    """A folder's path, as short as the working folder allows."""
    with contextlib.suppress(ValueError):
        return str(folder.relative_to(Path.cwd()))
    return str(folder)


def in_process(folder: Path) -> Connection:
    """A follower of a folder of records, in a new process of this interpreter, with this project's packages."""
    process = subprocess.Popen(
        [*module_command("runner.track.follower"), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def wait(patience_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)

    return Connection(process.stdin, process.stdout, wait)
