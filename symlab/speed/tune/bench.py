"""Where a search measures: on a world of GPUs by their clocks. Every result is checked, and a world is replaced once a
candidate has broken it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cases.case import Case
from kernels.compile_error import CompilationError
from kernels.spec import KernelSpec
from memory.fabric import Executable, Traits
from runner.case.contestant import Contestant
from runner.case.memory_needed import heap_bytes_to_measure
from runner.command.case_programs import read_traits
from runner.request.schema import Limit, TimingMode
from runner.request.validate import ResolvedRequest
from runner.request_error import RequestError
from runner.timing.calls import HEAP_SHARE, calls_for
from runner.timing.combine import combine
from runner.timing.measure import MeasurePlan, expected_s, measure
from runner.world.fabrics import WorldMaker, make_world
from runner.world.world import World, WorldFailure
from symlab.speed.predict.profiles import kernel_of
from symlab.speed.tune.search import BenchFailure, Measured

if TYPE_CHECKING:
    from kernels.ahead import Compiler

MOST_TOGETHER = 16
"""Maximum number of candidates that are measured in turns, the anchor among them."""

PATIENCE_S = 2.0
"""How long a candidate's kernel waits for another rank, before it reports that and is out."""

DEADLINE_S = 30.0
"""What a measurement may take beside ten times what its samples should."""

QUICK_CALLS = 20
"""Maximum number of calls in a sample of the first rungs."""


class Worlds:
    """A healthy world for one request: a new one after a failure."""

    def __init__(self, request: ResolvedRequest, say: Callable[[str], None], make: WorldMaker = make_world) -> None:
        self._request = request
        self._say = say
        self._make = make
        self._world: World | None = None

    def world(self) -> World:
        """Return a healthy world. Raises RequestError if none can be started."""
        if self._world is None or not self._world.healthy:
            self.close()
            try:
                self._world = self._make(self._request.fabric, self._request.world_size, self._say)
            except WorldFailure as failure:
                raise RequestError(f"no world can be started: {failure.message} (world_size, fabric)") from failure
        return self._world

    def traits(self) -> Traits:
        """Return what the fabric can do. Raises RequestError if no world can be started."""
        found: Traits = self.world().run(read_traits, None, self._request.deadline_s)[0]
        return found

    def close(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.close()


class DeviceBench:
    """Times on GPUs, by runner.timing: results are checked before the samples and after them."""

    def __init__(
        self, worlds: Worlds, request: ResolvedRequest, compiler: Compiler, brought: Sequence[KernelSpec] = ()
    ) -> None:
        self._worlds = worlds
        self._request = request
        self._compiler = compiler
        self._brought = brought
        traits = worlds.traits()
        self._arch = traits.arch
        self._heap_bytes = traits.heap_bytes

    def groups(self, cases: Sequence[Case], beside: Case | None) -> list[list[Case]]:
        room = int(self._heap_bytes * HEAP_SHARE)
        first = [beside] if beside is not None else []
        found: list[list[Case]] = []
        for case in cases:
            last = [*first, *found[-1]] if found else []
            fits = found and len(last) < MOST_TOGETHER and heap_bytes_to_measure([*last, case], self._brought) <= room
            if fits:
                found[-1].append(case)
            else:
                found.append([case])
        self._compiler.begin([*first, *cases], self._arch)
        return found

    def measured(self, cases: Sequence[Case], samples: int) -> list[Measured]:
        contestants, rows = [], {}
        for case in cases:
            spec = kernel_of(case, self._brought)
            try:
                made: Executable = self._compiler.executable(spec, case, self._arch)
            except (CompilationError, RuntimeError, ValueError) as error:
                rows[case.algorithm] = Measured(problem=f"can't be compiled: {' '.join(str(error).split())}")
            else:
                contestants.append(Contestant(case, spec, made))
        if contestants:
            rows |= self._timed(contestants, samples)
        return [rows[case.algorithm] for case in cases]

    def _timed(self, contestants: Sequence[Contestant], samples: int) -> dict[str, Measured]:
        asked = self._request.timing
        calls = asked.calls or calls_for(contestants[0].case.size_bytes, None)
        mode = asked.mode if asked.mode != TimingMode.none else TimingMode.graph
        quick = min(calls, QUICK_CALLS) if samples <= QUICK_CALLS // 2 else calls
        timing = dataclasses.replace(asked, mode=mode, samples=samples, warmup=1, calls=quick, limit=Limit.none)
        plan = MeasurePlan(tuple(contestants), timing, patience_s=PATIENCE_S)
        try:
            ranks = self._worlds.world().run(measure, plan, DEADLINE_S + 10 * expected_s(plan))
        except WorldFailure as failure:
            raise BenchFailure(failure.message) from failure
        found, _ = combine(plan, ranks, None)
        rows = {}
        for contestant, one in zip(contestants, found, strict=True):
            if one.timing is not None:
                rows[contestant.case.algorithm] = Measured(one.timing.per_iteration_us)
            else:
                wrong = "; ".join(one.wrong.faults) if one.wrong is not None else one.problem
                rows[contestant.case.algorithm] = Measured(problem=wrong)
        return rows
