"""A worker's process: it takes jobs of a command, one after another, and keeps their records in the command's folder.

The jobs were composed and checked by the command. Each is looked at again here, where it runs: another machine has
other GPUs and other memory. What can't run here is named, and the others go on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.command.ahead import CompiledAhead
from runner.command.console import Console
from runner.command.leading import led, led_tools
from runner.command.plan import PreparedJob, prepare
from runner.command.running import Asked, JobRunner, Tools, numbered
from runner.environment.capture import capture
from runner.environment.host import available_bytes
from runner.environment.of_command import Surroundings
from runner.interrupt import exit_code_of, interruptible
from runner.launch.files import LaunchFiles, WorkerState
from runner.launch.supervisor import Orders
from runner.records.scrub import scrubbed
from runner.records.store import Store, StoreError, file_stem
from runner.request.compose import ComposedJob
from runner.request_error import RequestError

if TYPE_CHECKING:
    from cases.case import Case
    from runner.command.means import Means
    from runner.world.launched import Leader

MODULE = __name__


@dataclass(frozen=True, slots=True)
class Content:
    """The work of a launch, as each of its workers gets it.

    asked is what all records say of the command. jobs are those of this launch, cases the ids that each has to run, by
    the job's number. base is where relative paths of brought kernels begin. launcher names Hydra's launcher;
    beside is the number of workers that share a machine; one of Slurm's has what it was given of its node.
    """

    asked: Asked
    jobs: tuple[ComposedJob, ...]
    cases: Mapping[int, frozenset[str]]
    base: Path | None
    launcher: str
    beside: int


def main() -> int:
    """Do what the standard input orders; its end, before that is done, is the order to end. Returns the exit code."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "little")
    orders = pickle.loads(sys.stdin.buffer.read(size))
    assert isinstance(orders, Orders)
    content = pickle.loads(orders.content)
    assert isinstance(content, Content)
    with interruptible():
        try:
            threading.Thread(target=_end_with_input, daemon=True).start()
            return led(lambda leader: _Worker(orders, content, leader).run())
        except KeyboardInterrupt as interrupt:
            return exit_code_of(interrupt)


def _end_with_input() -> None:
    """Interrupt this process when its supervisor closes its input, or is gone; the second time it has no choice."""
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 1):
            pass
    os.kill(os.getpid(), signal.SIGINT)


def memory_of_worker(available: int | None, beside: int, environment: Mapping[str, str]) -> int | None:
    """Return the bytes of host memory that a worker may use; None if the machine's are unknown.

    It is an even part of what is available where other workers may be beside it; but what Slurm reserved for the job
    (SLURM_MEM_PER_NODE, in MiB) belongs to it alone.
    """
    reserved = environment.get("SLURM_MEM_PER_NODE", "")
    if reserved.isdecimal() and int(reserved):
        whole = int(reserved) << 20
        return whole if available is None else min(whole, available)
    return None if available is None else available // beside


class _Worker:
    """One worker at work."""

    def __init__(self, orders: Orders, content: Content, leader: Leader | None) -> None:
        self._orders = orders
        self._content = content
        self._leader = leader
        folder = Path(orders.folder)
        self._files = LaunchFiles(folder)
        self._store = Store(folder)
        self._state = self._files.state(orders.worker) or WorkerState(orders.worker, host=socket.gethostname())
        self._had_process = self._state.process != 0
        self._state = replace(self._state, process=os.getpid(), job=None)

    def run(self) -> int:
        """Run jobs until none is left. Returns the exit code."""
        from runner.command.means import usual_means

        self._keep()
        tools = led_tools(Tools(capture=self._captured), self._leader, self._content.jobs)
        surroundings = Surroundings(tools.capture, self._store)
        surroundings.look()
        silent = Console(is_quiet=True)
        runner = JobRunner(self._content.asked, self._store, tools, surroundings, silent, lambda record: None)
        try:
            means = usual_means()
            for job in self._taken():
                self._run(job, runner, means)
        finally:
            with contextlib.suppress(Exception):
                runner.close()
        return 0

    def _taken(self) -> Iterator[ComposedJob]:
        """The jobs that this worker takes: first those that it had taken before it was started again."""
        number = self._orders.worker
        mine = set()
        if self._state.starts > 1 or self._had_process:
            mine = {job for job, worker in self._files.claims().items() if worker == number}
        for job in self._content.jobs:
            if self._files.is_stopped:
                return
            if job.number in mine or self._files.claim(job.number, number):
                yield job

    def _run(self, composed: ComposedJob, runner: JobRunner, means: Means) -> None:
        """Run a job's cases that have no record yet, unless an earlier process of this worker was lost with it."""
        number = composed.number
        wanted = self._content.cases[number]
        if number in self._state.lost:
            return
        self._state = replace(self._state, job=number)
        self._keep()
        try:
            job = self._prepared(composed)
            cases = tuple(case for case in job.cases if case.id in wanted and not self._is_kept(number, case))
            if cases:
                job = replace(job, cases=cases)
                with closing(CompiledAhead((job,), runner.preparing, self._content.beside)) as ahead:
                    runner.run(job, ahead.using(means))
        except (RequestError, StoreError) as error:
            problem = scrubbed(" ".join(str(error).split()))
            self._state = replace(self._state, lost={**self._state.lost, number: problem})
        self._state = replace(self._state, job=None)
        self._keep()

    def _prepared(self, composed: ComposedJob) -> PreparedJob:
        command = prepare(
            (),
            [composed],
            self._leader.outer if self._leader else None,
            memory=lambda: memory_of_worker(available_bytes(), self._content.beside, os.environ),
            jobs_of_command=self._content.asked.jobs,
            folder=self._content.base,
        )
        return command.jobs[0]

    def _is_kept(self, job: int, case: Case) -> bool:
        return (self._store.folder / f"{file_stem(numbered(job, self._content.asked.jobs), case.id)}.json").exists()

    def _captured(self, root: Path) -> dict[str, Any]:
        """The environment of this worker, with its part in the launch."""
        found = dict(capture(root))
        worker = {"number": self._orders.worker, "launcher": self._content.launcher}
        if self._state.gpus:
            worker["gpus"] = self._state.gpus
        return found | {"launch": {**(found.get("launch") or {}), "worker": worker}}

    def _keep(self) -> None:
        with contextlib.suppress(OSError):
            self._files.write_state(self._state)
