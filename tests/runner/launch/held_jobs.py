"""Jobs of a sweep that last until a test lets them go on: a test can meet a worker at work, on however busy a machine.

A worker's process imports sitecustomize, as every Python does, from a folder that its PYTHONPATH names first. There it
learns to wait where it has just said which job it does. The command has no such process, so it does not wait. Jobs
of a test that fails go on after NEVER_S.
"""

import os
import sys

from runner.command.worker import MODULE
from runner.launch.files import LaunchFiles
from tests.patience import NEVER_S

_PROGRAM = """\
import sys

if sys.orig_argv[-1] == {module!r}:
    import os
    import time
    from pathlib import Path

    from runner.launch.files import LaunchFiles

    here, write_state = Path({folder!r}), LaunchFiles.write_state

    def write_state_and_wait(self, state):
        write_state(self, state)
        held = here / f"job-{{state.job}}"
        if held.exists():
            here.joinpath(f"process-{{state.job}}").write_text(str(os.getpid()))
            ends_s = time.monotonic() + {never_s}
            while held.exists() and time.monotonic() < ends_s:
                time.sleep(0.02)

    LaunchFiles.write_state = write_state_and_wait
"""


class HeldJobs:
    """Jobs of a sweep that wait. folder takes the files that say so, and is made."""

    def __init__(self, folder, jobs):
        self._folder = folder
        folder.mkdir()
        program = _PROGRAM.format(module=MODULE, folder=str(folder), never_s=NEVER_S)
        (folder / "sitecustomize.py").write_text(program, encoding="utf-8")
        for job in jobs:
            (folder / f"job-{job}").touch()

    def environment(self, base):
        """Return the variables of a command whose workers wait in these jobs."""
        return {**base, "PYTHONPATH": os.pathsep.join([str(self._folder), *sys.path])}

    def workers(self, records):
        """Return the workers that wait in a job of the command whose folder of records this is."""
        states = LaunchFiles(records).states()
        return [one for one in states if one.process == self._process(one.job) and not one.how]

    def release(self):
        """Let all jobs go on."""
        for path in self._folder.glob("job-*"):
            path.unlink()

    def _process(self, job):
        """The process that came to wait in a job last; None if there is none."""
        try:
            return int((self._folder / f"process-{job}").read_text())
        except (OSError, ValueError):
            return None
