"""Litmus programs under the race checker: each runs as a kernel, its threads one after another in every order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

import torch

from cases.finding import SEVERITIES, Finding
from memory.fabric import Argument, Fabric, FabricError, Launch, Region
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatedWorld, SimulatorOptions
from symlab.checks.litmus.compile import LOCATION_BYTES, NOTE, SLOT_BYTES, Kernel, NotCompiled, kernel_of
from symlab.checks.litmus.program import Program, Seen
from symlab.checks.trials.machine import executable_of

_OPTIONS = SimulatorOptions(heap_bytes=1 << 20, races=True)
_BARRIER = "a barrier"
_APART_NS = 200_000
"""How long after one thread the next begins: 200 steps of the simulator."""


@dataclass(slots=True)
class Run:
    """What runs of a program in one world came to, up to the first that hung.

    over: how many are over, that one included. values: registers and words of memory after the last, but for words that
    lie in shared memory; a run that hangs leaves none.
    """

    over: int = 0
    is_deadlock: bool = False
    findings: tuple[Finding, ...] = ()
    values: dict[Seen, int] = field(default_factory=dict)


def checked_kernel(program: Program) -> Kernel:
    """Return a program's kernel for a world that is checked: each thread in a warp of its own, with a time to begin.

    Raises NotCompiled for a program that no kernel can be, and for a second address of a location.
    """
    kernel = kernel_of(program, unit="warp", has_starts=True)
    for one in kernel.pointers:
        if one.kind == "alias":
            locations = program.memory.locations(one.name)
            raise NotCompiled(
                f"{one.name} is a second address of {locations[0]}; a rank has one address of each location"
            )
    return kernel


def verdict(program: Program) -> str:
    """Return what the checker says of a program, for a terminal: one line, and one for each pair of instructions."""
    try:
        findings = races_of(program)
    except (NotCompiled, FabricError) as error:
        return f"races: not checked: {error}"
    lines = checked_kernel(program).ptx.splitlines()
    missing: dict[tuple[str, ...], set[str]] = {}
    for one in findings:
        sides = sorted(lines[side.line - 1].partition(NOTE)[2] for side in (one.first, one.second))
        missing.setdefault((one.severity, *sides), set()).add(one.missing)
    if not missing:
        return "races: none"
    said = []
    for (severity, first, second), names in sorted(missing.items(), key=lambda item: SEVERITIES.index(item[0][0])):
        # what a flag lacked says more than that nothing is between
        wanted = " or ".join(sorted(names - {_BARRIER} or names))
        said.append(f"  {severity}: {wanted} is missing between {first} and {second}")
    return "\n".join(["races: found", *said])


def races_of(program: Program, options: SimulatorOptions = _OPTIONS) -> tuple[Finding, ...]:
    """Return what the checker finds in a program: all of its threads run one after another, in every order of them.

    Threads that wait for each other alternate. An order in which they wait for ever is left out. Raises NotCompiled for
    a program that no kernel can be.
    """
    found: dict[tuple[object, ...], Finding] = {}
    orders: list[tuple[int, ...]] = list(permutations(range(len(program.threads))))
    while orders:
        result = run(program, options, orders)
        for one in result.findings:
            key = (one.severity, one.missing, one.first.line, one.second.line, one.first.rank, one.second.rank)
            found.setdefault(key, one)
        orders = orders[result.over :]
    return tuple(found.values())


def run(program: Program, options: SimulatorOptions = _OPTIONS, orders: Sequence[tuple[int, ...]] = ((),)) -> Run:
    """Run a program once for each order of its threads (an empty one: all begin at once). Raises NotCompiled for a
    program that no kernel can be, and FabricError for a run that fails."""
    kernel = checked_kernel(program)
    launch = Launch((kernel.grid, 1, 1), (kernel.block, 1, 1), cluster=(kernel.cluster, 1, 1))
    world = SimulatedWorld(kernel.world_size, options)
    begun = [0] * kernel.world_size
    values: dict[Seen, int] = {}

    def work(fabric: Fabric, _: None) -> None:
        tensors = [fabric.allocate(LOCATION_BYTES, 256, one.name) for one in kernel.tensors]
        seen = fabric.allocate(kernel.seen_bytes, 256, "registers")
        fixed = [Argument("u32", fabric.rank), Argument("u64", seen.address)]
        for one in kernel.pointers:
            tensor = tensors[one.tensor]
            is_all = one.kind == "multicast"
            address = fabric.multicast_address(tensor) if is_all else fabric.peer_address(tensor, one.rank)
            fixed.append(Argument("u64", address))
        for order in orders:
            fabric.barrier()
            for tensor, content in zip(tensors, kernel.tensors, strict=True):
                fabric.write(tensor, 0, torch.frombuffer(bytearray(content.initial[fabric.rank]), dtype=torch.uint8))
            fabric.barrier()
            begun[fabric.rank] += 1
            now = world.space.clock_ns
            starts = [now + (order.index(number) + 1) * _APART_NS if order else 0 for number in range(kernel.starts)]
            fabric.launch(executable_of(program, kernel), launch, [*fixed, *(Argument("u64", one) for one in starts)])
            fabric.synchronize()
        fabric.barrier()
        values.update(_values(fabric, kernel, tensors, seen))
        for region in (seen, *reversed(tensors)):
            fabric.free(region)

    result = Run(len(orders))
    try:
        ThreadWorld(kernel.world_size, machine=world).run(work, None, None)
        result.values = values
    except WorldFailure as failure:
        if failure.status != "DEADLOCK":
            raise FabricError(failure.message) from failure
        result.over, result.is_deadlock = max(begun), True
    finally:
        result.findings = world.findings
        world.close()
    return result


def _values(fabric: Fabric, kernel: Kernel, tensors: list[Region], seen: Region) -> dict[Seen, int]:
    """What the registers of a rank's threads and its part of memory hold."""
    found = {}
    raw = fabric.read(seen, 0, kernel.seen_bytes).numpy().tobytes()
    for (thread, name), (rank, at) in kernel.slots.items():
        if rank == fabric.rank and name and not name.endswith("!"):
            found[Seen(thread, name)] = int.from_bytes(raw[at : at + SLOT_BYTES], "little")
    for name, (tensor, rank) in kernel.locations.items():
        if rank == fabric.rank:
            raw = fabric.read(tensors[tensor], 0, LOCATION_BYTES).numpy().tobytes()
            for word in range(LOCATION_BYTES // 4):
                found[Seen("", name, word)] = int.from_bytes(raw[4 * word : 4 * word + 4], "little")
    return found
