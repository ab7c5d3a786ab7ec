"""Worker processes that don't outlive the one that started them.

A worker of concurrent.futures or multiprocessing waits for its next task on a pipe whose writing end it has itself: so
it waits forever once its parent was killed, when nothing is left that could close the pool.
"""

from __future__ import annotations

import multiprocessing
import os
import threading

EXIT_CODE = 1
"""That of a worker that ended because its parent is gone."""


def end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, in whatever way that ended: the initializer of a
    pool's workers. Raises ValueError in a process that multiprocessing did not start."""
    parent = multiprocessing.parent_process()
    if parent is None:
        raise ValueError("this process is no worker: multiprocessing did not start it")

    def watch() -> None:
        parent.join()
        os._exit(EXIT_CODE)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
