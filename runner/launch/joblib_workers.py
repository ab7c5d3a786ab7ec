"""joblib's workers: what an error of their start says, and their end."""

from __future__ import annotations

import contextlib

from runner.request_error import first_line


def reason_of_end(error: BaseException) -> str:
    """Return the first line of an error of a launcher, and behind it the last line of its cause, if it has one: what
    joblib could not send is an error of another thread, which it keeps as the text of a traceback."""
    cause = str(error.__cause__).strip(' "\n') if error.__cause__ is not None else ""
    return f"{first_line(error)} ({cause.splitlines()[-1].strip()})" if cause else first_line(error)


def end_joblib() -> None:
    """End joblib's workers, which would wait for more work for minutes, also after this process has ended."""
    with contextlib.suppress(Exception):
        from joblib.externals.loky import reusable_executor

        if reusable_executor._executor is not None:
            reusable_executor._executor.terminate(kill_workers=True)
