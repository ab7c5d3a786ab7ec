"""Timings of a case by a clock of real hardware: the raw samples, how they were taken, the figures derived from them.

Of every sample the maximum over ranks counts, for a collective is done when its last rank is. Figures are of these
maxima:

- median_us is the middle one, or the mean of the two in the middle.
- p95_us and p99_us are percentiles by nearest rank: the smallest maximum that at least 95 or 99 percent of the samples
  do not exceed, so each is a time that was measured. With fewer than 100 samples p99_us is the largest.
- algbw_gbps is bytes / median (of a custom kernel the bytes that its description declares), busbw_gbps is algbw_gbps *
  bus_factor; 1 GB is 10^9 bytes, as in nccl-tests.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from cases.documents import LATER, plain


class Mode(StrEnum):
    """How a sample's calls are made. Members of these enums are named as they are written: OmegaConf reads names."""

    graph = "graph"
    """A CUDA graph of calls_per_sample calls, replayed once a sample."""
    eager = "eager"
    """As many launches from the host."""


class Window(StrEnum):
    """What is in the time of each call. Barriers are queued on the device, between all calls of a sample."""

    kernel = "kernel"
    """Nothing but the call."""
    entry_barrier = "entry_barrier"
    """A barrier over all ranks before it."""
    both_barriers = "both_barriers"
    """A barrier before it and one after it."""


class L2State(StrEnum):
    """Where the calls' data is."""

    rotate = "rotate"
    """Calls go through several slots in turn, up to twice the L2 cache together, but no more than a sample has calls:
    those of small buffers fit in the cache all the same, see Timing.fits_l2."""
    hot = "hot"
    """One slot, as it was left in the cache."""


SAMPLING = ("calls", "samples", "warmup", "lead_in_calls")
"""Keys of a configuration's timing that say what a time is a mean of, and how many of them there are."""


_WORDS = (("mode", tuple(Mode)), ("window", tuple(Window)), ("l2", tuple(L2State)))


@dataclass(frozen=True, slots=True)
class LinkLimit:
    """What peer copies of size_bytes reached in the same run, in GB/s (10^9) of one direction of one GPU, all GPUs at
    once: push_gbps to the next rank, pull_gbps from it."""

    push_gbps: float
    pull_gbps: float
    size_bytes: int

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value > 0 for value in (self.push_gbps, self.pull_gbps)):
            raise ValueError("timing.limit: push_gbps and pull_gbps are positive, finite numbers of GB/s")
        if self.size_bytes < 1:
            raise ValueError(f"timing.limit.size_bytes: {self.size_bytes}; a copy has at least one byte")

    @property
    def gbps(self) -> float:
        """The better of the two directions, GB/s: what a share of the limit is a share of."""
        return max(self.push_gbps, self.pull_gbps)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Raw times of one case, and how they came about. ValueError for what can't be a timing.

    mode, window and l2 are of Mode, Window and L2State. slots is how many sets of buffers the calls went through in
    turn, each of slot_bytes (input and output of a rank together; 0 of an empty message); l2_bytes is a GPU's L2
    cache, 0 if unknown. warmup_calls were made before the first sample, and each sample is calls_per_sample
    calls. bus_factor is the op's: busbw = algbw * bus_factor.

    samples_us has one row a rank and one column a sample, in microseconds a call. checked_before and checked_after
    count the elements, of all ranks, that were compared right before and right after the samples. interleaved_with
    names the other contestants that were measured in turns with this one, in their order. limit is what peer copies
    reached in the same run. devices has one row a rank, {"before": {...}, "after": {...}}: clocks in MHz,
    temperature_c, power_w, throttle reasons, as they were read; or none. moved_bytes is what a call of a custom kernel
    moves, as its description declares it: bandwidths are of these bytes; 0 if it declares none, so that there are none;
    None for all other ops, whose bandwidths are of their size. kernels names the kernels of a library's calls, as rank
    0's driver knows them from the graph that was timed; None where it doesn't tell, and for kernels of ours.
    kernel_blocks has the number of blocks of each, None in records of before schema 7: of NCCL, the channels it took.
    """

    mode: str
    window: str
    l2: str
    slots: int
    slot_bytes: int
    warmup_calls: int
    calls_per_sample: int
    bus_factor: float
    samples_us: tuple[tuple[float, ...], ...]
    checked_before: int
    checked_after: int
    interleaved_with: tuple[str, ...] = ()
    limit: LinkLimit | None = None
    devices: tuple[dict[str, Any], ...] = ()
    l2_bytes: int = 0
    moved_bytes: int | None = field(default=None, metadata=LATER)
    kernels: tuple[str, ...] | None = field(default=None, metadata=LATER)
    kernel_blocks: tuple[int, ...] | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples_us", tuple(tuple(map(float, row)) for row in self.samples_us))
        for name, known in _WORDS:
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"timing.{name}: '{value}' is none of {', '.join(known)}")
        if self.kernel_blocks is not None and (
            len(self.kernel_blocks) != len(self.kernels or ()) or min(self.kernel_blocks, default=1) < 1
        ):
            raise ValueError("timing.kernel_blocks: it has a number of blocks, at least 1, for each of timing.kernels")
        if self.moved_bytes is not None and self.moved_bytes < 0:
            raise ValueError(f"timing.moved_bytes: {self.moved_bytes}; it is at least 0")
        ones, zeros = ("slots", "calls_per_sample"), ("slot_bytes", "warmup_calls", "l2_bytes")
        for name, least in [*((one, 1) for one in ones), *((one, 0) for one in zeros)]:
            if getattr(self, name) < least:
                raise ValueError(f"timing.{name}: {getattr(self, name)}; it is at least {least}")
        if not (math.isfinite(self.bus_factor) and self.bus_factor >= 0):
            raise ValueError(f"timing.bus_factor: {self.bus_factor}; it is a finite number from 0")
        if len({len(row) for row in self.samples_us}) != 1 or not self.samples_us[0]:
            raise ValueError(
                "timing.samples_us: needs one row a rank, all of the same length, at least one sample each"
            )
        if not all(all(map(math.isfinite, row)) and min(row) > 0 for row in self.samples_us):
            raise ValueError("timing.samples_us: every sample is a positive, finite number of microseconds")
        if self.slot_bytes and (self.checked_before < 1 or self.checked_after < 1):
            raise ValueError(
                f"timing: {self.checked_before} elements were compared before it and {self.checked_after} after it; "
                "data is checked before and after, or there is no timing"
            )
        if len(self.devices) not in (0, len(self.samples_us)):
            raise ValueError(f"timing.devices: {len(self.devices)} rows for {len(self.samples_us)} ranks; one a rank")
        object.__setattr__(self, "devices", tuple(plain(list(self.devices), "timing.devices")))

    @property
    def has_bandwidth(self) -> bool:
        """Whether it is known what a call moves: of a custom kernel only if its description declares it."""
        return self.moved_bytes != 0

    @property
    def fits_l2(self) -> bool:
        """All slots together fit in the L2 cache, so that calls may find their data there although slots rotate."""
        return self.slots * self.slot_bytes <= self.l2_bytes

    @property
    def footprint_bytes(self) -> int:
        """All buffers that were used in turn on a GPU: the slots of the case, and those of all that it was measured in
        turns with."""
        return self.slots * self.slot_bytes * (1 + len(self.interleaved_with))

    @cached_property
    def per_iteration_us(self) -> tuple[float, ...]:
        """Of each sample, in their order, the maximum over ranks: microseconds a call."""
        return tuple(map(max, zip(*self.samples_us, strict=True)))

    @cached_property
    def ordered_us(self) -> tuple[float, ...]:
        """per_iteration_us in ascending order."""
        return tuple(sorted(self.per_iteration_us))

    @property
    def min_us(self) -> float:
        """The smallest of per_iteration_us."""
        return self.ordered_us[0]

    @cached_property
    def median_us(self) -> float:
        """The median of per_iteration_us: the time that tables show."""
        return statistics.median(self.ordered_us)

    @property
    def p95_us(self) -> float:
        """The 95th percentile of per_iteration_us, by nearest rank."""
        return percentile(self.ordered_us, 95, is_sorted=True)

    @property
    def p99_us(self) -> float:
        """The 99th percentile of per_iteration_us, by nearest rank."""
        return percentile(self.ordered_us, 99, is_sorted=True)

    @property
    def max_us(self) -> float:
        """The largest of per_iteration_us."""
        return self.ordered_us[-1]

    def algbw_gbps(self, size_bytes: int) -> float:
        """Bytes of the case, or those that a custom kernel declares, over the median time, in GB/s (10^9 bytes a
        second)."""
        return (size_bytes if self.moved_bytes is None else self.moved_bytes) / self.median_us / 1e3

    def busbw_gbps(self, size_bytes: int) -> float:
        """algbw_gbps times the op's bus factor: what a link would carry in one direction, GB/s."""
        return self.algbw_gbps(size_bytes) * self.bus_factor

    def of_limit(self, size_bytes: int) -> float | None:
        """busbw_gbps as a share of the measured limit, 1 for all of it; None where no limit was measured, and for what
        has no bandwidth: an op that moves no data, an empty message."""
        busbw_gbps = self.busbw_gbps(size_bytes)
        return busbw_gbps / self.limit.gbps if self.limit is not None and busbw_gbps else None


def percentile(values: tuple[float, ...], percent: int, is_sorted: bool = False) -> float:
    """By nearest rank: the smallest of values that at least percent (1 to 100) of them do not exceed."""
    ordered = values if is_sorted else sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]
