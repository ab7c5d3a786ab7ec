"""Compiling candidates ahead of their measurement, in processes of their own: a search has hundreds of them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from kernels.catalogue import find
from kernels.compile import cache_key, executable
from kernels.spec import Case
from memory.fabric import Executable
from memory.worker_process import end_with_parent


class Compiler:
    """Compiled kernels from a cache. processes: number of processes that fill it ahead; 1: none, this one compiles."""

    def __init__(self, cache_dir: Path, processes: int = 1) -> None:
        self._cache_dir = cache_dir
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None
        self._begun: dict[str, Future[None]] = {}

    def begin(self, cases: Sequence[Case], arch: str) -> None:
        """Begin to compile cases' kernels, in their order; what was begun is not begun again, nor what the cache has:
        kernels that the model has simulated start no process."""
        if self._processes < 2:
            return
        there = {path.stem.rpartition("-")[2] for path in self._cache_dir.glob("*.json")}
        for case in cases:
            key = cache_key(find(case.name), case, arch)
            if key not in self._begun and key[:32] not in there:
                if self._pool is None:
                    self._pool = ProcessPoolExecutor(
                        self._processes, multiprocessing.get_context("spawn"), end_with_parent
                    )
                self._begun[key] = self._pool.submit(compile_case, case, arch, self._cache_dir)

    def executable(self, case: Case, arch: str) -> Executable:
        """Return a case's compiled kernel; waits for the process that compiles it. Raises what kernels.compile does."""
        spec = find(case.name)
        begun = self._begun.get(cache_key(spec, case, arch))
        if begun is not None:
            begun.exception()  # what went wrong there is raised below, by the same compiler
        return executable(spec, case, arch, self._cache_dir)

    def wait(self, cases: Sequence[Case], arch: str) -> None:
        """Wait for what begin() began of these cases, and for nothing else."""
        for case in cases:
            begun = self._begun.get(cache_key(find(case.name), case, arch))
            if begun is not None:
                begun.exception()

    def close(self) -> None:
        """End the processes; what waits is not compiled."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def compile_case(case: Case, arch: str, cache_dir: Path) -> None:
    """Put a case's kernel into the cache: what a process of the pool does."""
    executable(find(case.name), case, arch, cache_dir)


def processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
