"""Tracking beside the work: a thread that imports MLflow while the simulation runs and sends what is finished.

Nothing that happens here can hurt the results: a problem is told once, at the end, and records can be sent later.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.config import TrackRequest, first_line
from runner.track import CommandRun, Kept, run_status

_Work = Callable[[CommandRun], None]


class Mirror:
    """A command's way to MLflow. start, send after each job, finish once; never raises for a tracking server's sake."""

    def __init__(self, track: TrackRequest, request: dict[str, Any], folder: Path) -> None:
        self._track = track
        self._request = request
        self._folder = folder
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._kept: list[Kept] = []
        self._last_status = "FAILED"
        self._hurry = threading.Event()
        self._ended = threading.Event()
        self.problem = ""
        self._thread = threading.Thread(target=self._follow, name="symlab-mirror", daemon=True)

    def start(self) -> None:
        """Begin: import, connect, open the parent run, all in the background."""
        self._thread.start()

    def send(self, kept: Sequence[Kept], interrupted: bool = False) -> None:
        """A job's records, in the order in which they were made. Returns at once."""
        self._kept.extend(kept)
        self._work.put(lambda run: run.send(kept, interrupted))

    def finish(self, interrupted: bool = False, patience_s: float = 120.0) -> str:
        """Wait until all is sent and the runs are ended. Gives the problem, if there was one, else ""."""
        status = run_status([one.record for one in self._kept], interrupted)
        self._last_status = status
        self._work.put(lambda run: run.finish(self._kept, status, self._folder))
        self._work.put(None)
        if not self._ended.wait(patience_s):
            self.problem = self.problem or f"no answer within {patience_s:.0f} s"
        return self.problem

    def abandon(self, patience_s: float = 2.0) -> None:
        """Don't send what is left; end the open runs as KILLED, within patience_s."""
        self._last_status = "KILLED"
        self._hurry.set()
        self._work.put(None)
        if self._thread.ident is not None:
            self._ended.wait(patience_s)

    def _follow(self) -> None:
        run: CommandRun | None = None
        try:
            run = CommandRun(self._track.uri, self._track.experiment, self._request)
            while (work := self._work.get()) is not None and not self._hurry.is_set():
                work(run)
        except Exception as error:
            self.problem = first_line(error)
        finally:
            if run is not None:
                with contextlib.suppress(Exception):
                    run.close("KILLED" if self._hurry.is_set() else self._last_status)
            self._ended.set()
