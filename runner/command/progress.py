"""How far a command is, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cases.case import Case

OVERHEAD = 1 << 20
"""Bytes whose work takes as long as all in a case that does not depend on its bytes, roughly."""


def work_of(case: Case) -> int:
    """Return the work of a case: the bytes of all its ranks, and its overhead."""
    return case.size_bytes * case.world_size + OVERHEAD


@dataclass(slots=True)
class Progress:
    """Numbers of cases and jobs, the job and the case that run. spread says how far the workers of a launcher are, in
    place of job and case."""

    total: int = 0
    jobs: int = 1
    done: int = 0
    failed: int = 0
    job: int = 1
    case: str = "starting"
    spread: str = ""

    def stands(self) -> list[str]:
        """Return what failed, and how far jobs or workers are."""
        parts = [f"{self.failed:,} failed"] if self.failed else []
        if self.spread:
            return [*parts, self.spread]
        return [*parts, f"job {self.job}/{self.jobs}"] if self.jobs > 1 else parts

    def line(self) -> str:
        """Return the counts, how it stands, and the case."""
        case = [] if self.spread else [self.case]
        return " ".join([f"{self.done}/{self.total}", *self.stands(), *case])
