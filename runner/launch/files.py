"""The files through which a command and its workers see each other: .launch/ in the command's folder of records.

    name                the launcher, and the name of its workers where they have one
    token               names the launch; a worker that does not find it has no part in this file system
    claims/<job>        which worker took a job: the first one that creates the file
    worker-<n>.state    what worker n does, as JSON; only worker n writes it
    stop                the command was interrupted: workers end what they do

Nothing here needs locks: a claim is the creation of a file that must not exist, a state is replaced in one step. Both
hold on NFS. No name ends in .json, so that nothing takes these files for records. The folder goes when the command
ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from memory.atomic_file import replacing

LAUNCH = ".launch"
"""The folder's name."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What a worker says of itself.

    number counts from 0. host is the machine, process the worker's process. gpus are the devices that it may use ("":
    all). starts counts how often it was started: a scheduler may requeue it. job is the number of the job that it does,
    None between jobs. lost has why a job could not begin, or its process ended before it, by the job's number. how says
    how the worker ended: finished, a signal's name, or why; "" until then.
    """

    number: int
    host: str = ""
    process: int = 0
    gpus: str = ""
    starts: int = 1
    job: int | None = None
    lost: dict[int, str] = field(default_factory=dict)
    how: str = ""


class LaunchFiles:
    """The files of one launch. folder is that of the command's records, or a worker's own where it sees no other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / LAUNCH

    def create(self, token: str, name: str = "") -> None:
        """Begin a launch, without what an earlier one left. name is the launcher's and that of its workers.

        OSError if the folder can't be made.
        """
        self.remove()
        (self.folder / "claims").mkdir(parents=True)
        (self.folder / "name").write_text(name, encoding="utf-8")
        (self.folder / "token").write_text(token, encoding="ascii")

    def is_of(self, token: str) -> bool:
        """Return whether this file system has the launch of a token."""
        try:
            return (self.folder / "token").read_text(encoding="ascii") == token
        except OSError:
            return False

    def remove(self) -> None:
        """Remove all files. What can't be removed stays."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def claim(self, job: int, worker: int) -> bool:
        """Take a job for a worker. Return False if a worker has it already."""
        try:
            descriptor = os.open(self.folder / "claims" / str(job), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(str(worker))
        return True

    def claims(self) -> dict[int, int]:
        """Return the worker of each job that was taken. A claim whose writer was killed at once counts as worker -1."""
        found = {}
        with contextlib.suppress(OSError):
            for path in (self.folder / "claims").iterdir():
                with contextlib.suppress(OSError):
                    text = path.read_text(encoding="ascii")
                    found[int(path.name)] = int(text) if text.isdecimal() else -1
        return found

    def write_state(self, state: WorkerState) -> None:
        """Replace the state of a worker. OSError if there is no place for it."""
        with replacing(self.folder / f"worker-{state.number}.state") as beside:
            beside.write_text(json.dumps(asdict(state)), encoding="utf-8")

    def state(self, worker: int) -> WorkerState | None:
        """Return what a worker says of itself; None if it has said nothing yet."""
        try:
            return _decoded(json.loads((self.folder / f"worker-{worker}.state").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def stop(self) -> None:
        """Tell all workers to end."""
        with contextlib.suppress(OSError):
            (self.folder / "stop").touch()

    @property
    def name(self) -> tuple[str, str]:
        """The launcher, and the name of its workers; ("", "") where there is no launch."""
        try:
            launcher, _, name = (self.folder / "name").read_text(encoding="utf-8").partition(" ")
        except OSError:
            return "", ""
        return launcher, name

    def states(self) -> list[WorkerState]:
        """Return what all workers say of themselves."""
        numbers = [path.stem.removeprefix("worker-") for path in self.folder.glob("worker-*.state")]
        found = (self.state(int(number)) for number in numbers if number.isdecimal())
        return [state for state in found if state is not None]

    @property
    def is_stopped(self) -> bool:
        return (self.folder / "stop").exists()


def _decoded(said: dict[str, Any]) -> WorkerState:
    """A state from its JSON, whose keys are texts."""
    known = {one.name for one in fields(WorkerState)}
    values = {key: value for key, value in said.items() if key in known}
    return WorkerState(**values | {"lost": {int(job): str(why) for job, why in said["lost"].items()}})
