"""How far a command is: cases done, how long the others will take, and the line of a terminal that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import ConsoleOptions, RenderResult

    from cases.case import Case

LEAST_TIMED = 2
"""Minimum number of cases that ran before their times say anything."""

LEAST_S = 1.0
"""Minimum number of seconds that they took."""

LARGEST_STEP = 16
"""How many times larger than the largest case that ran a case may be for its time to be foretold."""

BAR_WIDTH = 20


def work_of(case: Case) -> int:
    """Return the work of a case: the bytes of all its ranks."""
    return case.size_bytes * case.world_size


@dataclass(slots=True)
class Progress:
    """Cases done and to come, and the time of those to come.

    A case takes a time of its own and another for each byte of its work: both are fitted (least squares) to the cases
    that ran. Refused cases take no time; of those to come as large a share is taken to be refused as of those done.
    """

    waiting: Counter[int] = field(default_factory=Counter)
    total: int = 0
    done: int = 0
    failed: int = 0
    ran: int = 0
    _largest: int = 0
    _sum_s: float = 0.0
    _sum_work: float = 0.0
    _sum_work_squared: float = 0.0
    _sum_work_s: float = 0.0

    @classmethod
    def of(cls, cases: Iterable[Case]) -> Progress:
        """Return the progress of a command that has done none of these cases."""
        waiting = Counter(map(work_of, cases))
        return cls(waiting=waiting, total=waiting.total())

    def finish(self, case: Case, elapsed_s: float, is_refused: bool, is_failed: bool) -> None:
        """A case is done. elapsed_s: since the one before it."""
        work = work_of(case)
        self.done += 1
        self.failed += is_failed
        self.waiting[work] -= 1
        if self.waiting[work] <= 0:
            del self.waiting[work]
        if is_refused:
            return
        self.ran += 1
        self._largest = max(self._largest, work)
        self._sum_s += elapsed_s
        self._sum_work += work
        self._sum_work_squared += float(work) * work
        self._sum_work_s += work * elapsed_s

    @property
    def remaining_s(self) -> float | None:
        """The seconds that all cases to come will take; None while there is too little to tell by."""
        if not self.waiting or self.ran < LEAST_TIMED or self._sum_s < LEAST_S:
            return None
        if max(self.waiting) > LARGEST_STEP * self._largest:
            return None
        a_case_s, a_byte_s = self._fitted()
        count, work = self.waiting.total(), sum(one * times for one, times in self.waiting.items())
        return (count * a_case_s + work * a_byte_s) * self.ran / self.done

    def _fitted(self) -> tuple[float, float]:
        """Return seconds a case and seconds a byte, neither below 0."""
        spread = self.ran * self._sum_work_squared - self._sum_work**2
        if spread <= 1e-9 * self.ran * self._sum_work_squared:  # all of one size
            return (0.0, self._sum_s / self._sum_work) if self._sum_work else (self._sum_s / self.ran, 0.0)
        a_byte_s = (self.ran * self._sum_work_s - self._sum_work * self._sum_s) / spread
        a_case_s = (self._sum_s - a_byte_s * self._sum_work) / self.ran
        if a_byte_s < 0:
            return self._sum_s / self.ran, 0.0
        if a_case_s < 0:
            return 0.0, self._sum_work_s / self._sum_work_squared
        return a_case_s, a_byte_s


def clock_text(seconds: float) -> str:
    """Return a time in minutes and seconds, with hours where there are any: "4:05", "1:04:05"."""
    whole = round(seconds)
    minutes, hours = whole // 60 % 60, whole // 3600
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


@dataclass(slots=True)
class Bar:
    """The line of a terminal that says how far the command is, as rich draws it, as wide as the terminal at the time.

    On a narrow terminal it says less: first the case is left out, then the bar, then the job. spread says how far the
    workers of a launcher are, in place of job and case; "" without a launcher.
    """

    progress: Progress
    jobs: int = 1
    job: int = 1
    case: str = "starting"
    spread: str = ""

    def line(self, width: int) -> str:
        """The line, of at most width characters."""
        progress = self.progress
        counts = [f"{progress.done}/{progress.total}"]
        if progress.remaining_s is not None:
            counts.append(f"{clock_text(progress.remaining_s)} left")
        if progress.failed:
            counts.append(f"{progress.failed} failed")
        job = [self.spread] if self.spread else [f"job {self.job}/{self.jobs}"] if self.jobs > 1 else []
        case = [] if self.spread else [self.case]
        full = BAR_WIDTH * progress.done // max(progress.total, 1)
        bar = ["#" * full + "." * (BAR_WIDTH - full)]
        for parts in ([*bar, *counts, *job, *case], [*bar, *counts, *job], [*counts, *job], counts):
            if len(found := " ".join(parts) if parts[0] == bar[0] else ", ".join(parts)) <= width:
                break
        return found[:width]

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        text: Any = Text(self.line(options.max_width), no_wrap=True, overflow="crop")
        text.highlight_regex(r"\d+ failed", "bold red")
        text.highlight_regex(r"^#+", "green")
        yield text
