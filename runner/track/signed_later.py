"""Signatures of a folder whose records MLflow has already: who signs does so after looking, often after sending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.record.signatures import signed_of
from reports.record.signed import SIGNATURES, SIGNED, Signed, Statement, digests_by_command
from reports.table.text import counted
from reports.tracked import BUNDLE_NAME, CONFIGURATION_FOLDER, Tracker, Unreadable
from runner.request_error import first_line


def send_signatures(client: Any, uri: str, run_id: str, command: str, folder: Path) -> str:
    """Send the signatures of a command's folder that its run in MLflow lacks, and nothing else. Returns a clause that
    says what was sent, or why nothing was; "" if there is nothing to send.

    A signature in MLflow is never removed, and none is sent that is of other records than MLflow has. Raises Unreadable
    if MLflow can't be read.
    """
    try:
        here = signed_of(folder)
        if here is None or not here.signatures:
            return ""
        tracker = Tracker(uri)
        run = next((one for one in tracker.parents(command) if one.id == run_id), None)
        if run is None:
            return ""
        there = tracker.signed(run)
        lacking = _lacking(here, there)
        if not lacking:
            return ""
        if not Statement.read(here.text).is_of(digests_by_command(tracker.records(run, BUNDLE_NAME))):
            return f"{SIGNED} is not sent: it is signed of other records than MLflow has"
    except Unreadable:
        raise
    except ValueError as error:
        return f"signatures are not sent: {first_line(error)}"
    for name in (SIGNED, SIGNATURES) if there is None else (SIGNATURES,):
        client.log_artifact(run_id, str(folder / name), CONFIGURATION_FOLDER)
    return f"{counted(lacking, 'signature')} added"


def _lacking(here: Signed, there: Signed | None) -> int:
    """Return the number of signatures that MLflow lacks. Raises ValueError if sending them would remove others."""
    known = set(there.signatures) if there is not None else set()
    if there is not None and there.text != here.text:
        raise ValueError("MLflow has signatures of another statement about these records")
    if known - set(here.signatures):
        raise ValueError("MLflow has signatures that the folder lacks")
    return len(set(here.signatures) - known)
