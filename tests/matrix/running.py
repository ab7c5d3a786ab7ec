"""Running rows of the matrix: on simulated worlds, in several processes, or on GPUs; and what came of them."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import kernels
from kernels import catalogue
from kernels.compile import executable
from kernels.numeric.dtypes import ALL
from kernels.spec import Case
from runner.case.check import merge
from runner.case.program import Plan, run_case
from runner.launch.tasks import Tasks, folder_for_tasks
from runner.request.launching import LaunchRequest
from runner.world.world import World, WorldFailure
from tests.matrix.cells import Cell, Row, arch_of, case_of, refusal

HEAP_BYTES = 1 << 26
DEADLINE_S = 600.0
LARGEST_REPEATED_WORLD = 16
"""Up to here a cell's first row is launched again, with launches on other data between (runner/case/program.py), so
that what a launch leaves behind is found; beyond, only of the kernels' first data type."""

ROOT = Path(kernels.__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a row: status PASSED, REFUSED (reason in detail), WRONG or FAILED; digest of all ranks' outputs."""

    row: Row
    id: str
    status: str
    detail: str = ""
    digest: str = ""


def run_rows(rows: Sequence[Row], world_of: Callable[[int, str], World], cache_dir: Path) -> Iterator[Outcome]:
    """Run rows one after another; world_of(world_size, arch) gives a healthy world."""
    for row in rows:
        case, arch = case_of(row), arch_of(Cell(row.name, row.dtype, row.accumulator, row.reduction))
        reason = refusal(case, arch)
        if reason is not None:
            yield Outcome(row, case.id, "REFUSED", str(reason))
            continue
        try:
            yield _run(row, case, world_of(row.world_size, arch), arch, cache_dir)
        except (WorldFailure, RuntimeError, ValueError, AssertionError) as error:
            yield Outcome(row, case.id, "FAILED", f"{type(error).__name__}: {error}")


def _run(row: Row, case: Case, world: World, arch: str, cache_dir: Path) -> Outcome:
    spec = catalogue.find(case.name)
    plan = Plan(case, spec, executable(spec, case, arch, cache_dir), launches=2 if is_repeated(row) else 1)
    outcomes = world.run(run_case, plan, DEADLINE_S)
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


def is_repeated(row: Row) -> bool:
    """Whether a row has a second launch that is checked; other rows of the same compiled kernel need none."""
    if (row.shape, row.inputs) != ("odd", "normal") and not row.name.startswith("barrier"):
        return False
    return row.world_size <= LARGEST_REPEATED_WORLD or row.dtype in (ALL[0], "uint32")


class SimulatedWorlds:
    """Simulated worlds of all sizes and architectures, each kept until a kernel hurts it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], World] = {}

    def __call__(self, world_size: int, arch: str) -> World:
        from runner.world.threads import ThreadWorld
        from simulator.world import SimulatorOptions

        key = (world_size, arch)
        if key not in self._kept or not self._kept[key].healthy:
            self._kept[key] = ThreadWorld(world_size, SimulatorOptions(arch=arch, heap_bytes=HEAP_BYTES))
        return self._kept[key]


def tasks_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows in tasks, each of what may share compiled kernels: a kernel on a world size, for one data type. The longest
    come first."""

    def key(row: Row) -> tuple[int, str, str]:
        return -row.world_size, row.name, row.dtype

    return [list(group) for _, group in groupby(sorted(rows, key=key), key)]


def by_launcher(rows: Sequence[Row], launch: LaunchRequest) -> Generator[list[Outcome], None, None]:
    """Run rows on the workers of a launcher. Rows of a task that was lost have FAILED, with the reason."""
    tasks = tasks_of(rows)
    work = Tasks(launch, _Rows(tuple(map(tuple, tasks))), len(tasks), folder_for_tasks())
    with closing(iter(work)) as answers:
        for answer in answers:
            if answer.lost:
                yield [Outcome(row, _id_of(row), "FAILED", f"lost: {answer.lost}") for row in tasks[answer.task]]
            else:
                yield answer.result


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a launcher's worker does with a task (runner.launch.tasks.Do)."""

    tasks: tuple[tuple[Row, ...], ...]

    def __call__(self, task: int) -> list[Outcome]:
        _begin()
        return _task(self.tasks[task])


def _id_of(row: Row) -> str:
    return case_of(row).id


def in_processes(rows: Sequence[Row], processes: int) -> Iterator[list[Outcome]]:
    """Run rows on simulated worlds in so many processes; gives the outcomes of a task after the other, as they end."""
    tasks = tasks_of(rows)
    if processes == 1:
        yield from map(_task, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, initializer=_begin) as pool:
        yield from pool.imap_unordered(_task, tasks)


def _begin() -> None:
    """A process of the pool uses one thread: there are as many processes as cores."""
    import torch

    torch.set_num_threads(1)


_worlds = SimulatedWorlds()


def _task(rows: Sequence[Row]) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="symlab-matrix-") as folder:
        return list(run_rows(rows, _worlds, Path(folder)))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
