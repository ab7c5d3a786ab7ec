"""The kernels of a command's jobs, compiled in processes ahead of the cases that run them (kernels/ahead.py).

In the simulator they are compiled beside the cases. On GPUs nothing is compiled while something is timed: each case
first waits until nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cases.case import Case
from cases.ops import collective
from kernels.ahead import LEAST_S, Compiler, processes_for
from kernels.baselines import Baseline
from kernels.spec import KernelSpec, refuses
from memory.fabric import Executable, Traits
from reports.table.text import counted
from runner.case.contestant import spec_for
from runner.command.plan import PreparedJob
from runner.environment.host import available_bytes, usable_cores
from simulator.options import traits_of

if TYPE_CHECKING:
    from runner.command.means import Means


class CompiledAhead:
    """The kernels of jobs, whose cases run in order. beside: maximum number of commands that share this machine's
    cores. preparing(what): something long that is part of no case begins. close() ends the processes."""

    def __init__(
        self,
        jobs: Sequence[PreparedJob],
        preparing: Callable[[str], None],
        beside: int = 1,
    ) -> None:
        self._jobs = jobs
        self._preparing = preparing
        processes = processes_for(usable_cores() // beside, available_bytes())
        self._compiler = Compiler(jobs[0].request.cache_dir, processes, LEAST_S)
        self._asked_gpus = False
        self._on_gpus = False
        for job in jobs:
            fabric = job.request.fabric
            if fabric.simulated:
                world_size = job.request.world_size
                traits = traits_of(world_size, fabric.arch, fabric.heap_bytes, fabric.multicast, fabric.gpu)
                self._begin(job, traits)

    def using(self, means: Means) -> Means:
        """Return means of jobs that take their kernels from here."""
        return replace(means, compiled=self.compiled, prepared=self.prepare)

    def prepare(self, traits: Traits) -> None:
        """Prepare for a case before its time begins, on a fabric of these traits: on GPUs, compile what comes."""
        self._on_gpus = not traits.simulated
        if traits.simulated:
            return
        if not self._asked_gpus:  # which are known now
            self._asked_gpus = True
            for job in self._jobs:
                if not job.request.fabric.simulated:
                    self._begin(job, replace(traits, world_size=job.request.world_size))
        if count := self._compiler.count:
            self._preparing(f"compiling {counted(count, 'kernel')} of this command")
            self._compiler.wait_for_all()

    def compiled(self, spec: KernelSpec, case: Case, arch: str, cache_dir: Path) -> Executable:
        """Return a case's compiled kernel, as kernels.compile.executable does."""
        from kernels.compile import executable

        # On GPUs no more is begun here: a timing follows.
        if self._on_gpus or cache_dir != self._compiler.cache_dir:
            return executable(spec, case, arch, cache_dir)
        return self._compiler.executable(spec, case, arch)

    def close(self) -> None:
        """End the processes, whatever they are at."""
        self._compiler.close()

    def _begin(self, job: PreparedJob, traits: Traits) -> None:
        if job.request.cache_dir == self._compiler.cache_dir and job.custom is None:
            self._compiler.begin(_cases_to_compile(job, traits), traits.arch)


def _cases_to_compile(job: PreparedJob, traits: Traits) -> Iterator[Case]:
    """Yield the cases of a job that run a kernel of the catalogue, one for each of its variants."""
    brought = {spec.name for spec in job.specs}
    seen: set[tuple[str, str]] = set()
    for case in job.cases:
        if case.name in brought:
            continue
        spec = spec_for(case)
        if isinstance(spec, Baseline) or spec.made is not None:  # the cache has none of these
            continue
        try:
            variant = spec.name, spec.variant(case)
            is_wanted = variant not in seen and refuses(spec, collective(case.op), case, traits) is None
        except Exception:  # the case's own record says what is wrong with it
            continue
        if is_wanted:
            seen.add(variant)
            yield case
