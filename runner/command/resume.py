"""symlab resume: do what an interrupted, killed or stopped command left undone.

Everything is taken from the folder of its records: command.json says what every job was composed to and which cases
it has, and the records say which of them ran. The rest runs with the same configuration, into the same folder and the
same run of MLflow; conf/ is not read. Nothing runs unless the cases can be rebuilt as they were. What has changed in
the code is said first, and kept in command.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.case.allowed_code import allowed_code
from runner.command.leading import led_tools
from runner.command.recorded_jobs import UNTRACKED, rebuilt
from runner.command.resumption import changed_since, console_of, nothing_left
from runner.command.running import Earlier, Tools
from runner.command.session import run_command
from runner.command.still_working import check_no_worker
from runner.command.unfinished_cases import check_folder_of, is_whole, left_in
from runner.environment.host import now_text
from runner.environment.of_command import Surroundings
from runner.launch import slurm
from runner.records.command_json import Resumption
from runner.records.lock import FolderInUse, FolderLock
from runner.records.scrub import WITHHELD, scrubbed
from runner.records.store import Store, StoreError
from runner.request.compose import launcher_of
from runner.request.launching import LaunchRequest
from runner.request.validate import check_database_folder, check_uri
from runner.request_error import RequestError

if TYPE_CHECKING:
    from runner.world.launched import Leader


def resume(
    folder: Path,
    uri: str = "",
    tools: Tools | None = None,
    leader: Leader | None = None,
    is_quiet: bool = False,
    code: Sequence[Path] = (),
    launcher: Sequence[str] | None = None,
) -> int:
    """Do what the command of a records folder left undone. Gives the exit code, which is of the whole command.

    uri is where the command's run of MLflow is, if that is not where its configuration says: needed for a server whose
    password is not kept, and for a relative path if the folder was moved; "none" sends nothing. leader is that of a
    launcher's world, if this process leads one. is_quiet: only errors, warnings and the last lines are said.
    code: folders whose files the command's configuration may name, beside those of the project and the working folder.
    launcher: lines such as hydra/launcher=joblib, in place of those that the command had; None: as the command had it.
    RequestError, in one line, for what can't be resumed.
    """
    if uri and uri != UNTRACKED:
        check_uri(uri, "--uri")
        check_database_folder(uri, "--uri")
    folder, tools = folder.absolute(), tools or Tools()
    check_folder_of(folder)
    with _locked(folder):
        code_of_records = allowed_code([folder], code, changed=True)
        left = left_in(folder)
        if is_whole(folder, left):
            if launcher is not None:
                launcher_of(launcher)  # which refuses a wrong one
            return nothing_left(folder, left, uri)
        launch = _launch_of(left.document.launcher, launcher)
        slurm.check_here(launch)
        check_no_worker(folder)
        command = rebuilt(folder, left, uri, leader, code_of_records, launch)
        now = Surroundings(tools.capture).now()
        changed = changed_since(left, command, now)
        document = left.document.resuming(
            Resumption(
                at=now_text(),
                after=left.document.outcome,
                commit=str((now.git or {}).get("commit") or ""),
                changed=tuple(map(scrubbed, changed)),
                cases_left=len(left.undone),
                set_aside=left.set_aside,
            )
        )
        if launch is not None:
            document = replace(document, launcher=tuple(map(scrubbed, launch.lines)))
        try:
            store = Store(folder)
            store.reopen()
            for name in left.set_aside:
                store.set_aside(name)
        except StoreError as error:
            raise RequestError(f"{error} (RECORDS)") from error
        console = console_of(left, command, changed, is_quiet)
        led = led_tools(tools, leader, command.jobs)
        return run_command(command, console, led, Earlier(store, document, left.kept))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Within, hold the lock of a folder. RequestError if that can't be."""
    try:
        lock = FolderLock(folder)
    except FolderInUse as error:
        raise RequestError(f"{error} (RECORDS), resume it after it has ended") from None
    except OSError as error:
        raise RequestError(
            f"{folder}: can't be locked, so it is unknown whether the command still runs ({error.strerror}; RECORDS), "
            "copy it to a folder that this user can write to"
        ) from None
    with lock:
        yield


def _launch_of(recorded: Sequence[str], given: Sequence[str] | None) -> LaunchRequest | None:
    """The launcher that was given, else the recorded one. RequestError if a secret of the recorded one is not kept."""
    if given is None and (lines := [line for line in recorded if WITHHELD in line]):
        raise RequestError(
            f"the launcher's line {lines[0]} had a secret, which is not kept (RECORDS), "
            "give the launcher with its options again: --launcher NAME --launcher OPTION=VALUE"
        )
    return launcher_of(recorded if given is None else given)
