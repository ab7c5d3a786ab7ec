"""The matrix on GPUs: kernels are compiled in many processes first, then run one after another in a world of ranks."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernels import catalogue
from kernels.compile import executable
from runner.world.fabrics import NvshmemOpener
from runner.world.processes import ProcessWorld
from tests.matrix.cells import WORLD_SIZES, Row, case_of, refusal
from tests.matrix.running import HEAP_BYTES, Outcome, run_rows

ARCH = "sm_90a"
TOGETHER = 50


def on_gpus(rows: Sequence[Row], processes: int) -> Iterator[list[Outcome]]:
    """Run rows, one world size after the other, each in a world of its own."""
    with tempfile.TemporaryDirectory(prefix="symlab-matrix-") as folder:
        cache_dir = Path(folder)
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            pool.starmap(_compile, [(group, cache_dir) for group in _variants(rows)], chunksize=1)
        for world_size in sorted({row.world_size for row in rows}):
            worlds = _Worlds(world_size)
            try:
                mine = [row for row in rows if row.world_size == world_size]
                for start in range(0, len(mine), TOGETHER):
                    yield list(run_rows(mine[start : start + TOGETHER], worlds, cache_dir))
            finally:
                worlds.close()


def world_sizes(asked: Sequence[int]) -> tuple[int, ...]:
    """Return the world sizes to run: those that were asked for, or those of the matrix that this machine has GPUs for.

    Raises ValueError if there is no GPU, or there are fewer than a world that was asked for has ranks.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < max(asked, default=1):
        wanted = f"{max(asked)} ranks need as many GPUs" if asked else "the matrix needs one or more"
        raise ValueError(f"this machine has {count} GPUs, {wanted} (--gpus): leave --gpus out for the simulator")
    return tuple(asked) or tuple(size for size in WORLD_SIZES if size <= count)


def machine() -> str:
    """ "4 x NVIDIA H200"."""
    import torch

    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"


class _Worlds:
    """A world of processes that is made anew when a kernel has hurt it."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._world: ProcessWorld | None = None

    def __call__(self, world_size: int, arch: str) -> ProcessWorld:
        assert world_size == self.world_size
        if self._world is None or not self._world.healthy:
            self.close()
            self._world = ProcessWorld(world_size, NvshmemOpener(HEAP_BYTES * 8))
        return self._world

    def close(self) -> None:
        if self._world is not None:
            self._world.close()


def _variants(rows: Sequence[Row]) -> list[list[Row]]:
    """A row for each compiled kernel that rows need, those of one kernel and world size together."""
    found: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        case = case_of(row)
        if refusal(case, ARCH) is None:
            variant = catalogue.find(row.name).variant(case)
            found.setdefault((f"{row.name} {row.dtype}", row.world_size), {}).setdefault(variant, row)
    return [list(one.values()) for one in found.values()]


def _compile(rows: Sequence[Row], cache_dir: Path) -> None:
    for row in rows:
        case = case_of(row)
        executable(catalogue.find(row.name), case, ARCH, cache_dir)
