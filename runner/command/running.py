"""Runs jobs of a command, one after another: the world that is kept between them, and their records, kept at once.

A command does so in its own process, and each of its workers in theirs: what both need is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from cases.documents import decoded
from cases.record.request import RecordedRequest
from runner.command.plan import Job, PreparedJob
from runner.environment.capture import capture
from runner.environment.of_command import Surroundings
from runner.interrupt import shielded
from runner.records.command_json import CommandDocument
from runner.records.scrub import scrubbed_record, scrubbed_values
from runner.records.store import Store
from runner.world.fabrics import FabricRequest, WorldMaker, make_world, settings

if TYPE_CHECKING:
    from cases.case import Case
    from cases.record.record import Record
    from memory.fabric import Executable
    from runner.command.console import Console
    from runner.command.means import Means
    from runner.command.to_mlflow import Connection
    from runner.track.names import Kept
    from runner.world.world import World, WorldFailure

MAX_FAILED_STARTS = 2
"""Maximum number of failed starts of a world in one job; its remaining cases then fail for the same reason."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a command works with. Tests put their own in; None is the usual: job.usual_means(), to_mlflow.in_process."""

    make_world: WorldMaker = make_world
    capture: Callable[[Path], dict[str, Any]] = capture
    means: Means | None = None
    connect: Callable[[], Connection] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What all records of a command say of it: its name, its command line, its number of jobs.

    extra stands beside: the folder of --config-dir, what a replay repeats, the number of a resumption.
    """

    command: str
    command_line: tuple[str, ...]
    jobs: int
    extra: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The folder of a command that is resumed. Its creator holds the folder's lock until the command has ended.

    document is what command.json says from now on: no end, and this resumption as the last one. kept are the records
    that count, in the order in which their cases were asked for.
    """

    store: Store
    document: CommandDocument
    kept: tuple[Kept, ...]

    @property
    def number(self) -> int:
        """Which resumption this is, from 1."""
        return len(self.document.resumed)

    @property
    def records(self) -> list[Record]:
        return [one.record for one in self.kept]

    def whole(self, records: Iterable[Record]) -> list[Record]:
        """All records of the command in the order in which their cases were asked for."""
        return self.document.in_order(records)


@dataclass
class JobRunner:
    """Runs jobs. job.Keeper for each of them. kept is called with each record that is stored."""

    asked: Asked
    store: Store
    tools: Tools
    surroundings: Surroundings
    console: Console
    kept: Callable[[Record], None]
    _kept_texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    _job: PreparedJob | None = None
    _world: World | None = None
    _world_key: tuple[FabricRequest, int] | None = None
    _failed_starts: int = 0
    _start_failure: WorldFailure | None = None

    def run(self, job: PreparedJob, means: Means) -> None:
        """Run a job and keep its records. Raises StoreError if one can't be kept."""
        from runner.command.job import run_job

        self._job = job
        self._failed_starts = 0
        self._write_configuration(job)
        run_job(self._runnable(job), self, means)

    def world(self) -> World:
        """The kept world, if it is healthy and what the job wants; else a new one.

        Raises WorldFailure if none can be started; the third time in a job without trying: a start takes long.
        """
        from runner.world.world import WorldFailure

        assert self._job is not None
        key = (self._job.request.fabric, self._job.request.world_size)
        if self._world is None or not self._world.healthy or self._world_key != key:
            self.close()
            if self._start_failure is not None and self._failed_starts >= MAX_FAILED_STARTS:
                raise self._start_failure
            try:
                self._world = self.tools.make_world(*key, self.console.say)
            except WorldFailure as failure:
                self._failed_starts += 1
                self._start_failure = failure
                raise
            self._failed_starts = 0
            self._world_key = key
            if not key[0].simulated and not self.surroundings.ask(self._world):
                return self.world()
        return self._world

    def starting(self, case: Case) -> None:
        assert self._job is not None
        self.console.starting(case, self._job.composed.number + 1)

    def preparing(self, what: str) -> None:
        self.console.say(what)

    def keep(self, record: Record, executable: Executable | None) -> None:
        """Store a record and its kernel, then show it: what is shown is kept. Secrets are neither shown nor kept."""
        assert self._job is not None
        record = scrubbed_record(record)
        if executable is not None:
            self.store.write_ptx(executable.digest, executable.ptx)
        number = numbered(self._job.composed.number, self.asked.jobs)
        with shielded():  # a record on disk, and in the table and in MLflow: all or none
            self.store.write(record, number)
            self.kept(record)

    def request_of(self, job: PreparedJob) -> RecordedRequest:
        """The request part of a job's records: with it, a record can be understood, sent and run again."""
        said = scrubbed_values(
            {
                "command": self.asked.command,
                "command_line": list(self.asked.command_line),
                "experiment": job.composed.experiment,
                "job": job.composed.number,
                "jobs": self.asked.jobs,
                "overrides": list(job.composed.overrides),
                "configuration": job.composed.configuration,
                "resolved": {name: getattr(job.request, name) for name in ("dtype", "accumulator", "reduction")},
                **self._brought(job),
                **self.asked.extra,
            }
        )
        return decoded(RecordedRequest, said, "request")

    def close(self) -> None:
        """Close the world that is kept."""
        world, self._world = self._world, None
        if world is not None:
            world.close()

    def _runnable(self, job: PreparedJob) -> Job:
        asked = self.request_of(job)
        return Job(
            job.request,
            job.cases,
            settings(job.request.fabric),
            self.surroundings.now,
            asked,
            job.specs,
            job.custom,
        )

    def _brought(self, job: PreparedJob) -> dict[str, Any]:
        """What the job's records say of the kernels that it brings; their text is kept once."""
        if not job.brought and job.custom is None:
            return {}
        from runner.case.bringing import described

        for one in (*job.brought, *((job.custom,) if job.custom else ())):
            if one.digest not in self._kept_texts:
                files = [(source.name, source.content) for source in one.sources]
                self._kept_texts[one.digest] = self.store.write_brought(one.digest, files)
        said = described(job.brought, self._kept_texts)
        if job.custom is not None:
            entry = {"place": job.custom.place, "digest": job.custom.digest}
            said = {job.custom.case.algorithm: {**entry, **self._kept_texts[job.custom.digest]}}
        return {"brought": said} if said else {}

    def _write_configuration(self, job: PreparedJob) -> None:
        number = numbered(job.composed.number, self.asked.jobs)
        name = f"{number}-configuration.yaml" if number else "configuration.yaml"
        self.store.write_configuration(OmegaConf.to_yaml(OmegaConf.create(self.request_of(job).configuration)), name)


def numbered(job: int, jobs: int) -> str:
    """Return how names of files begin that belong to a job of a sweep; "" in a command of one job."""
    return f"{job:02d}" if jobs > 1 else ""
