"""The matrix on GPUs: processes compile kernels ahead of a world of ranks that runs them one after another."""

import tempfile
from contextlib import closing
from itertools import groupby
from pathlib import Path

from kernels import catalogue
from kernels.ahead import Compiler
from kernels.matrix.proofs import SHARED
from runner.world.fabrics import NvshmemOpener
from runner.world.processes import ProcessWorld
from tests.matrix.cells import WORLD_SIZES, case_of, refusal
from tests.matrix.running import ENDLESS, HEAP_BYTES, run_rows, tasks_of

ARCH = "sm_90a"
LOOK_S = 1.0
"""How often a wait for a compiler looks at the limit."""


def on_gpus(rows, processes, limit=ENDLESS, share_gpus=False):
    """Run rows until the limit, one world size after the other, each in a world of its own.

    share_gpus: the ranks go round the GPUs that there are. Processes compile ahead in the same order, so that a run
    that has little time does not spend it on compiling alone.
    """
    groups = groups_of(rows)
    with (
        tempfile.TemporaryDirectory(prefix="symlab-matrix-") as folder,
        closing(Compiler(cache_dir := Path(folder), processes)) as compiler,
    ):
        compiler.begin((case for group in groups for case in _variants(group)), ARCH)
        for world_size, mine in groupby(groups, lambda group: group[0].world_size):
            worlds = _Worlds(world_size, share_gpus)
            try:
                for group in mine:
                    if not _is_compiled(compiler, group, limit):
                        return
                    yield list(run_rows(group, worlds, cache_dir, limit))
            finally:
                worlds.close()


def groups_of(rows):
    """Rows in groups of what may share compiled kernels, as in tasks_of, but small worlds come first: their rows take
    least, and one that hurts its GPUs is known sooner."""
    return sorted(tasks_of(rows), key=lambda group: group[0].world_size)


def _is_compiled(compiler, group, limit):
    """Wait for a group's kernels. Return False if the limit came first."""
    while not limit.is_over:
        if compiler.wait(_variants(group), ARCH, min(LOOK_S, max(limit.left_s(), 0))):
            return True
    return False


def world_sizes(asked, share_gpus=False):
    """Return the world sizes to run: those that were asked for, or those of the matrix that this machine has GPUs for.
    With share_gpus any world has GPUs enough if there is one, and those that are meant have to be asked for.

    Raises ValueError if there is no GPU, or there are fewer than a world that was asked for has ranks.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if share_gpus and not asked:
        raise ValueError("any number of ranks can share GPUs (--share-gpus): say how many (--world-size)")
    if count < (1 if share_gpus else max(asked, default=1)):
        wanted = f"{max(asked)} ranks need as many GPUs" if asked and not share_gpus else "the matrix needs one or more"
        raise ValueError(f"this machine has {count} GPUs, {wanted} (--gpus): leave --gpus out for the simulator")
    return tuple(asked) or tuple(size for size in WORLD_SIZES if size <= count)


def machine(share_gpus=False):
    """ "4 x NVIDIA H200", or "1 x NVIDIA H100 80GB HBM3, shared by ranks"."""
    import torch

    gpus = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return f"{gpus}, {SHARED}" if share_gpus else gpus


class _Worlds:
    """A world of processes that is made anew when a kernel has hurt it."""

    def __init__(self, world_size, share_gpus):
        self.world_size = world_size
        self._opener = NvshmemOpener(HEAP_BYTES * 8, share_gpus=share_gpus)
        self._world = None

    def __call__(self, world_size, arch):
        assert world_size == self.world_size
        if self._world is None or not self._world.healthy:
            self.close()
            self._world = ProcessWorld(world_size, self._opener)
        return self._world

    def close(self):
        if self._world is not None:
            self._world.close()


def _variants(rows):
    """A case for each compiled kernel that the rows of a group need."""
    found = {}
    for row in rows:
        case = case_of(row)
        if refusal(case, ARCH) is None:
            found.setdefault(catalogue.find(row.name).variant(case), case)
    return list(found.values())
