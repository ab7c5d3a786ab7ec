"""A limit to the time that simulating a case takes, for where a measurement waits for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from runner.predict.profiling import DEADLINE_S, Runnable, clocked
from runner.world.world import WorldFailure
from simulator.clock.costs import Costs
from simulator.clock.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class Budget:
    """The seconds that all simulations of a case may take, from now on."""

    limit_s: float
    began_s: float = field(default_factory=time.monotonic)

    def clock(self, runnable: Runnable, costs: Costs) -> LaunchProfile:
        """Clock a case's launches (profiling.Clock). Raises TimeoutError if the budget ends, WorldFailure if the kernel
        fails."""
        try:
            return clocked(runnable, costs, min(self._left_s(), DEADLINE_S))
        except WorldFailure:
            self._left_s()  # of a budget that has ended the reason is the budget
            raise

    def _left_s(self) -> float:
        left_s = self.limit_s - (time.monotonic() - self.began_s)
        if left_s <= 0:
            raise TimeoutError(f"simulating it takes longer than {self.limit_s:g} s")
        return left_s
