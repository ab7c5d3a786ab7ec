"""Mirrors records to MLflow: a parent run a command, a child run a series (one algorithm of one job), step = bytes.

Everything comes from records, so that what could not be sent while the command ran is sent later, by the same code:
`symlab track records/<folder>`. Only this file imports mlflow, which costs seconds: always inside a function.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cases.record.record import Record
from cases.record.request import RecordedRequest
from reports import tracking
from reports.mlflow_values import (
    INCOMPLETE,
    command_metrics,
    metrics_of,
    missing_of,
    origin_tags,
    parameters_of,
    run_status,
    status_tag,
)
from reports.record import bundle, seal
from reports.tracking import (
    COMMAND_TAG,
    COMPLETE_TAG,
    LAYOUT,
    LAYOUT_TAG,
    MANIFEST_TAG,
    PARENT_TAG,
    SENT_TAG,
    SERIES_TAG,
    database_path,
    resolved_uri,
)
from runner.records.command_json import command_document_of
from runner.track import artifacts
from runner.track.database import make_ready
from runner.track.descriptions import charts_link, command_note, report_link
from runner.track.names import Kept, differing, series_name, series_of, series_tags
from runner.track.pages import (
    DIGEST_TAG,
    NOTE_TAG,
    PLACE_TAG,
    command_filter,
    digest_of,
    page_of_view,
    view_key,
)
from runner.track.problems import check_place
from runner.track.standing import comparisons, standings
from runner.track.views import command_tags, command_view, experiment_tags

PATIENCE_S = 5
"""How long a server may take to answer."""

ARTIFACTS = "mlartifacts"
"""The folder of artifacts beside a database in a file."""

_METRICS_A_BATCH, _ENTRIES_A_BATCH, _LONGEST_TAG = 1000, 100, 5000
_CHILDREN = 50_000
"""Page size when listing runs; larger than any command."""


Point = tuple[str, float, int, int]
"""Of a metric: its name, value, time in ms, step."""


class CommandRun:
    """The parent run of a command and its children. Every run that was opened is ended by close, whatever happened."""

    def __init__(
        self,
        uri: str,
        experiment: str,
        request: RecordedRequest,
        folder: Path | str,
        started: str = "",
    ) -> None:
        """Open, or find again, the parent run of a command, from the `request` part of any of its records.

        folder holds the records, and says what was asked for; started is for where it does not say it.
        """
        self._folder = Path(folder)
        manifest = self._asked = command_document_of(self._folder)
        self._overrides = {job.number: job.overrides for job in manifest.jobs} if manifest is not None else {}
        self._uri = uri
        self._client = _client(uri)
        self._open: list[str] = []
        self._experiment_id = _experiment(self._client, uri, experiment)
        self._command = request.command
        self._line = " ".join(request.command_line)
        self._title = str(request.experiment or (request.configuration or {}).get("op") or "symlab")
        try:
            self._find(request, manifest.started if manifest is not None else started)
        except BaseException:
            self.close("FAILED")
            raise

    def _find(self, request: RecordedRequest, started: str) -> None:
        """The parent run, found or made, and what it has."""
        found = self._search(f"{command_filter(self._command)} and tags.`{SERIES_TAG}` = ''", 1)
        self._tags = dict(found[0].data.tags) if found else {}
        self._counts = dict(found[0].data.metrics) if found else {}
        self.run_id = str(found[0].info.run_id) if found else self._create_parent(request, started)
        children = self._search(f"tags.`{PARENT_TAG}` = '{self.run_id}'", _CHILDREN)
        self._children = {one.data.tags.get(SERIES_TAG, ""): str(one.info.run_id) for one in children}
        self._names = {one.data.tags.get(SERIES_TAG, ""): str(one.info.run_name) for one in children}
        self._parameters = {str(one.info.run_id): set(one.data.params) for one in children}
        self._places = {one.data.tags.get(SERIES_TAG, ""): one.data.tags.get(PLACE_TAG) for one in children}

    @property
    def place(self) -> str:
        """The place of this command's charts on its server."""
        return page_of_view(self._experiment_id, view_key(self._command))

    def has(self, kept: Sequence[Kept]) -> bool:
        """Nothing is left to send: the command is there as a whole, or these very records of it are."""
        is_there = self.has_exactly(kept) or self._tags.get(COMPLETE_TAG) == "true"
        return is_there and self._tags.get(LAYOUT_TAG) == LAYOUT

    def has_exactly(self, kept: Sequence[Kept]) -> bool:
        """The records there are these."""
        return self._tags.get(SENT_TAG) == _digest(kept)

    def resume(self, kept: Sequence[Kept]) -> None:
        """Let the parent run go on (RUNNING) for a command that is resumed. kept are the records that it has: they are
        sent unless all of them are there."""
        is_there = self.has(kept)
        self._client.update_run(self.run_id, status="RUNNING")
        if self.run_id not in self._open:
            self._open.append(self.run_id)
        # Until all is there, and if the end never comes, it is not complete.
        self._log(self.run_id, (), {}, {"status": INCOMPLETE, COMPLETE_TAG: "false"})
        if kept and not is_there:
            self.send(kept)

    def _create_parent(self, request: RecordedRequest, started: str) -> str:
        # Until all is there, and if the end never comes, it is not complete.
        tags = {**self._own_tags, SERIES_TAG: "", COMPLETE_TAG: "false", "status": INCOMPLETE}
        run_id = self._create(self._title, tags | {"mlflow.source.name": "symlab"}, started)
        parameters = {
            "experiment": request.experiment,
            "jobs": request.jobs or 1,
            "command_line": self._line,
        }
        self._log(run_id, (), parameters)
        return run_id

    @property
    def _own_tags(self) -> dict[str, str]:
        return {COMMAND_TAG: self._command, DIGEST_TAG: digest_of(self._command)}

    def send(self, kept: Sequence[Kept]) -> None:
        """Send all series among these records, each as an ended child run; what is there already is not doubled."""
        if self._tags.pop(SENT_TAG, ""):
            self._client.set_tag(self.run_id, SENT_TAG, "")  # the bundle that is there lacks what is sent now
        missing = self._missing(kept)
        for one in kept:
            request = one.record.request
            self._overrides.setdefault(request.job, request.overrides)
        for name, members in series_of(kept).items():
            self._send_series(name, members, missing_of(members[0].record, missing))

    def _missing(self, kept: Sequence[Kept]) -> list[tuple[int, str]]:
        """The cases of these records' jobs that none of these records is of."""
        if self._asked is None:
            return []
        present = {(one.record.request.job, one.record.id) for one in kept}
        jobs = {job for job, _ in present}
        asked = ((job.number, case) for job in self._asked.jobs if job.number in jobs for case in job.cases)
        return [one for one in asked if one not in present]

    def finish(self, kept: Sequence[Kept]) -> list[str]:
        """Complete the parent: its outcome, the report and what goes with it; then end it.

        Gives a sentence for each part of the report that could not be made.
        """
        manifest = command_document_of(self._folder)
        records = [one.record for one in kept]
        missing = len(manifest.not_run(records)) if manifest is not None else 0
        times = [record.ended for record in records]
        if manifest is not None:
            times += [manifest.started] if manifest.end is None else [manifest.end.ended]
        ended_ms = max(map(milliseconds, times))
        self._place(series_of(kept))
        self._show(records)
        with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
            problems = artifacts.build(Path(folder), records, self._folder)
            self._client.log_artifacts(self.run_id, folder)
        links = f"{charts_link(self._experiment_id, self._command)}, {report_link(self._experiment_id, self.run_id)}"
        tags = {
            "status": status_tag(records, missing),
            **origin_tags(records),
            DIGEST_TAG: digest_of(self._command),
            NOTE_TAG: command_note(records, missing, self._line, links, problems),
            SENT_TAG: _digest(kept),
            LAYOUT_TAG: LAYOUT,
            COMPLETE_TAG: str(not missing).lower(),
        }
        with contextlib.suppress(ValueError):  # without a manifest
            tags[MANIFEST_TAG] = seal.digest_of(self._folder)
        if manifest is not None:
            tags["outcome"] = manifest.outcome
        metrics = [
            (key, float(value), ended_ms, 0)
            for key, value in command_metrics(records, missing).items()
            if self._counts.get(key) != value  # of a command that was sent before, only what is new
        ]
        # A time of their own: sent again, they are the same points, and not doubled.
        metrics += [(key, value, ended_ms, step) for key, value, step in comparisons(records)]
        self._log(self.run_id, metrics, {}, tags)
        self._end(self.run_id, run_status(records, missing), ended_ms)
        return problems

    def _place(self, series: Mapping[str, Sequence[Kept]]) -> None:
        """Say of each series where it stands among all of the command, by which views sort: known at its end only."""
        for name, standing in standings(series).items():
            place = f"{standing:04d}"
            if name in self._children and self._places.get(name) != place:
                self._log(self._children[name], (), {}, {PLACE_TAG: place})
                self._places[name] = place

    def _show(self, records: Sequence[Record]) -> None:
        """Save the view of this command in the experiment, in place of the oldest ones."""
        began = min((record.started for record in records), key=milliseconds, default="")
        title = f"{self._title}, {began[:16].replace('T', ' ')}".removesuffix(", ")
        view = command_view(self._command, title, any(record.timing is not None for record in records))
        present = self._client.get_experiment(self._experiment_id).tags
        for key, value in command_tags(present, view, time.time_ns() // 1_000_000).items():
            if value is not None:
                _tag(self._client, self._experiment_id, key, value)
            else:
                with contextlib.suppress(Exception):  # another command was quicker, or the server is too old
                    self._client.delete_experiment_tag(self._experiment_id, key)

    def show_again(self, kept: Sequence[Kept]) -> None:
        """Save the view of a command that was sent before: those of later ones may have taken its room."""
        self._show([one.record for one in kept])

    def close(self, status: str) -> None:
        """End every run that is still open. Never raises: it's the way out."""
        opened, self._open = self._open[::-1], []
        with contextlib.suppress(Exception):
            if opened and self._uri.startswith("http"):
                tracking.check_server(self._uri, PATIENCE_S)  # MLflow would wait a minute for each run
            for run_id in opened:
                with contextlib.suppress(Exception):
                    self._client.set_terminated(run_id, status)

    def _send_series(self, series: str, kept: Sequence[Kept], missing: int) -> None:
        records = [one.record for one in kept]
        name = series_name(records[0], differing(self._overrides)[records[0].request.job])
        if any(own == name for key, own in self._names.items() if key != series):
            name = f"{name} job {records[0].request.job}"  # of another that is called the same
        metrics = [
            (key, value, milliseconds(record.ended), record.case.size_bytes)
            for record in records
            for key, value in metrics_of(record).items()
        ]
        tags = series_tags(records, missing)
        started = min((record.started for record in records), key=milliseconds)
        run_id = self._children.get(series)
        if run_id is None:
            own = {**self._own_tags, SERIES_TAG: series, PARENT_TAG: self.run_id}
            run_id = self._children[series] = self._create(name, own | tags, started)
            self._names[series] = name
            tags = {}
        # MLflow refuses another value of a parameter that is there.
        parameters, there = parameters_of(records[0]), self._parameters.setdefault(run_id, set())
        self._log(run_id, metrics, {key: one for key, one in parameters.items() if key not in there}, tags)
        there |= set(parameters)
        self._end(run_id, run_status(records, missing), max(milliseconds(record.ended) for record in records))

    def _search(self, filter_string: str, most: int) -> list[Any]:
        return list(self._client.search_runs([self._experiment_id], filter_string, max_results=most))

    def _create(self, name: str, tags: dict[str, str], started: str) -> str:
        start_ms = milliseconds(started) if started else None
        texts = {key: str(value)[:_LONGEST_TAG] for key, value in tags.items()}
        run = self._client.create_run(self._experiment_id, start_time=start_ms, run_name=name, tags=texts)
        self._open.append(str(run.info.run_id))
        return self._open[-1]

    def _end(self, run_id: str, status: str, ended_ms: int) -> None:
        self._client.set_terminated(run_id, status, ended_ms)
        self._open = [open_id for open_id in self._open if open_id != run_id]

    def _log(
        self,
        run_id: str,
        metrics: Sequence[Point],
        parameters: dict[str, Any],
        tags: dict[str, Any] | None = None,
    ) -> None:
        """In as few batches as MLflow takes: each is a transaction."""
        from mlflow.entities import Metric, Param, RunTag

        texts = [RunTag(key, str(value)[:_LONGEST_TAG]) for key, value in (tags or {}).items()]
        values = [Param(key, str(value)[:6000]) for key, value in parameters.items()]
        points = [Metric(*metric) for metric in metrics]
        while texts or values or points:
            some, texts = texts[:_ENTRIES_A_BATCH], texts[_ENTRIES_A_BATCH:]
            others, values = values[:_ENTRIES_A_BATCH], values[_ENTRIES_A_BATCH:]
            room = _METRICS_A_BATCH - len(some) - len(others)
            self._client.log_batch(run_id, metrics=points[:room], params=others, tags=some)
            points = points[room:]


def milliseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _client(uri: str) -> Any:
    check_place(uri)
    _prepare(uri)
    from mlflow import MlflowClient
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    def make(path: Path) -> None:
        # Makes the tables and MLflow's default experiment, whose artifacts would be in the working folder otherwise.
        SqlAlchemyStore(resolved_uri("sqlite:///" + quote(str(path))), (path.parent / ARTIFACTS).as_uri())

    path = database_path(uri)
    if path is not None:
        make_ready(path, make)
    return MlflowClient(tracking_uri=resolved_uri(uri))


def _prepare(uri: str) -> None:
    """Import MLflow, quietly; before, see whether a server answers. Raises Unreachable, why in one line, if not.

    MLflow reads its settings from the environment and has no other way: these are set for this process, where the user
    has not set them. A server that answered and goes away: MLflow tries again for a minute.
    """
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(PATIENCE_S),
    }.items():
        os.environ.setdefault(name, value)
    if uri.startswith("http"):
        tracking.check_server(uri, PATIENCE_S)
    import mlflow

    del mlflow
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _experiment(client: Any, uri: str, name: str) -> str:
    """The experiment's id, made if it's missing; for a database in a file with its artifacts in a folder beside it.
    Its views and its description are there afterwards."""
    found = client.get_experiment_by_name(name)
    if found is None:
        path = database_path(uri)
        beside = (path.parent / ARTIFACTS).as_uri() if path is not None else None
        # Another command may be quicker.
        with contextlib.suppress(Exception):
            client.create_experiment(name, artifact_location=beside)
        found = client.get_experiment_by_name(name)
        if found is None:
            raise RuntimeError(f"the experiment {name} can't be made")
    for key, value in experiment_tags(found.tags, time.time_ns() // 1_000_000).items():
        _tag(client, found.experiment_id, key, value)
    return str(found.experiment_id)


def _tag(client: Any, experiment_id: str, key: str, value: str) -> None:
    """Set a tag of an experiment. A database refuses a tag that another process makes at the same moment: then it is
    there, and can be set."""
    try:
        client.set_experiment_tag(experiment_id, key, value)
    except Exception:
        client.set_experiment_tag(experiment_id, key, value)


def _digest(kept: Sequence[Kept]) -> str:
    """Which records these are, by their contents: a changed one is another."""
    return bundle.digest(one.record for one in kept).removeprefix("sha256:")
