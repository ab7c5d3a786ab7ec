"""The commands about MLflow, as click objects: track, dashboard."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from reports.tracking import database_path, resolved_uri
from runner.request_error import RequestError
from runner.track.dashboard import DEFAULT_URI, JOBS, PORT, check_port, open_command


@click.command(
    "track",
    epilog="Exit codes: 0 sent, or there already; 1 not all of them could be sent; 2 the request is wrong.",
)
@click.argument("records", nargs=-1, required=True, metavar="RECORDS...", type=click.Path(path_type=Path))
@click.option("--uri", default=DEFAULT_URI, show_default=True, help="MLflow's tracking URI.")
@click.option("--experiment", default="symlab", show_default=True, metavar="NAME", help="MLflow's experiment.")
def track(records: tuple[Path, ...], uri: str, experiment: str) -> int:
    """Send records to MLflow that were not sent.

    RECORDS are record files, folders of them, or bundles. Sending twice does nothing.
    """
    from runner.track.send_later import send_later

    return send_later(records, uri, experiment)


@click.command("dashboard", epilog="Exit codes: 0 done; 2 the request is wrong; else the server's own.")
@click.option("--uri", default=DEFAULT_URI, show_default=True, help="MLflow's tracking URI.")
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="The port to listen on.")
def dashboard(uri: str, port: int) -> None:
    """Open MLflow's dashboard on what was tracked.

    Starts MLflow's server for a database until Ctrl-C. A server of your own already runs: its address is printed.
    """
    from runner.request.validate import check_uri

    check_uri(uri, "--uri")
    path = database_path(resolved_uri(uri))
    if path is not None and not (path.is_file() and path.stat().st_size):
        raise RequestError(
            f"no database {path} (--uri), give the URI that track.uri had, or symlab track RECORDS first"
        )
    opening = open_command(uri)
    if opening.startswith("http"):
        print(opening)
        return
    words = [*shlex.split(opening), "--port", str(port)]
    check_port(port)
    os.environ.setdefault(JOBS, "false")
    print(f"starting MLflow's dashboard at http://127.0.0.1:{port} (it takes about half a minute; Ctrl-C stops it)")
    sys.stdout.flush()
    os.execvp(words[0], words)
