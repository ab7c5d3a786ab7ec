"""Litmus programs under the race checker: each runs as a kernel, its threads one after another in every order."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import torch

from memory.fabric import Argument, Deadlock, Executable, FabricError, Launch
from simulator.fabric import SimulatorFabric
from simulator.litmus.compile import NOTE, Kernel, NotCompiled, kernels_of
from simulator.litmus.program import Program
from simulator.races.finding import SEVERITIES, Finding
from simulator.world import SimulatedWorld, SimulatorOptions

_OPTIONS = SimulatorOptions(heap_bytes=1 << 20, races=True)
_BARRIER = "a barrier"
_APART_NS = 200_000
"""How long after one thread the next begins: 200 steps of the simulator."""


def verdict(program: Program) -> str:
    """Return what the checker says of a program, for a terminal: one line, and one for each pair of instructions."""
    try:
        findings = races_of(program)
    except (NotCompiled, FabricError) as error:
        return f"races: not checked: {error}"
    lines = kernels_of(program).ptx.splitlines()
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
    kernel = kernels_of(program)
    digest = "sha256:" + hashlib.sha256(kernel.ptx.encode()).hexdigest()
    executable = Executable(f"litmus/{program.name}", "litmus", "sm_90a", kernel.ptx, digest)
    found: dict[tuple[object, ...], Finding] = {}
    orders = list(permutations(range(len(program.threads))))
    while orders:
        done, findings = _run(program, kernel, executable, orders, options)
        for one in findings:
            key = (one.severity, one.missing, one.first.line, one.second.line, one.first.rank, one.second.rank)
            found.setdefault(key, one)
        orders = orders[done:]
    return tuple(found.values())


def _run(
    program: Program,
    kernel: Kernel,
    executable: Executable,
    orders: list[tuple[int, ...]],
    options: SimulatorOptions,
) -> tuple[int, tuple[Finding, ...]]:
    """Run orders in one world, up to the first that hangs. Returns how many are over, that one included."""
    world = SimulatedWorld(kernel.ranks, options)
    begun = [0] * kernel.ranks

    def work(fabric: SimulatorFabric) -> None:
        memory = fabric.allocate(kernel.size_bytes, 256, "memory")
        results = fabric.allocate(max(8 * len(kernel.registers), 8), 256, "results")
        addresses = [fabric.peer_address(memory, rank) for rank in range(kernel.ranks)]
        multicast = fabric.multicast_address(memory) if kernel.has_multicast else 0
        for order in orders:
            fabric.barrier()
            fabric.write(memory, 0, _initial(program, kernel, fabric.rank))
            fabric.barrier()
            begun[fabric.rank] += 1
            now = world.space.clock_ns
            starts = [now + (order.index(number) + 1) * _APART_NS for number in range(len(program.threads))]
            values = [*addresses, multicast, results.address]
            arguments = [Argument("u64", value) for value in values]
            arguments += [Argument("u32", fabric.rank), *(Argument("u64", one) for one in starts)]
            cluster = (kernel.cluster, 1, 1)
            fabric.launch(executable, Launch((kernel.blocks, 1, 1), (kernel.threads, 1, 1), cluster=cluster), arguments)
            fabric.synchronize()

    try:
        _on_all_ranks(world, work)
    except Deadlock:
        return max(begun), world.findings
    finally:
        findings = world.findings
        world.close()
    return len(orders), findings


def _initial(program: Program, kernel: Kernel, rank: int) -> torch.Tensor:
    """The memory of a rank at the beginning."""
    words = np.zeros(kernel.size_bytes // 4, np.uint32)
    for name, values in program.memory.initial.items():
        home, offset = kernel.memory[name]
        if home == rank:
            words[offset // 4 : offset // 4 + len(values)] = values
    return torch.from_numpy(words.view(np.uint8))


def _on_all_ranks(world: SimulatedWorld, work: Callable[[SimulatorFabric], None]) -> None:
    """Run a function on every rank; raise the first error."""
    errors: list[Any] = [None] * world.world_size
    fabrics = [world.fabric(rank) for rank in range(world.world_size)]

    def one(rank: int) -> None:
        try:
            work(fabrics[rank])
        except BaseException as error:
            errors[rank] = error
        try:
            world.leave(rank, errors[rank])
        except BaseException as error:
            errors[rank] = errors[rank] or error

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(world.world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [error for error in errors if error is not None]
    if found:
        raise next((error for error in found if isinstance(error, Deadlock)), found[0])
