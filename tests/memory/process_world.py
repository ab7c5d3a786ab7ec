"""Worlds of processes for tests: programs that are closures of test modules, sent to the ranks by value.

The real NVSHMEM is tested so, on GPUs. Starting a world takes seconds, so worlds are kept as long as tests leave them
whole: a program that fails in its own code or at a call of the fabric leaks some memory, and hurts nothing else.
"""

import importlib.util
import pickle
import sys
from pathlib import Path

import cloudpickle
import torch

from runner.world.processes import ProcessWorld
from runner.world.world import WorldFailure
from tests.patience import PATIENCE_S

TESTS = Path(__file__).resolve().parent.parent


class Carried:
    """A value, test modules' functions and classes within it included, that arrives in another process as itself."""

    def __init__(self, value):
        for module in list(sys.modules.values()):
            if TESTS in Path(getattr(module, "__file__", None) or "/").parents:
                cloudpickle.register_pickle_by_value(module)
        self.content = cloudpickle.dumps(value)

    def __reduce__(self):
        return pickle.loads, (self.content,)


def on_rank(fabric, work):
    """The test's program on one rank: (what it raised, what it returned, live regions, held bytes), pickled."""
    program, wrap = work
    error = None
    result = None
    try:
        result = program(wrap(fabric, fabric.rank))
    except BaseException as raised:
        error = raised
        fabric.leave(f"{type(error).__name__}: {error}")
    live = fabric.live_regions()
    for region in live:
        fabric.drop(region)
    try:
        return cloudpickle.dumps((error, result, live, fabric.held_bytes))
    except Exception as raised:
        error = RuntimeError(f"{error!r} or {result!r} can't be sent home: {raised!r}")
        return cloudpickle.dumps((error, None, live, fabric.held_bytes))


class TestedProcessWorld:
    """What tests need of a world, over a ProcessWorld: run_ranks(), and what the ranks held after it."""

    __test__ = False

    def __init__(self, world_size, heap_bytes, opener):
        self.world_size = world_size
        self.heap_bytes = heap_bytes
        self.processes = ProcessWorld(world_size, Carried(opener))
        self.regions = [() for _ in range(world_size)]
        self.held_bytes = 0

    @property
    def whole(self):
        """Whether another test can use it: its ranks live, and what tests dropped there is little."""
        return self.processes.healthy and self.held_bytes <= self.heap_bytes // 8

    def run_ranks(self, program, wrap):
        """program(wrap(fabric, rank)) on every rank; what it returned or raised, by rank."""
        try:
            answers = self.processes.run(Carried(on_rank), Carried((program, wrap)), PATIENCE_S)
        except WorldFailure as failure:
            return [failure.errors.get(rank, failure) for rank in range(self.world_size)]
        found = [pickle.loads(answer) for answer in answers]
        self.regions = [live for _, _, live, _ in found]
        self.held_bytes = max(held for _, _, _, held in found)
        return [result if error is None else error for error, result, _, _ in found]

    def live_regions(self, rank):
        return self.regions[rank]

    def close(self):
        self.processes.close()


class KeptWorlds:
    """One world for each size and heap, until a test hurts it."""

    def __init__(self, opener):
        self.opener = opener
        self.worlds = {}

    def get(self, world_size, heap_bytes):
        key = (world_size, heap_bytes)
        if key in self.worlds and not self.worlds[key].whole:
            self.worlds.pop(key).close()
        if key not in self.worlds:
            self.worlds[key] = TestedProcessWorld(world_size, heap_bytes, self.opener(heap_bytes))
        return self.worlds[key]

    def close(self):
        while self.worlds:
            _, world = self.worlds.popitem()
            world.close()


def on_gpus(heap_bytes):
    """An opener for GPUs of this machine, one a rank."""

    def open_here(store, rank, world_size):
        from memory.nvshmem import open_fabric

        return open_fabric(store, rank, world_size, rank, heap_bytes)

    return open_here


def missing(world_size=2):
    """Why a world of that size can't be on this machine's GPUs; "" if it can."""
    if importlib.util.find_spec("nvshmem") is None:
        return "the gpu extra is not installed (nvshmem4py)"
    count = torch.cuda.device_count()
    return "" if count >= world_size else f"{world_size} ranks need {world_size} GPUs, and this machine has {count}"
