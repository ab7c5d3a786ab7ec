"""Launches a kernel on all ranks of a simulated world, again and again with no host barrier between launches.

That is legal, because kernels keep their ranks apart themselves, and it shows when they don't. Buffers lie between
guards, begin where the case says, and every store can be counted, byte by byte.
"""

import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from cases import ops
from cases.case import Case
from cases.dtypes import DTYPES, FLOATS
from kernels.spec import KernelSpec
from memory.fabric import Executable, PeerLost, Region
from simulator.memory.space import MULTICAST, TAG
from simulator.observe.events import Listener
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.simulator.harness import run

GUARD_BYTES = 256
PATTERN = 0xA5
"""What guards hold, and outputs before each launch."""

HEAP_BYTES = 1 << 18
"""What there is beside buffers and workspaces: guards and tables of addresses."""

LARGEST = 80
"""Sums of three integers up to it are exact in bfloat16, on the way, too."""

STEP_BUDGET = 40_000
"""Many times what any test here takes, and some seconds: who gets nowhere is told so."""


Inputs = Callable[[int, int], torch.Tensor]
"""Inputs(launch, rank): 1-D, any dtype, of the bytes of one rank's input."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one rank's launches left: its output's bytes after each, and its workspaces after the last.

    changed: the buffers that were written where they must not be, by name; "buffer" is the one that is both in place.
    """

    outputs: tuple[torch.Tensor, ...]
    workspaces: Mapping[str, torch.Tensor]
    changed: tuple[str, ...]
    regions: Mapping[str, Region]


@dataclass(slots=True)
class Launches:
    """Launches of a case, count of them, on all ranks; epoch is the last one that earlier launches used.

    executables: one for all, or one a rank (None: that rank never launches). inputs: numbers() unless given. fill:
    scratch begins as zeros, not as poison, for a kernel that gives up a wait reads what was never written. late: a
    rank that launches when all others have to wait for it. seeds: one for each launch, the case's unless given.
    """

    spec: KernelSpec
    case: Case
    executables: Executable | Sequence[Executable | None]
    inputs: Inputs | None = None
    count: int = 1
    epoch: int = 0
    patience: int = 0
    fill: bool = False
    count_stores: bool = False
    late: int | None = None
    seeds: Sequence[int] = ()
    world: type[SimulatedWorld] = SimulatedWorld
    listener: Listener | None = None
    found: dict[int, Found] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    stores: "StoreCounts | None" = None

    @property
    def collective(self):
        return ops.collective(self.case.op)

    def case_of(self, launch):
        return replace(self.case, seed=self.seeds[launch]) if self.seeds else self.case

    def run(self, **options):
        """On a new world with these options; what ranks raise is in errors."""
        heap_bytes = 1 << self._needed_bytes().bit_length()
        options.setdefault("step_budget", STEP_BUDGET)
        world = self.world(self.case.world_size, SimulatorOptions(heap_bytes=heap_bytes, **options))
        if self.listener is not None:
            world.space.events.add(self.listener)
        if self.count_stores:
            self.stores = StoreCounts(world.space)
            world.space.events.add(self.stores)
        done = run(world, self._rank)
        self.found = {rank: one for rank, one in enumerate(done.results) if one is not None}
        self.errors = {rank: one for rank, one in enumerate(done.errors) if one is not None}
        return world

    def succeed(self, **options):
        """run, and raise what any rank raised: not the echo of another's failure, if it can be helped."""
        self.run(**options)
        for error in sorted(self.errors.values(), key=lambda one: isinstance(one, PeerLost)):
            raise error
        return [self.found[rank] for rank in range(self.case.world_size)]

    def seen(self):
        """What a run came to: "right", "wrong", "changed" (what is not the kernel's to change), or an error's name."""
        for error in sorted(self.errors.values(), key=lambda one: isinstance(one, PeerLost)):
            return type(error).__name__
        for rank, found in self.found.items():
            if found.changed:
                return "changed"
            if not all(self.is_right(rank, launch) for launch in range(self.count)):
                return "wrong"
        return "right"

    def is_right(self, rank, launch):
        """Whether a rank's output is what the op wants of numbers(): as numbers where it reduces, else bit by bit."""
        case = self.case_of(launch)
        inputs = [numbers(case, launch, one) for one in range(case.world_size)]
        parts = self.collective.parts(case, inputs, rank)
        output = self.found[rank].outputs[launch].view(DTYPES[case.dtype])
        if parts is None:
            return True  # it had to stay as it was: see Found.changed
        wanted = functools.reduce(operator.add, parts)
        if self.collective.reduces:
            return bool((output == wanted).all())
        return torch.equal(output.view(torch.uint8), wanted.view(torch.uint8))

    def _needed_bytes(self):
        case = self.case
        buffers = sum(self.collective.counts(case.numel, case.world_size)) * case.itemsize
        workspaces = sum(one.numel * getattr(torch, one.dtype).itemsize for one in self.spec.workspaces(case))
        return buffers + workspaces + HEAP_BYTES

    def _rank(self, fabric):
        bound = Bound(fabric, self.case, self.spec, self.collective, self.epoch, self.fill)
        arguments = [one.argument(bound.argument(one, self.patience)) for one in self.spec.parameters]
        one = isinstance(self.executables, Executable)
        executable = self.executables if one else self.executables[fabric.rank]
        launch = self.spec.launch(self.case)
        outputs = []
        changed = {}
        fabric.barrier()
        for index in range(self.count):
            made = self.inputs(index, fabric.rank) if self.inputs else numbers(self.case, index, fabric.rank)
            data = made.view(torch.uint8)
            bound.take(self.case_of(index))
            bound.prepare(data)
            if self.late == fabric.rank:
                fabric.barrier()
            if executable is not None:
                fabric.launch(executable, launch, arguments)
            if self.late not in (None, fabric.rank):
                fabric.barrier()
            fabric.synchronize()
            outputs.append(bound.output())
            changed |= dict.fromkeys(bound.changed(data))
        fabric.barrier()
        workspaces = {name: bound.payload(name).view(torch.int32) for name in ("epochs", "status")}
        return Found(tuple(outputs), workspaces, tuple(changed), dict(bound.regions))


class Bound:
    """A case's memory on one rank."""

    def __init__(self, fabric, case, spec, collective, epoch, fill=False):
        self.fabric, self.case, self.collective = fabric, case, collective
        self.regions = {}
        self.sizes = {}
        self.starts = {"input": 0, "output": 0}
        self.in_place = case.placement == "in_place"
        counts = collective.counts(case.numel, case.world_size)
        for name, count in zip(("input", "output"), counts, strict=True):
            self.sizes[name] = count * case.itemsize
        if self.in_place:
            self._allocate("buffer", max(self.sizes.values()) + case.offset * case.itemsize)
            self.regions |= dict.fromkeys(self.starts, self.regions["buffer"])
        else:
            for name in self.starts:
                self._allocate(name, self.sizes[name] + case.offset * case.itemsize)
        self.counts = None
        self.take(case)
        # Earlier epochs have left their number, or where a barrier counts arrivals of all ranks, as many.
        arrived = as_int32(epoch * case.world_size) if spec.needs_multicast else epoch
        for workspace in spec.workspaces(case):
            self.sizes[workspace.name] = size_bytes = workspace.numel * getattr(torch, workspace.dtype).itemsize
            self._allocate(workspace.name, size_bytes)
            initial = workspace.initial(size_bytes) or (bytes(size_bytes) if fill else None)
            if workspace.name in ("epochs", "signals"):
                begin = epoch if workspace.name == "epochs" else arrived
                initial = as_int32(begin).to_bytes(4, "little", signed=True) * (size_bytes // 4)
            if initial is not None:
                content = torch.frombuffer(bytearray(initial), dtype=torch.uint8)
                fabric.write(self.regions[workspace.name], GUARD_BYTES, content)

    def _allocate(self, name, size_bytes):
        self.regions[name] = self.fabric.allocate(size_bytes + 2 * GUARD_BYTES, 256, name)
        for start in (0, GUARD_BYTES + size_bytes):
            self.fabric.write(self.regions[name], start, pattern(GUARD_BYTES))

    def start(self, name, rank):
        """The byte of its region at which a buffer of a rank begins."""
        if name not in self.starts:
            return GUARD_BYTES
        element = self.case.offset
        if self.in_place:
            both = self.collective.in_place(self.case.numel, self.case.world_size, rank)
            element += both[name == "output"]
        return GUARD_BYTES + element * self.case.itemsize

    def argument(self, parameter, patience):
        """A kernel argument on this rank."""
        kind, name, rank = parameter.kind, parameter.of, self.fabric.rank
        if kind == "address":
            return self.regions[name].address + self.start(name, rank)
        if kind == "multicast":
            return self.fabric.multicast_address(self.regions[name]) + self.start(name, rank)
        if kind == "peers":
            table = [
                self.fabric.peer_address(self.regions[name], peer) + self.start(name, peer)
                for peer in range(self.case.world_size)
            ]
            region = self.fabric.allocate(8 * len(table), 256, f"peers of {name}")
            self.fabric.write(region, 0, torch.tensor(table, dtype=torch.int64).view(torch.uint8))
            return region.address
        if kind == "counts":
            self.counts = self.fabric.allocate(8 * self.case.world_size, 256, "counts")
            return self.counts.address
        return {"numel": self.case.numel, "rank": rank, "root": self.case.root, "patience": patience}[kind]

    def take(self, case):
        """Take the counts of a case: what follows the elements that this rank gets is not the kernel's to write."""
        self.sizes["output"] = self.collective.received(case, self.fabric.rank) * case.itemsize
        if self.counts is not None:
            row = torch.tensor(self.collective.sends(case)[self.fabric.rank], dtype=torch.int64)
            self.fabric.write(self.counts, 0, row.view(torch.uint8))

    def prepare(self, data):
        """The input's bytes, and all else of both regions back to PATTERN."""
        assert data.numel() == self.sizes["input"]
        regions = {self.regions[name].name: self.regions[name] for name in self.starts}
        for region in regions.values():
            self.fabric.write(region, 0, pattern(region.size_bytes))
        self.fabric.write(self.regions["input"], self.start("input", self.fabric.rank), data)

    def payload(self, name):
        region = self.regions[name]
        return self.fabric.read(region, self.start(name, self.fabric.rank), self.sizes[name])

    def output(self):
        return self.payload("output").clone()

    def changed(self, data):
        """The buffers that a kernel wrote where it must not: all but the bytes of an output that this rank gets.

        What the kernel may write is not read: peers may be a launch ahead, and write it again.
        """
        found = []
        for name, region in self.regions.items():
            if self.in_place and name in self.starts:
                continue
            expected = pattern(region.size_bytes)
            if name in ("input", "buffer"):
                self._slice(expected, "input").copy_(data)
            mine = {"buffer": ["output"], "input": [], "output": ["output"]}.get(name, [name])
            start = 0
            for one in mine if mine != ["output"] or self._gets_output() else []:
                end = self.start(one, self.fabric.rank)
                if not self._holds(region, start, expected[start:end]):
                    found.append(name)
                start = end + self.sizes[one]
            if not self._holds(region, start, expected[start:]):
                found.append(name)
        return found

    def _holds(self, region, start, expected):
        return torch.equal(self.fabric.read(region, start, expected.numel()), expected)

    def _slice(self, content, name):
        return content[self.start(name, self.fabric.rank) :][: self.sizes[name]]

    def _gets_output(self):
        count = self.collective.counts(self.case.numel, self.case.world_size)[0]
        inputs = [torch.zeros(count)] * self.case.world_size
        return self.collective.outputs(inputs, self.fabric.rank, self.case.root) is not None


class StoreCounts(Listener):
    """How often each byte of a world's memory was stored to: by plain stores, multicast ones and bulk copies."""

    def __init__(self, space):
        self.space = space
        self.counts = np.zeros(space.world_size * space.capacity, np.uint16)

    def access(self, event):
        if event.action not in ("store", "broadcast"):
            return
        viewer = np.asarray(event.viewer, np.int64)
        index = event.addresses.astype(np.int64) - TAG - viewer * self.space.view_bytes
        every = index[:, None] + np.arange(event.width_bytes)
        if event.action == "store":
            np.add.at(self.counts, every, 1)
            return
        for rank in range(self.space.world_size):
            np.add.at(self.counts, every + (rank - MULTICAST) * self.space.capacity, 1)

    def copy(self, event):
        if event.moment == "issued" and not event.is_load:
            start = event.global_address - TAG - int(event.ranks[0]) * self.space.view_bytes
            self.counts[start : start + event.size_bytes] += 1

    def of(self, rank, region):
        """Per byte of a rank's region."""
        start = region.address - self.space.base(rank)
        return self.counts[start : start + region.size_bytes]


def pattern(size_bytes):
    return torch.full((size_bytes,), PATTERN, dtype=torch.uint8)


def as_int32(value):
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def numbers(case, launch, rank):
    """Inputs for exact sums: integers from 1 to LARGEST, others for every launch and rank; of floats some are -0.0."""
    count = ops.collective(case.op).counts(case.numel, case.world_size)[0]
    drawn = np.random.default_rng([launch, rank]).integers(1, LARGEST, count, endpoint=True)
    made = torch.from_numpy(drawn).to(DTYPES[case.dtype])
    if case.dtype in FLOATS:
        made[64:128] = -0.0
    return made


def count_opcodes(ptx):
    """How often each opcode with all its qualifiers stands in a PTX text; comments and directives are left out."""
    opcodes = Counter()
    for line in ptx.splitlines():
        text = line.split("//")[0].strip()
        found = re.match(r"(?:@!?%\w+\s+)?([a-z][\w.:]*)[\s;]", text)
        if found is not None and not text.endswith(":"):
            opcodes[found.group(1)] += 1
    return opcodes


def random_bytes(size_bytes, *seed):
    """uint8[size_bytes] that follow from the seed."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8))


SAMPLE = (
    "all_reduce/two_shot",
    "all_reduce/ll",
    "reduce_scatter/lamport",
    "all_gather/bulk",
    "broadcast/multimem",
    "reduce/pull",
    "all_to_all/push",
    "send_recv/ll128",
    "barrier/push",
)
"""Kernels of which `make test` runs what takes a second each: every op, and every way in which kernels wait."""


def some_slow(values, quick):
    """The values of pytest.mark.parametrize, those for which quick() is false for `make test-all` alone. A tuple has
    a value for each name."""
    made = []
    for one in values:
        arguments = one if isinstance(one, tuple) else (one,)
        made.append(pytest.param(*arguments, marks=() if quick(one) else pytest.mark.slow))
    assert any(not one.marks for one in made), "none is left for make test"
    return made
