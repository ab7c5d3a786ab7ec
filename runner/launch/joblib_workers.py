"""joblib's workers: what an error of their start says, and their end."""

from __future__ import annotations

import contextlib

from runner.request_error import first_line

TRACEBACK_MARKS = ' "\n'
"""What stands around the text of another thread's traceback."""


def reason_of_end(error: BaseException) -> str:
    """Return the first line of an error of a launcher, and behind it the last line of its cause if that is an error of
    another thread: joblib keeps what it could not send as the text of a traceback."""
    cause = str(error.__cause__).lstrip()
    if not cause.startswith('"""'):
        return first_line(error)
    return f"{first_line(error)} ({cause.strip(TRACEBACK_MARKS).splitlines()[-1].strip()})"


def start_trackers() -> None:
    """Start the processes in which joblib and Python keep track of semaphores. Their start lets SIGINT through in the
    thread that does it, so it comes before a thread blocks that."""
    with contextlib.suppress(Exception):
        from multiprocessing import resource_tracker as of_python

        from joblib.externals.loky.backend import resource_tracker

        resource_tracker.ensure_running()
        of_python.ensure_running()


def end_joblib() -> None:
    """End joblib's workers, which would wait for more work for minutes, also after this process has ended."""
    with contextlib.suppress(Exception):
        from joblib.externals.loky import reusable_executor

        if reusable_executor._executor is not None:
            reusable_executor._executor.terminate(kill_workers=True)


def release_semaphores() -> None:
    """Remove the semaphores of joblib's executor, as the end of this process does unless it leaves at once: then
    joblib's tracker, which outlives it, would remove them with a warning on the terminal."""
    with contextlib.suppress(Exception):
        from multiprocessing import util

        from joblib.externals.loky.backend.synchronize import SemLock

        for one in list(getattr(util, "_finalizer_registry").values()):  # noqa: B009
            if one._callback is SemLock._cleanup:
                one()
