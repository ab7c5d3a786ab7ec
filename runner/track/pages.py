"""Addresses of MLflow's pages on what was tracked, and the filters that find a command's runs there."""

from __future__ import annotations

import hashlib
import urllib.parse

NOTE_TAG = "mlflow.note.content"
PLACE_TAG, DIGEST_TAG = "symlab.place", "symlab.command_digest"
"""Tag of a series' run, see runner.track.standing; and of all runs of a command, for filters."""

VIEW_KEYS = "symlab-run-"
"""How the keys of commands' views begin."""


def digest_of(command: str) -> str:
    """A command's name in 16 letters, none of which needs quoting."""
    return hashlib.sha256(command.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def view_key(command: str) -> str:
    """The key of the view of a command's charts."""
    return f"{VIEW_KEYS}{digest_of(command)}"


def command_filter(command: str) -> str:
    """MLflow's filter for the runs of a command, whatever its name."""
    return f"tags.`{DIGEST_TAG}` = '{digest_of(command)}'"


def page_of_view(experiment_id: str, key: str) -> str:
    """The place of a saved view on its server, opened on its charts."""
    place = f"#/experiments/{experiment_id}/runs?viewStateShareKey={key}"
    return f"{place}&compareRunsMode=CHART&workflowType=machine_learning"


def address_of(server: str, place: str) -> str:
    """A place on a server as an address to visit; without user and password, which browsers ask for."""
    parts = urllib.parse.urlsplit(server)
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/") + "/")
    return f"{urllib.parse.urlunsplit(plain)}{place}"
