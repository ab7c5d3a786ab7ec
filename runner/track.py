"""Mirrors records to MLflow: a parent run a command, a child run a series (one algorithm of one job), step = bytes.

Everything comes from records, so that what could not be sent while the command ran is sent later, by the same code:
`python -m runner.track records/<folder>`. Only this file imports mlflow, which costs seconds: always inside a function.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from reports import tracked
from reports.record import Status, load
from reports.study import Series, studied
from reports.tracked import COMMAND_TAG, PARENT_TAG, RECORDS_FOLDER, SENT_TAG, SERIES_TAG, database_path, resolved_uri
from runner.config import check_uri
from runner.database import make_ready
from runner.entries import (
    INCOMPLETE,
    Kept,
    differing,
    metrics_of,
    origin_tags,
    parameters_of,
    run_status,
    series_name,
    series_of,
    series_tags,
    status_tag,
    study_metrics,
    study_parameters,
)
from runner.manifest import MANIFEST_NAME, manifest_of
from runner.mistakes import RequestError, first_line
from runner.secrets import without_secrets
from runner.store import record_paths

COMPLETE_TAG = "symlab.complete"
_METRICS_A_BATCH, _ENTRIES_A_BATCH = 1000, 100


class TrackingError(RuntimeError):
    """MLflow could not be reached or would not take something; one line."""


def open_command(uri: str) -> str:
    """What opens the dashboard: a command for a database, the address of a server."""
    resolved = resolved_uri(uri)
    if resolved.startswith("http"):
        return resolved
    return f"{shlex.quote(_mlflow_program())} ui --backend-store-uri {shlex.quote(resolved)}"


def _mlflow_program() -> str:
    """The mlflow of this environment as a shell here can call it: by name, if that finds it, else by path."""
    beside = Path(sys.executable).with_name("mlflow")
    found = shutil.which("mlflow")
    if found is not None and Path(found) == beside:
        return "mlflow"
    with contextlib.suppress(ValueError):
        return str(beside.relative_to(Path.cwd()))
    return str(beside)


class CommandRun:
    """The parent run of a command and its children. Every run that was opened is ended by close, whatever happened."""

    def __init__(
        self, uri: str, experiment: str, request: dict[str, Any], folder: Path | str, started: str = ""
    ) -> None:
        """Open, or find again, the parent run of a command, from the `request` part of any of its records.

        folder holds the records, and says what was asked for; started is for where it does not say it.
        """
        self._folder = Path(folder)
        manifest = manifest_of(self._folder)
        self._overrides = {job.number: job.overrides for job in manifest.jobs} if manifest is not None else {}
        self._client = _client(uri)
        self._open: list[str] = []
        self._experiment_id = _experiment(self._client, uri, experiment)
        self._command = str(request["command"])
        found = self._find(f"tags.`{COMMAND_TAG}` = '{self._command}' and tags.`{SERIES_TAG}` = ''")
        self._tags = dict(found.data.tags) if found is not None else {}
        if found is not None:
            self.run_id = str(found.info.run_id)
        else:
            self.run_id = self._create_parent(request, manifest.started if manifest is not None else started)

    def has(self, kept: Sequence[Kept]) -> bool:
        """Nothing is left to send: the command is there as a whole, or these very records of it are."""
        return self._tags.get(COMPLETE_TAG) == "true" or self._tags.get(SENT_TAG) == _digest(kept)

    def _create_parent(self, request: dict[str, Any], started: str) -> str:
        configuration = request.get("configuration", {})
        name = str(request.get("experiment") or configuration.get("op") or "symlab")
        # Until all is there, and if the end never comes, it is not complete.
        tags = {COMMAND_TAG: self._command, SERIES_TAG: "", COMPLETE_TAG: "false", "status": INCOMPLETE}
        run_id = self._create(name, tags | {"mlflow.source.name": "symlab"}, started)
        parameters = {
            "experiment": request.get("experiment", ""),
            "jobs": request.get("jobs", 1),
            "command_line": " ".join(request.get("command_line", [])),
        }
        self._log(run_id, (), parameters, {})
        return run_id

    def send(self, kept: Sequence[Kept]) -> None:
        """Send all series among these records, each as an ended child run; what is there already is not doubled."""
        manifest = manifest_of(self._folder)
        missing = manifest.not_run(one.record for one in kept) if manifest is not None else ()
        for one in kept:
            request = one.record.request
            self._overrides.setdefault(int(request.get("job", 0)), tuple(request.get("overrides", ())))
        for name, members in series_of(kept).items():
            self._send_series(name, members, _missing_of(members, missing))

    def finish(self, kept: Sequence[Kept]) -> None:
        """Complete the parent: its outcome, the resolved configurations; then end it."""
        manifest = manifest_of(self._folder)
        records = [one.record for one in kept]
        missing = len(manifest.not_run(records)) if manifest is not None else 0
        times = [record.ended for record in records]
        if manifest is not None:
            times += [manifest.started] if manifest.end is None else [manifest.end.ended]
        ended_ms = max(map(_milliseconds, times))
        for curve in studied(records):
            self._send_curve(curve, min((record.started for record in records), key=_milliseconds), ended_ms)
        counts = {f"cases_{status.lower()}": sum(one.status is status for one in records) for status in Status}
        counts |= {"cases": len(records), "cases_requested": len(records) + missing, "cases_not_run": missing}
        tags = {"status": status_tag(records, missing), **origin_tags(records)}
        if manifest is not None:
            tags["outcome"] = manifest.outcome
        metrics = [(key, float(value), ended_ms, 0) for key, value in counts.items()]
        self._log(self.run_id, metrics, {}, tags)
        for path in sorted([*self._folder.glob("*.yaml"), *self._folder.glob(MANIFEST_NAME)]):
            self._client.log_artifact(self.run_id, str(path), "configuration")
        self._log(self.run_id, (), {}, {SENT_TAG: _digest(kept), COMPLETE_TAG: str(not missing).lower()})
        self._end(self.run_id, run_status(records, missing), ended_ms)

    def close(self, status: str) -> None:
        """End every run that is still open. Never raises: it's the way out."""
        for run_id in reversed(self._open):
            with contextlib.suppress(Exception):
                self._client.set_terminated(run_id, status)
        self._open = []

    def _send_series(self, series: str, kept: Sequence[Kept], missing: int) -> None:
        records = [one.record for one in kept]
        name = series_name(records[0], differing(self._overrides)[int(records[0].request.get("job", 0))])
        run_id = self._child(series, name, min((record.started for record in records), key=_milliseconds))
        metrics = [
            (key, value, _milliseconds(record.ended), int(record.case["size_bytes"]))
            for record in records
            for key, value in metrics_of(record).items()
        ]
        self._log(run_id, metrics, parameters_of(records[0]), series_tags(records, missing))
        for one in kept:
            self._client.log_artifact(run_id, str(one.path), RECORDS_FOLDER)
        for path in sorted({path for one in kept if (path := _ptx_path(one)) is not None}):
            self._client.log_artifact(run_id, str(path), "ptx")
        self._end(run_id, run_status(records, missing), max(_milliseconds(record.ended) for record in records))

    def _send_curve(self, curve: Series, started: str, ended_ms: int) -> None:
        """A curve of a study, from several jobs, as an ended child run: metrics with step = world size."""
        run_id = self._child(f"{tracked.STUDY}{curve.name}", f"study {curve.name}", started)
        metrics = [(key, value, ended_ms, step) for key, value, step in study_metrics(curve)]
        self._log(run_id, metrics, study_parameters(curve), {"status": "STUDY"})
        self._end(run_id, "FINISHED", ended_ms)

    def _child(self, series: str, name: str, started: str) -> str:
        """The run of a series, found or made."""
        found = self._find(f"tags.`{COMMAND_TAG}` = '{self._command}' and tags.`{SERIES_TAG}` = '{series}'")
        if found is not None:
            return str(found.info.run_id)
        tags = {COMMAND_TAG: self._command, SERIES_TAG: series, PARENT_TAG: self.run_id}
        return self._create(name, tags, started)

    def _find(self, filter_string: str) -> Any:
        found = self._client.search_runs([self._experiment_id], filter_string, max_results=1)
        return found[0] if found else None

    def _create(self, name: str, tags: dict[str, str], started: str) -> str:
        start_ms = _milliseconds(started) if started else None
        run = self._client.create_run(self._experiment_id, start_time=start_ms, run_name=name, tags=tags)
        self._open.append(str(run.info.run_id))
        return self._open[-1]

    def _end(self, run_id: str, status: str, ended_ms: int) -> None:
        self._client.set_terminated(run_id, status, ended_ms)
        self._open = [open_id for open_id in self._open if open_id != run_id]

    def _log(
        self,
        run_id: str,
        metrics: Sequence[tuple[str, float, int, int]],
        parameters: dict[str, Any],
        tags: dict[str, Any],
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        for some in _batches([Metric(*metric) for metric in metrics], _METRICS_A_BATCH):
            self._client.log_batch(run_id, metrics=some)
        for some in _batches([Param(key, str(value)[:6000]) for key, value in parameters.items()], _ENTRIES_A_BATCH):
            self._client.log_batch(run_id, params=some)
        for some in _batches([RunTag(key, str(value)[:5000]) for key, value in tags.items()], _ENTRIES_A_BATCH):
            self._client.log_batch(run_id, tags=some)


def _ptx_path(one: Kept) -> Path | None:
    if one.record.kernel is None:
        return None
    path = one.path.parent / "ptx" / f"{one.record.kernel.ptx_digest.removeprefix('sha256:')}.ptx"
    return path if path.is_file() else None


def _milliseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def prepare(uri: str) -> None:
    """Import MLflow, quietly; before, see whether a server answers. TrackingError if not."""
    try:
        tracked.prepare(uri)
    except ValueError as error:
        raise TrackingError(str(error)) from error


def _client(uri: str) -> Any:
    prepare(uri)
    from mlflow import MlflowClient

    def make(path: Path) -> None:
        # The first question makes the tables and MLflow's default experiment.
        MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments(max_results=1)

    path = database_path(resolved_uri(uri))
    if path is not None:
        make_ready(path, make)
    return MlflowClient(tracking_uri=resolved_uri(uri))


def _experiment(client: Any, uri: str, name: str) -> str:
    """The experiment's id, made if it's missing; for a database in a file with its artifacts in a folder beside it."""
    found = client.get_experiment_by_name(name)
    if found is None:
        path = database_path(resolved_uri(uri))
        beside = (path.parent / "mlartifacts").as_uri() if path is not None else None
        try:
            return str(client.create_experiment(name, artifact_location=beside))
        except Exception:
            found = client.get_experiment_by_name(name)  # another command may have been quicker
            if found is None:
                raise
    return str(found.experiment_id)


def _missing_of(kept: Sequence[Kept], missing: Iterable[tuple[int, str]]) -> int:
    """How many of the missing cases, as pairs of job and id, belong to the series that these records are of."""
    record = kept[0].record
    job, beginning = int(record.request.get("job", 0)), f"{record.case['op']}-{record.case['algorithm']}-"
    return sum(number == job and case.startswith(beginning) for number, case in missing)


def _digest(kept: Sequence[Kept]) -> str:
    """Which records these are: by their files' names, of which a command has no two alike."""
    return hashlib.sha256("\n".join(sorted(one.path.name for one in kept)).encode()).hexdigest()[:16]


def send_folder(kept: Sequence[Kept], uri: str, experiment: str) -> str:
    """Send the records of one command. Says what was done. TrackingError when MLflow does not take it."""
    run: CommandRun | None = None
    try:
        started = min((one.record.started for one in kept), key=_milliseconds)
        run = CommandRun(uri, experiment, kept[0].record.request, kept[0].path.parent, started)
        if run.has(kept):
            return f"already sent, as run {run.run_id}: nothing done"
        run.send(kept)
        run.finish(kept)
        return f"{len(kept)} records sent as run {run.run_id}"
    except Exception as error:
        raise error if isinstance(error, TrackingError) else TrackingError(first_line(error)) from error
    finally:
        if run is not None:
            run.close("FAILED")


class _Parser(argparse.ArgumentParser):
    """One line for a wrong command line, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message}; see python -m runner.track --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """python -m runner.track: send records to MLflow after the fact. Gives the exit code, see --help."""
    parser = _Parser(
        prog="python -m runner.track",
        description="Send records to MLflow that were not sent when they were made. Sending twice does nothing.",
        epilog="exit codes: 0 sent, or there already; 1 not all of them could be sent; 2 the request is wrong",
    )
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORDS", help="record files, or folders of them")
    parser.add_argument("--uri", default="sqlite:///mlflow.db", help="tracking URI (default: %(default)s)")
    parser.add_argument("--experiment", default="symlab", metavar="NAME", help="MLflow experiment (%(default)s)")
    try:
        options = parser.parse_args(arguments)
        check_uri(options.uri, "--uri")
        commands, problems = _by_command(record_paths(options.records))
        if not commands:
            raise RequestError(problems[0])
    except ValueError as error:
        print(f"symlab: error: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(f"symlab: warning: left out: {problem}", file=sys.stderr)
    for command, kept in commands.items():
        try:
            print(f"{command}: {send_folder(kept, options.uri, options.experiment)}")
        except TrackingError as error:
            uri = without_secrets(options.uri)
            print(f"symlab: error: MLflow at {uri} does not take {command}: {error}", file=sys.stderr)
            return 1
    print(f"open it with: {open_command(options.uri)}")
    return 1 if problems else 0


def _by_command(paths: Sequence[Path]) -> tuple[dict[str, list[Kept]], list[str]]:
    """The records in these files by command, and what is wrong with those files that can't be sent."""
    commands: dict[str, list[Kept]] = {}
    problems = []
    for path in paths:
        try:
            record = load(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        if "command" in record.request:
            commands.setdefault(str(record.request["command"]), []).append(Kept(path.absolute(), record))
        else:
            problems.append(f"{path}: the record does not say which command it belongs to, it can't be sent")
    for command, kept in list(commands.items()):
        try:
            manifest_of(kept[0].path.parent)
        except ValueError as error:
            # Without it nobody knows whether these are all of its records.
            problems.append(str(error))
            del commands[command]
    return commands, problems


if __name__ == "__main__":
    sys.exit(main())
