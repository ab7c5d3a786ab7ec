"""Worlds for tests: each kind keeps the Fabric contract, and the same tests run on all of them."""

import functools
import gc
import os
import signal
import threading

import pytest
import torch

from cases.finding import Finding
from memory.fabric import DeviceFault, Disagreement, FabricError, HeapFull, NoMulticast, PeerLost, Region, Traits
from simulator.world import SimulatedWorld, SimulatorOptions
from tests import compiled_kernels, cuda_programs, layers, planned, skips
from tests.browser import browser as browser
from tests.kernels.sabotaged import SABOTAGED
from tests.memory import nvshmem_stand_in, process_world
from tests.memory.outcomes import together
from tests.patience import PATIENCE_S

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts jobs in the background with Ctrl-C ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if (_programs := cuda_programs.folder()) is not None:
    # Before what the machine has: tests hold the simulator to the locked ptxas and nvcc.
    os.environ["PATH"] = f"{_programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

gc.disable()  # until all tests are collected: what they import stays

for _size in ("COLUMNS", "LINES"):  # pytest's import of readline sets them for the workers of pytest-xdist
    os.environ.pop(_size, None)


def pytest_collection_finish(session):
    """What was collected stays: no garbage collection need look at the thousands of tests again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure(config):
    skips.pytest_configure(config)
    planned.pytest_configure(config)


def pytest_sessionstart(session):
    """One process of a run looks after the folder of compiled kernels."""
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker and (place := compiled_kernels.folder(session.config)) is not None:
        compiled_kernels.bound(place)


def pytest_addoption(parser):
    skips.pytest_addoption(parser)
    parser.addoption("--by-marks", action="store_true", help="Slow is only what files mark: to measure all others.")
    parser.addoption("--plan", metavar="FILE", help="Run the rows of a plan, and record them (tests/selection.py).")
    parser.addoption(
        "--cutlass-checkout", metavar="DIR", help="Run the kernels of a checkout of NVIDIA/cutlass (tests/foreign)."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Before pytest looks at -m."""
    if not config.getoption("--by-marks"):
        layers.mark(items, layers.Durations.stored())
    planned.keep(config, items)


class DictionaryWorld:
    """The least that keeps the contract: bytes in dictionaries, one lock; launch calls a Python function by entry."""

    def __init__(self, world_size, heap_bytes=1 << 20, multicast=True):
        self.world_size = world_size
        self.heap_bytes = heap_bytes
        self.multicast = multicast
        self.condition = threading.Condition()
        self.heaps = [{} for _ in range(world_size)]
        # Peers' kernels may still run when a failed rank gives up its memory.
        self.dropped = {}
        self.kernels = {}
        self.round = 0
        self.arrived = {}
        self.collected = ()
        self.left = {}
        self.error = None

    def fabric(self, rank):
        return DictionaryFabric(self, rank)

    def at(self, address, size_bytes):
        """What kernels see: the bytes at an address, which must lie in one region."""
        for heap in [*self.heaps, self.dropped]:
            for region, content in list(heap.values()):
                if region.address <= address and address + size_bytes <= region.address + region.size_bytes:
                    return content[address - region.address :][:size_bytes]
        raise DeviceFault(f"{size_bytes} bytes at {address:#x} belong to no tensor")

    def meet(self, rank, kind, note):
        """Everybody's note, once all are here; kinds that differ are a Disagreement."""
        with self.condition:
            self.check()
            mine = self.round
            self.arrived[rank] = (kind, note)
            if len(self.arrived) == self.world_size:
                calls = [self.arrived[peer] for peer in range(self.world_size)]
                self.arrived = {}
                self.round += 1
                if len({kind for kind, _ in calls}) > 1:
                    self.error = Disagreement(
                        "; ".join(f"rank {peer} calls {kind}({note})" for peer, (kind, note) in enumerate(calls))
                    )
                self.collected = tuple(note for _, note in calls)
                self.condition.notify_all()
            else:
                self.condition.wait_for(lambda: self.round > mine or self.broken(), PATIENCE_S)
            if self.round == mine:
                self.check()
                raise AssertionError("a test waited too long")
            if isinstance(self.error, Disagreement):
                raise Disagreement(str(self.error))
            return self.collected

    def broken(self):
        return self.error is not None or bool(self.left)

    def check(self):
        if self.error is not None:
            raise FabricError(f"the world is broken: {self.error}")
        for rank, error in self.left.items():
            raise PeerLost(f"rank {rank} left" + (f" after {error!r}" if error is not None else ""))

    def leave(self, rank, error):
        with self.condition:
            self.left[rank] = error
            if error is None and len(self.left) == self.world_size and not any(self.left.values()):
                self.left = {}
            self.condition.notify_all()

    def set_deadline(self, monotonic_s):
        pass

    def counters(self):
        return {}

    findings: tuple[Finding, ...] = ()

    def live_regions(self, rank):
        return tuple(region for region, _ in self.heaps[rank].values())

    def close(self):
        self.heaps = [{} for _ in range(self.world_size)]

    def abort(self, error):
        with self.condition:
            self.error = self.error or error
            self.condition.notify_all()


class DictionaryFabric:
    def __init__(self, world, rank):
        self.world = world
        self.rank = rank
        self.world_size = world.world_size
        reason = "" if world.multicast else "a dictionary without a switch"
        sizes = (world.world_size, world.heap_bytes)
        self.traits = Traits("dictionary", "none", *sizes, world.multicast, reason, simulated=True)
        self.queue = []

    def window(self, rank):
        return (rank + 1) << 32

    def exchange(self, note):
        return self.world.meet(self.rank, "exchange", note)

    def barrier(self):
        self.world.meet(self.rank, "barrier", "")

    def allocate(self, size_bytes, alignment_bytes, name):
        heap = self.world.heaps[self.rank]
        self.world.meet(self.rank, "allocate", name)
        held = sorted((region.address - self.window(self.rank), region.size_bytes) for region, _ in heap.values())
        offset = largest = 0
        for start, length in [*held, (self.world.heap_bytes, 0)]:
            if offset + size_bytes <= start:
                break
            largest = max(largest, start - offset)
            offset = -(-(start + length) // alignment_bytes) * alignment_bytes
        else:
            raise HeapFull(f'"{name}" of {size_bytes} bytes does not fit: {largest} bytes would')
        region = Region(name, self.window(self.rank) + offset, size_bytes)
        heap[region.address] = (region, torch.full((size_bytes,), 0xFF, dtype=torch.uint8))
        return region

    def declare_local(self, region):
        assert region.address in self.world.heaps[self.rank]

    def free(self, region):
        self.world.meet(self.rank, "free", region.name)
        del self.world.heaps[self.rank][region.address]

    def drop(self, region):
        held = self.world.heaps[self.rank].pop(region.address, None)
        if held is not None:
            self.world.dropped[region.address] = held

    def peer_address(self, region, peer):
        return region.address - self.window(self.rank) + self.window(peer)

    def multicast_address(self, region):
        if not self.world.multicast:
            raise NoMulticast(self.traits.multicast_reason)
        return region.address - self.window(self.rank) + (1 << 60)

    def view(self, region):
        return self.world.heaps[self.rank][region.address][1]

    def write(self, region, offset_bytes, data):
        self.synchronize()
        self.view(region)[offset_bytes : offset_bytes + data.numel()] = data

    def read(self, region, offset_bytes, size_bytes):
        self.synchronize()
        return self.view(region)[offset_bytes : offset_bytes + size_bytes].clone()

    def inspect(self, region, offset_bytes=0, size_bytes=None):
        return self.read(region, 0, region.size_bytes)[offset_bytes:][:size_bytes]

    def never_written(self, region):
        return None

    def launch(self, executable, launch, arguments):
        self.queue.append((self.world.kernels[executable.entry], tuple(one.value for one in arguments)))

    def wait_stream(self, stream, other):
        """All kernels run in one row."""

    def set_variable(self, executable, name, offset_bytes, content):
        raise ValueError(f"the stand-in's kernels have no variables: {name} of {executable.name}")

    def synchronize(self):
        while self.queue:
            kernel, arguments = self.queue.pop(0)
            kernel(self, *arguments)


class InterruptedFabric:
    """A rank's fabric that raises at one call, before it reaches the world: what an interrupt there would do. error: or
    a signal, which the process gets there.

    at_call counts from 1: calls of the method named, or of all methods.
    """

    def __init__(self, fabric, at_call, error, method=""):
        self.fabric = fabric
        self.method = method
        self.at_call = at_call
        self.error = error
        self.calls = []

    def __getattr__(self, name):
        attribute = getattr(self.fabric, name)
        if not callable(attribute) or name == "drop":
            return attribute

        def call(*arguments):
            if self.method in ("", name):
                self.calls.append(name)
            if self.error is not None and self.method in ("", name) and len(self.calls) == self.at_call:
                if isinstance(self.error, BaseException):
                    raise self.error
                os.kill(os.getpid(), self.error)
            return attribute(*arguments)

        return call


def run_ranks(world, program, wrap=lambda fabric, rank: fabric):
    """program(fabric) on every rank; what it returned or raised, by rank."""
    if hasattr(world, "run_ranks"):
        outcomes = world.run_ranks(program, wrap)
        assert isinstance(outcomes, list)
        return outcomes
    fabrics = [wrap(world.fabric(rank), rank) for rank in range(world.world_size)]

    def body(rank):
        error = None
        try:
            return program(fabrics[rank])
        except BaseException as raised:
            error = raised
            raise
        finally:
            world.leave(rank, error)

    return together(functools.partial(body, rank) for rank in range(world.world_size))


@pytest.fixture
def dictionary_world():
    return DictionaryWorld


@pytest.fixture(scope="session")
def gpu_worlds():
    """gpu_worlds(world_size, heap_bytes): processes on GPUs over the real NVSHMEM; skips where there are too few."""
    kept = process_world.KeptWorlds(process_world.on_gpus)

    def get(world_size, heap_bytes=1 << 20):
        if reason := process_world.missing(world_size):
            pytest.skip(reason)
        return kept.get(world_size, heap_bytes)

    yield get
    kept.close()


@pytest.fixture(params=["dictionary", "simulator", "nvshmem-stand-in", pytest.param("nvshmem", marks=pytest.mark.gpu)])
def make_world(request):
    """make_world(world_size, heap_bytes=, multicast=) -> a world of the kind that the test is run for."""

    def make(world_size, heap_bytes=1 << 20, multicast=True):
        match request.param:
            case "dictionary":
                return DictionaryWorld(world_size, heap_bytes, multicast)
            case "simulator":
                return SimulatedWorld(world_size, SimulatorOptions(heap_bytes=heap_bytes, multicast=multicast))
            case "nvshmem-stand-in":
                return nvshmem_stand_in.StandInWorld(world_size, heap_bytes, multicast)
        world = request.getfixturevalue("gpu_worlds")(world_size, heap_bytes)
        if not multicast and run_ranks(world, lambda fabric: fabric.traits.multicast)[0]:
            pytest.skip("these GPUs have multicast, and the test is about those that have not")
        return world

    return make


@pytest.fixture(scope="session")
def compile_cache(request, tmp_path_factory):
    """A folder of compiled kernels that all workers share, kept from run to run: its entries are named by all that
    decides the code (kernels/compile.py). tests/kernels/test_compile.py compiles into folders of its own."""
    return compiled_kernels.folder(request.config) or tmp_path_factory.mktemp("compiled-kernels", numbered=False)


@pytest.fixture
def needs_multicast():
    """needs_multicast(world) skips the test, with the library's reason, on GPUs that have none."""

    def check(world):
        if hasattr(world, "run_ranks"):
            traits = run_ranks(world, lambda fabric: fabric.traits)[0]
            if not traits.multicast:
                pytest.skip(traits.multicast_reason)

    return check


@pytest.fixture
def on_ranks():
    return run_ranks


@pytest.fixture
def interrupted():
    return InterruptedFabric


@pytest.fixture(scope="session")
def sabotaged():
    """The specs of tests/kernels/sabotaged.py, by name."""
    return SABOTAGED
