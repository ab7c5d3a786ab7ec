"""How far a command is: cases done, how long the others will take, and what a terminal says of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cases.case import Case

LEAST_TIMED = 2
"""Minimum number of cases that ran before their times say anything."""

LEAST_S = 1.0
"""Minimum number of seconds that they took."""

OVERHEAD = 1 << 20
"""Bytes whose work takes as long as all in a case that does not depend on its bytes, roughly."""


def work_of(case: Case) -> int:
    """Return the work of a case: the bytes of all its ranks, and its overhead."""
    return case.size_bytes * case.world_size + OVERHEAD


@dataclass(slots=True)
class Progress:
    """Cases done and to come, and the time of those to come: as much a unit of work as that of the cases that ran."""

    total: int = 0
    done: int = 0
    failed: int = 0
    ran: int = 0
    _left: int = 0
    _done: int = 0
    _elapsed_s: float = 0.0

    @classmethod
    def of(cls, cases: Iterable[Case]) -> Progress:
        """Return the progress of a command that has done none of these cases."""
        works = list(map(work_of, cases))
        return cls(total=len(works), _left=sum(works))

    def finish(self, case: Case, elapsed_s: float, is_refused: bool, is_failed: bool) -> None:
        """A case is done. elapsed_s: since the one before it."""
        self.done += 1
        self.failed += is_failed
        self._left -= work_of(case)
        if not is_refused:
            self.ran += 1
            self._done += work_of(case)
            self._elapsed_s += elapsed_s

    @property
    def remaining_s(self) -> float | None:
        """The seconds that all cases to come will take; None while there is too little to tell by."""
        if self.done >= self.total or self.ran < LEAST_TIMED or self._elapsed_s < LEAST_S:
            return None
        return self._elapsed_s * self._left / self._done


def clock_text(seconds: float) -> str:
    """Return a time in minutes and seconds, with hours where there are any: "4:05", "1:04:05"."""
    whole = round(seconds)
    minutes, hours = whole // 60 % 60, whole // 3600
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


@dataclass(slots=True)
class Bar:
    """What is said beside the bar of a terminal. spread says how far the workers of a launcher are, in place of job and
    case; "" without a launcher."""

    progress: Progress
    jobs: int = 1
    job: int = 1
    case: str = "starting"
    spread: str = ""

    def stands(self) -> list[str]:
        """Return the time that is left, what failed, and how far jobs or workers are."""
        remaining_s, failed = self.progress.remaining_s, self.progress.failed
        parts = [f"{clock_text(remaining_s)} left"] if remaining_s is not None else []
        parts += [f"{failed:,} failed"] if failed else []
        if self.spread:
            return [*parts, self.spread]
        return [*parts, f"job {self.job}/{self.jobs}"] if self.jobs > 1 else parts

    def line(self) -> str:
        """Return the counts, how it stands, and the case."""
        case = [] if self.spread else [self.case]
        return " ".join([f"{self.progress.done}/{self.progress.total}", *self.stands(), *case])
