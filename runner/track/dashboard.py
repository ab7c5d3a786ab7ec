"""How a user opens MLflow on what was tracked."""

from __future__ import annotations

import errno
import shlex
import socket
import sys
from pathlib import Path

from reports.tracking import resolved_uri
from runner.request_error import RequestError
from runner.track.pages import address_of

PORT = 5000
"""The port of the dashboard, unless the user gives another."""

DEFAULT_URI = "sqlite:///mlflow.db"

JOBS = "MLFLOW_SERVER_ENABLE_JOB_EXECUTION"
"""MLflow's variable for its queue of evaluation jobs, which nothing here uses: its processes end in tracebacks."""


def advice(uri: str) -> str:
    """Return what a user types, or visits, to see what was tracked: `symlab dashboard`, or the address of a server."""
    resolved = resolved_uri(uri)
    if resolved.startswith("http"):
        return resolved
    is_default = resolved == resolved_uri(DEFAULT_URI)
    return "symlab dashboard" if is_default else f"symlab dashboard --uri {shlex.quote(uri)}"


def told_at(uri: str, place: str) -> str:
    """The last line of a command: the address of its charts, and of a database what starts the server there."""
    if not place:
        return advice(uri)
    if resolved_uri(uri).startswith("http"):
        return address_of(uri, place)
    return f"{address_of(f'http://127.0.0.1:{PORT}', place)} (start it: {advice(uri)})"


def check_port(port: int) -> None:
    """RequestError if another process of this machine listens on the port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            is_taken = error.errno == errno.EADDRINUSE
            said = "is in use" if is_taken else f"can't be opened: {error.strerror}"
            raise RequestError(f"port {port} {said} (--port), give another") from None


def open_command(uri: str) -> str:
    """What opens the dashboard: for a database a command of this environment, else the address of a server."""
    resolved = resolved_uri(uri)
    if resolved.startswith("http"):
        return resolved
    program = str(Path(sys.executable).with_name("mlflow"))
    return shlex.join([program, "ui", "--backend-store-uri", resolved])
