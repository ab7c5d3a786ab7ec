"""The links' limit, by plain copies in the same run: every rank to and from the next one, all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cases.record.timing import LinkLimit
from memory.fabric import DeviceFabric
from memory.pool import SymmetricPool
from runner.timing.stopwatch import Stopwatch

LINK_BYTES = 256 * 1024 * 1024
"""What is copied at a time, where the heap has room for two such buffers: long enough that its start costs nothing."""

TRIES = 5
"""Copies that count, after one that does not."""


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """One rank's copies of size_bytes, in microseconds each: push writes the next rank's memory, pull reads it."""

    size_bytes: int
    push_us: tuple[float, ...]
    pull_us: tuple[float, ...]


def measure_link(fabric: DeviceFabric, pool: SymmetricPool, stopwatch: Stopwatch) -> LinkTimes | None:
    """Collective: time copies between this rank and the next.

    None where there is no next rank to reach, and where a quarter of the heap is no page.
    """
    size_bytes = min(LINK_BYTES, fabric.traits.heap_bytes // 4 // 4096 * 4096)
    if fabric.world_size < 2 or fabric.traits.unmapped or not size_bytes:
        return None
    next_rank = (fabric.rank + 1) % fabric.world_size
    with pool.scope():
        source = pool.tensor(size_bytes, torch.uint8, name="link source")
        target = pool.tensor(size_bytes, torch.uint8, name="link target")
        there, here = target.peer(next_rank).address, target.address
        push = _copies(fabric, stopwatch, lambda: fabric.queue_copy(there, source.address, size_bytes))
        far = source.peer(next_rank).address
        pull = _copies(fabric, stopwatch, lambda: fabric.queue_copy(here, far, size_bytes))
    return LinkTimes(size_bytes, push, pull)


def _copies(fabric: DeviceFabric, stopwatch: Stopwatch, copy: Callable[[], None]) -> tuple[float, ...]:
    """The times of TRIES copies; each begins on all ranks at once."""
    found = []
    for _ in range(TRIES + 1):
        stopwatch.delay()
        fabric.queue_barrier()
        start = stopwatch.mark()
        copy()
        end = stopwatch.mark()
        fabric.synchronize()
        found.append(stopwatch.elapsed_us(start, end))
    return tuple(found[1:])


def link_limit(ranks: Sequence[LinkTimes | None]) -> LinkLimit | None:
    """The world's limit: of each try the slowest rank's speed, of all tries the best."""
    times = [one for one in ranks if one is not None]
    if not times or len(times) != len(ranks):
        return None
    size_bytes = times[0].size_bytes

    def best(rows: Sequence[Sequence[float]]) -> float:
        fastest_us: float = min(max(tries) for tries in zip(*rows, strict=True))
        return size_bytes / fastest_us / 1e3

    return LinkLimit(best([one.push_us for one in times]), best([one.pull_us for one in times]), size_bytes)
