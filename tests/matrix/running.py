"""Running rows of the matrix: on simulated worlds, in several processes, or on GPUs; and what came of them."""

import hashlib
import math
import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import kernels
from cases.dtypes import ALL
from kernels import catalogue
from kernels.compile import executable
from memory.worker_process import end_with_parent
from runner.case.check import merge
from runner.case.program import Plan, run_case
from runner.world.world import WorldFailure
from tests.matrix.cells import Cell, arch_of, case_of, refusal
from tests.matrix.results import Outcome

HEAP_BYTES = 1 << 26
DEADLINE_S = 600.0
"""How long a row may take."""

LEAST_S = 0.1
"""How long a row may take whose kernel was compiled until the run's limit."""


@dataclass(frozen=True, slots=True)
class Limit:
    """When a run ends, by the monotonic clock; infinity: never. Asked between rows, and bounds the row that runs."""

    ends_s: float = math.inf

    def left_s(self):
        """Return how many seconds are left; 0 or less if a row that begins now would begin too late."""
        return self.ends_s - time.monotonic()

    @property
    def is_over(self):
        return self.left_s() <= 0


ENDLESS = Limit()
LARGEST_REPEATED_WORLD = 16
"""Up to here a cell's first row is launched again, with launches on other data between (runner/case/program.py), so
that what a launch leaves behind is found; beyond, only of the kernels' first data type."""

ROOT = Path(kernels.__file__).resolve().parent.parent


def run_rows(rows, world_of, cache_dir, limit=ENDLESS):
    """Run rows one after another until the limit; world_of(world_size, arch) gives a healthy
    world. A row that the limit ends has no outcome."""
    for row in rows:
        if limit.is_over:
            return
        outcome = _outcome(row, world_of, cache_dir, limit)
        if outcome is None:
            return
        yield outcome


def _outcome(row, world_of, cache_dir, limit):
    """What came of a row; None if the limit ended it."""
    case, arch = case_of(row), arch_of(Cell(row.name, row.dtype, row.accumulator, row.reduction))
    reason = refusal(case, arch)
    if reason is not None:
        return Outcome(row, case.id, "REFUSED", str(reason))
    try:
        return _run(row, case, world_of(row.world_size, arch), arch, cache_dir, limit)
    except (WorldFailure, RuntimeError, ValueError, AssertionError) as error:
        if limit.is_over and getattr(error, "status", "") != "DEADLOCK":
            return None
        return Outcome(row, case.id, "FAILED", f"{type(error).__name__}: {error}")


def _run(row, case, world, arch, cache_dir, limit):
    spec = catalogue.find(case.name)
    plan = Plan(case, spec, executable(spec, case, arch, cache_dir), launches=2 if is_repeated(row) else 1)
    outcomes = world.run(run_case, plan, min(DEADLINE_S, max(limit.left_s(), LEAST_S)))
    check = merge(case, spec, [outcome.check for outcome in outcomes if outcome.check])
    digests = "".join(outcome.check.digest for outcome in outcomes if outcome.check)
    digest = hashlib.sha256(digests.encode()).hexdigest()[:24]
    if check.wrong or check.guard_faults:
        return Outcome(
            row, case.id, "WRONG", f"{check.wrong} wrong: {check.first_mismatch} {check.guard_faults}", digest
        )
    if (check.launches_equal_promised and not check.launches_equal) or (
        check.ranks_equal_promised and not check.ranks_equal
    ):
        return Outcome(row, case.id, "WRONG", "launches or ranks differ that are promised to agree", digest)
    return Outcome(row, case.id, "PASSED", "", digest)


def is_repeated(row):
    """Whether a row has a second launch that is checked; other rows of the same compiled kernel need none."""
    if (row.shape, row.inputs) != ("odd", "normal") and not row.name.startswith("barrier"):
        return False
    return row.world_size <= LARGEST_REPEATED_WORLD or row.dtype in (ALL[0], "uint32")


class SimulatedWorlds:
    """Simulated worlds of all sizes and architectures, each kept until a kernel hurts it."""

    def __init__(self):
        self._kept = {}

    def __call__(self, world_size, arch):
        from runner.world.threads import ThreadWorld
        from simulator.world import SimulatorOptions

        key = (world_size, arch)
        if key not in self._kept or not self._kept[key].healthy:
            self._kept[key] = ThreadWorld(world_size, SimulatorOptions(arch=arch, heap_bytes=HEAP_BYTES))
        return self._kept[key]


def tasks_of(rows):
    """Rows in tasks, each of what may share compiled kernels: a kernel on a world size, for one data type. The longest
    come first."""

    def key(row):
        return -row.world_size, row.name, row.dtype

    return [list(group) for _, group in groupby(sorted(rows, key=key), key)]


def in_processes(rows, processes, limit=ENDLESS):
    """Run rows on simulated worlds in so many processes, until the limit; gives the outcomes of a task after the other,
    as they end."""
    tasks, do = tasks_of(rows), partial(_task, limit=limit)
    if processes == 1:
        yield from map(do, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, initializer=_begin_in_pool) as pool:
        yield from pool.imap_unordered(do, tasks)


def _begin_in_pool():
    end_with_parent()
    _begin()


def _begin():
    """A process of the pool uses one thread: there are as many processes as cores."""
    import torch

    torch.set_num_threads(1)


_worlds = SimulatedWorlds()


def _task(rows, limit):
    if limit.is_over:
        return []
    with tempfile.TemporaryDirectory(prefix="symlab-matrix-") as folder:
        return list(run_rows(rows, _worlds, Path(folder), limit))


def cores():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
