"""Numbered tasks on the workers of Hydra's launchers: taken in order, one at a time, and answered as they end.

For work that keeps no records: the matrix of tests, the seeds of an exploration. The jobs of a sweep have workers of
their own (runner/command/launched.py). Workers and this process see each other through files of a folder, as there
(runner/launch/files.py), and each answer is a file of it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from memory.atomic_file import replacing
from memory.owned_folder import began_at, is_alive
from memory.pickling import dumps
from runner.environment.host import now_text
from runner.launch import slurm
from runner.launch.files import LaunchFiles, WorkerState
from runner.launch.joblib_workers import end_joblib, reason_of_end
from runner.launch.started import Started, check_folder
from runner.launch.supervisor import at_work
from runner.launch.workers import JOBLIB, SLURM, workers_given
from runner.request.launching import LaunchRequest

LOOK_S = 0.05
SLURM_S = 2.0
"""How often answers are looked for, and how often squeue runs."""

CANCEL_S = 60.0
"""How long cancelled workers may take to end."""

MOST_STARTS = 3
"""Maximum number of times that workers are started: joblib ends all of them if one is killed."""


class Do(Protocol):
    """What a worker does with a task. It is pickled, and so is what it returns."""

    def __call__(self, task: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a task: what Do returned, or why there is no result ("" if there is one)."""

    task: int
    result: Any = None
    lost: str = ""


class NoMore(Exception):
    """Raised by Do: this task and all that are not begun need not be done. The task's result is None."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """The work of every worker (runner.launch.started.Work)."""

    do: Do
    count: int
    folder: str
    token: str
    host: str
    process: int
    began: int

    def __call__(self, worker: int) -> str:
        """Return how it ended, "" if well. It takes no more tasks once its command is gone from this machine, and then
        the folder goes; on another machine it does the tasks that are left."""
        if not LaunchFiles(Path(self.folder)).is_of(self.token):
            return f"{socket.gethostname()} does not see the folder {self.folder}"
        with at_work(self.process if self.host == socket.gethostname() else 0):
            self._do_all(worker)
            if self._is_left:
                shutil.rmtree(self.folder, ignore_errors=True)
        return ""

    @property
    def _is_left(self) -> bool:
        """Whether the command is gone, which was of this machine."""
        return self.host == socket.gethostname() and not is_alive(self.process, self.began)

    def _do_all(self, worker: int) -> None:
        """Do tasks until none is left."""
        folder, files = Path(self.folder), LaunchFiles(Path(self.folder))
        state = WorkerState(worker, host=socket.gethostname(), process=os.getpid(), started=now_text())
        files.write_state(state)
        while not (files.is_stopped or self._is_left) and (task := self._next(files, worker)) is not None:
            try:
                answer = Answer(task, self.do(task))
            except NoMore:
                files.stop()
                answer = Answer(task)
            except Exception as error:
                answer = Answer(task, lost=f"{type(error).__name__}: {error}".splitlines()[0])
            with replacing(folder / f"answer-{task}") as beside:
                beside.write_bytes(dumps(answer))

    def _next(self, files: LaunchFiles, worker: int) -> int | None:
        claimed = files.claimed_jobs()
        free = (task for task in range(self.count) if task not in claimed)
        return next((task for task in free if files.claim(task, worker)), None)


class Tasks:
    """Tasks 0 to count - 1 on a launcher's workers. Iterate to get the answers, in the order in which they come."""

    def __init__(self, request: LaunchRequest, do: Do, count: int, folder: Path) -> None:
        """request says which launcher, with what options. folder is made, and removed at the end: all workers and this
        process must see it. RequestError for options that ask for no worker, and for Slurm where it is missing."""
        slurm.check_here(request)
        check_folder(request, folder)
        self.workers = min(workers_given(request), count)
        self._request = request
        self._do = do
        self._count = count
        self._folder = folder.absolute()
        self._files = LaunchFiles(self._folder)
        self._token = secrets.token_hex(8)
        self._name = f"symlab-tasks-{self._token}"
        self._open = set(range(count))
        self._is_stopped = False
        self._asked_s = -SLURM_S

    def stop(self) -> None:
        """Let workers end what they do, and take nothing more: answers of what was begun still come."""
        self._is_stopped = True
        self._files.stop()

    def __iter__(self) -> Generator[Answer, None, None]:
        """Yield every task's answer. Workers are ended when the iteration is, also where it is left early."""
        started: Started | None = None
        try:
            self._folder.mkdir(parents=True)
            self._files.create(self._token, f"{self._request.name} {self._name}")
            for number in range(MOST_STARTS):
                before = len(self._open)
                started = self._started(number)
                yield from self._answers(started)
                yield from self._lost(started)
                self._is_stopped |= self._files.is_stopped
                if not self._open or self._is_stopped:
                    break
                if len(self._open) == before and (number or not self._failed_to_begin(started)):
                    break
                if self._request.name == JOBLIB:
                    end_joblib()
            yield from self._untaken(started)
        finally:
            try:
                self._end(started)
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _failed_to_begin(self, started: Started) -> bool:
        """Whether joblib could not give its workers anything to do. A second try has new processes and pipes."""
        return self._request.name == JOBLIB and started.error is not None

    def _started(self, number: int) -> Started:
        options: dict[str, Any] = {"n_jobs": self.workers} if self._request.name == JOBLIB else {"name": self._name}
        if self._request.name != JOBLIB:
            options["submitit_folder"] = str(self._folder / "submitit" / "%j")
        numbers = range(number * self.workers, (number + 1) * self.workers)
        here = socket.gethostname(), os.getpid(), began_at(os.getpid()) or 0
        work = _Worker(self._do, self._count, str(self._folder), self._token, *here)
        return Started(self._request, work, numbers, options, self._folder / "hydra")

    def _answers(self, started: Started) -> Iterator[Answer]:
        """Yield answers until all are here, or no worker is left."""
        while self._open:
            is_over = self._is_over(started)  # before the look, so that no answer of the last moment is missed
            yield from self._new()
            if is_over:
                return
            time.sleep(LOOK_S)

    def _new(self) -> Iterator[Answer]:
        names = {name for name in os.listdir(self._folder) if name.startswith("answer-")}
        for task in sorted(self._open):
            if f"answer-{task}" in names:
                answer = pickle.loads((self._folder / f"answer-{task}").read_bytes())
                assert isinstance(answer, Answer)
                self._open.discard(task)
                yield answer

    def _is_over(self, started: Started) -> bool:
        """Whether no worker is left. Hydra's launcher waits for Slurm jobs whose node is gone: squeue knows."""
        if started.is_over:
            return True
        if self._request.name != SLURM or time.monotonic() - self._asked_s < SLURM_S:
            return False
        self._asked_s = time.monotonic()
        jobs = slurm.listed(self._name)
        return bool(jobs) and all(job.is_gone for job in jobs or ())

    def _lost(self, started: Started) -> Iterator[Answer]:
        """Yield what workers took that are gone, with their names."""
        for task, worker in sorted(self._files.claims().items()):
            if task in self._open:
                state = self._files.state(worker)
                host = f" on {state.host}" if state is not None else ""
                self._open.discard(task)
                why = f" ({reason_of_end(started.error)})" if started.error is not None else ""
                yield Answer(task, lost=f"worker {worker + 1}{host} is gone{why}")

    def _untaken(self, started: Started | None) -> Iterator[Answer]:
        if self._is_stopped:
            return
        said = [str(one.return_value) for one in (started.returns if started else ()) if one.return_value]
        error = started.error if started is not None else None
        why = said[0] if said else reason_of_end(error) if error is not None else "no worker took it"
        for task in sorted(self._open):
            yield Answer(task, lost=why)

    def _end(self, started: Started | None) -> None:
        self._files.stop()
        if self._request.name == SLURM:
            slurm.cancelled(self._name, CANCEL_S, lambda: False)
        elif self._request.name == JOBLIB:
            end_joblib()
        elif started is not None and not started.is_over:
            here = socket.gethostname()
            for state in self._files.states():
                if state.process and state.host == here:
                    with contextlib.suppress(OSError):
                        os.kill(state.process, signal.SIGKILL)


def folder_for_tasks() -> Path:
    """Return a folder that does not exist yet, for Tasks: in the working folder, which a cluster's nodes must share."""
    return Path.cwd() / f".symlab-tasks-{secrets.token_hex(4)}"
