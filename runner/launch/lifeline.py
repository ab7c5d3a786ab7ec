"""Workers that end with their command, also where it was killed and could tell them nothing.

On the command's machine a worker sees whether the command's process is there. Elsewhere a heartbeat stands for it: the
command touches a file of the folder that all see, and a worker that finds the file too old ends. Both times are the
file system's, so that clocks of two machines are never compared.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from memory.owned_folder import began_at, is_alive, machine_of_this_process

HEARTBEAT = "alive"

BEAT_S = 10.0
"""How often the command touches its file."""

SILENT_S = 120.0
"""How old the file may be. Two minutes: NFS may show a worker times that are one minute old."""

LOOK_S, LOOK_ELSEWHERE_S = 0.5, 15.0
"""How often workers look: on the command's machine, and on others."""

PATIENCE_S = 10.0
"""How long a task may take to clean up when its command is gone."""


@dataclass(frozen=True, slots=True)
class Lifeline:
    """A command, as its workers look for it. folder is the one that all see; machine, process and began (in the clock
    ticks of /proc, 0 where there is none) are its process's."""

    folder: str
    machine: str
    process: int
    began: int

    @classmethod
    def of_this_process(cls, folder: Path) -> Lifeline:
        return cls(str(folder), machine_of_this_process(), os.getpid(), began_at(os.getpid()) or 0)

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Within, the command's file says that it lives. The folder must be there; OSError if it can't be written."""
        path, is_over = Path(self.folder) / HEARTBEAT, threading.Event()
        path.touch()

        def beat() -> None:
            while not is_over.wait(BEAT_S):
                with contextlib.suppress(OSError):
                    os.utime(path)  # not touch(), which would make it again in a folder that is going

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    @property
    def is_here(self) -> bool:
        """Whether the command's process is of this machine."""
        return self.machine == machine_of_this_process()

    def is_gone(self, worker: int) -> bool:
        """Return whether the command is gone, as far as this worker can see."""
        if self.is_here:
            return not is_alive(self.process, self.began)
        ours = Path(self.folder) / f"clock-{worker}"
        try:
            last_s = (Path(self.folder) / HEARTBEAT).stat().st_mtime
            ours.touch()
            return ours.stat().st_mtime - last_s > SILENT_S
        except FileNotFoundError:
            return True  # the command removes its folder at its end
        except OSError:
            return False

    @contextlib.contextmanager
    def held(self, worker: int) -> Iterator[None]:
        """Within, end this process when the command is gone: the main thread gets a KeyboardInterrupt, and the process
        ends when that has come through, or after PATIENCE_S. The last worker to end removes the folder.

        On the command's machine also afterwards: joblib's processes wait for more work. In the command's own process
        nothing is done.
        """
        if self.is_here and self.process == os.getpid():
            yield
            return
        cleaned, gone = threading.Event(), threading.Event()
        watch = threading.Thread(target=self._watch, args=(worker, cleaned, gone), name="lifeline", daemon=True)
        watch.start()
        try:
            yield
        finally:
            cleaned.set()
            if gone.is_set():
                self._leave()

    def _watch(self, worker: int, cleaned: threading.Event, gone: threading.Event) -> None:
        is_here = self.is_here
        while not self.is_gone(worker):
            time.sleep(LOOK_S if is_here else LOOK_ELSEWHERE_S)
            if cleaned.is_set() and not is_here:
                return
        gone.set()
        main = threading.main_thread().ident
        if not cleaned.is_set() and main is not None and callable(signal.getsignal(signal.SIGINT)):
            signal.pthread_kill(main, signal.SIGINT)  # a real one: it ends a wait, too
            cleaned.wait(PATIENCE_S)
        self._leave()

    def _leave(self) -> NoReturn:
        """End this process at once: above a task is only the launcher, which would wait for more of them."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(1)
