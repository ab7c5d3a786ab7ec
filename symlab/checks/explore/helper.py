"""A helper process: it has the same subjects, and runs the trials that it is sent, one after another.

Subjects, orders and results are pickles through a pair of sockets that no other process has. A helper ends when its
parent closes its end, or is gone.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection

from memory.pickling import dumps
from memory.worker_process import start_worker
from runner.request_error import RequestError
from simulator.options import Interleaving
from symlab.checks.explore.subject import Ran, Subject, run_once


def can_send(subjects: Sequence[Subject]) -> str:
    """Return why subjects can't be sent to another process; "" if they can."""
    try:
        dumps(tuple(subjects))
    except Exception as error:
        return f"the kernel can't be sent to another process ({error})"
    return ""


class Helper:
    """A helper, as its parent sees it."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._process, self._connection = start_worker(__name__)
        self._connection.send_bytes(dumps(tuple(subjects)))

    def ran(self, subject: int, order: Interleaving, deadline_s: float) -> Ran:
        """Return how a run ended there. Raises ValueError as run_once does, and if the helper ended by itself."""
        try:
            self._connection.send((subject, order, deadline_s))
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RequestError(
                f"a process of the search ended in its run of {order}, repeat it with one process (--processes)"
            ) from error
        if isinstance(answer, str):
            raise ValueError(answer)
        assert isinstance(answer, Ran)
        return answer

    def close(self) -> None:
        """End the helper, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


def main(descriptor: int) -> None:
    """The helper's own life."""
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        subjects = pickle.loads(connection.recv_bytes())
        while True:
            subject, order, deadline_s = connection.recv()
            try:
                connection.send(run_once(subjects[subject], order, deadline_s))
            except ValueError as error:
                connection.send(str(error))
