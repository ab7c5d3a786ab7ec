"""What an exhibit is: a small kernel with a bug of the field, the same kernel mended, and what both must leave.

The two are one text. Lines that begin with "-" are in the kernel with the bug alone, lines that begin with "+" in the
mended one alone.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cases.case import Case
from kernels.compile import executable
from kernels.spec import KernelSpec
from memory.fabric import Deadlock, Executable, PeerLost, Region
from simulator.fabric import SimulatorFabric
from tests.kernels.launching import Launches
from tests.museum.notation import ptx_of
from tests.simulator import harness
from tests.simulator.isa.tensor_maps import Map, encoded

ARCH = harness.ARCH
CACHE = Path("~/.cache/symlab/kernels").expanduser()
"""Where the runner keeps compiled kernels, too (cache_dir)."""

NUMBERS = ("rank", "launch", "colour", "epoch")
"""Parameters of 32 bits."""

BOX_WORDS = 32
"""A tensor map is of one dimension, all of a buffer, with boxes of this size."""

HEAP_BYTES = 1 << 16
STEP_BUDGET = 100_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run came to: "clean", "wrong" (output), "deadlock", "finding", or an error's name; and its details."""

    outcome: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A bug, its mend, and how to tell them apart.

    thread: where the bug is told, such as "NVIDIA/cutlass#3117"; "" for a mutant of ours. title: what a mutant is
    called. defect: what is wrong, in a few words. body: PTX of both kernels, as tests/simulator/harness.py's module()
    takes it, and in the short forms of notation.py. %data is the address of the rank's own buffer, %peer_data of the
    next rank's, %data_2 of rank 2's, %multicast_data of all of them; `map` makes a tensor map of any of these; %rank;
    every other number is what the host gives.
    buffers: the words that each begins with, on all ranks. host: what a rank's host does, given the stage. expected:
    the words of "out" on a rank. ways: by which of ways.WAYS the bug must be found.
    """

    defect: str
    body: str
    buffers: Mapping[str, Sequence[int]]
    expected: Callable[[int], Sequence[int]]
    ways: tuple[str, ...]
    thread: str = ""
    title: str = ""
    ranks: int = 2
    grid: int = 1
    block: int = 32
    cluster: int = 1
    host: Callable = field(default=lambda stage: stage.launch())
    before: str = ""

    @property
    def name(self):
        """The project and the number, or the mutant's title."""
        return self.title or self.thread.rpartition("/")[2]

    @property
    def parameters(self):
        """Names of what either kernel is given: buffers' addresses, and NUMBERS."""
        names = set(re.findall(r"(?:%|kernel_)([a-z]\w*)", ptx_of(self.body, False) + ptx_of(self.body, True)))
        return tuple(sorted(one for one in names if one in NUMBERS or any(of in one for of in self.buffers)))

    def ptx(self, is_mended):
        """Return the PTX module of one of the two kernels."""
        parameters = [f"{_kind_of(name)} {name}" for name in self.parameters]
        return harness.module(ptx_of(self.body, is_mended), parameters, before=self.before)

    def run(self, is_mended, **options):
        """Run one of the two kernels on a new world with these options."""
        world = harness.make_world(self.ranks, **{"heap_bytes": HEAP_BYTES, "step_budget": STEP_BUDGET, **options})
        executable = harness.executable(self.ptx(is_mended), f"museum/{self.name}")

        def program(fabric):
            regions = {
                name: harness.put(fabric, name, np.array(words, np.uint32)) for name, words in self.buffers.items()
            }
            fabric.barrier()
            self.host(Stage(self, fabric, is_mended, executable, regions))
            return [int(word) for word in harness.get(fabric, regions["out"], "u4")]

        outcome = harness.run(world, program)
        if any(outcome.errors):
            return failed(outcome.error())
        if findings := findings_of(world):
            return findings
        for rank, words in enumerate(outcome.results):
            expected = list(self.expected(rank))
            if words != expected:
                at = next(at for at, word in enumerate(words) if word != expected[at])
                return Seen("wrong", f"rank {rank}: out[{at}] is {words[at]}, not {expected[at]}")
        return Seen("clean")


def _kind_of(name):
    return "struct128" if name.startswith("map_") else "u32" if name in NUMBERS else "u64"


@dataclass(frozen=True, slots=True)
class Stage:
    """What a rank's host has: its memory, and launches of the kernel."""

    exhibit: Exhibit
    fabric: SimulatorFabric
    is_mended: bool
    executable: Executable
    regions: Mapping[str, Region]

    def launch(self, stream=None, **numbers):
        """Launch the kernel with these numbers; it does not wait."""
        values = [numbers[name] if name in numbers else self.value(name) for name in self.exhibit.parameters]
        how = (self.exhibit.grid, self.exhibit.block, values)
        harness.start(self.fabric, self.executable, *how, stream=stream, cluster=self.exhibit.cluster)

    def barrier(self):
        """Wait for this rank's launches, then for all ranks."""
        self.fabric.synchronize()
        self.fabric.barrier()

    def value(self, name):
        """A parameter's value by its name."""
        if name == "rank":
            return self.fabric.rank
        if name in self.regions:
            return self.regions[name].address
        first, _, rest = name.partition("_")
        if first == "map":
            words = len(next(given for of, given in self.exhibit.buffers.items() if of in rest))
            return encoded(Map("u32", (words,), (), (BOX_WORDS,), (1,)), self.value(rest))
        if first == "multicast":
            return self.fabric.multicast_address(self.regions[rest])
        if first == "peer":
            return self.fabric.peer_address(self.regions[rest], (self.fabric.rank + 1) % self.fabric.world_size)
        of, _, rank = name.rpartition("_")
        return self.fabric.peer_address(self.regions[of], int(rank))


def launches(count):
    """A host that launches a number of times in a row, with the launch's number as `launch`, and waits for nothing."""

    def host(stage):
        for number in range(count):
            stage.launch(launch=number)

    return host


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """A kernel of this project with a bug that a change of its PTX makes; as it is, it is the mended one.

    spec and case say which kernel. It is launched three times in a row.
    """

    name: str
    defect: str
    spec: KernelSpec
    case: Case
    change: Callable[[str], str]
    ways: tuple[str, ...]
    thread: str = ""

    def ptx(self, is_mended):
        """Return the PTX module of one of the two kernels."""
        text = executable(self.spec, self.case, ARCH, CACHE).ptx
        return text if is_mended else self.change(text)

    def run(self, is_mended, **options):
        """Run one of the two kernels on a new world with these options."""
        compiled = executable(self.spec, self.case, ARCH, CACHE)
        text = self.ptx(is_mended)
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        work = Launches(self.spec, self.case, replace(compiled, ptx=text, digest=digest, cubin=b""), count=3)
        world = work.run(**options)
        errors = sorted(work.errors.values(), key=lambda one: isinstance(one, PeerLost))
        if errors:
            return failed(errors[0])
        return findings_of(world) or Seen("clean" if work.seen() == "right" else work.seen())


def failed(error):
    """Return what an error of a run comes to."""
    return Seen("deadlock" if isinstance(error, Deadlock) else type(error).__name__, str(error))


def findings_of(world):
    """Return what the checker found in a world; None if it found nothing, or was off."""
    found = [one for one in getattr(world, "findings", ()) if one.severity != "advisory"]
    return Seen("finding", found[0].sentence()) if found else None
