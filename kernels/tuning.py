"""How kernels take their grid, threads and loads in flight from a table that a measurement can fill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cases.case import Case
from cases.dtypes import NONE
from kernels.dsl.status import STATUS_WORDS
from kernels.shares import BATCH
from kernels.spec import Workspace
from memory.fabric import Launch

ANY_SIZE = 1 << 62
MAX_WORLD_SIZE = 72
MAX_BLOCKS = 132
"""One an SM of an H200: all blocks must be live at once, because they wait for those of other ranks."""

WARP = 32
MIN_THREADS, MAX_THREADS = 64, 1024
"""Two warps, for the smallest messages: a bare Lamport one-shot in plain CUDA took 1.81 us at 1 KiB with blocks of 64
threads, and 0.1 to 0.2 us more with 512 (2 H200, 2026-11-22); a block's limit. A block needs a thread for each rank, so
worlds of more ranks get more threads than a step says: Tuning.step."""


@dataclass(frozen=True, slots=True)
class Step:
    """Launch values for buffers of up to up_to_bytes in worlds of up to up_to_ranks.

    blocks: at most; fewer where the work leaves threads without a vector. loads_in_flight: 16-byte loads of a thread
    before its first addition. They take four registers each, and a thread has 65536 // threads at most: 8 at 1024
    threads, 16 at 512, 32 at 256 leave room for addresses and sums. push: contributions are stored to who adds them,
    not loaded by it (two_shot, up to BATCH ranks). dependent: a launch may begin before the one before it on its stream
    ends (programmatic dependent launch); the kernel then waits for that end before it touches memory. reason: where
    the values come from.
    """

    threads: int
    blocks: int
    loads_in_flight: int
    reason: str
    up_to_bytes: int = ANY_SIZE
    up_to_ranks: int = MAX_WORLD_SIZE
    push: bool = False
    dependent: bool = False

    def __post_init__(self) -> None:
        if not MIN_THREADS <= self.threads <= MAX_THREADS or self.threads % 32:
            raise ValueError(f"a step's threads are {MIN_THREADS} to {MAX_THREADS} in whole warps, not {self.threads}")
        if not 1 <= self.blocks <= MAX_BLOCKS:
            raise ValueError(f"a step's blocks are 1 to {MAX_BLOCKS}, not {self.blocks}")
        if self.loads_in_flight < 1:
            raise ValueError(f"a step's loads_in_flight are 1 or more, not {self.loads_in_flight}")


@dataclass(frozen=True, slots=True)
class Tuning:
    """Steps in order: the first that a case fits is taken, so the last has to fit all.

    options are further arguments of the device half, by name: trials that the defaults leave off.
    """

    steps: tuple[Step, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.steps or (self.steps[-1].up_to_bytes, self.steps[-1].up_to_ranks) != (ANY_SIZE, MAX_WORLD_SIZE):
            raise ValueError("a tuning's last step must be for any size and any number of ranks")

    def dependent(self) -> Tuning:
        """Return the same with dependent launches."""
        return replace(self, steps=tuple(replace(step, dependent=True) for step in self.steps))

    def step(self, case: Case) -> Step:
        """Return the first step that a case fits, with as many whole warps as give each rank a thread at least."""
        fits = (s for s in self.steps if case.size_bytes <= s.up_to_bytes and case.world_size <= s.up_to_ranks)
        found = next(fits)
        least = -(-case.world_size // WARP) * WARP
        return found if found.threads >= least else replace(found, threads=least)

    @property
    def max_blocks(self) -> int:
        """Of any step: what signals and epochs are allocated for, so that they serve launches of all sizes."""
        return max(step.blocks for step in self.steps)

    def launch(self, case: Case, vectors: int, groups: int = 1) -> Launch:
        """For the vectors that the busiest rank works on: of all groups of blocks together, each one's the same."""
        step = self.step(case)
        if step.blocks < groups:
            raise ValueError(f"a step of {step.blocks} blocks can't be divided into {groups} groups: give it more")
        wanted = -(-vectors // (step.threads * groups))
        blocks = groups * min(max(wanted, 1), step.blocks // groups)
        return Launch(blocks, step.threads, dependent=step.dependent)

    def workspaces(self, signals_per_block: int) -> tuple[Workspace, ...]:
        """signals, and epochs[block], the block's own last one; status: see kernels/dsl/status.py."""
        return (
            Workspace("signals", self.max_blocks * signals_per_block),
            Workspace("epochs", self.max_blocks),
            Workspace("status", STATUS_WORDS),
        )

    def choices(self, case: Case, loads_per_vector: int) -> dict[str, Any]:
        """What the device half takes, by name: what its code depends on. Moved data needs its itemsize only."""
        step = self.step(case)
        at_a_time = step.loads_in_flight // loads_per_vector if loads_per_vector <= BATCH else 1
        reduced = {} if case.reduction == NONE else _reduced(case)
        return {
            "world_size": case.world_size,
            "itemsize": case.itemsize,
            "threads": step.threads,
            "unroll": min(BATCH, max(1, at_a_time)),
            **reduced,
            **({"dependent_launch": True} if step.dependent else {}),
            **dict(self.options),
        }


def _reduced(case: Case) -> dict[str, Any]:
    """float32 sums in float32 under both names: one code."""
    accumulator = "native" if case.dtype == "float32" else case.accumulator
    return {"dtype": case.dtype, "accumulator": accumulator, "reduction": case.reduction}
