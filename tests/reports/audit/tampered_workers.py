"""Kinds of tampering with the workers of commands, see tests/reports/audit/tampering.py.

The invented set is of commands without workers. Here each gets one first, as a launcher would have had it: what is said
of it then is a lie in one place.
"""

# ruff: noqa: E501  # a kind reads best in one line

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.reports.audit.complete_set import ENVIRONMENT
from tests.reports.audit.tampering import NOWHERE, Change, Document, Kind, both, command, every, put

COMMAND = 17
SLURM = "submitit_slurm"


def worked(launcher: str = "joblib") -> Change:
    """Every command had one worker of a launcher, and all that is said of it agrees."""

    def described(document: Document) -> None:
        document["launcher"] = [f"hydra/launcher={launcher}"]
        document["workers"] = [
            {
                "number": 0,
                "launcher": launcher,
                "resumed": 0,
                "host": ENVIRONMENT["host"]["name"],
                "node": "node1" if launcher == SLURM else "",
                "submission": "7_0" if launcher == SLURM else "",
                "gpus": "",
                "starts": 1,
                "started": document["started"],
                "ended": document["ended"],
                "how": "finished",
                "jobs": [0],
                "lost": [],
            }
        ]

    def changed(folder: Path) -> None:
        every(put("environment.launch.worker", {"number": 0, "launcher": launcher, "beside": 1}))(folder)
        for path in folder.rglob("command.json"):
            document = json.loads(path.read_text(encoding="utf-8"))
            described(document)
            path.write_text(json.dumps(document), encoding="utf-8")

    return changed


def lie(launcher: str = "joblib", **said: Any) -> Change:
    """The same, but for what one command says of its worker."""
    return both(worked(launcher), command(lambda document: document["workers"][0].update(said)))


def _of_command(change: Callable[[Document], object]) -> Change:
    return both(worked(), command(change))


def _ghost(document: Document) -> None:
    document["workers"].append({**document["workers"][0], "number": 7, "host": "ghost"})


WORKERS = (
    Kind("a worker's records, and no worker listed", "measured", _of_command(lambda document: document.pop("workers")), COMMAND),
    Kind("workers of a command without a launcher", "measured", _of_command(lambda document: document.pop("launcher")), COMMAND),
    Kind("a worker that there was not, with the job of another", "measured", _of_command(_ghost), COMMAND),
    Kind("a worker listed twice", "measured", _of_command(lambda document: document["workers"].append(document["workers"][0])), COMMAND),
    Kind("workers that are no list", "measured", _of_command(lambda document: document.update(workers="one")), COMMAND),
    Kind("a worker on another machine", "measured", lie(host="ghost"), COMMAND),
    Kind("a worker with a job that the command does not have", "measured", lie(jobs=[0, 1]), COMMAND),
    Kind("a job that ran, said to be lost", "measured", lie(lost=[0]), COMMAND),
    Kind("a worker's times, years before its command", "measured", lie(
        started="2020-01-01T00:00:00.000+00:00", ended="2020-01-01T00:00:00.000+00:00"), COMMAND),
    Kind("a worker that ended before it started", "measured", lie(ended="2026-01-01T00:00:00.000+00:00", started="2026-01-01T00:00:01.000+00:00"), COMMAND),
    Kind("a worker of another launcher than its records'", "measured", _of_command(
        lambda document: document["workers"][0].update(launcher="submitit_local")), COMMAND),
    Kind("GPUs that a worker was not given", "measured", lie(gpus="0,1"), COMMAND),
    Kind("a worker that made records and never started", "measured", lie(starts=0), COMMAND),
    Kind("Slurm's state of a worker that Slurm did not start", "measured", lie(how="CANCELLED"), COMMAND),
    Kind("a worker of Slurm that finished, said to have been cancelled", "measured", lie(SLURM, how="CANCELLED"), NOWHERE),
    Kind("the jobs of all workers of a part, left out", "measured", lie(jobs=[]), NOWHERE),
)  # fmt: skip
"""Kinds of tampering with workers."""
