"""Records behind the runs of MLflow: those of a command (a parent run), of a series (a child run), of an experiment.

A command's run has them in one bundle; where it has none (the command still runs, or was sent before there were
bundles) they are taken from its children, one file a record. Nothing is ever written: a database is opened read-only,
and none is made. This is the only file of reports that imports mlflow, which costs seconds: always inside a function.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases.record.reading import MOST_BYTES
from cases.record.record import Record, load
from reports.record import bundle
from reports.record.signatures import MAX_BYTES, signed_of
from reports.record.signed import Signed
from reports.record.writing import SIGNATURES, SIGNED
from reports.tracking import (
    COMMAND_TAG,
    CURVE,
    PARENT_TAG,
    SENT_TAG,
    SERIES_TAG,
    STUDY,
    check_server,
    database_path,
    first_line_of,
    quoted,
)

BUNDLE_NAME, RECORDS_FOLDER = f"records{bundle.SUFFIX}", "records"
"""Artifacts: the bundle of a command's run, the folder of a series' run."""

CONFIGURATION_FOLDER = "configuration"
"""Of a command's run: what was asked for, the manifest, and what was signed."""

PATIENCE_S = 5
"""How long a server may take to answer."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run in MLflow."""

    id: str
    tags: dict[str, str]


def fetch(uri: str, ids: Sequence[str]) -> list[Record]:
    """The records behind run ids, experiment ids and experiment names, each once, in the order they were begun.

    A run of a command has all of its records, a run of a series that series', a run of a study's curve those that the
    curve is made of; an experiment has those of all its commands. ValueError, in one line with the URI and the id, for
    what is not there, and for a server that can't be reached.
    """
    client = _reader(uri)
    found: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
        for number, one in enumerate(ids):
            try:
                records = _records_of(client, one, Path(folder) / str(number))
            except Exception as error:
                raise ValueError(f"{_shown(uri)}: {one}: {first_line_of(error)}") from error
            if not records:
                raise ValueError(f"{_shown(uri)}: {one}: no records there; give a run of symlab, or an experiment")
            found += records
    return bundle.merged(found)


class Tracker:
    """The runs of commands at a tracking URI, only to be read. Methods raise Unreadable if MLflow can't be read."""

    def __init__(self, uri: str) -> None:
        self._client = _reader(uri)
        self._uri = _shown(uri)
        self._experiments: list[str] | None = None

    def has(self, one: str) -> bool:
        """Return whether there is a run or an experiment of this id or name."""
        with self._in_one_line():
            return _run(self._client, one) is not None or _experiment(self._client, one) is not None

    def parents(self, command: str) -> list[TrackedRun]:
        """Return the runs of a command, those of all experiments, deleted ones too."""
        wanted = f"tags.`{SERIES_TAG}` = ''"
        if re.fullmatch(r"[\w.:+-]+", command):  # what else it may hold has a meaning in filters
            wanted += f" and tags.`{COMMAND_TAG}` = '{command}'"
        return [run for run in self._runs(self._all_experiments(), wanted) if run.tags.get(COMMAND_TAG) == command]

    def records(self, run: TrackedRun, artifact: str) -> list[Record]:
        """Return the records in an artifact, BUNDLE_NAME or RECORDS_FOLDER; none if the run does not have it.

        ValueError for what is no record, and for a file that is too large for one.
        """
        inside = artifact if artifact == RECORDS_FOLDER else None
        most = bundle.MOST_PACKED_BYTES if inside is None else MOST_BYTES
        with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
            with self._in_one_line():
                files = [one for one in self._client.list_artifacts(run.id, inside) if inside or one.path == artifact]
            for one in files:
                if (one.file_size or 0) > most:
                    raise ValueError(f"{one.path} has {one.file_size:,} bytes, at most {most:,} are read")
            with self._in_one_line():
                found = _download(self._client, run.id, artifact, Path(folder))
            return _loaded(found)

    def signed(self, run: TrackedRun) -> Signed | None:
        """Return what is signed of the folder that a run was sent from, or None. ValueError for what is no signature,
        as for a folder."""
        with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
            with self._in_one_line():
                files = self._client.list_artifacts(run.id, CONFIGURATION_FOLDER)
                wanted = [one for one in files if Path(one.path).name in (SIGNED, SIGNATURES)]
            place = Path(folder)
            for one in wanted:
                if (one.file_size or 0) > MAX_BYTES:
                    raise ValueError(f"{one.path} has {one.file_size:,} bytes, at most {MAX_BYTES:,} are read")
                with self._in_one_line():
                    place = Path(self._client.download_artifacts(run.id, one.path, folder)).parent
            return signed_of(place)

    def _all_experiments(self) -> list[str]:
        if self._experiments is None:
            from mlflow.entities import ViewType

            self._experiments, token = [], None
            with self._in_one_line():
                while True:
                    page = self._client.search_experiments(ViewType.ALL, max_results=1000, page_token=token)
                    self._experiments += [str(one.experiment_id) for one in page]
                    token = page.token
                    if not token:
                        break
        return self._experiments

    def _runs(self, experiments: list[str], filter_string: str) -> Iterator[TrackedRun]:
        from mlflow.entities import ViewType

        with self._in_one_line():
            for run in _search(self._client, experiments, filter_string, ViewType.ALL):
                yield TrackedRun(str(run.info.run_id), dict(run.data.tags))

    @contextlib.contextmanager
    def _in_one_line(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise Unreadable(f"{self._uri}: can't be read ({first_line_of(error)})") from error


class Unreadable(ValueError):
    """MLflow gives no answer, or an error; the message is one line with the URI."""


def prepare(uri: str) -> None:
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
        check_server(uri, PATIENCE_S)
    import mlflow

    del mlflow
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _reader(uri: str) -> Any:
    """A client that can't write to a database. ValueError naming the URI where there is nothing to read."""
    if re.match(r"(sqlite(\+\w+)?:///.|https?://.)", uri) is None:
        raise ValueError(
            f"'{_shown(uri)}' is no tracking URI (--mlflow), give sqlite:///mlflow.db or a server's http://host:5000"
        )
    path = database_path(uri)
    if path is not None and not (path.is_file() and path.stat().st_size):
        raise ValueError(f"{uri}: there is no database {path}")
    try:
        prepare(uri)
        from mlflow import MlflowClient

        if path is None:
            return MlflowClient(tracking_uri=uri)
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        # Named with its driver: for "sqlite:" alone MLflow takes the whole for a path, and makes its folders.
        # Quoted twice: SQLAlchemy takes the first quotes away, sqlite the second.
        client = MlflowClient(tracking_uri=f"sqlite+pysqlite:///{quoted(path.as_uri())}?mode=ro&uri=true")
        client.search_experiments(max_results=1)
        return client
    except Exception as error:
        raise ValueError(f"{_shown(uri)}: can't be read ({first_line_of(error)})") from error


def _records_of(client: Any, one: str, folder: Path) -> list[Record]:
    """The records behind one id. folder is for what is downloaded."""
    run = _run(client, one)
    if run is not None:
        return _of_run(client, run, folder)
    experiment = _experiment(client, one)
    if experiment is None:
        raise ValueError("there is no such run or experiment; give a run's id, or an experiment's id or name")
    parents = _search(client, [experiment], f"tags.`{SERIES_TAG}` = ''")
    return [record for parent in parents for record in _of_run(client, parent, folder)]


def _of_run(client: Any, run: Any, folder: Path) -> list[Record]:
    tags = run.data.tags
    if not tags.get(PARENT_TAG):
        return _of_command(client, run, folder)
    if not tags.get(SERIES_TAG, "").startswith(STUDY):
        return _downloaded(client, run.info.run_id, RECORDS_FOLDER, folder)
    fixed = {name: run.data.params.get(name) for name in CURVE}
    parent = client.get_run(tags[PARENT_TAG])
    return [
        record
        for record in _of_command(client, parent, folder)
        if all(getattr(record.case, name) == value for name, value in fixed.items())
    ]


def _of_command(client: Any, run: Any, folder: Path) -> list[Record]:
    if run.data.tags.get(SENT_TAG) and (records := _downloaded(client, run.info.run_id, BUNDLE_NAME, folder)):
        return records
    children = _search(client, [run.info.experiment_id], f"tags.`{PARENT_TAG}` = '{run.info.run_id}'")
    own = [child for child in children if not child.data.tags.get(SERIES_TAG, "").startswith(STUDY)]
    return [record for child in own for record in _downloaded(client, child.info.run_id, RECORDS_FOLDER, folder)]


def _downloaded(client: Any, run_id: str, artifact: str, folder: Path) -> list[Record]:
    """The records in an artifact, a bundle or a folder of them; none where the run has no such artifact."""
    return _loaded(_download(client, run_id, artifact, folder))


def _download(client: Any, run_id: str, artifact: str, folder: Path) -> Path | None:
    if artifact not in {one.path for one in client.list_artifacts(run_id)}:
        return None
    place = folder / run_id
    place.mkdir(parents=True, exist_ok=True)
    return Path(client.download_artifacts(run_id, artifact, str(place)))


def _loaded(found: Path | None) -> list[Record]:
    if found is None:
        return []
    return [load(path) for path in sorted(found.glob("*.json"))] if found.is_dir() else bundle.unpacked(found)


def _run(client: Any, one: str) -> Any:
    """The run with that id; None where there is none."""
    if not re.fullmatch("[0-9a-f]{32}", one):
        return None
    return _unless_missing(client.get_run, one)


def _experiment(client: Any, one: str) -> str | None:
    """The id of an experiment, by its name or its id; None where there is none."""
    found = _unless_missing(client.get_experiment_by_name, one)
    if found is None and re.fullmatch("0|[1-9][0-9]{0,18}", one):
        found = _unless_missing(client.get_experiment, one)
    return None if found is None else str(found.experiment_id)


def _unless_missing(get: Any, one: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return get(one)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def _search(client: Any, experiments: Sequence[str], filter_string: str, view: int = 1) -> Iterator[Any]:
    """All runs of experiments that the filter takes, oldest first, a page at a time. view: as MLflow's ViewType has it,
    1 for those that are not deleted."""
    token = None
    while True:
        page = client.search_runs(
            list(experiments), filter_string, view, 1000, ["attributes.start_time ASC"], page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def _shown(uri: str) -> str:
    """The URI without user and password."""
    return re.sub(r"://[^/\s]*@", "://withheld@", uri)
