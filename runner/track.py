"""Mirrors records to MLflow: a parent run a command, a child run a series (one algorithm of one job), step = bytes.

Everything comes from records, so that what could not be sent while the command ran is sent later, by the same code:
`python -m runner.track records/<folder>`. Only this file imports mlflow, which costs seconds: always inside a function.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from reports.record import Record, Status, load
from runner.config import RequestError, check_uri, first_line
from runner.store import record_paths

WORST_FIRST = (Status.FAILED, Status.DEADLOCK, Status.TIMEOUT, Status.WRONG, Status.REFUSED, Status.PASSED)
COMMAND_TAG, SERIES_TAG, COMPLETE_TAG = "symlab.command", "symlab.series", "symlab.complete"
_HTTP_PATIENCE_S = 5
_METRICS_A_BATCH, _ENTRIES_A_BATCH = 1000, 100


@dataclass(frozen=True, slots=True)
class Kept:
    """A record and the file it is kept in."""

    path: Path
    record: Record


class TrackingError(RuntimeError):
    """MLflow could not be reached or would not take something; one line."""


def resolved_uri(uri: str) -> str:
    """The URI with a relative sqlite path made absolute from the working folder."""
    match = re.fullmatch(r"(sqlite(?:\+\w+)?):///([^/].*)", uri)
    return f"{match[1]}:///{Path(match[2]).absolute()}" if match else uri


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


def series_of(kept: Iterable[Kept]) -> dict[str, list[Kept]]:
    """The records by series, "<job>/<op>/<algorithm>", in the order in which they appear."""
    series: dict[str, list[Kept]] = {}
    for one in kept:
        case = one.record.case
        series.setdefault(f"{one.record.request.get('job', 0)}/{case['op']}/{case['algorithm']}", []).append(one)
    return series


def worst(records: Iterable[Record]) -> Status:
    """The status that speaks for several records; PASSED for none."""
    found = {record.status for record in records}
    return next((status for status in WORST_FIRST if status in found), Status.PASSED)


def run_status(records: Sequence[Record], interrupted: bool = False) -> str:
    """MLflow's status: FINISHED when all passed or were refused, FAILED else, KILLED after an interrupt."""
    if interrupted:
        return "KILLED"
    return "FINISHED" if worst(records) in (Status.PASSED, Status.REFUSED) else "FAILED"


class CommandRun:
    """The parent run of a command and its children. Every run that was opened is ended by close, whatever happened."""

    def __init__(self, uri: str, experiment: str, request: dict[str, Any]) -> None:
        """Open, or find again, the parent run of a command, from the `request` part of any of its records."""
        self._client = _client(uri)
        self._open: list[str] = []
        self._experiment_id = _experiment(self._client, uri, experiment)
        self._command = str(request["command"])
        found = self._find(f"tags.`{COMMAND_TAG}` = '{self._command}' and tags.`{SERIES_TAG}` = ''")
        self.already_complete = found is not None and found.data.tags.get(COMPLETE_TAG) == "true"
        self.run_id = found.info.run_id if found is not None else self._create_parent(request)

    def _create_parent(self, request: dict[str, Any]) -> str:
        configuration = request.get("configuration", {})
        name = str(request.get("experiment") or configuration.get("op") or "symlab")
        tags = {COMMAND_TAG: self._command, SERIES_TAG: "", COMPLETE_TAG: "false", "mlflow.source.name": "symlab"}
        run_id = self._create(name, tags)
        parameters = {
            "experiment": request.get("experiment", ""),
            "jobs": request.get("jobs", 1),
            "command_line": " ".join(request.get("command_line", [])),
        }
        self._log(run_id, (), parameters, {})
        return run_id

    def send(self, kept: Sequence[Kept], interrupted: bool = False) -> None:
        """Send all series among these records, each as an ended child run; what is there already is not doubled."""
        for name, members in series_of(kept).items():
            self._send_series(name, members, interrupted)

    def finish(self, kept: Sequence[Kept], status: str, folder: Path | None) -> None:
        """Complete the parent: its outcome, the resolved configurations; then end it."""
        records = [one.record for one in kept]
        counts = {f"cases_{status.lower()}": sum(one.status is status for one in records) for status in Status}
        self._log(self.run_id, (), {}, {"status": str(worst(records)), **_origin_tags(records)})
        for key, value in {"cases": len(records), **counts}.items():
            self._client.log_metric(self.run_id, key, value)
        for path in sorted(folder.glob("*.yaml")) if folder is not None else ():
            self._client.log_artifact(self.run_id, str(path), "configuration")
        self._client.set_tag(self.run_id, COMPLETE_TAG, "true")
        self._client.set_terminated(self.run_id, status)
        self._open = [run_id for run_id in self._open if run_id != self.run_id]

    def close(self, status: str) -> None:
        """End every run that is still open. Never raises: it's the way out."""
        for run_id in reversed(self._open):
            with contextlib.suppress(Exception):
                self._client.set_terminated(run_id, status)
        self._open = []

    def _send_series(self, series: str, kept: Sequence[Kept], interrupted: bool) -> None:
        records = [one.record for one in kept]
        found = self._find(f"tags.`{COMMAND_TAG}` = '{self._command}' and tags.`{SERIES_TAG}` = '{series}'")
        tags = {COMMAND_TAG: self._command, SERIES_TAG: series, "mlflow.parentRunId": self.run_id}
        run_id = found.info.run_id if found is not None else self._create(_series_name(records[0]), tags)
        metrics = [
            (key, value, _milliseconds(record.ended), int(record.case["size_bytes"]))
            for record in records
            for key, value in metrics_of(record).items()
        ]
        self._log(run_id, metrics, _parameters(records[0]), _series_tags(records))
        for one in kept:
            self._client.log_artifact(run_id, str(one.path), "records")
        for path in sorted({path for one in kept if (path := _ptx_path(one)) is not None}):
            self._client.log_artifact(run_id, str(path), "ptx")
        self._client.set_terminated(run_id, run_status(records, interrupted))
        self._open = [open_id for open_id in self._open if open_id != run_id]

    def _find(self, filter_string: str) -> Any:
        found = self._client.search_runs([self._experiment_id], filter_string, max_results=1)
        return found[0] if found else None

    def _create(self, name: str, tags: dict[str, str]) -> str:
        run_id = str(self._client.create_run(self._experiment_id, run_name=name, tags=tags).info.run_id)
        self._open.append(run_id)
        return run_id

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


def metrics_of(record: Record) -> dict[str, float]:
    """The numbers of a record, as curves over bytes. NaN and infinity stay in the record: MLflow would change them."""
    found: dict[str, float] = {}
    if record.check is not None:
        check = record.check
        found = {
            "wrong": check.wrong,
            "max_ulp_error": check.max_ulp_error,
            "rms_ulp_error": check.rms_ulp_error,
            "max_absolute_error": check.max_absolute_error,
        }
        if check.bound_used is not None:
            found["bound_used"] = check.bound_used
    counters = dict(record.counters)
    links = counters.pop("links", None)
    if links:  # one curve for them: with 72 ranks there are 5,112
        found["link_bytes_busiest"] = max(links.values())
    found.update(_flat(counters, ""))
    return {key: float(value) for key, value in found.items() if math.isfinite(value)}


def _flat(counters: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Counters by name, nested ones as a/b; in letters that MLflow takes."""
    for key, value in counters.items():
        name = prefix + re.sub(r"[^\w.\- ]", "_", key)
        if isinstance(value, dict):
            yield from _flat(value, f"{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, value


def _series_name(record: Record) -> str:
    case = record.case
    return f"{case['algorithm']} {case['dtype']}/{case.get('accumulator', '')} n{case['world_size']}"


def _parameters(record: Record) -> dict[str, Any]:
    parameters = {key: value for key, value in record.case.items() if key != "size_bytes"}
    if record.fabric is not None:
        parameters |= {"fabric": record.fabric.name, "arch": record.fabric.arch}
        parameters |= {f"fabric.{key}": value for key, value in record.fabric.settings.items()}
    configuration = record.request.get("configuration", {})
    return parameters | {key: configuration[key] for key in ("launches", "deadline_s") if key in configuration}


def _series_tags(records: Sequence[Record]) -> dict[str, str]:
    status = worst(records)
    passed = sum(record.status is Status.PASSED for record in records)
    tags = {"status": str(status), "passed": f"{passed}/{len(records)}", **_origin_tags(records)}
    reason = next((record.reason for record in records if record.status is status and record.reason), "")
    if reason:
        tags["reason"] = reason
    digests = sorted({record.kernel.ptx_digest for record in records if record.kernel is not None})
    if digests:
        tags["ptx_digest"] = " ".join(digests)
    return tags


def _origin_tags(records: Sequence[Record]) -> dict[str, str]:
    """What the records say about where they come from: schema, fabric, commit."""
    if not records:
        return {}
    tags = {"record_schema": str(records[0].schema)}
    fabric = next((record.fabric for record in records if record.fabric is not None), None)
    if fabric is not None:
        tags |= {"fabric": fabric.name, "simulated": str(fabric.simulated).lower()}
    git = records[0].environment.get("git")
    if isinstance(git, dict) and git.get("commit"):
        tags |= {"mlflow.source.git.commit": str(git["commit"]), "git_dirty": str(git.get("dirty", "")).lower()}
    return tags


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
    """Import MLflow, quietly; before, see whether a server answers. TrackingError if not.

    MLflow reads its settings from the environment and has no other way: these are set for this process, where the user
    has not set them. Its retries would make a server that is down cost minutes.
    """
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_HTTP_PATIENCE_S),
    }.items():
        os.environ.setdefault(name, value)
    if uri.startswith("http"):
        import urllib.error
        import urllib.parse
        import urllib.request

        # MLflow sends user and password of the URI; urllib would take them for a part of the host's name.
        parts = urllib.parse.urlsplit(uri)
        place = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health")
        try:
            urllib.request.urlopen(urllib.parse.urlunsplit(place), timeout=_HTTP_PATIENCE_S).close()
        except urllib.error.HTTPError:
            pass  # somebody answers; MLflow itself says what it doesn't like
        except (OSError, ValueError) as error:
            raise TrackingError(first_line(error)) from error
    import mlflow

    del mlflow
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _client(uri: str) -> Any:
    prepare(uri)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=resolved_uri(uri))


def _experiment(client: Any, uri: str, name: str) -> str:
    """The experiment's id, made if it's missing; for a sqlite database with its artifacts in a folder beside it."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    resolved = resolved_uri(uri)
    beside = None
    if resolved.startswith("sqlite"):
        beside = (Path(resolved.partition(":///")[2]).parent / "mlartifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=beside))


def send_folder(kept: Sequence[Kept], uri: str, experiment: str) -> str:
    """Send the records of one command. Says what was done. TrackingError when MLflow does not take it."""
    request = kept[0].record.request
    run: CommandRun | None = None
    try:
        run = CommandRun(uri, experiment, request)
        if run.already_complete:
            return f"already sent, as run {run.run_id}: nothing done"
        run.send(kept)
        run.finish(kept, run_status([one.record for one in kept]), kept[0].path.parent)
        return f"{len(kept)} records sent as run {run.run_id}"
    except Exception as error:
        raise error if isinstance(error, TrackingError) else TrackingError(first_line(error)) from error
    finally:
        if run is not None:
            run.close("FAILED")


def main(arguments: Sequence[str] | None = None) -> int:
    """python -m runner.track: send records to MLflow after the fact. Gives the exit code, see --help."""
    parser = argparse.ArgumentParser(
        prog="python -m runner.track",
        description="Send records to MLflow that were not sent when they were made. Sending twice does nothing.",
        epilog="exit codes: 0 sent, or there already; 1 MLflow did not take them; 2 the request is wrong",
    )
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORDS", help="record files, or folders of them")
    parser.add_argument("--uri", default="sqlite:///mlflow.db", help="tracking URI (default: %(default)s)")
    parser.add_argument("--experiment", default="symlab", metavar="NAME", help="MLflow experiment (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        check_uri(options.uri, "--uri")
        commands: dict[str, list[Kept]] = {}
        for path in record_paths(options.records):
            record = load(path)
            if "command" not in record.request:
                raise RequestError(f"{path}: the record does not say which command it belongs to, it can't be sent")
            commands.setdefault(str(record.request["command"]), []).append(Kept(path.absolute(), record))
    except ValueError as error:
        print(f"symlab: error: {error}", file=sys.stderr)
        return 2
    for command, kept in commands.items():
        try:
            print(f"{command}: {send_folder(kept, options.uri, options.experiment)}")
        except TrackingError as error:
            print(f"symlab: error: MLflow at {options.uri} does not take {command}: {error}", file=sys.stderr)
            return 1
    print(f"open it with: {open_command(options.uri)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
