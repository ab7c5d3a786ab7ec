"""Profiles of candidates for the model, in processes of their own: a search has hundreds, and no GPU is needed.

Candidates of one code go to one process, or to a few if they are many for the number of processes, those of the same
number of blocks together: a large message is clocked on fewer blocks, so sizes often come down to the same launch,
which is then clocked once.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import torch

from cases.case import Case
from kernels.compile import cache_key
from kernels.compile_error import CompilationError
from kernels.spec import KernelSpec
from kernels.tuned_name import base_of
from memory.worker_process import end_with_parent
from runner.case.contestant import spec_for
from runner.request_error import first_line
from runner.world.world import WorldFailure
from simulator.clock.costs import Costs
from simulator.clock.profile import LaunchProfile
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.profile_cache import runnable_of, work_of
from symlab.speed.predict.profiling import DEADLINE_S, Runnable, clocked


@dataclass(frozen=True, slots=True)
class Unprofiled:
    """Why a candidate has no profile. can_run: only the simulator failed, so a GPU may run it all the same."""

    reason: str
    can_run: bool


PARTS = 4
"""How many parts each process gets at least, where there are enough cases, so that the last one to end has little
left: the 41 cases of one code of reduce_scatter/bulk take 37 s of a core, where most codes take 3."""

LOST = "its process was lost"
"""Why the candidates of a code have no profile with which a process ended, killed for its memory, say."""

FAILURES = (RuntimeError, ValueError, OSError, ArithmeticError, LookupError, MemoryError)
"""What may go wrong with one candidate and costs only itself; a WorldFailure is a RuntimeError."""

Found = tuple[Case, CaseWork | Unprofiled]


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


class Profiles:
    """Makes profiles, for kernels of an architecture; cache_dir has kernels and profiles that were made before.

    processes: number of processes; 1: none, this one makes them. brought: kernels beside the catalogue's.
    """

    def __init__(self, cache_dir: Path, arch: str, processes: int = 1, brought: Sequence[KernelSpec] = ()) -> None:
        self._brought = tuple(brought)
        self._cache_dir = cache_dir
        self._arch = arch
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def of(self, cases: Sequence[Case], limit_s: float = math.inf) -> Iterator[Found]:
        """Yield the profiles of cases as they are made, the first ones first. What is not made within limit_s seconds
        is left out."""
        stop_at = time.time() + limit_s
        groups: dict[str, list[Case]] = {}
        for case in cases:
            spec = kernel_of(case, self._brought)
            key = f"{spec.name} {spec.variant(case)}" if spec in self._brought else cache_key(spec, case, self._arch)
            groups.setdefault(key, []).append(case)
        if self._processes < 2:
            for group in groups.values():
                yield from profiles_of_a_code(group, self._arch, self._cache_dir, stop_at, self._brought)
            return
        most = max(len(cases) // (PARTS * self._processes), 1)
        parts = [
            group[at : at + most]
            for group in map(self._by_blocks, groups.values())
            for at in range(0, len(group), most)
        ]
        yield from self._in_processes(parts, stop_at)

    def _by_blocks(self, group: Sequence[Case]) -> list[Case]:
        return sorted(group, key=lambda case: kernel_of(case, self._brought).launch(case).grid)

    def _in_processes(self, groups: Sequence[list[Case]], stop_at: float) -> Iterator[Found]:
        """Yield the profiles of groups, each of one code. A lost process breaks the pool, which does not tell the group
        that lost it: all that were begun have no profiles."""
        waiting = deque(groups)
        begun: dict[Future[list[Found]], list[Case]] = {}
        while waiting or begun:
            while waiting and len(begun) < self._processes:
                group = waiting.popleft()
                own = tuple(spec for spec in self._brought if any(spec.name == case.name for case in group))
                if self._pool is None:
                    self._pool = ProcessPoolExecutor(self._processes, multiprocessing.get_context("spawn"), _begin)
                try:
                    done = self._pool.submit(profiles_of_a_code, group, self._arch, self._cache_dir, stop_at, own)
                    begun[done] = group
                except BrokenProcessPool:  # those that were begun say so
                    waiting.appendleft(group)
                    if not begun:
                        self.close()
                    break
            for done in wait(begun, return_when=FIRST_COMPLETED).done:
                if done not in begun:
                    continue
                group = begun.pop(done)
                try:
                    yield from done.result()
                except BrokenProcessPool:
                    lost = [case for some in (group, *begun.values()) for case in some]
                    begun.clear()
                    self.close()
                    yield from ((case, Unprofiled(LOST, can_run=True)) for case in lost)

    def close(self) -> None:
        """End the processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """Begin a process of the pool: it ends with its parent, and uses one core, because there is one for each core."""
    end_with_parent()
    torch.set_num_threads(1)


def kernel_of(case: Case, brought: Sequence[KernelSpec]) -> KernelSpec:
    """Return the kernel of a candidate, which no library is."""
    found = spec_for(case, brought)
    assert isinstance(found, KernelSpec), f"{case.algorithm} is a library's"
    return found


def profiles_of_a_code(
    cases: Sequence[Case], arch: str, cache_dir: Path, stop_at: float, brought: Sequence[KernelSpec] = ()
) -> list[Found]:
    """Return the profiles of candidates of one code, as far as they were made before stop_at, seconds of the epoch."""
    clock, found = Budget(max(stop_at - time.time(), 0.0)), []
    for case in cases:
        if time.time() >= stop_at:
            break
        try:
            found.append((case, _profile(case, kernel_of(case, brought), arch, cache_dir, clock)))
        except TimeoutError:  # the budget's
            break
    return found


def _profile(case: Case, spec: KernelSpec, arch: str, cache_dir: Path, clock: Budget) -> CaseWork | Unprofiled:
    try:
        runnable_of(case, spec, arch, cache_dir)
    except (CompilationError, RuntimeError, ValueError) as error:
        return Unprofiled(f"can't be compiled: {first_line(error)}", can_run=False)
    except FAILURES as error:
        return Unprofiled(f"can't be compiled here: {first_line(error)}", can_run=True)
    try:
        return work_of(case, spec, arch, cache_dir, clock)
    except TimeoutError:
        raise
    except FAILURES as error:
        return Unprofiled(first_line(error), can_run=True)
