"""Run a kernel that was brought on virtual GPUs, under many orders of its threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cases.finding import Finding, gravest_first
from memory.tensor import flat_bytes
from reports.table.text import counted
from runner.world.world import WorldFailure
from simulator.options import Memory, Schedule
from symlab.launching import Brought, Kernel, asked_in, brought_launch
from symlab.variables import Variables
from symlab.worlds import Launched, world

__tracebackhide__ = True
"""pytest shows the test's own lines, and none of this file."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a kernel did under all seeds: `runs` has a Launched for each, in order, with seed, outputs, unwritten and
    counts."""

    runs: tuple[Launched, ...]

    @property
    def outputs(self) -> dict[str, list[torch.Tensor]]:
        """What the buffers hold afterwards, by name and rank. ValueError if two seeds gave different bytes: then each
        of `runs` has its own."""
        first = self.runs[0]
        for name, by_rank in first.outputs.items():
            for other in self.runs[1:]:
                for rank, (one, same) in enumerate(zip(by_rank, other.outputs[name], strict=True)):
                    if (found := _difference(one, same)) is not None:
                        count, at = found
                        values = " and ".join(str(each.reshape(-1)[at].item()) for each in (one, same))
                        raise ValueError(
                            f"the result depends on the order of threads: buffer {name} on rank {rank} differs at "
                            f"{count} of {counted(one.numel(), 'element')}, first at element {at}, {values} under "
                            f"seeds {first.seed} and {other.seed}, look at .runs"
                        )
        return first.outputs

    @property
    def unwritten(self) -> dict[str, list[int]]:
        """How many elements of a buffer were never written, by name and rank: the largest number of all seeds. Their
        bytes are 0xFF in outputs."""
        return {
            name: [max(counts) for counts in zip(*(run.unwritten[name] for run in self.runs), strict=True)]
            for name in self.runs[0].unwritten
        }

    @property
    def findings(self) -> tuple[Finding, ...] | None:
        """What the race checker found under any seed, each pair of instructions once, the gravest first; None if it was
        not asked for (races=True)."""
        found: dict[tuple[object, ...], Finding] = {}
        for run in self.runs:
            for one in run.findings or ():
                found.setdefault(one.pair, one)
        if self.runs[0].findings is None:
            return None
        return gravest_first(found.values())

    @property
    def counts(self) -> dict[str, Any]:
        """What the simulator counted under the first seed: instructions, accesses and bytes by kind and link."""
        return self.runs[0].counts


def simulate(
    kernel: Kernel,
    *,
    ranks: int = 4,
    grid: int | tuple[int, int, int] | None = None,
    block: int | tuple[int, int, int] | None = None,
    buffers: Mapping[str, Any],
    arguments: Sequence[Any] | Callable[[int], Sequence[Any]] = (),
    local: Sequence[str] = (),
    variables: Variables | Callable[[int], Variables] | None = None,
    schedule: str = "random",
    granularity: str | None = None,
    seeds: int | Sequence[int] = 20,
    entry: str | None = None,
    shared_bytes: int = 0,
    cluster: int | tuple[int, int, int] = 1,
    cooperative: bool = False,
    assumptions: Sequence[str] = (),
    launches: int = 1,
    graph: bool = False,
    dependent: bool = False,
    arch: str | None = None,
    gpu: str | None = None,
    multicast: bool = True,
    heap_bytes: int | str | None = None,
    step_budget: int | None = None,
    races: bool = False,
    deadline_s: float | None = None,
    memory: str = "strong",
) -> Simulation:
    """Launch a kernel on every rank of a simulated world, for each seed in a world of its own.

    kernel: PTX text, the path of a PTX file, a compiled kernel (symlab.compile), or a CuTe DSL function that is then
    compiled. ranks: number of virtual GPUs. arch: theirs; None: what the PTX is for, or that of gpu. grid and block:
    numbers of blocks and of threads of a block, in x or in (x, y, z); a kernel may state its block, and a CuTe DSL
    function computes both. Other arguments of the launch (buffers, arguments, local, variables, entry, shared_bytes,
    cluster, cooperative, assumptions, launches, graph, dependent), and several kernels in a row: see World.launch.
    schedule: "random", "adversarial" or "priority" (another order for each seed), or "fair" (one run, unless memory is
    "weak"). seeds: number, from 0, or a list. step_budget, deadline_s: most steps and seconds of a run. gpu,
    granularity, memory, races, multicast, heap_bytes: see symlab.world.

    Returns a Simulation: `outputs`, `unwritten`, `counts`, `findings`, `runs` say all. Raises WorldFailure with seed,
    rank, block, thread, ptx_line and source; ValueError for what can't be launched.

    >>> import symlab
    >>> ptx = '''
    ... .version 8.0
    ... .target sm_90
    ... .entry note(.param .u64 out, .param .u32 rank) {
    ...   .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [out]; ld.param.u32 %r, [rank]; st.global.u32 [%d], %r; ret; }
    ... '''
    >>> buffers = {"out": (1, "int32")}
    >>> done = symlab.simulate(ptx, ranks=3, grid=1, block=1, buffers=buffers, arguments=["out", ("u32", "rank")])
    >>> [int(out) for out in done.outputs["out"]], len(done.runs)
    ([0, 1, 2], 20)
    """
    asked = asked_in(locals())
    how: dict[str, Any] = {"schedule": schedule, "granularity": granularity, "multicast": multicast, "gpu": gpu}
    how |= {"heap_bytes": heap_bytes, "step_budget": step_budget, "races": races, "memory": memory}
    numbers, made = _seeds(schedule, memory, seeds), world(ranks, arch=arch, **how).request
    arch = arch if gpu is None else made.arch
    work = brought_launch(asked, ranks, arch, made.heap_bytes)
    how |= {"arch": arch or work.arch}
    return Simulation(tuple(_run(work, ranks, seed, deadline_s, how) for seed in numbers))


def _run(work: Brought, ranks: int, seed: int, deadline_s: float | None, how: dict[str, Any]) -> Launched:
    """One launch in a world of its own. A failure under a random order has the seed."""
    with world(ranks, seed=seed, **how) as opened:
        try:
            return opened.launch_brought(work, seed, deadline_s)
        except WorldFailure as failure:
            if how["schedule"] != Schedule.fair:
                raise _under(failure, how, seed) from failure.__cause__
            raise


def _seeds(schedule: str, memory: str, seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if type(seeds) is int else list(seeds) if isinstance(seeds, Sequence) else []
    if not numbers or not all(type(one) is int and one >= 0 for one in numbers):
        raise ValueError(f"seeds is {seeds!r} (seeds), give their number, 1 or more, or a list of them, each 0 or more")
    return numbers[:1] if schedule == Schedule.fair and memory == Memory.strong else numbers


def _under(failure: WorldFailure, how: dict[str, Any], seed: int) -> WorldFailure:
    """The failure, with the seed that it happened under."""
    message = f"{failure.message} (schedule={how['schedule']}, seed {seed}; seeds=[{seed}] repeats it)"
    found = WorldFailure(failure.status, failure.rank, message, failure.errors)
    found.seed = seed
    return found


def _difference(one: torch.Tensor, other: torch.Tensor) -> tuple[int, int] | None:
    """The number of elements whose bytes differ, and the first of them; None if there is none."""

    raw = [flat_bytes(tensor).view(-1, one.element_size()) for tensor in (one, other)]
    if torch.equal(raw[0], raw[1]):
        return None
    where = (raw[0] != raw[1]).any(dim=1).nonzero()
    return len(where), int(where[0])
