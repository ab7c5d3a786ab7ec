"""Worlds of ranks: open one, run functions on every rank, allocate symmetric memory there, launch kernels."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

import torch

from cases.finding import Finding, gravest_first
from memory.fabric import Fabric
from reports.table.text import counted
from runner.request.gpu_types import arch_of, document_of, gpu_asked
from runner.request.schema import FabricSchema
from runner.request.validate import MAX_DEVICE_HEAP_BYTES, MAX_HEAP_BYTES, check_heap
from runner.request_error import RequestError
from runner.world import fabrics
from runner.world.fabrics import FabricName
from runner.world.launcher import find
from runner.world.world import World as RunnerWorld
from runner.world.world import WorldFailure
from simulator.gpu import block_shared_bytes
from simulator.options import Schedule
from symlab.launching import Brought, Kernel, asked_in, brought_launch, check_block, is_function, run_on_rank
from symlab.ranks import Rank
from symlab.requests import checked, naming_arguments, with_arguments
from symlab.variables import Variables

__tracebackhide__ = True
"""pytest shows the test's own lines, and none of this file."""

Result = TypeVar("Result")


_ARGUMENTS = {
    "world_size": "ranks",
    "check.races": "races",
    **{f"fabric.{one.name}": one.name for one in fields(FabricSchema) if one.name != "share_gpus"},
    "fabric.name": "fabric",
}
"""The arguments of world(), by the command's keys that stand for them."""
_OF_FABRIC = {key: name for key, name in _ARGUMENTS.items() if key.startswith("fabric.")}
"""Those that a failure may name. Another key, such as world_size, may be a name of the kernel's own there."""


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch on all ranks gave: outputs[name][rank] is what a buffer holds afterwards, as a host tensor; counts
    is what the simulator counted ({} on GPUs); seed is that of the schedule, None if it has none.

    findings are those of the race checker, the gravest first; None: the world was opened without races=True, and the
    launch was not checked.

    unwritten[name][rank] is the number of elements of a buffer that were never written, neither by its content nor by
    the kernel: their bytes are 0xFF in outputs, -1 of integers and NaN of floats. {} on GPUs, which can't tell.
    """

    outputs: dict[str, list[torch.Tensor]]
    counts: dict[str, Any]
    seed: int | None = None
    unwritten: dict[str, list[int]] = field(default_factory=dict)
    findings: tuple[Finding, ...] | None = None


class World:
    """Ranks with symmetric memory that run functions together; world() returns it. Use it in a with block.

    ranks is their number, fabric "simulator" or "nvshmem", why says why that was taken. However the block is left, the
    ranks end and all memory is given back. After an exception in a rank or an interrupt the world is not healthy: open
    another one. Open and use a world in the same thread.
    """

    def __init__(self, ranks: int, section: dict[str, Any], races: bool = False) -> None:
        if type(ranks) is not int:
            raise RequestError(f"{ranks!r} is not a whole number (ranks), give a whole number")
        if type(races) is not bool:
            raise RequestError(f"{races!r} is not true or false (races), give True or False")
        request = checked({"world_size": ranks, "fabric": section, "check": {"races": races}})
        if request.fabric.name != FabricName.simulator and (outer := find(os.environ)) is not None:
            raise RequestError(
                f"a world of the Python API starts its own ranks (fabric), start it without {outer.launcher}"
            )
        self.request, self.why = fabrics.resolve(request.fabric, ranks, machine=fabrics.look)
        check_heap(self.request, MAX_HEAP_BYTES if self.request.simulated else MAX_DEVICE_HEAP_BYTES)
        self.section = section
        self.ranks = ranks
        self._world: RunnerWorld | None = None
        self._busy = threading.Lock()
        self._found: dict[tuple[object, ...], Finding] | None = {} if races else None

    @property
    def fabric(self) -> str:
        return str(self.request.name)

    @property
    def healthy(self) -> bool:
        """Whether it is open and nothing has failed in it."""
        return self._world is not None and self._world.healthy

    def __enter__(self) -> Self:
        if self._world is not None:
            raise ValueError("this world is open already: open another one with symlab.world")
        self._world = fabrics.make_world(self.request, self.ranks, lambda line: None)
        return self

    def __exit__(self, *error: object) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.close()

    def run(
        self, function: Callable[[Rank, Any], Result], argument: Any = None, *, deadline_s: float | None = None
    ) -> list[Result]:
        """Call function(rank, argument) on every rank at the same time; return the results by rank.

        rank is a Rank. In the simulator ranks are threads of this process: function may be any function, and all ranks
        share argument. On GPUs ranks are processes: function has to be importable from a module, argument and results
        are pickled. deadline_s: seconds after which the ranks are stopped; None: no limit.

        Raises WorldFailure for an exception in a rank, a deadlock, a missed deadline and symmetric memory that was not
        released; it names the rank, unless all ranks failed alike. Raises ValueError for a world that is not open or
        not healthy, and for a function that can't be sent to the ranks.
        """
        _check_deadline(deadline_s)
        if self.request.name == FabricName.nvshmem and getattr(function, "__module__", "") == "__main__":
            raise ValueError(
                f"{getattr(function, '__qualname__', function)} is defined in a notebook or script, and ranks on GPUs "
                "import what they run (fabric=nvshmem), move it to a module and import it from there"
            )
        with self.lent() as world, _naming_arguments():
            return world.run(_on_rank, (function, argument), deadline_s)

    def launch(
        self,
        kernel: Kernel,
        *,
        grid: int | tuple[int, int, int] | None = None,
        block: int | tuple[int, int, int] | None = None,
        buffers: Mapping[str, Any],
        arguments: Sequence[Any] | Callable[[int], Sequence[Any]] = (),
        local: Sequence[str] = (),
        variables: Variables | Callable[[int], Variables] | None = None,
        entry: str | None = None,
        shared_bytes: int = 0,
        cluster: int | tuple[int, int, int] = 1,
        cooperative: bool = False,
        assumptions: Sequence[str] = (),
        launches: int = 1,
        graph: bool = False,
        dependent: bool = False,
        deadline_s: float | None = None,
    ) -> Launched:
        """Launch a kernel once on every rank, and return what its buffers hold afterwards.

        kernel, grid and block: see symlab.simulate. entry: the kernel's name in PTX that has several. shared_bytes:
        dynamic shared memory of a block. cluster: blocks of a cluster. cooperative: refuse a launch whose blocks do not
        fit on the GPU at once. assumptions: what the kernel relies on beyond PTX, such as ["vector_8"]: names of
        cases/assumptions.py, which the simulator then grants. dependent: it may begin before the launch before it ends.

        launches: number of launches in a row, with nothing between them; buffers keep what they hold, and the word
        "launch" among the arguments counts from 0. kernel may also be a list of kernels, launched in this order each
        time: [{"kernel": ptx, "grid": 4, "arguments": [..], "stream": 1}, ..]; what one leaves out is that of the call.
        Kernels of one stream (a number; None: the default one) run one after another, those of two side by side.
        graph: all of them are captured as one graph, replayed once a launch. outputs are those of the last.

        buffers: by name, what each rank has. A tensor or an array (its content on every rank), a list of them (one a
        rank), (shape, dtype) (never written), or (shape, dtype, fill), where fill is a number, "zeros", "rank",
        "random", "normal", or a function of rank and number of ranks that returns a tensor. Other ranks may reach them
        all, but for those named in local.

        arguments: one for each parameter, or a function that returns them for a rank. An argument is the name of a
        buffer (its address; "name+16": from that byte on), ("peer", name, rank) (the address of another rank's),
        ("peers", name) (the address of a table of all ranks' addresses, 64 bits each), ("multicast", name), a number
        ("u32", 5), of u8 to u64, s8 to s64, f32 and f64, ("u32", "rank"), ("u32", "world_size"), ("bytes", b".."),
        ("addresses", name, 8) (those of all ranks, by value, and zeros up to 8), ("struct", [..]), its members laid out
        as in C, or ("struct", {0: name, 16: ("u32", 5), "size": 24}), by offset in bytes, and ("pointer", ..), the
        address of such a struct in memory of this rank. {"u32": 5} is ("u32", 5), as in the YAML of op=custom.

        A CuTe DSL function takes one for each of its parameters: pointers, numbers, and cute.Tensors. ("tensor", name)
        is a tensor of a buffer (so is its bare name, for a parameter annotated cute.Tensor), ("tensors", name) a list
        of all ranks' tensors; with "dynamic_tensor" and "dynamic_tensors" shapes and strides are read at run time, and
        are no constants of the code. ("constexpr", 8) is a constant. The function computes its launch: grid and block
        may be left out, and must be the same where they are given.

        variables: values of .global and .const variables of the kernel's module, as a library's host side would write
        them: by name bytes, an argument as above, or a dictionary of these by offset in bytes; or a function that
        returns all of it for a rank. What is not given keeps the module's first value.

        Raises WorldFailure and ValueError as run does, and ValueError for what can't be launched.
        """
        asked, arch = asked_in(locals()), self._arch() if is_function(kernel) else None
        work = brought_launch(asked, self.ranks, arch, self.request.heap_bytes)
        seed = int(self.request.seed) if self.request.simulated and self.request.schedule != Schedule.fair else None
        return self.launch_brought(work, seed, deadline_s)

    def launch_brought(self, work: Brought, seed: int | None = None, deadline_s: float | None = None) -> Launched:
        """Carry out a launch that is described already; seed is noted in the result."""
        _check_deadline(deadline_s)
        if self.request.simulated:
            check_block(work, block_shared_bytes(self.request.arch, self.request.gpu))
        with self.lent() as world:
            try:
                with _naming_arguments():
                    found = world.run(run_on_rank, work, deadline_s)
            except WorldFailure as failure:
                if isinstance(failure.__cause__, ValueError):  # what a fabric refuses, such as too large a buffer
                    raise ValueError(failure.message) from failure
                raise
            outputs = {one.name: [rank.outputs[one.name] for rank in found] for one in work.buffers}
            unwritten = {name: [rank.unwritten[name] for rank in found] for name in found[0].unwritten}
            return Launched(outputs, world.counters(), seed, unwritten, self._findings(world))

    def _arch(self) -> str:
        """The architecture of its GPUs, which only the ranks know."""
        with self.lent() as world:
            return str(world.run(_arch_on_rank, None, None)[0])

    def counters(self) -> dict[str, Any]:
        """Return what the simulator counted during the last run: instructions, accesses and bytes by kind and link; {}
        on GPUs. Raises ValueError for a world that is not open."""
        return self._open().counters()

    def findings(self, *, of_all_runs: bool = False) -> tuple[Finding, ...] | None:
        """Return what the race checker found during the last run, the gravest first; None for a world that was opened
        without races=True. Each has severity, missing, first and second (the accesses), count, assumption, fails (of a
        race and a missing proxy fence) and sentence(). Raises ValueError for a world that is not open.

        of_all_runs: return what it found since the world was made, also in runs that failed, each pair of instructions
        once; the world may be closed."""
        if not of_all_runs:
            return self._findings(self._open())
        if self._found is None:
            return None
        return gravest_first(self._found.values())

    def _findings(self, world: RunnerWorld) -> tuple[Finding, ...] | None:
        found = world.findings()
        if found is None and self.request.races:
            raise ValueError("this world has no race checker (races), leave it out")
        return None if found is None else gravest_first(found)

    @contextmanager
    def lent(self) -> Iterator[RunnerWorld]:
        """The runner's world, for one run at a time. ValueError if it is not open, not healthy or in use."""
        world = self._open()
        if not world.healthy:
            raise ValueError("this world was hurt by a failure or an interrupt (world), open another one")
        if not self._busy.acquire(blocking=False):
            raise ValueError("this world runs a function already (world), wait for it or open another one")
        try:
            yield world
        finally:
            self._note(world)
            self._busy.release()

    def _note(self, world: RunnerWorld) -> None:
        """Keep what was found during a run: the next one begins without."""
        if self._found is not None:
            for one in gravest_first(world.findings() or ()):
                self._found.setdefault(one.pair, one)

    def _open(self) -> RunnerWorld:
        if self._world is None:
            raise ValueError("this world is not open (world), use it in a block: with symlab.world(..) as world")
        return self._world

    def __repr__(self) -> str:
        state = "closed" if self._world is None else "open" if self.healthy else "hurt"
        return f"<world of {counted(self.ranks, 'rank')}, {self.fabric}, {state}>"


def world(
    ranks: int = 2,
    *,
    fabric: str = "simulator",
    heap_bytes: int | str | None = None,
    arch: str | None = None,
    multicast: bool = True,
    multimem: str = "exact",
    schedule: str = "fair",
    granularity: str | None = None,
    seed: int = 0,
    step_budget: int | None = None,
    gpu: str | None = None,
    races: bool = False,
    memory: str = "strong",
) -> World:
    """Return a world of ranks with symmetric memory, to be used in a with block.

    ranks: their number. fabric: "simulator" (ranks are threads, kernels are interpreted), "nvshmem" (a process and a
    GPU a rank; needs the gpu extra), or "auto": nvshmem where it is possible, else the simulator. heap_bytes: one
    rank's symmetric memory, a number of bytes or text such as "1G"; None: 256M simulated, 8G on GPUs.

    The others are the simulator's. arch: the GPUs' architecture; None: that of gpu, sm_90a without one. multicast:
    whether the switch has it. multimem: how the switch adds floats, "exact" (rounded once) or "stated" (in the
    precision that the instruction states). schedule: the order in which threads run, "fair", "random" (drawn from
    seed), "adversarial" (by seed, rather what is likely to break) or "priority" (by seed, some blocks ahead of others).
    granularity: other threads may run after each "access" to memory, or after each basic "block"; None: "access", of a
    fair order and one by priority "block". step_budget: maximum number of steps of one run; None: the simulator's own.
    gpu: whose limits hold, by name ("h100") or by the path of a file; None: all blocks of a launch are there at once.
    races: look for accesses that nothing orders; World.findings and a launch's `findings` have them. In fair order each
    run is then repeated in worlds of its own with schedule="priority", seeds 0 and 1, the second if both take at most
    twice its time, or 0.25 s; "race_orders" of its counts names them, and their results are dropped. memory: when a
    store becomes visible, "strong" (at once, to all) or "weak" (to each thread at a time of its own, drawn from seed,
    as far as the PTX memory model lets it).

    Raises ValueError, with the message of the command `symlab run` that names the argument in place of the key, for a
    value that is not possible and for GPUs that are unavailable. Entering the block raises WorldFailure if a rank can't
    be started.

    >>> import symlab, torch
    >>> def program(rank, count):
    ...     with rank.pool() as pool:
    ...         data = pool.tensor(count, torch.float32, name="data", fill=rank.rank)
    ...         rank.barrier()
    ...         return data.read().sum().item(), data.multicast().address != data.address
    >>> with symlab.world(ranks=3) as world:
    ...     world.run(program, 4)
    [(0.0, True), (4.0, True), (8.0, True)]
    """
    with naming_arguments(_ARGUMENTS):
        limits = None if gpu is None else gpu_asked(gpu).type().limits
    arch = arch or ("sm_90a" if limits is None else arch_of(limits))
    section: dict[str, Any] = {"name": fabric, "arch": arch, "heap_bytes": heap_bytes, "multicast": multicast}
    section |= {"multimem": multimem, "schedule": schedule, "granularity": granularity, "memory": memory, "seed": seed}
    section |= {"step_budget": step_budget, "gpu": None if limits is None else document_of(limits)}
    with naming_arguments(_ARGUMENTS):
        return World(ranks, section, races)


@contextmanager
def _naming_arguments() -> Iterator[None]:
    """Within, a WorldFailure names arguments of the API in place of the command's keys."""
    try:
        yield
    except WorldFailure as failure:
        failure.message = with_arguments(failure.message, _OF_FABRIC)
        failure.args = (failure.message,)
        raise


def _on_rank(fabric: Fabric, work: tuple[Callable[[Rank, Any], Result], Any]) -> Result:
    """The per-rank program of World.run."""
    function, argument = work
    return function(Rank(fabric), argument)


def _check_deadline(deadline_s: float | None) -> None:
    if deadline_s is None:
        return
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, (int, float)):
        raise ValueError(f"a deadline of {deadline_s!r} is no number (deadline_s), give seconds above 0, or None")
    if not (math.isfinite(deadline_s) and deadline_s > 0):
        raise ValueError(f"a deadline of {deadline_s} s leaves no time (deadline_s), give seconds above 0, or None")


def _arch_on_rank(fabric: Fabric, argument: None) -> str:
    return fabric.traits.arch
