"""One command: its jobs, the world that is kept between them, its records, its mirror, and how it ends."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.table.text import counted
from runner.command.console import Console
from runner.command.ending import report
from runner.command.plan import Command
from runner.command.running import Asked, Earlier, JobRunner, Tools
from runner.command.to_mlflow import Mirror, short_path
from runner.environment.host import now_text
from runner.environment.of_command import Surroundings, added_digest
from runner.interrupt import exit_code_of, is_first, name_of
from runner.records.command_json import COMMAND_JSON, EXIT_FAILED, AskedJob, CommandDocument, JobPlan, exit_code_for
from runner.records.lock import held_if_possible
from runner.records.scrub import scrubbed
from runner.records.store import Store, StoreError
from runner.request.options import command_line, config_dir_of
from runner.request_error import RequestError

if TYPE_CHECKING:
    from cases.record.record import Record
    from runner.command.ahead import CompiledAhead
    from runner.command.launched import Launched
    from runner.command.means import Means


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


class _Session:
    """The state of a running command."""

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
        self._runner = JobRunner(self._said(), store, tools, self._surroundings, console, self._keep)
        self._records: list[Record] = earlier.records if earlier else []
        self._mirror = Mirror(command.jobs[0].request.track, store.folder, console)
        self._stopped = ""
        self._manifest: CommandDocument | None = None
        self._launched: Launched | None = None
        self._ahead: CompiledAhead | None = None

    def begin(self) -> None:
        """Write command.json, before the first word on stdout: a folder of records always says what it is of, and how
        much of it is missing is known whatever happens."""
        self._manifest = self._earlier.document if self._earlier else self._asked_document()
        try:
            self._store.write_command_json(self._manifest)
        except StoreError as error:
            self._stopped = str(error)

    def run(self) -> None:
        """All jobs, one after another. Ends early when a record can't be stored. Lets interrupts through."""
        if self._stopped:
            return
        jobs = self._command.jobs
        self._console.begin((case for job in jobs for case in job.cases), self._job_count)
        self._surroundings.look()
        earlier = [one.path.name for one in self._earlier.kept] if self._earlier else None
        self._mirror.begin(self._runner.request_of(jobs[0]), self._tools.connect, earlier)
        # Torch and the simulator take seconds to import: after the first words, and while the mirror imports MLflow.
        if self._command.launch is not None:
            self._run_launched()
            return
        means = self._tools.means or self._usual_means()
        for job in self._command.jobs:
            try:
                self._runner.run(job, means)
            except StoreError as error:
                self._stopped = str(error)
                return
            self._send(job.composed.number)

    def _usual_means(self) -> Means:
        """The usual means, whose kernels are compiled ahead, from now on."""
        from runner.command.ahead import CompiledAhead
        from runner.command.means import usual_means

        self._ahead = CompiledAhead(self._command.jobs, self._console.say)
        return self._ahead.using(usual_means())

    def _run_launched(self) -> None:
        """All jobs, on the workers of a launcher."""
        from runner.command.launched import Launched

        self._launched = Launched(self._command, self._said(), self._store, self._console, self._keep, self._send)
        try:
            self._launched.run()
        except StoreError as error:
            self._stopped = str(error)
            self._launched.end()
        except Exception:
            self._launched.end()  # no worker goes on without its command
            raise
        self._stopped = self._stopped or self._launched.problem

    def _send(self, job: int) -> None:
        """All records of a job are there: MLflow gets its series as a whole."""
        self._mirror.send(f"{job:02d}-*.json" if self._job_count > 1 else "*.json")

    def _keep(self, record: Record) -> None:
        """A record is stored: it belongs to the table and to MLflow, and is shown."""
        self._records.append(record)
        self._console.finished(record)

    def conclude(self, interrupt: KeyboardInterrupt | None) -> Ended:
        """Close everything, show what was done, and say how it ended."""
        if self._ahead is not None:
            self._ahead.close()
        self._runner.close()
        if self._launched is not None and interrupt is not None:
            self._launched.end()
        if self._earlier is not None:
            self._records = self._earlier.whole(self._records)
        elif self._launched is not None and self._manifest is not None:
            self._records = self._manifest.in_order(self._records)
        code = EXIT_FAILED if self._stopped else exit_code_for(self._records)
        code = code if interrupt is None else exit_code_of(interrupt)
        self._end_manifest(code, interrupt)
        is_lost = self._launched is not None and bool(self._launched.problem)
        report(self._records, self._case_count, self._store.folder, self._console, self._stopped, is_lost)
        left = self._case_count - len(self._records)
        if left > 0 and not self._command.origin and (self._store.folder / COMMAND_JSON).is_file():
            cases = f"the {counted(left, 'case')} that {'is' if left == 1 else 'are'} left"
            self._console.announce(f"symlab resume {shlex.quote(short_path(self._store.folder))} runs {cases}")
        self._mirror.finish()
        return Ended(code, self._store.folder, tuple(self._records), interrupt)

    def abandon(self, error: BaseException) -> None:
        """The quick way out: no table, and nothing is sent, but no world stays open and no run is left RUNNING.

        An interrupt breaks the world, which then closes without waiting for its ranks.
        """
        interrupt = error if isinstance(error, KeyboardInterrupt) else None
        if interrupt is None and not self._stopped:
            self._stopped = f"{type(error).__name__}: {error}".removesuffix(": ")
        left = ""
        with contextlib.suppress(BaseException):
            left = self._launched.still_there if self._launched is not None else ""
        if left:
            # Workers still write here: the folder is not sealed, and a resumption looks whether they are gone.
            with contextlib.suppress(BaseException):
                self._console.warn(f"symlab: left at once; still there: {left}")
            self._manifest = None
        with contextlib.suppress(BaseException):
            self._end_manifest(EXIT_FAILED if interrupt is None else exit_code_of(interrupt), interrupt)
        with contextlib.suppress(BaseException):
            if self._ahead is not None:
                self._ahead.close()
        with contextlib.suppress(BaseException):
            self._runner.close()
        with contextlib.suppress(BaseException):
            self._mirror.abandon()

    def _said(self) -> Asked:
        """What all records say of the command."""
        extra = {**self._config_dir(), **self._command.origin}
        if self._earlier is not None:
            extra["resumed"] = self._earlier.number
        return Asked(self._store.folder.name, tuple(self._command_line()), self._job_count, extra)

    def _config_dir(self) -> dict[str, Any]:
        """What the records say of the folder that --config-dir added; of a resumed command, what they said."""
        if self._earlier is not None:
            said = next((one.request.config_dir for one in self._earlier.records), None)
            return {"config_dir": said} if said else {}
        if folder := config_dir_of(self._command.arguments):
            return {"config_dir": {"folder": folder, "digest": added_digest(Path(folder))}}
        return {}

    def _command_line(self) -> list[str]:
        """How the command was started: of a resumed one, how it was the first time."""
        if self._earlier is not None:
            return list(self._earlier.document.command_line)
        return command_line(sys.argv[0], self._command.arguments)

    def _asked_document(self) -> CommandDocument:
        """Return the document of a new command: its jobs and cases, without an end."""
        asked = [self._runner.request_of(job) for job in self._command.jobs]
        return CommandDocument(
            command=asked[0].command,
            command_line=asked[0].command_line,
            working_folder=Path(scrubbed(str(Path.cwd()))).name,
            started=now_text(),
            launcher=tuple(map(scrubbed, self._command.launch.lines)) if self._command.launch else (),
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
            ended=now_text(),
            exit_code=exit_code,
            signal=signal,
            stopped=scrubbed(self._stopped),
        )
        try:
            self._store.write_command_json(ended)
            self._store.seal()
        except StoreError as error:
            if str(error) != self._stopped:
                self._console.warn(f"symlab: warning: {error}")
