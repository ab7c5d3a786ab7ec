"""Runs the jobs of a command on the workers of one of Hydra's launchers, and watches them.

Workers take jobs, and keep records in the command's folder. This process starts them, takes their records into its
table and to MLflow as they appear, says how far all of them are, and names what was lost: a worker that the scheduler
cancelled, a node that died, a job that took its process with it. It keeps no record of its own making.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cases.record.record import load
from cases.record.shared import Known
from memory.owned_folder import began_at, is_alive
from memory.pickling import dumps
from reports.table.text import counted
from runner.command.console import Console
from runner.command.groups import groups_for, portable
from runner.command.plan import Command
from runner.command.running import Asked
from runner.command.worker import MODULE, Content
from runner.interrupt import shielded
from runner.launch import slurm
from runner.launch.files import LaunchFiles, WorkerState
from runner.launch.supervisor import FINISHED, Supervisor
from runner.launch.workers import SLURM, Group
from runner.records.command_json import COMMAND_JSON
from runner.records.scrub import scrubbed
from runner.records.store import Store, StoreError
from runner.request_error import first_line

if TYPE_CHECKING:
    from cases.record.record import Record
    from runner.launch.started import Started

LOOK_S, LOOK_SLURM_S = 0.3, 2.0
"""How often the workers' files are looked at, and how often squeue runs."""

CANCEL_S = 60.0
"""How long cancelled workers may take to end: Slurm gives a job 30 s after it was told."""

GONE_S = 5.0
"""How long a local worker's process may be gone before its supervisor says so."""

SILENT_S = 10.0
"""How long Slurm does not answer before that is said."""

MOST_NAMED = 20
"""Number of lost jobs that are named in full."""


@dataclass(slots=True)
class _Seen:
    """A worker, as this process sees it: what it says, what Slurm says of it, and when it was last alive."""

    number: int
    state: WorkerState | None = None
    queued: slurm.SlurmJob | None = None
    gone: str = ""
    alive_s: float = 0.0
    starts_told: int = 1

    @property
    def is_over(self) -> bool:
        """Whether it ended, or is gone. One that Slurm lists as waiting or running may have been requeued."""
        if self.queued is not None and not self.queued.is_gone:
            return False
        return bool(self.gone) or (self.state is not None and bool(self.state.how))

    @property
    def is_running(self) -> bool:
        return self.state is not None and self.state.job is not None and not self.is_over

    @property
    def is_waiting(self) -> bool:
        """Whether it is in Slurm's queue."""
        return self.queued is not None and self.queued.state == "PENDING"

    @property
    def name(self) -> str:
        """ "worker 3 on node2, Slurm job 12_3"."""
        place = self.queued.node if self.queued else self.state.host if self.state else ""
        slurms = self.queued.submission if self.queued else ""
        return f"worker {self.number + 1}{f' on {place}' if place else ''}{f', Slurm job {slurms}' if slurms else ''}"

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.queued is not None and self.queued.is_gone and self.queued.state != "COMPLETED":
            return f"{self.queued.state}{f' ({self.queued.reason})' if self.queued.reason else ''}"
        return (self.state.how if self.state is not None else "") or self.gone or FINISHED


@dataclass
class Launched:
    """The jobs of a command on workers. kept is called with each record as it appears, job_done with each job whose
    records are all there."""

    command: Command
    asked: Asked
    store: Store
    console: Console
    kept: Callable[[Record], None]
    job_done: Callable[[int], None]

    def __post_init__(self) -> None:
        assert self.command.launch is not None
        self._request = self.command.launch
        self._files = LaunchFiles(self.store.folder)
        self._token = secrets.token_hex(16)
        self._name = f"{_plain(self._request.options.get('name'))}-{self._token[:8]}"
        self._known = Known()
        self._taken = {path.name for path in self.store.folder.glob("*.json")}
        self._missing = {job.composed.number: {case.id for case in job.cases} for job in self.command.jobs}
        self._jobs = {job.composed.number: job for job in self.command.jobs}
        self._seen: dict[int, _Seen] = {}
        self._now: list[_Seen] = []
        self._started: list[tuple[Started, str]] = []
        self._asked_slurm_s = 0.0
        self._lost: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._done = 0
        self._silent_since_s = 0.0
        self._silence_told = False

    def run(self) -> None:
        """Run all jobs, until each is done or lost. KeyboardInterrupt comes through: then call end()."""
        groups = groups_for(self._request, self.command)
        self._names = {
            id(group): f"{self._name}-{number}" if number else self._name for number, group in enumerate(groups)
        }
        try:
            self._files.create(self._token, f"{self._request.name} {','.join(self._names.values())}")
        except OSError as error:
            raise StoreError(
                f"the workers' files can't be written in {self._files.folder}: {error.strerror}"
            ) from error
        phases = [groups] if self._request.name == SLURM else [[group] for group in groups]
        for phase in phases:
            self._run(phase)
        self._close()

    def _run(self, groups: Sequence[Group]) -> None:
        """Start the workers of some groups, and watch them to their end."""
        self._now = []
        for group in groups:
            self._start(group, self._names[id(group)])
        self._watch()
        self._name_lost([job for group in groups for job in group.jobs])

    def _start(self, group: Group, name: str) -> None:
        from runner.launch.started import Started

        first = len(self._seen)
        numbers = [first + place for place in range(group.workers)]
        content = Content(
            asked=self.asked,
            jobs=tuple(portable(self._jobs[job]) for job in group.jobs),
            cases={job: frozenset(case.id for case in self._jobs[job].cases) for job in group.jobs},
            base=self.command.folder or Path.cwd(),
            launcher=self._request.name,
            beside=group.workers if self._request.name != SLURM else 1,
        )
        is_here = self._request.name != SLURM
        work = Supervisor(
            module=MODULE,
            content=dumps(content),
            folder=str(self.store.folder),
            token=self._token,
            environments=group.environments,
            first=first,
            host=socket.gethostname() if is_here else "",
            process=os.getpid() if is_here else 0,
            began=(began_at(os.getpid()) or 0) if is_here else 0,
        )
        for number in numbers:
            self._seen[number] = _Seen(number, alive_s=time.monotonic())
            self._now.append(self._seen[number])
        options = dict(group.options)
        if not is_here:
            options |= {"submitit_folder": str(self._files.folder / "submitit" / "%j"), "name": name}
        with shielded():  # what was started is known, and so can be cancelled
            self._started.append((Started(self._request, work, numbers, options, self._files.folder / "hydra"), name))

    def _watch(self) -> None:
        """Look at the workers until all are over, or all jobs are done."""
        while True:
            self._look()
            if all(one.is_over for one in self._now):
                break
            if not any(self._missing.values()):
                self._wait_for_ends()
                break
            time.sleep(LOOK_S)
        self._look()

    def _wait_for_ends(self) -> None:
        """All jobs are done: cancel workers that still wait for a place, and let the others end."""
        deadline_s = time.monotonic() + GONE_S
        while not all(one.is_over for one in self._now if one.state is not None) and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
            self._look()
        if self._request.name == SLURM:
            for _, name in self._started:
                slurm.cancelled(name, CANCEL_S, lambda: False)

    def _look(self) -> None:
        """Take what is new: records, what workers say, what Slurm says of them."""
        for one in self._now:
            one.state = self._files.state(one.number) or one.state
        if self._request.name == SLURM:
            self._ask_slurm()
        else:
            self._look_at_processes()
        self._take_records()
        self._tell()

    def _ask_slurm(self) -> None:
        now_s = time.monotonic()
        if now_s - self._asked_slurm_s < LOOK_SLURM_S:
            return
        self._asked_slurm_s = now_s
        for started, name in self._started:
            jobs = slurm.listed(name)
            if jobs is None:
                self._silent_since_s = self._silent_since_s or now_s
                self._look_at_submission(started)
                continue
            self._silent_since_s = 0.0
            by_index = {job.index: job for job in jobs}
            for index, number in enumerate(started.workers):
                one = self._seen[number]
                found = by_index.get(index)
                if found is None and one.queued is not None and not one.is_over:
                    one.gone, one.queued = "Slurm no longer lists it", None
                elif found is not None:
                    one.queued = found
                    one.gone = found.state if found.is_gone else ""
                elif started.error is not None and one.queued is None:
                    one.gone = first_line(started.error)

    def _look_at_submission(self, started: Started) -> None:
        """Slurm does not answer: where it took no job either, and the launcher gave up, there is none to wait for."""
        if started.error is None or any((self._files.folder / "submitit").rglob("*_submitted.pkl")):
            return
        for number in started.workers:
            one = self._seen[number]
            if one.state is None and one.queued is None:
                one.gone = first_line(started.error)

    def _look_at_processes(self) -> None:
        """Whether workers of this machine still are: a supervisor that was killed says nothing."""
        now_s = time.monotonic()
        for started, _ in self._started:
            for number in started.workers:
                one = self._seen[number]
                if one.is_over:
                    continue
                process = one.state.process if one.state is not None else 0
                if process and is_alive(process):
                    one.alive_s = now_s
                elif process and now_s - one.alive_s > GONE_S:
                    one.gone = "its process is gone"
                elif started.is_over and (started.error is not None or one.state is None):
                    one.gone = first_line(started.error) if started.error is not None else FINISHED

    def _take_records(self) -> None:
        """Take records that have appeared in the command's folder."""
        with os.scandir(self.store.folder) as entries:
            names = sorted(
                entry.name for entry in entries if entry.name.endswith(".json") and entry.name not in self._taken
            )
        done = []
        for name in names:
            if name == COMMAND_JSON:
                continue
            path = self.store.folder / name
            try:
                record = load(path, self._known)
            except (OSError, ValueError):
                continue  # what it refers to has not come over the network yet: it is looked at again
            self._taken.add(name)
            missing = self._missing.get(record.request.job, set())
            if record.request.command != self.asked.command or record.id not in missing:
                continue
            missing.discard(record.id)
            if not missing:
                self._done += 1
                done.append(record.request.job)
            self.console.spread(self._counts())  # before the record's line, which says it
            self.kept(record)
        for job in done:
            self.job_done(job)

    def _tell(self) -> None:
        """Say how far all workers are, that Slurm does not answer, and which worker was requeued."""
        self.console.spread(self._counts())
        if self._silent_since_s and time.monotonic() - self._silent_since_s > SILENT_S and not self._silence_told:
            self._silence_told = True
            self.console.warn("symlab: warning: Slurm does not answer (squeue); Ctrl-C ends the command")
        for one in self._now:
            if one.state is not None and one.state.starts > one.starts_told:
                one.starts_told = one.state.starts
                self.console.warn(f"symlab: {one.name} was requeued and goes on (start {one.state.starts})")

    def _counts(self) -> str:
        """How far all workers are: "2 running, 5 of 12 jobs done"."""
        running = sum(one.is_running for one in self._now)
        parts = [f"{running} running", f"{self._done} of {counted(len(self._missing), 'job')} done"]
        if waiting := sum(one.is_waiting for one in self._now):
            parts.append(f"{counted(waiting, 'worker')} queued")
        return ", ".join(parts)

    def _name_lost(self, jobs: Sequence[int]) -> None:
        """Say which of some jobs, whose workers are over, have no records, and why."""
        claims = self._files.claims()
        for job in sorted(jobs):
            if not self._missing[job] or job in self._lost:
                continue
            one = self._seen.get(claims.get(job, -1))
            self._lost[job] = self._why(one, job)
            if len(self._lost) <= MOST_NAMED:
                overrides = " ".join(self._jobs[job].composed.overrides)
                self.console.warn(f"symlab: lost: job {job + 1} ({overrides}): {self._lost[job]}")

    def _why(self, one: _Seen | None, job: int) -> str:
        """Why a job has no records. one is the worker that took it."""
        if one is None:
            others = [other for other in self._now if other.is_over and other.how != FINISHED]
            worker = f"; {others[0].name}: {others[0].how}" if others else ""
            return scrubbed(f"no worker took it{worker}")
        said = one.state.lost.get(job) if one.state is not None else None
        return scrubbed(f"{one.name}: {said or one.how}")

    @property
    def problem(self) -> str:
        """Why jobs have no records, as a clause; "" if all have theirs."""
        missing = sum(bool(one) for one in self._missing.values())
        if not missing:
            return ""
        why = next(iter(self._lost.values()), "no worker took them")
        return f"{counted(missing, 'job')} {'was' if missing == 1 else 'were'} lost ({why})"

    def end(self) -> None:
        """End all workers, as an interrupt asks for: nothing stays in the queue. Takes what they have finished."""
        self._files.stop()
        if self._request.name == SLURM:
            for started, name in self._started:
                self._cancel(started, name)
        else:
            self._end_processes()
        self._look()
        self._close()

    def _cancel(self, started: Started, name: str) -> None:
        deadline_s = time.monotonic() + CANCEL_S
        found = False

        def is_submitting() -> bool:
            nonlocal found
            found = found or bool(slurm.listed(name)) or started.is_over
            return not found and time.monotonic() < deadline_s

        left = slurm.cancelled(name, CANCEL_S, is_submitting)
        if left:
            names = ", ".join(job.submission for job in left)
            self.console.warn(f"symlab: warning: still in Slurm's queue: {names}; scancel --name={name} ends them")

    def _end_processes(self) -> None:
        deadline_s = time.monotonic() + CANCEL_S / 4
        while time.monotonic() < deadline_s and not all(one.is_over for one in self._now):
            if all(started.is_over for started, _ in self._started):
                break
            time.sleep(LOOK_S)
            self._look()
        states = [one.state for one in self._now if one.state is not None and not one.state.how]
        for process in [one.process for one in states if one.process and is_alive(one.process)]:
            with contextlib.suppress(OSError):
                os.killpg(process, signal.SIGKILL)

    @property
    def still_there(self) -> str:
        """What is still there if this process leaves now, and what ends it; "" if nothing is."""
        self._files.stop()
        if not self._started or all(one.is_over for one in self._now):
            return ""
        if self._request.name != SLURM:
            return "workers, which end by themselves"
        return f"Slurm jobs; scancel {' '.join(f'--name={name}' for _, name in self._started)} ends them"

    def _close(self) -> None:
        """Remove the files of the launch, and those that killed workers had not finished writing."""
        self._files.remove()
        self.store.sweep()


def _plain(name: object) -> str:
    """A launcher's name for its jobs, as it was given; "symlab" if Hydra would fill it in."""
    text = str(name or "")
    return "symlab" if not text or "${" in text else text
