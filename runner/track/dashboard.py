"""How a user opens MLflow on what was tracked."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from pathlib import Path

from reports.tracked import resolved_uri


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
