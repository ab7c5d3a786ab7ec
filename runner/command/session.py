"""One command: its jobs, the world that is kept between them, its records, its mirror, and how it ends."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from reports.record.record import RecordedRequest
from reports.record.seal import digest_of
from reports.table.text import counted
from runner.command.console import Console, failures, summary
from runner.command.earlier import Earlier
from runner.command.plan import Command, PreparedJob, is_isolated
from runner.environment.capture import capture
from runner.environment.host import load
from runner.environment.of_command import Surroundings, added_digest
from runner.interrupt import exit_code_of, is_first, name_of, shielded
from runner.records.command_json import COMMAND_JSON, AskedJob, CommandDocument, JobPlan
from runner.records.lock import held_if_possible
from runner.records.scrub import scrubbed, scrubbed_record, scrubbed_values, without_secrets
from runner.records.store import Store, StoreError
from runner.request.options import command_line, config_dir_of
from runner.request.schema import TrackName
from runner.request_error import RequestError
from runner.track.dashboard import told_at
from runner.world.fabrics import FabricRequest, WorldMaker, make_world, settings

if TYPE_CHECKING:
    from kernels.spec import Case
    from memory.fabric import Executable
    from reports.record.record import Record
    from runner.command.job import Means
    from runner.track.background import Connection, Mirror
    from runner.world.world import World, WorldFailure

MAX_FAILED_STARTS = 2
"""Maximum number of failed starts of a world in one job; its remaining cases then fail for the same reason."""

TOLD_BELOW = "told under 'failed', on standard error"
"""Where the table of a command refers to for what went wrong."""

ELSEWHERE = "sqlite:////folder/mlflow.db"
"""How a tracking URI is written, as an example."""

EXIT_PASSED, EXIT_FAILED, EXIT_WRONG_REQUEST = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Tools:
    """What a command works with. Tests put their own in; None is the usual: job.usual_means(), mirror.in_process."""

    make_world: WorldMaker = make_world
    capture: Callable[[Path], dict[str, Any]] = capture
    means: Means | None = None
    connect: Callable[[], Connection] | None = None


def run_command(command: Command, console: Console, tools: Tools | None = None, earlier: Earlier | None = None) -> int:
    """Run all jobs of a command and say how it went. Returns the exit code.

    earlier is given for a command that is resumed: command then has the cases that are left, and what is said at the
    end, and the exit code, are of all of them. A first interrupt ends the work and keeps what is finished, in records,
    table and MLflow; a second one ends the process. RequestError when the records have no place.
    """
    try:
        return run_within(command, console, tools, earlier).exit_code
    except KeyboardInterrupt as again:
        sys.stdout.flush()
        # Threads of ranks may be stuck; an ordinary exit would wait for those that are no daemons.
        os._exit(exit_code_of(again))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code, the folder of its records, the records, and what interrupted it."""

    exit_code: int
    folder: Path
    records: tuple[Record, ...]
    interrupt: KeyboardInterrupt | None


def run_within(command: Command, console: Console, tools: Tools | None = None, earlier: Earlier | None = None) -> Ended:
    """Run all jobs of a command within a process that goes on, such as a notebook's.

    Like run_command, but a second interrupt is raised. RequestError when the records have no place. Whatever is raised
    while it runs, such as OSError for a full stdout, leaves no world, no process and no open MLflow run behind.
    """
    if earlier is not None:
        return _ended(_Session(command, earlier.store, console, tools or Tools(), earlier), console)
    try:
        store = Store.create(command.jobs[0].request.records, command.label)
    except StoreError as error:
        raise RequestError(f"{error} (records)") from error
    with held_if_possible(store.folder):
        return _ended(_Session(command, store, console, tools or Tools(), None), console)


def _ended(session: _Session, console: Console) -> Ended:
    """Run a session to its end. A second interrupt, and any other error, is raised once the session is abandoned."""
    interrupt: KeyboardInterrupt | None = None
    try:
        try:
            session.begin()
            with console:
                session.run()
        except KeyboardInterrupt as first:
            if not is_first(first):
                raise
            interrupt = first
            console.warn("symlab: interrupted; finishing what is done (once more to quit at once)")
        return session.conclude(interrupt)
    except BaseException as error:
        session.abandon(error)
        raise


def exit_code_for(records: Sequence[Record]) -> int:
    """The exit code of a command that ran all of its cases, from how they ended."""
    statuses = {str(record.status) for record in records}
    return EXIT_PASSED if statuses <= {"PASSED", "REFUSED"} and "PASSED" in statuses else EXIT_FAILED


class _Session:
    """The state of a running command. job.Keeper for each of its jobs."""

    def __init__(
        self, command: Command, store: Store, console: Console, tools: Tools, earlier: Earlier | None = None
    ) -> None:
        self._command = command
        self._earlier = earlier
        self._job_count = len(earlier.document.jobs) if earlier else len(command.jobs)
        self._case_count = len(earlier.document.cases) if earlier else command.case_count
        self._store = store
        self._console = console
        self._tools = tools
        self._surroundings = Surroundings(tools.capture, store)
        self._records: list[Record] = earlier.records if earlier else []
        self._unsent: list[Path] = []
        self._kept_texts: dict[str, dict[str, Any]] = {}
        self._added: dict[str, Any] = {}
        self._job = command.jobs[0]
        self._world: World | None = None
        self._world_key: tuple[FabricRequest, int] | None = None
        self._failed_starts = 0
        self._start_failure: WorldFailure | None = None
        self._mirror: Mirror | None = None
        self._untracked = ""
        self._stopped = ""
        self._manifest: CommandDocument | None = None

    def begin(self) -> None:
        """Write command.json, before the first word on stdout: a folder of records always says what it is of."""
        try:
            self._begin_manifest()
        except StoreError as error:
            self._stopped = str(error)

    def run(self) -> None:
        """All jobs, one after another. Ends early when a record can't be stored. Lets interrupts through."""
        if self._stopped:
            return
        jobs = self._command.jobs
        self._console.begin((case for job in jobs for case in job.cases), self._asked(jobs[0]).jobs or 1)
        self._surroundings.look()
        self._start_mirror()
        # Torch and the simulator take seconds to import: after the first words, and while the mirror imports MLflow.
        with self._console.starting_up():
            from runner.command.job import run_job, usual_means

            means = self._tools.means or usual_means()
        isolated = False
        for job in self._command.jobs:
            self._job = job
            self._failed_starts = 0
            if isolated or is_isolated(job.request):
                self._close_world()
            isolated = is_isolated(job.request)
            try:
                self._write_configuration(job)
                if self._earlier is not None:
                    self._unsent += self._earlier.paths_of(job.composed.number)
                run_job(self._runnable(job), self, means)
            except StoreError as error:
                self._stopped = str(error)
                return
            self._send()

    def world(self) -> World:
        """The kept world, if it is healthy and what the job wants; else a new one.

        Raises WorldFailure if none can be started; the third time in a job without trying: a start takes long.
        """
        from runner.world.world import WorldFailure

        key = (self._job.request.fabric, self._job.request.world_size)
        if self._world is None or not self._world.healthy or self._world_key != key:
            self._close_world()
            if self._start_failure is not None and self._failed_starts >= MAX_FAILED_STARTS:
                raise self._start_failure
            try:
                with self._console.starting_up():
                    self._world = self._tools.make_world(*key, self._console.say)
            except WorldFailure as failure:
                self._failed_starts += 1
                self._start_failure = failure
                raise
            self._failed_starts = 0
            self._world_key = key
            if not key[0].simulated and not self._surroundings.ask(self._world):
                return self.world()
        return self._world

    def starting(self, case: Case) -> None:
        self._console.starting(case, self._job.composed.number + 1)

    def keep(self, record: Record, executable: Executable | None) -> None:
        """Store a record and its kernel, then show it: what is shown is kept. Secrets are neither shown nor kept."""
        record = scrubbed_record(record)
        if executable is not None:
            self._store.write_ptx(executable.digest, executable.ptx)
        number = f"{self._job.composed.number:02d}" if self._job_count > 1 else ""
        with shielded():  # a record on disk, and in the table and in MLflow: all or none
            path = self._store.write(record, number)
            self._records.append(record)
            self._unsent.append(path)
        self._console.finished(record)

    def conclude(self, interrupt: KeyboardInterrupt | None) -> Ended:
        """Close everything, show what was done, and say how it ended."""
        self._close_world()
        if self._earlier is not None:
            self._records = self._earlier.whole(self._records)
        code = self._exit_code(interrupt)
        self._end_manifest(code, interrupt)
        self._send()
        self._report()
        self._finish_mirror()
        return Ended(code, self._store.folder, tuple(self._records), interrupt)

    def _exit_code(self, interrupt: KeyboardInterrupt | None) -> int:
        if interrupt is not None:
            return exit_code_of(interrupt)
        return EXIT_FAILED if self._stopped else exit_code_for(self._records)

    def abandon(self, error: BaseException) -> None:
        """The quick way out: no table, and nothing is sent, but no world stays open and no run is left RUNNING.

        An interrupt breaks the world, which then closes without waiting for its ranks.
        """
        interrupt = error if isinstance(error, KeyboardInterrupt) else None
        if interrupt is None and not self._stopped:
            self._stopped = f"{type(error).__name__}: {error}".removesuffix(": ")
        with contextlib.suppress(BaseException):
            self._end_manifest(EXIT_FAILED if interrupt is None else exit_code_of(interrupt), interrupt)
        with contextlib.suppress(BaseException):
            self._close_world()
        with contextlib.suppress(BaseException):
            if self._mirror is not None:
                self._mirror.abandon()

    def _runnable(self, job: PreparedJob) -> Any:
        from runner.command.job import Job

        asked = self._asked(job)
        return Job(
            job.request, job.cases, settings(job.request.fabric), self._surroundings.now, asked, job.specs, job.custom
        )

    def _asked(self, job: PreparedJob) -> RecordedRequest:
        """The request part of a job's records: with it, a record can be understood, sent and run again."""
        asked = scrubbed_values(
            {
                "command": self._store.folder.name,
                "command_line": self._command_line(),
                "experiment": job.composed.experiment,
                "job": job.composed.number,
                "jobs": self._job_count,
                "overrides": list(job.composed.overrides),
                "configuration": job.composed.configuration,
                "resolved": {name: getattr(job.request, name) for name in ("dtype", "accumulator", "reduction")},
                **self._config_dir(),
                **self._brought(job),
                **self._command.origin,
                **({"resumed": self._earlier.number} if self._earlier else {}),
            }
        )
        return RecordedRequest.read(asked)

    def _config_dir(self) -> dict[str, Any]:
        """What the records say of the folder that --config-dir added; of a resumed command, what they said."""
        if self._earlier is not None:
            said = next((one.request.config_dir for one in self._earlier.records), None)
            return {"config_dir": said} if said else {}
        if not self._added and (folder := config_dir_of(self._command.arguments)):
            self._added = {"config_dir": {"folder": folder, "digest": added_digest(Path(folder))}}
        return self._added

    def _brought(self, job: PreparedJob) -> dict[str, Any]:
        """What the job's records say of the kernels that it brings; their text is kept once."""
        from runner.case.bringing import described

        for one in (*job.brought, *((job.custom,) if job.custom else ())):
            if one.digest not in self._kept_texts:
                files = [(source.name, source.content) for source in one.sources]
                self._kept_texts[one.digest] = self._store.write_brought(one.digest, files)
        said = described(job.brought, self._kept_texts)
        if job.custom is not None:
            entry = {"place": job.custom.place, "digest": job.custom.digest}
            said = {job.custom.case.algorithm: {**entry, **self._kept_texts[job.custom.digest]}}
        return {"brought": said} if said else {}

    def _command_line(self) -> list[str]:
        """How the command was started: of a resumed one, how it was the first time."""
        if self._earlier is not None:
            return list(self._earlier.document.command_line)
        return command_line(sys.argv[0], self._command.arguments)

    def _write_configuration(self, job: PreparedJob) -> None:
        name = f"{job.composed.number:02d}-configuration.yaml" if self._job_count > 1 else "configuration.yaml"
        self._store.write_configuration(OmegaConf.to_yaml(OmegaConf.create(self._asked(job).configuration)), name)

    def _begin_manifest(self) -> None:
        """Write down what was asked for before any of it runs: how much of it is missing is known whatever happens."""
        self._manifest = self._earlier.document if self._earlier else self._asked_document()
        self._store.write_command_json(self._manifest)

    def _asked_document(self) -> CommandDocument:
        """Return the document of a new command: its jobs and cases, without an end."""
        asked = [self._asked(job) for job in self._command.jobs]
        return CommandDocument(
            command=asked[0].command,
            command_line=asked[0].command_line,
            working_folder=Path(scrubbed(str(Path.cwd()))).name,
            started=_now(),
            jobs=tuple(
                AskedJob(
                    job.composed.number,
                    one.overrides,
                    tuple(case.id for case in job.cases),
                    JobPlan(one.experiment, str(job.request.fabric.name), one.configuration or {}),
                )
                for job, one in zip(self._command.jobs, asked, strict=True)
            ),
        )

    def _end_manifest(self, exit_code: int, interrupt: KeyboardInterrupt | None) -> None:
        """Write down how it ended. Where that fails, what is there says that the command did not get so far."""
        if self._manifest is None:
            return
        signal = name_of(interrupt) if interrupt is not None else ""
        ended = self._manifest.ending(
            self._records,
            ended=_now(),
            exit_code=exit_code,
            signal=signal,
            stopped=scrubbed(self._stopped),
            load=load() or (),
        )
        try:
            self._store.write_command_json(ended)
            self._store.seal()
        except StoreError as error:
            if not self._stopped:
                self._console.warn(f"symlab: warning: {error}")

    def _start_mirror(self) -> None:
        track = self._command.jobs[0].request.track
        if track.name == TrackName.none:
            return
        from runner.track.background import Mirror
        from runner.track.problems import problem_of

        self._untracked = problem_of(track.uri)
        if self._untracked:
            warning = self._not_sent(self._untracked)
            print(f"symlab: warning: {warning}; the work goes on without MLflow", file=sys.stderr, flush=True)
            return
        earlier = self._earlier.paths if self._earlier else None
        request = self._asked(self._command.jobs[0])
        self._mirror = Mirror(track, request, self._store.folder, self._tools.connect, earlier)

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._mirror is not None and unsent:
            self._mirror.send(unsent)

    def _not_sent(self, problem: str) -> str:
        """What to say if records are not sent to MLflow, and how to send them later."""
        from reports.tracked import database_path
        from runner.track.database import needs_another_place

        uri = without_secrets(self._command.jobs[0].request.track.uri)
        path = database_path(uri)
        send = "send them later with"
        if path is not None and needs_another_place(path):
            uri, send = ELSEWHERE, "send them to another database later with"
        return (
            f"{problem}; the records are kept in {self._folder}; {send}: "
            f"symlab track {shlex.quote(self._folder)} --uri {shlex.quote(uri)}"
        )

    def _finish_mirror(self) -> None:
        if self._untracked:
            self._console.warn(f"symlab: warning: {self._not_sent(self._untracked)}")
        if self._mirror is None:
            return
        uri = without_secrets(self._command.jobs[0].request.track.uri)

        def waiting() -> None:
            self._console.say(f"waiting for MLflow at {uri} (Ctrl-C leaves it: the records are complete)")

        if problem := self._mirror.finish(waiting):
            self._console.warn(f"symlab: warning: {self._not_sent(problem)}")
        else:
            for remark in self._mirror.remarks:
                self._console.warn(f"symlab: warning: not attached in MLflow: {remark}")
            self._console.say(f"dashboard: {told_at(uri, self._mirror.place)}")

    def _report(self) -> None:
        """The table of what was done, what went wrong, and where the records lie."""
        if self._records and not self._console.is_quiet:
            from reports.numerics.study import console_report

            self._console.say(console_report(self._records, self._folder, TOLD_BELOW))
        self._console.announce(summary(self._records, self._case_count))
        failed = failures(self._records, self._folder)
        if failed:
            self._console.warn("\n".join(["failed:", *failed]))
        if self._records and all(str(record.status) == "REFUSED" for record in self._records):
            self._console.warn("symlab: every case was refused: nothing ran")
        if self._stopped:
            self._console.warn(f"symlab: error: {self._stopped}; the work was stopped, what is finished is intact")
        self._console.announce(f"records: {self._folder}{self._digest()}")
        left = self._case_count - len(self._records)
        if left > 0 and not self._command.origin and (self._store.folder / COMMAND_JSON).is_file():
            cases = f"the {counted(left, 'case')} that {'is' if left == 1 else 'are'} left"
            self._console.announce(f"symlab resume {shlex.quote(self._folder)} runs {cases}")

    def _digest(self) -> str:
        """The digest of the folder's manifest in parentheses; "" if the folder could not be sealed."""
        try:
            return f" ({digest_of(self._store.folder)})"
        except ValueError:
            return ""

    @property
    def _folder(self) -> str:
        """The folder of records, as short as the working folder allows."""
        folder = self._store.folder
        with contextlib.suppress(ValueError):
            return str(folder.relative_to(Path.cwd()))
        return str(folder)

    def _close_world(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
