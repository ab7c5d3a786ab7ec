"""What a world asks of the listener that finds races, which symlab/checks has (check.races)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from cases.finding import Finding
from simulator.observe.events import Listener
from simulator.ptx.ir import Kernel


class RaceChecker(Listener, ABC):
    """Finds accesses that nothing orders in the one run that it listens to."""

    @abstractmethod
    def findings(self) -> tuple[Finding, ...]:
        """Return what was found so far, in the order of the run."""

    @abstractmethod
    def forget(self) -> None:
        """Drop the findings."""

    @abstractmethod
    def expect(self, ptx: str, shared_bytes: int, kernel: Kernel) -> None:
        """Prepare for a kernel, before its launch begins. shared_bytes: shared memory of a block."""

    @abstractmethod
    def restart(self) -> None:
        """All that happened so far happens before all that follows: the ranks of a new program come in."""
