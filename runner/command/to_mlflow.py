"""A command's records on their way to MLflow, and what the command says of that."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reports.tracking import database_path
from runner.command.console import Console
from runner.records.scrub import without_secrets
from runner.request.schema import TrackName, TrackRequest
from runner.track.dashboard import told_at

if TYPE_CHECKING:
    from cases.record.request import RecordedRequest
    from runner.track.background import Connection, Mirror

ELSEWHERE = "sqlite:////folder/mlflow.db"
"""How a tracking URI is written, as an example."""


class Mirrored:
    """The records of a command, whose folder is given, in MLflow. Where it is not asked for, nothing is done."""

    def __init__(self, track: TrackRequest, folder: Path, console: Console) -> None:
        self._track = track
        self._folder = folder
        self._console = console
        self._uri = without_secrets(track.uri)
        self._mirror: Mirror | None = None
        self._problem = ""

    def begin(
        self, request: RecordedRequest, connect: Callable[[], Connection] | None, earlier: Sequence[Path] | None
    ) -> None:
        """Begin to send. request: of the command's first job. connect, earlier: see runner.track.background.Mirror."""
        if self._track.name == TrackName.none:
            return
        from runner.track.background import Mirror
        from runner.track.problems import problem_of

        self._problem = problem_of(self._track.uri)
        if self._problem:
            warning = self._not_sent(self._problem)
            print(f"symlab: warning: {warning}; the work goes on without MLflow", file=sys.stderr, flush=True)
            return
        self._mirror = Mirror(self._track, request, self._folder, connect, earlier)

    def send(self, paths: Sequence[Path]) -> None:
        """Send the records in these files."""
        if self._mirror is not None and paths:
            self._mirror.send(paths)

    def finish(self) -> None:
        """Wait until all is sent; say where it is, or why it is not."""
        if self._problem:
            self._console.warn(f"symlab: warning: {self._not_sent(self._problem)}")
        if self._mirror is None:
            return

        def waiting() -> None:
            self._console.say(f"waiting for MLflow at {self._uri} (Ctrl-C leaves it: the records are complete)")

        if problem := self._mirror.finish(waiting):
            self._console.warn(f"symlab: warning: {self._not_sent(problem)}")
        else:
            for remark in self._mirror.remarks:
                self._console.warn(f"symlab: warning: not attached in MLflow: {remark}")
            self._console.say(f"dashboard: {told_at(self._uri, self._mirror.place)}")

    def abandon(self) -> None:
        """Leave no run open, and send nothing more."""
        if self._mirror is not None:
            self._mirror.abandon()

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
