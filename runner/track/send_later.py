"""symlab track: sends records to MLflow that were not sent when they were made."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from reports.table.text import counted
from runner.records.lock import MIRROR_LOCK_NAME, FolderInUse, held_if_possible
from runner.request.validate import check_database_folder, check_uri
from runner.request_error import RequestError
from runner.track.by_command import by_command
from runner.track.dashboard import told_at
from runner.track.names import Kept
from runner.track.problems import told
from runner.track.send import CommandRun, milliseconds


class TrackingError(RuntimeError):
    """MLflow does not take a command's records; a clause that says why."""


def send_folder(kept: Sequence[Kept], uri: str, experiment: str) -> tuple[str, str]:
    """Send the records of one command. Says what was done, and the place of its charts on the server ("" if unknown).
    TrackingError when MLflow does not take it."""
    folder, run = kept[0].path.parent, None
    try:
        with held_if_possible(folder, MIRROR_LOCK_NAME):  # a bundle has none
            try:
                started = min((one.record.started for one in kept), key=milliseconds)
                run = CommandRun(uri, experiment, kept[0].record.request, folder, started)
                if run.has(kept):
                    run.show_again(kept)
                    also = "; it is complete, and differs from these records: give another --experiment to send them"
                    also = "" if run.has_exactly(kept) else also
                    return f"already sent, as run {run.run_id}: nothing done{also}", run.place
                run.send(kept)
                problems = "".join(f"; not attached: {problem}" for problem in run.finish(kept))
                return f"{counted(len(kept), 'record')} sent as run {run.run_id}{problems}", run.place
            finally:
                if run is not None:
                    run.close("FAILED")
    except FolderInUse:
        return "another process sends its records now: nothing done", ""
    except Exception as error:
        raise TrackingError(told(error, uri)) from error


def send_later(places: Sequence[Path], uri: str, experiment: str) -> int:
    """Send records to MLflow that were not sent when they were made: files, bundles, or folders of them.

    Returns the exit code: 0 sent, or there already; 1 not all of them could be sent, or the place can't be used.
    RequestError for a wrong request, such as a database in a folder that does not exist.
    """
    check_uri(uri, "--uri")
    check_database_folder(uri, "--uri")
    commands, problems = by_command(places)
    if not commands:
        raise RequestError(problems[0])
    for problem in problems:
        print(f"symlab: warning: left out: {problem}", file=sys.stderr)
    place = ""
    for command, kept in commands.items():
        try:
            said, place = send_folder(kept, uri, experiment)
            print(f"{command}: {said}")
        except TrackingError as error:
            print(f"symlab: error: {command} is not sent: {error}", file=sys.stderr)
            return 1
    print(f"dashboard: {told_at(uri, place)}")
    return 1 if problems else 0
