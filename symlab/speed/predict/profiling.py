"""The profile of a case by the simulator's clock: its own size where that is worth it, else extended.

A block's critical path depends on the bytes that the block moves, not on how many other blocks there are: so a large
message is simulated on fewer blocks with as much for each of them ("blocks"). Where one block has more than is worth
simulating, its rounds go along the line through two smaller sizes ("rounds"). Bytes over links grow with the message.
tests/symlab/speed/predict hold both against simulations of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from cases.case import Case
from cases.ops import collective
from kernels.spec import KernelSpec
from memory.fabric import Executable, Fabric, Launch
from memory.pool import SymmetricPool
from runner.case.allocation import GUARD_BYTES
from runner.case.binding import bind
from runner.case.inputs import CPU, make_input
from runner.case.layout import layout_of
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.clock.book import LINE_BITS
from simulator.clock.costs import Costs
from simulator.clock.profile import LaunchProfile, Phase
from simulator.world import SimulatedWorld, SimulatorOptions
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork

WHOLE_BYTES = 1 << 20
"""Messages up to this size are simulated as they are: a second or less each on 2 ranks. See most_whole_bytes."""

WHOLE_RANKS = 8
"""Number of ranks up to which that holds. Beyond it the size falls as the number of ranks grows."""

LEAST_BYTES = 1 << 10
"""The message whose path is CaseWork.least."""

LAUNCHES = 3
"""Launches in a row; the last one counts. The first finds flags and banks as they are allocated."""

DEADLINE_S = 300.0
"""Seconds that each simulation may take."""

_SPARE_BYTES = 1 << 20
_LINE_BYTES = 1 << LINE_BITS


class NotSimulated(WorldFailure):
    """A simulation that its deadline ended: the host is slow or busy, which says nothing about the kernel."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """A case with what runs it. least_blocks: the fewest blocks that the kernel can be launched with, of which its
    grids are multiples."""

    case: Case
    spec: KernelSpec
    executable: Executable
    launch: Launch
    least_blocks: int

    @property
    def blocks(self) -> int:
        """Number of blocks of the launch."""
        return self.launch.grid[0]

    def resized(self, size_bytes: int, blocks: int) -> Runnable:
        """Return the same code with another message and other blocks. The message is cut to a whole number of elements
        for each rank. A function of CuTe DSL is compiled again, and has its own blocks.

        Workspaces are those of the smallest message, doubled until it is this case's, whose launch has the same variant
        of the code and as many blocks: another variant may need less (two_shot has scratch only where it pushes), and
        an inbox of the whole case may have gigabytes."""
        unit = self.case.itemsize * (self.case.world_size if collective(self.case.op).chunked else 1)
        size_bytes = max(size_bytes // unit, 1) * unit if size_bytes else 0
        if self.executable.host is not None:
            assert self.spec.made is not None
            case = replace(self.case, size_bytes=size_bytes)
            made = self.spec.made(case, self.executable.arch)
            return replace(self, case=case, executable=made, launch=made.host.launch)
        spacious = replace(self.case, size_bytes=min(size_bytes, self.case.size_bytes))
        while spacious.size_bytes < self.case.size_bytes and not self._has_room(spacious, blocks):
            spacious = replace(spacious, size_bytes=min(max(spacious.size_bytes, unit) * 2, self.case.size_bytes))
        spaces = self.spec.workspaces(spacious)
        launch = Launch(blocks, self.launch.block, shared_bytes=self.launch.shared_bytes)
        return replace(
            self,
            case=replace(self.case, size_bytes=size_bytes),
            spec=replace(self.spec, workspaces=lambda _: spaces, launch=lambda _: launch),
            launch=launch,
        )

    def _has_room(self, case: Case, blocks: int) -> bool:
        """Return whether the workspaces of a case are of the code's variant, and of as many blocks."""
        is_same = self.spec.variant(case) == self.spec.variant(self.case)
        return is_same and self.spec.launch(case).grid[0] >= blocks


Clock = Callable[[Runnable, Costs], LaunchProfile]
"""What clocks a launch: the simulator (clocked), or what remembers what it said."""


def profiled(
    runnable: Runnable, costs: Costs, least: Mapping[str, float] | None = None, clock: Clock | None = None
) -> CaseWork:
    """Return the profile of a case. least: that of the same code, if it is known (CaseWork.least); clock: what clocks
    its launches, None for the simulator.

    Raises WorldFailure if the kernel fails in the simulator.
    """
    clock = clock or clocked
    if least is None:
        least = least_steps(runnable, costs, clock)
    size_bytes = runnable.case.size_bytes
    most_bytes = most_whole_bytes(runnable.case.world_size)
    if size_bytes <= most_bytes:
        return _profile(least, clock(runnable, costs), 1.0, "simulated", runnable.blocks)
    whole_blocks = runnable.blocks
    size_bytes, blocks = shrunk(size_bytes, whole_blocks, runnable.least_blocks, most_bytes)
    if size_bytes <= most_bytes:
        times = runnable.case.size_bytes / size_bytes
        return _profile(least, clock(runnable.resized(size_bytes, blocks), costs), times, "blocks", whole_blocks)
    upper = size_bytes
    while upper > most_bytes:
        upper //= 2
    high, low = (clock(runnable.resized(size, blocks), costs) for size in (upper, upper // 2))
    whole = _profile(least, high, runnable.case.size_bytes / upper, "rounds", whole_blocks)
    return replace(whole, steps=extended(low.path.counts, high.path.counts, (size_bytes - upper) / (upper // 2)))


def least_steps(runnable: Runnable, costs: Costs, clock: Clock | None = None) -> dict[str, float]:
    """Return the critical path of the same code with the least work. clock: see profiled."""
    size_bytes = min(LEAST_BYTES, runnable.case.size_bytes)
    return _steps((clock or clocked)(runnable.resized(size_bytes, runnable.least_blocks), costs))


def most_whole_bytes(ranks: int) -> int:
    """Return the largest message that is simulated as it is on a number of ranks: WHOLE_BYTES, beyond WHOLE_RANKS a
    power of two that falls as their number grows, because every rank reads or writes the data of all."""
    share = WHOLE_BYTES * WHOLE_RANKS // max(ranks, WHOLE_RANKS)
    return 1 << (share.bit_length() - 1)


def shrunk(size_bytes: int, blocks: int, least_blocks: int, most_bytes: int) -> tuple[int, int]:
    """Return a size and a number of blocks with as many bytes a block, halved until the size is at most most_bytes
    or the blocks can't be halved: grids are multiples of least_blocks."""
    while size_bytes > most_bytes and blocks % 2 == 0 and blocks // 2 % least_blocks == 0:
        size_bytes, blocks = size_bytes // 2, blocks // 2
    return size_bytes, blocks


def extended(low: Mapping[str, float], high: Mapping[str, float], times: float) -> dict[str, float]:
    """Return counts on the line from low to high, times as far beyond high as high is from low; none below 0."""
    kinds = dict.fromkeys((*high, *low))
    found = {kind: high.get(kind, 0) + (high.get(kind, 0) - low.get(kind, 0)) * times for kind in kinds}
    return {kind: count for kind, count in found.items() if count > 0}


def clocked(runnable: Runnable, costs: Costs, limit_s: float = DEADLINE_S) -> LaunchProfile:
    """Return what the simulator's clock says of the last of some launches in a row.

    limit_s: seconds for all of them. Raises NotSimulated if they take longer, another
    WorldFailure if the kernel fails.
    """
    case = runnable.case
    payload_bytes = sum(layout_of(case).payloads_bytes)
    spaces = sum(-(-one.size_bytes // 512) * 512 + 2 * GUARD_BYTES for one in runnable.spec.workspaces(case))
    heap_bytes = -(-(payload_bytes + spaces + 6 * GUARD_BYTES + _SPARE_BYTES) // 4096) * 4096
    options = SimulatorOptions(arch=runnable.executable.arch, heap_bytes=heap_bytes, clock=costs)
    machine = SimulatedWorld(case.world_size, options)
    simulated = ThreadWorld(case.world_size, machine=machine)
    began_s = time.monotonic()
    try:
        simulated.run(_launch_in_a_row, runnable, limit_s)
        return machine.profiles[-1]
    except WorldFailure as error:
        if error.status == "TIMEOUT" and time.monotonic() - began_s >= limit_s:
            raise NotSimulated("TIMEOUT", error.rank, f"not simulated within {limit_s:g} s", error.errors) from error
        raise
    finally:
        simulated.close()


def phase_works(profile: LaunchProfile, times: float) -> tuple[PhaseWork, ...]:
    """Return what goes over links and through memory in each phase of a launch, times as much; nothing of a phase that
    moves nothing."""
    ranks = profile.ranks
    found = [PhaseWork(_directions(one, ranks, times), _memory_bytes(one, ranks, times)) for one in profile.phases]
    return tuple(one for one in found if one.directions or one.memory_bytes)


def _directions(phase: Phase, ranks: Sequence[int], times: float) -> tuple[Direction, ...]:
    """Return what goes over links in a phase, times as much: of each rank's two directions, alike ones once.

    A reduction through the switch (multimem.ld_reduce) takes its bytes from every GPU of the launch, the asking one
    included, and gives one answer; a store through the switch (multimem.st, multimem.red) leaves one GPU and reaches
    every one.
    """
    written, answered, asked, copied = range(4)
    out = {rank: [0.0] * 4 for rank in ranks}
    into = {rank: [0.0] * 4 for rank in ranks}
    for one in phase.traffic:
        if one.viewer == one.target:
            continue
        moved = one.bytes * times
        others = (one.target,) if one.target >= 0 else ranks  # the switch asks or reaches all replicas
        if one.action in ("read", "reduce"):
            for rank in others:
                out[rank][answered] += moved
                into[rank][asked] += moved
            into[one.viewer][answered] += moved
            out[one.viewer][asked] += moved
        else:
            kind = copied if one.how == "bulk" else written
            out[one.viewer][kind] += moved
            for rank in others:
                into[rank][kind] += moved
    found = [Direction(*values) for values in (*out.values(), *into.values()) if any(values)]
    return tuple(dict.fromkeys(found))


def _memory_bytes(phase: Phase, ranks: Sequence[int], times: float) -> float:
    """Return the bytes read and written in the memory of the GPU that has most of them.

    Of lanes' accesses each line counts once, read or written: a cache has it for all further lanes. Each copy moves its
    bytes. Of accesses through the switch every replica has all.
    """
    found = {rank: _LINE_BYTES * sum(phase.switch_lines) for rank in ranks}
    for one in phase.lines:
        found[one.rank] += _LINE_BYTES * (one.read + one.written)
    for moved in phase.traffic:
        if moved.how != "lanes":
            for rank in found if moved.target < 0 else (moved.target,):
                found[rank] += moved.bytes
    return max(found.values(), default=0) * times


def _launch_in_a_row(fabric: Fabric, runnable: Runnable) -> None:
    """A per-rank program: launches of a case one after another, as a graph has them."""
    case = runnable.case
    with SymmetricPool(fabric) as pool:
        kernel = bind(fabric, pool, runnable.spec, [case], [runnable.executable], patience_s=10.0)
        numel = kernel.inputs[0].size_bytes // case.itemsize
        data = make_input(case, fabric.rank, numel, CPU) if numel else torch.empty(0)
        kernel.inputs[0].write(fabric, data)
        fabric.synchronize()
        fabric.barrier()
        for _ in range(LAUNCHES):
            fabric.launch(runnable.executable, runnable.launch, kernel.arguments[0])
        fabric.synchronize()
        fabric.barrier()


def _profile(least: Mapping[str, float], found: LaunchProfile, times: float, how: str, blocks: int) -> CaseWork:
    return CaseWork(dict(least), _steps(found), phase_works(found, times), how, blocks)


def _steps(profile: LaunchProfile) -> dict[str, float]:
    return {kind: float(count) for kind, count in profile.path.counts.items()}
