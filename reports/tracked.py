"""Records behind the runs of MLflow: those of a command (a parent run), of a series (a child run), of an experiment.

A command's run has them in one bundle; where it has none (the command still runs, or was sent before there were
bundles) they are taken from its children, one file a record. Nothing is ever written: a database is opened read-only,
and none is made. This is the only file of reports that imports mlflow, which costs seconds: always inside a function.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cases.record.record import Record, load
from reports.record import bundle
from reports.tracking import (
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
