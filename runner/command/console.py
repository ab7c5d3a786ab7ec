"""What a command says while it works and at its end. On a terminal a progress bar, elsewhere a line a case.

What a command gives (headings, cases, the table, the summary) goes to stdout; errors and warnings go to stderr.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from reports.table.text import counted, place_text, story_of
from runner.command.progress import Progress, work_of
from runner.request.sizes import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Drawn

    from cases.case import Case
    from cases.record.record import Record

PASSED, REFUSED, WRONG = "PASSED", "REFUSED", "WRONG"

MANY_CASES = 60
"""A line of a command of more cases says how many failed so far."""

MAX_STORIES = 20
"""Maximum number of different failures to list at the end of a command."""

MAX_IDS = 3
"""Maximum number of cases that are named for each of them."""

REDRAWN_A_SECOND = 4

LONGEST_S = 3600.0
"""Seconds of the past by which the time to come is estimated. While cases take longer, none is shown."""


class Console:
    """Lines and progress of a command. As a context manager it leaves the terminal as it was."""

    def __init__(
        self,
        stream: TextIO | None = None,
        heading: Sequence[str] = (),
        differing: Collection[str] = (),
        is_quiet: bool = False,
        errors: TextIO | None = None,
    ) -> None:
        """heading is said when the work begins; differing are the overrides that tell the jobs of a sweep apart.

        stream and errors are stdout and stderr unless they are given. is_quiet: only errors, warnings and what is
        announced are said.
        """
        self._heading = tuple(heading)
        self._differing = frozenset(differing)
        self._stream = stream or sys.stdout
        self._errors = errors
        self.is_quiet = is_quiet
        self._progress = Progress()
        self._live: Drawn | None = None

    def __enter__(self) -> Console:
        for line in self._heading:
            self.say(line)
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def say(self, text: str) -> None:
        """A line on stdout, at once; nothing in quiet mode."""
        if not self.is_quiet:
            self._put(text)

    def announce(self, text: str) -> None:
        """A line on stdout, at once, in quiet mode as well."""
        self._put(text)

    def warn(self, text: str) -> None:
        """An error or a warning: a line on stderr, at once."""
        with self._cleared():
            with _broken_pipe_is_silence(self._stream):
                self._stream.flush()  # so that both come in order where they go to one place
            _write(text, self._errors or sys.stderr)

    def _put(self, text: str) -> None:
        with self._cleared():
            _write(text, self._stream)

    def begin(self, cases: Iterable[Case], jobs: int = 1) -> None:
        """Begin to report these cases, which belong to this number of jobs."""
        works = list(map(work_of, cases))
        self._progress = Progress(len(works), jobs)
        if self.is_quiet or not self._stream.isatty() or os.environ.get("TERM") == "dumb":
            return
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Drawn

        self._live = Drawn(
            BarColumn(20),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.description}", markup=False),
            console=RichConsole(file=self._stream),
            refresh_per_second=REDRAWN_A_SECOND,
            speed_estimate_period=LONGEST_S,
            transient=True,
            redirect_stderr=False,  # rich would write it to stdout
        )
        self._live.add_task("", total=sum(works))
        self._redraw()
        self._live.start()

    def spread(self, text: str) -> None:
        """Say of all workers how far they are, in place of the case that runs: "3 running, 5 of 12 jobs done"."""
        self._progress.spread = text
        self._redraw()

    def starting(self, case: Case, job: int = 1) -> None:
        """A case of a job, counted from 1, begins: shown on a terminal only."""
        self._progress.job, self._progress.case = job, _case_text(case)
        self._redraw()

    def finished(self, record: Record) -> None:
        """A case has ended: a step of the bar, and a line if it did not pass; without a terminal a line each."""
        settled = record.status in (PASSED, REFUSED)
        self._progress.done += 1
        self._progress.failed += not settled and not record.is_late_library
        work = work_of(record.case)
        self._redraw(*((0, work) if record.status == REFUSED else (work, 0)))
        if settled and self._live is not None and (record.status == PASSED or self._progress.total > MANY_CASES):
            return
        self.say(self._line(record))

    def _redraw(self, done: int = 0, dropped: int = 0) -> None:
        """Draw the bar anew. done, dropped: the work that was done meanwhile, and what need not be done, which says
        nothing of the time that the rest takes."""
        if self._live is not None:
            (task,) = self._live.tasks
            total = (task.total or 0) - dropped
            self._live.update(task.id, description=self._progress.line(), advance=done, total=total)

    def _line(self, record: Record) -> str:
        """A case's line: "[3/24] two_shot 64K n8 PASSED 12.30 us". failures prints the details of a
        failure at the end."""
        text = _case_text(record.case)
        told = [one for one in record.request.overrides if one in self._differing and not _in_text(one)]
        text += f" ({' '.join(told)})" if told else ""
        text += f" {record.status}"
        if record.timing is not None:
            text += f" {record.timing.median_us:.2f} us"
        if record.status == WRONG and record.check is not None and record.check.wrong:
            text += f": {record.check.wrong:,} of {counted(record.check.elements, 'element')}; {record.id}"
        elif record.status not in (PASSED, REFUSED) and record.reason:
            # Why cases were refused is said once for all of them, below the table.
            text += f": {record.reason.splitlines()[0]}"
        progress, parts = self._progress, list[str]()
        if self._live is None and (progress.total > MANY_CASES or progress.spread):
            parts = progress.stands()
        text += f" ({', '.join(parts)})" if parts else ""
        return f"[{progress.done}/{progress.total}] {text}"

    def end(self) -> None:
        """Take the bar away. Twice is as good as once."""
        live, self._live = self._live, None
        if live is not None:
            with _broken_pipe_is_silence(self._stream):
                live.stop()

    @contextlib.contextmanager
    def _cleared(self) -> Iterator[None]:
        """Without the bar, which is drawn again below what is written."""
        live = self._live
        if live is None:
            yield
            return
        with _broken_pipe_is_silence(self._stream):
            live.stop()
        try:
            yield
        finally:
            with _broken_pipe_is_silence(self._stream):
                live.start()


def failures(records: Sequence[Record], folder: str = "") -> list[str]:
    """Why cases were wrong or failed, each reason once with its whole story and the ids of its cases; at most
    MAX_STORIES. folder is that of the records."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.status not in (PASSED, REFUSED) and not record.is_late_library:
            found.setdefault((str(record.status), story_of(record)), []).append(record)
    lines = []
    for (status, story), members in list(found.items())[:MAX_STORIES]:
        lines += [f"  {_job_text(record)}{record.id}" for record in members[:MAX_IDS]]
        if len(members) > MAX_IDS:
            lines.append(f"  and {counted(len(members) - MAX_IDS, 'case')} more")
        lines.append(f"    {status}: {story}")
    if len(found) > MAX_STORIES:
        lines.append(f"  and {len(found) - MAX_STORIES:,} more: symlab table {folder}".rstrip())
    return lines


def _job_text(record: Record) -> str:
    """Which job of a sweep a case is of, counted from 1: "job 2 of 3 (world_size=3): "."""
    request = record.request
    if (request.jobs or 1) <= 1:
        return ""
    return f"job {request.job + 1} of {request.jobs} ({' '.join(request.overrides)}): "


def _in_text(override: str) -> bool:
    """_case_text says it already."""
    return override.lstrip("+").partition("=")[0] in ("algorithms", "world_size", "sizes.list")


def _case_text(case: Case) -> str:
    place = f" {place_text(case.placement)}" if case.placement == "in_place" else ""
    return f"{case.algorithm} {format_bytes(case.size_bytes)} n{case.world_size}{place}"


def _write(text: str, stream: TextIO) -> None:
    with _broken_pipe_is_silence(stream):
        print(text, file=stream, flush=True)


@contextlib.contextmanager
def _broken_pipe_is_silence(stream: TextIO) -> Iterator[None]:
    """Ignore a closed stream (such as | head -1, or a closed terminal); the work continues."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
