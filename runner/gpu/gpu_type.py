"""The nouns: GpuType (what is known of a type of GPU), Source (where a value is from), Floors (what it measured).

Every value of a type has a source. Floors are measured by `symlab calibrate`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from simulator.gpu import Gpu


class SourceKind(StrEnum):
    """How a value came to be known."""

    datasheet = "datasheet"
    """A document of the vendor's says it; the text names the document."""
    measured = "measured"
    """A measurement, or what a driver reported; the text says when and on what."""
    assumed = "assumed"
    """Unknown here; the text says why this value was taken."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value is from. text: the document; when and on what it was measured; or why it is assumed."""

    kind: SourceKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """sm_mhz: the maximum clock of the multiprocessors."""

    sm_mhz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """l2_bytes: the L2 cache. size_gb: device memory in 10^9 bytes. gbps: its bandwidth in GB/s, reads and writes
    together."""

    l2_bytes: int
    size_gb: float
    gbps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """count: number of links of a GPU. one_way_gbps: what all of them carry together in one direction, in GB/s."""

    count: int
    one_way_gbps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """gpus: maximum number of GPUs that reach each other over the links. multicast: whether the switch has multicast
    addresses and reduces (NVLink SHARP)."""

    gpus: int
    multicast: bool


ByCount = Mapping[int, float]
"""Values by a count, such as the number of blocks, in increasing order; empty: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """What the smallest kernels take on a type of GPU: times in microseconds, bandwidths in GB/s (10^9 bytes).

    None, or no value for a count: not measured. source: when and on what they were measured; ranks: number of GPUs;
    records: digests of the records that they were computed from, "sha256:<hex>"; none if there are no records of ours.

    By number of blocks:
    - empty_node_us: a node of a graph whose kernel does nothing, from the start of one node to that of the next;
    - empty_node_dependent_us: the same with programmatic dependent launch;
    - push_gbps, pull_gbps: a copy by multiprocessors, 16 bytes a thread and access, from one GPU to another, while no
      other copy runs; push: the source's GPU stores, pull: the target's GPU loads;
    - pull_both_gbps: pull while every GPU sends as much as it receives; of one direction;
    - reduce_gbps: sums of two float32 buffers in own memory into a third; bytes read and written;
    - bulk_push_gbps: copies by cp.async.bulk to another GPU.

    Latencies:
    - relaxed_us: one way, from a relaxed store at system scope to the poll on the other GPU that sees it;
    - release_acquire_us: the same with a release store and acquire polls, by number of weak stores to the other GPU's
      memory that the same thread issued just before the release;
    - load_own_l2_us, load_own_memory_us, load_remote_hot_us, load_remote_cold_us: a load whose address depends on the
      load before it, of 4 bytes; hot: the line is in an L2, cold: it is not.
    """

    source: Source
    ranks: int
    records: tuple[str, ...] = ()
    empty_node_us: ByCount = field(default_factory=dict)
    empty_node_dependent_us: ByCount = field(default_factory=dict)
    relaxed_us: float | None = None
    release_acquire_us: ByCount = field(default_factory=dict)
    load_own_l2_us: float | None = None
    load_own_memory_us: float | None = None
    load_remote_hot_us: float | None = None
    load_remote_cold_us: float | None = None
    push_gbps: ByCount = field(default_factory=dict)
    pull_gbps: ByCount = field(default_factory=dict)
    pull_both_gbps: ByCount = field(default_factory=dict)
    reduce_gbps: ByCount = field(default_factory=dict)
    bulk_push_gbps: ByCount = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError for a value that no measurement gives."""
        for name in FLOOR_NAMES:
            value = getattr(self, name)
            values = value if isinstance(value, Mapping) else {} if value is None else {1: value}
            for count, one in values.items():
                least = 0 if name == "release_acquire_us" else 1
                if count < least or not 0 < one < float("inf"):
                    raise ValueError(f"{name} is {one} for {count}: give a number above 0 for a count from {least}")
            if isinstance(value, Mapping):
                object.__setattr__(self, name, dict(sorted(value.items())))

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the floors that were not measured."""
        return tuple(name for name in FLOOR_NAMES if getattr(self, name) in (None, {}))


FLOOR_NAMES = tuple(one.name for one in dataclasses.fields(Floors) if one.name not in ("source", "ranks", "records"))


LINK_FLOORS = ("push_gbps", "pull_gbps", "pull_both_gbps", "bulk_push_gbps")
"""Floors that are bandwidths of one direction of a GPU's links."""


def impossible(floors: Floors, links: Links) -> str:
    """Return which floor no measurement on these links gives, and why; "" if there is none.

    A link carries less than its datasheet's rate, and a release followed by a relaxed store takes longer than the
    store alone.
    """
    most = links.one_way_gbps
    for name in LINK_FLOORS:
        for count, value in getattr(floors, name).items():
            if value > most:
                return f"{name} is {value:g} for {count}, and the links carry {most:g} GB/s (links.one_way_gbps)"
    least = floors.relaxed_us
    for count, value in floors.release_acquire_us.items():
        if least is not None and value < least:
            return f"release_acquire_us is {value:g} for {count}, and less than relaxed_us, {least:g}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """What is known of a type of GPU.

    devices: names by which CUDA reports such a GPU ("NVIDIA H200"). limits: what it holds at once. sources: where each
    value is from, by its key in the file ("limits.multiprocessors"). floors: None if there are none.
    """

    name: str
    title: str
    devices: tuple[str, ...]
    limits: Gpu
    clocks: Clocks
    memory: Memory
    links: Links
    switch: Switch
    sources: Mapping[str, Source]
    floors: Floors | None = None

    @property
    def assumed(self) -> tuple[str, ...]:
        """The keys of values that are assumed."""
        return tuple(key for key, source in self.sources.items() if source.kind is SourceKind.assumed)
