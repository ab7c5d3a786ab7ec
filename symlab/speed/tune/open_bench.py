"""What a search works with: its seams, and the world, the bench and the compiler of the job that it is at."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cases.case import Case
from kernels.ahead import Compiler
from memory.fabric import Traits
from runner.command.plan import PreparedJob
from runner.environment.host import usable_cores
from runner.request.compose import ComposedJob
from runner.world.fabrics import HostOffer, look
from symlab.speed.best import gpu_name
from symlab.speed.tune.candidates import Candidates
from symlab.speed.tune.model_first import Profiler
from symlab.speed.tune.search import Bench

if TYPE_CHECKING:
    from runner.request.validate import ResolvedRequest
    from symlab.speed.tune.bench import Worlds


@dataclass(frozen=True, slots=True)
class Seams:
    """What a search works with; tests put their own in. bench makes where candidates of a job are measured. finals runs
    the finalists' jobs and returns the folder of their records. now: seconds of a monotonic clock. machine: what there
    is here; gpu: the type of its GPUs. profiles makes what the model ranks candidates by: from the folder of compiled
    kernels, the architecture and a number of processes; None: predict.profiles.Profiles."""

    bench: Callable[[Worlds, ResolvedRequest, Compiler], Bench] | None = None
    worlds: Callable[[ResolvedRequest, Callable[[str], None]], Worlds] | None = None
    finals: Callable[[Sequence[str], Sequence[ComposedJob]], Path] | None = None
    now: Callable[[], float] = time.monotonic
    machine: Callable[[], HostOffer] = look
    gpu: Callable[[], str] = gpu_name
    profiles: Callable[[Path, str, int], Profiler] | None = None


def candidates_of(job: PreparedJob, case: Case, traits: Traits) -> Candidates:
    """Return what a search of a job tries for a case, whose algorithm does not matter."""
    return Candidates(case, job.request.algorithms, traits, job.brought)


class OpenBench:
    """The bench of the job that is searched now; another job's world takes its place. processes: those that
    compile and simulate, None: one a processor."""

    def __init__(self, seams: Seams, processes: int | None = None) -> None:
        self._seams = seams
        self.processes = usable_cores() if processes is None else processes
        self._key: object = None
        self._worlds: Worlds | None = None
        self._compiler: Compiler | None = None
        self._bench: Bench | None = None
        self._traits: Traits | None = None

    def at(self, job: PreparedJob) -> tuple[Bench, Traits]:
        """Return the bench of a job, and what its fabric can do."""
        from symlab.speed.tune.bench import DeviceBench, Worlds

        request = job.request
        key = (request.fabric, request.world_size, request.timing, [one.place for one in job.brought])
        if self._key != key:
            self._close_world()
            self._compiler = self._compiler or Compiler(request.cache_dir, self.processes)
            make = self._seams.worlds or (lambda asked, say: Worlds(asked, say))
            self._worlds = make(request, lambda line: print(line, file=sys.stderr, flush=True))
            self._key = key
            self._traits = self._worlds.traits()
            make_bench = self._seams.bench or partial(DeviceBench, brought=job.specs)
            self._bench = make_bench(self._worlds, request, self._compiler)
        assert self._bench is not None
        assert self._traits is not None
        return self._bench, self._traits

    def compile_ahead(self, job: PreparedJob, cases: Sequence[Case]) -> None:
        """Begin to compile what the searches of a job's cases try first, while others are measured."""
        _, traits = self.at(job)
        assert self._compiler is not None
        for case in cases:
            self._compiler.begin(candidates_of(job, case, traits).first(), traits.arch)

    def wait_for(self, job: PreparedJob, case: Case) -> None:
        """Wait until what the search of a case tries first is compiled."""
        _, traits = self.at(job)
        assert self._compiler is not None
        self._compiler.wait(candidates_of(job, case, traits).first(), traits.arch)

    def _close_world(self) -> None:
        worlds, self._worlds = self._worlds, None
        if worlds is not None:
            worlds.close()

    def close(self) -> None:
        """End the world and the processes that compile."""
        self._close_world()
        if self._compiler is not None:
            self._compiler.close()
