"""The schema of a file of conf/gpu: every key and its type. runner/gpu/reading.py says what values are allowed.

A value stands with its source: `multiprocessors: {value: 132, source: attributes}`. A source is a name in the section
`sources`, or a text: "datasheet: ..", "measured: .. (with the date)", "assumed: why". Sections and values that a file
leaves out are those of the type that it is `like`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class WholeSchema:
    """A whole number and its source."""

    value: int = MISSING
    source: str = MISSING


@dataclass
class NumberSchema:
    """A number and its source."""

    value: float = MISSING
    source: str = MISSING


@dataclass
class FlagSchema:
    """true or false, and its source."""

    value: bool = MISSING
    source: str = MISSING


@dataclass
class TextSchema:
    """A word and its source."""

    value: str = MISSING
    source: str = MISSING


@dataclass
class LimitsSchema:
    """What the GPU holds at once: simulator.gpu.Gpu has the meanings."""

    arch: TextSchema | None = None
    multiprocessors: WholeSchema | None = None
    blocks_per_multiprocessor: WholeSchema | None = None
    threads_per_multiprocessor: WholeSchema | None = None
    shared_bytes_per_multiprocessor: WholeSchema | None = None
    registers_per_multiprocessor: WholeSchema | None = None
    barriers_per_multiprocessor: WholeSchema | None = None
    threads_per_block: WholeSchema | None = None
    shared_bytes_per_block: WholeSchema | None = None
    reserved_shared_bytes_per_block: WholeSchema | None = None
    registers_per_block: WholeSchema | None = None
    shared_unit_bytes: WholeSchema | None = None
    register_unit: WholeSchema | None = None
    partitions: WholeSchema | None = None
    cluster_blocks: WholeSchema | None = None


@dataclass
class ClocksSchema:
    """runner.gpu.gpu_type.Clocks has the meanings; so for the sections below."""

    sm_mhz: WholeSchema | None = None


@dataclass
class MemorySchema:
    """Caches and device memory."""

    l2_bytes: WholeSchema | None = None
    size_gb: NumberSchema | None = None
    gbps: NumberSchema | None = None


@dataclass
class LinksSchema:
    """The links to other GPUs."""

    count: WholeSchema | None = None
    one_way_gbps: NumberSchema | None = None


@dataclass
class SwitchSchema:
    """What connects the links."""

    gpus: WholeSchema | None = None
    multicast: FlagSchema | None = None


@dataclass
class FloorsSchema:
    """Measured floors, all from one source; runner.gpu.gpu_type.Floors has the meanings."""

    source: str = MISSING
    ranks: int = MISSING
    records: list[str] = field(default_factory=list)
    empty_node_us: dict[int, float] = field(default_factory=dict)
    empty_node_dependent_us: dict[int, float] = field(default_factory=dict)
    relaxed_us: float | None = None
    release_acquire_us: dict[int, float] = field(default_factory=dict)
    load_own_l2_us: float | None = None
    load_own_memory_us: float | None = None
    load_remote_hot_us: float | None = None
    load_remote_cold_us: float | None = None
    push_gbps: dict[int, float] = field(default_factory=dict)
    pull_gbps: dict[int, float] = field(default_factory=dict)
    push_both_gbps: dict[int, float] = field(default_factory=dict)
    pull_both_gbps: dict[int, float] = field(default_factory=dict)
    reduce_gbps: dict[int, float] = field(default_factory=dict)
    bulk_push_gbps: dict[int, float] = field(default_factory=dict)
    bulk_pull_gbps: dict[int, float] = field(default_factory=dict)
    incast_gbps: dict[int, float] = field(default_factory=dict)


@dataclass
class GpuTypeSchema:
    """A file of gpu/. floors: of `symlab calibrate`; trial: of a trial, which stand in until there are others."""

    like: str | None = None
    name: str | None = None
    title: str | None = None
    devices: list[str] | None = None
    sources: dict[str, str] = field(default_factory=dict)
    limits: LimitsSchema = field(default_factory=LimitsSchema)
    clocks: ClocksSchema = field(default_factory=ClocksSchema)
    memory: MemorySchema = field(default_factory=MemorySchema)
    links: LinksSchema = field(default_factory=LinksSchema)
    switch: SwitchSchema = field(default_factory=SwitchSchema)
    floors: FloorsSchema | None = None
    trial: FloorsSchema | None = None
