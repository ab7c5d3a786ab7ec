"""What a command says while it works and at its end. On a terminal a progress bar, elsewhere a line a case."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from reports.table.text import counted
from runner.request.sizes import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kernels.spec import Case
    from reports.record.record import Record

PASSED, REFUSED = "PASSED", "REFUSED"


class Console:
    """Lines and progress on one stream. As a context manager it leaves the terminal as it was."""

    def __init__(
        self, stream: TextIO | None = None, heading: Sequence[str] = (), differing: Collection[str] = ()
    ) -> None:
        """heading is said when the work begins; differing are the overrides that tell the jobs of a sweep apart."""
        self._heading = tuple(heading)
        self._differing = frozenset(differing)
        self._stream = stream or sys.stdout
        self._done = 0
        self._total = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Console:
        for line in self._heading:
            self.say(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def say(self, text: str) -> None:
        """A line, at once."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        with _broken_pipe_is_silence(self._stream):
            print(text, file=self._stream, flush=True)

    def begin(self, total: int) -> None:
        """So many cases are to come."""
        self._total = total
        if not self._stream.isatty() or os.environ.get("TERM") == "dumb":
            return
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=RichConsole(file=self._stream),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("starting", total=total)

    def starting(self, case: Case) -> None:
        """A case begins: shown on a terminal only."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=_case_text(case.algorithm, case.size_bytes, case.world_size))

    def finished(self, record: Record) -> None:
        """A case has ended: a step of the bar, and a line where it did not pass; without a terminal a line each."""
        self._done += 1
        case = record.case
        text = _case_text(case.algorithm, case.size_bytes, case.world_size)
        told = [one for one in record.request.overrides if one in self._differing and not _in_text(one)]
        text += f" ({' '.join(told)})" if told else ""
        # Why cases were refused is said once for all of them, below the table.
        reason = record.reason.splitlines()[0] if record.reason and record.status != REFUSED else ""
        time = f" {record.timing.median_us:.2f} us" if record.timing is not None else ""
        line = f"[{self._done}/{self._total}] {text} {record.status}{time}" + (f": {reason}" if reason else "")
        if self._bar is None:
            self.say(line)
            return
        if record.status != PASSED:
            self.say(line)
        if self._task is not None:
            self._bar.advance(self._task)

    def end(self) -> None:
        """Take the bar away. Twice is as good as once."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()


def summary(records: Sequence[Record], expected: int) -> str:
    """ "24 cases: 22 passed, 2 refused", and how many were not run."""
    parts = []
    for status in dict.fromkeys(map(_counted_as, sorted(records, key=lambda one: one.status != PASSED))):
        parts.append(f"{sum(_counted_as(record) == status for record in records):,} {status}")
    if len(records) < expected:
        parts.append(f"{expected - len(records):,} not run")
    return f"{counted(expected, 'case')}: {', '.join(parts) or 'none run'}"


def _counted_as(record: Record) -> str:
    """A status in the summary's words: what nobody has checked is not counted among what passed."""
    unchecked = record.status == PASSED and not record.verified
    return f"{record.status.lower()}{' unchecked' if unchecked else ''}"


def failures(records: Sequence[Record]) -> list[str]:
    """One line for each case that was wrong or failed: its job, its id, its status, why."""
    lines = []
    for record in records:
        if record.status in (PASSED, REFUSED):
            continue
        request = record.request
        job = ""
        if (request.jobs or 1) > 1:
            job = f"job {request.job + 1} ({' '.join(request.overrides)}) "
        reason = record.reason.splitlines()[0] if record.reason else ""
        lines.append(f"  {job}{record.id}: {record.status}: {reason}")
    return lines


def _in_text(override: str) -> bool:
    """_case_text says it already."""
    return override.lstrip("+").partition("=")[0] in ("algorithms", "world_size", "sizes.list")


def _case_text(algorithm: str, size_bytes: int, world_size: int) -> str:
    return f"{algorithm} {format_bytes(size_bytes)} n{world_size}"


@contextlib.contextmanager
def _broken_pipe_is_silence(stream: TextIO):  # type: ignore[no-untyped-def]
    """Whoever read our output may leave (| head, a closed terminal): the work goes on, and nobody is told."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
