"""Tracking beside the work, in a process of its own that imports MLflow while the simulation runs.

Another process, because importing and writing would take turns with the simulation in this one; in a session of its
own, because a Ctrl-C in the terminal is not meant for it. It gets messages, one JSON line each, and reads what it sends
from the records on disk. When its input ends without a word, whatever the reason, it ends the runs that are open: none
is left RUNNING, even if the main process was killed. Until it is gone it holds a lock in the folder of records, so that
a resumption does not begin to send beside it. Nothing that happens here can hurt the results.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from cases.documents import encoded
from cases.record.request import RecordedRequest
from reports.second_process import module_command
from runner.records.lock import MIRROR_LOCK_NAME, FolderInUse, FolderLock
from runner.records.scrub import without_secrets
from runner.request.schema import TrackRequest


class Connection(NamedTuple):
    """A follower's streams: messages are written to it, its one answer is read from it. wait waits until it has ended,
    for at most the given number of seconds."""

    messages: IO[str]
    answers: IO[str]
    wait: Callable[[float], object]


_UNNOTICED_S = 3.0
_PARTING_S = 2.0


class Mirror:
    """A command's way to MLflow: send after each job, finish once. Never raises for a tracking server's sake."""

    def __init__(
        self,
        track: TrackRequest,
        request: RecordedRequest,
        folder: Path,
        connect: Callable[[], Connection] | None = None,
        earlier: Sequence[Path] | None = None,
    ) -> None:
        """Begin: in the background MLflow is imported and the parent run opened. folder: the command's records.

        earlier is given for a command that is resumed: the records that it has. Its runs go on, and those of the
        records that MLflow lacks are sent.
        """
        self._uri = without_secrets(track.uri)
        self._messages, self._answers, self._wait = connect() if connect else in_process(folder)
        self.remarks: tuple[str, ...] = ()
        """After finish: a clause for each part of the report that could not be attached."""
        self.place = ""
        """After finish: the place of the command's charts on the server."""
        opening = {
            "uri": track.uri,
            "experiment": track.experiment,
            "request": encoded(request),
            "folder": str(folder),
        }
        resumed = {} if earlier is None else {"earlier": [str(path) for path in earlier]}
        self._tell({"open": opening, **resumed})

    def send(self, paths: Sequence[Path]) -> None:
        """The records of a job, in their order. Returns at once."""
        self._tell({"send": [str(path) for path in paths]})

    def finish(self, waiting: Callable[[], None], patience_s: float = 120.0) -> str:
        """Wait until all is sent, the runs are ended and the follower is gone. Gives the problem, if there was one,
        as a clause, else "".

        waiting() is called once if it takes longer than a user would wait without asking.
        """
        self._tell({"finish": True})
        if not self._answered(_UNNOTICED_S):
            waiting()
        if not self._answered(patience_s):
            self.abandon()
            return f"MLflow at {self._uri} does not answer (within {patience_s:.0f} s)"
        answer = self._answers.readline()
        with contextlib.suppress(OSError):
            self._messages.close()
        self._wait(_PARTING_S)
        if not answer:
            return f"MLflow at {self._uri} got no records: the process that sends them ended unexpectedly"
        said = json.loads(answer)
        self.remarks = tuple(map(str, said["remarks"]))
        self.place = str(said.get("place", ""))
        return str(said["problem"])

    def abandon(self, patience_s: float = 2.0) -> None:
        """Don't send what is left. The open runs end as KILLED; that is waited for no longer than patience_s."""
        with contextlib.suppress(OSError):
            self._messages.close()
        if self._answered(patience_s):
            self._wait(_PARTING_S)

    def _answered(self, patience_s: float) -> bool:
        ready, _, _ = select.select([self._answers], [], [], patience_s)
        return bool(ready)

    def _tell(self, message: dict[str, Any]) -> None:
        # A follower that has given up has said why: its answer is read at the end.
        with contextlib.suppress(OSError, ValueError):
            self._messages.write(json.dumps(message) + "\n")
            self._messages.flush()


def in_process(folder: Path) -> Connection:
    """A follower in a new process of this interpreter, with this project's packages.

    It holds the lock for mirrors in the folder of records from its first moment, because it inherits it: this process
    may be killed while the follower still imports MLflow. On a file system without locks the work goes on without.
    """
    try:
        lock: FolderLock | None = FolderLock(folder, MIRROR_LOCK_NAME)
    except (FolderInUse, OSError):
        lock = None
    inherited = (lock.descriptor,) if lock is not None else ()
    try:
        process = subprocess.Popen(
            [*module_command("runner.track.follower"), *map(str, inherited), str(folder / MIRROR_LOCK_NAME)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=inherited,
            text=True,
        )
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    if lock is not None:
        lock.leave_to(process.pid)
    assert process.stdin is not None
    assert process.stdout is not None

    def wait(patience_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)

    return Connection(process.stdin, process.stdout, wait)
