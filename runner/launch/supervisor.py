"""What a launcher's worker runs: a watched process that does the jobs, started again for the others if a job ends it.

The process is another one because submitit handles signals in its own way, and joblib's workers are threads of the
command. Here a job that takes its process with it (the kernel's out-of-memory killer,
a crash in a library) costs that job alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from memory.owned_folder import is_alive
from memory.pickling import dumps
from reports.second_process import module_command
from runner.launch.files import LaunchFiles, WorkerState
from runner.world.launcher import find
from runner.world.world import ended

FINISHED = "finished"
LOOK_S = 0.2
MOST_STARTS_BETWEEN = 3
"""Number of times that a process is started which a signal ends while it does no job."""

PATIENCE_S = 10.0
"""How long a process may take to end after it was told to; then it is killed."""

MOST_LOG = 2000
"""Characters of what a process said last that are kept to say why it ended."""

INTERRUPTED = {128 + int(number): number.name for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Work of one launch, for every worker of it (runner.launch.started.Work).

    module has main(), which reads what to do from its standard input: a pickle of Orders. folder is that of the
    command's records, token its launch's. environments are variables by worker. host, process and began (see
    memory.owned_folder.began_at) are those of the command, if workers must end with it: those of this machine; "" and 0
    for others, which end by their scheduler.
    """

    module: str
    content: bytes
    folder: str
    token: str
    environments: tuple[Mapping[str, str], ...] = ()
    first: int = 0
    host: str = ""
    process: int = 0
    began: int = 0

    def __call__(self, worker: int) -> WorkerState:
        with _ignored(signal.SIGINT):  # a terminal sends it to all below it: the command tells its workers to end
            files = LaunchFiles(Path(self.folder))
            if not files.is_of(self.token):
                raise RuntimeError(f"{self.folder} is not here: workers need the command's file system")
            return _Watch(self, worker, files).run()

    def environment(self, worker: int) -> dict[str, str]:
        """Return the variables of a worker's process."""
        given = self.environments[worker - self.first] if self.environments else {}
        return {**os.environ, **given}


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a worker's process: the launch's content, its number, the folder of the command's records."""

    content: bytes
    worker: int
    folder: str


class _Watch:
    """One worker at work."""

    def __init__(self, launch: Supervisor, worker: int, files: LaunchFiles) -> None:
        self._launch = launch
        self._worker = worker
        self._files = files
        outer = find(os.environ)
        self._follows = outer is not None and outer.rank > 0
        self._orders = dumps(Orders(launch.content, worker, launch.folder))
        before = files.state(worker)
        self._state = WorkerState(
            worker,
            host=socket.gethostname(),
            gpus=launch.environment(worker).get("CUDA_VISIBLE_DEVICES", ""),
            starts=before.starts + 1 if before else 1,
            lost=before.lost if before else {},
        )

    def run(self) -> WorkerState:
        """Run processes until all jobs are done, or this worker is to end. Return its last state."""
        self._keep()
        without_job = 0
        while True:
            code, said = self._one_process()
            self._take()
            if code == 0:
                return self._ended(FINISHED)
            if code in INTERRUPTED or self._is_to_end():
                return self._ended(INTERRUPTED.get(code, "SIGINT"))
            why = f"its process {ended(code)}{f': {said}' if said else ''}"
            job = self._state.job
            if job is None and code < 0 and (without_job := without_job + 1) < MOST_STARTS_BETWEEN:
                continue
            if job is None or job in self._state.lost:
                return self._ended(why)
            self._state = replace(self._state, lost={**self._state.lost, job: why}, job=None)
            self._keep()

    def _one_process(self) -> tuple[int, str]:
        """Run a process to its end. Return its exit code, and what it said last."""
        with tempfile.TemporaryFile() as log:
            with _ignored(_preempting()):
                process = subprocess.Popen(
                    module_command(self._launch.module),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._launch.environment(self._worker),
                    start_new_session=True,
                )
            assert process.stdin is not None
            try:
                with contextlib.suppress(OSError):
                    process.stdin.write(len(self._orders).to_bytes(8, "little") + self._orders)
                    process.stdin.flush()
                while process.poll() is None and not self._is_to_end():
                    time.sleep(LOOK_S)
            finally:
                _end(process)
            return process.returncode, _tail(log)

    def _is_to_end(self) -> bool:
        """Whether the command was interrupted, or is gone where this worker must end with it."""
        if self._files.is_stopped:
            return True
        launch = self._launch
        is_ours = launch.process > 0 and launch.host == socket.gethostname()
        return is_ours and not is_alive(launch.process, launch.began)

    def _take(self) -> None:
        """Take what the process said of itself."""
        self._state = self._files.state(self._worker) or self._state

    def _ended(self, how: str) -> WorkerState:
        self._state = replace(self._state, how=how)
        self._keep()
        return self._state

    def _keep(self) -> None:
        if self._follows:
            return
        with contextlib.suppress(OSError):
            self._files.write_state(self._state)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs: it keeps what is finished, and is killed if that takes too long."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # which is its sign to end
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _ignored(number: int) -> Iterator[None]:
    """Ignore a signal, as do processes that start within."""
    try:
        before = signal.signal(number, signal.SIG_IGN)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)


def _preempting() -> int:
    """The signal that submitit handles here: Slurm sends it to all of a job."""
    return getattr(signal, f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}", signal.SIGUSR2)


def _tail(log: IO[bytes]) -> str:
    """The last line that a process said, in one line."""
    log.seek(0)
    text = log.read().decode("utf-8", errors="replace")[-MOST_LOG:]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
