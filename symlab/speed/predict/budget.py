"""The simulator's clock with a time limit for all launches together; it clocks no launch twice."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass, field

from kernels.tuned_name import base_of
from runner.world.world import WorldFailure
from simulator.clock.costs import Costs
from simulator.clock.profile import LaunchProfile
from symlab.speed.predict.profiling import DEADLINE_S, Runnable, clocked


@dataclass(frozen=True, slots=True)
class Budget:
    """The seconds that all simulations of some cases may take, from now on; a profiling.Clock.

    Tunings that differ in their blocks alone have one code. Their flags have room for other numbers of blocks, which
    changes no path (tests/symlab/speed/predict/test_profiles.py holds profiles made so against those made one by one).
    """

    limit_s: float = math.inf
    began_s: float = field(default_factory=time.monotonic)
    known: dict[tuple[object, ...], LaunchProfile] = field(default_factory=dict)

    def __call__(self, runnable: Runnable, costs: Costs) -> LaunchProfile:
        """Clock a case's launches, once for each launch of a code on a message, whatever the tuning's name is. Raises
        TimeoutError if the budget ends, WorldFailure if the kernel fails."""
        case = dataclasses.replace(runnable.case, algorithm=base_of(runnable.case.algorithm))
        key = (runnable.executable.digest, case, runnable.launch, costs)
        if key not in self.known:
            try:
                self.known[key] = clocked(runnable, costs, min(self._left_s(), DEADLINE_S))
            except WorldFailure:
                self._left_s()  # of a budget that has ended the reason is the budget
                raise
        return self.known[key]

    def _left_s(self) -> float:
        left_s = self.limit_s - (time.monotonic() - self.began_s)
        if left_s <= 0:
            raise TimeoutError(f"simulating it takes longer than {self.limit_s:g} s")
        return left_s
