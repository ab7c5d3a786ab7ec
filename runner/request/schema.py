"""The schema of conf/: every key, its type, and where it lies. runner/request/validate.py says which values are
allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SizesSchema:
    """Bytes as nccl-tests counts them for the op: min, min*factor, .. up to max; or just the given list."""

    min: Any = "auto"
    max: Any = "auto"
    factor: int = 8
    list: Any = None


@dataclass
class FabricSchema:
    """What it runs on. All but name and heap_bytes (null: what suits the fabric) belong to the simulator."""

    name: str = "auto"
    arch: str = "sm_90a"
    heap_bytes: Any = None
    multicast: bool = True
    multimem: str = "exact"
    schedule: str = "fair"
    seed: int = 0
    step_budget: int | None = None


@dataclass
class TrackSchema:
    """Where records are mirrored to."""

    name: str = "mlflow"
    uri: str = "sqlite:///mlflow.db"
    experiment: str = "symlab"


@dataclass
class TimingSchema:
    """How times are taken; only real fabrics have any. Meanings: TimingRequest."""

    mode: str = "graph"
    window: str = "kernel"
    l2: str = "rotate"
    warmup: int = 3
    samples: int = 50
    calls: int | None = None
    limit: str = "measured"


@dataclass
class Schema:
    """Every key that a configuration can have; conf/config.yaml gives the values that they start from."""

    op: str = "all_reduce"
    algorithms: Any = "auto"
    baselines: Any = "auto"
    dtype: str = "auto"
    accumulator: str = "auto"
    reduction: str = "auto"
    world_size: int = 2
    sizes: SizesSchema = field(default_factory=SizesSchema)
    placement: str = "out_of_place"
    root: int = 0
    offset: int = 0
    inputs: str = "normal"
    seed: int = 0
    check: bool = True
    launches: int = 2
    deadline_s: float = 120.0
    records: str = "records"
    cache_dir: str = "~/.cache/symlab/kernels"
    isolation: str = "none"
    timing: TimingSchema = field(default_factory=TimingSchema)
    fabric: FabricSchema = field(default_factory=FabricSchema)
    track: TrackSchema = field(default_factory=TrackSchema)


SECTIONS: dict[str, type] = {
    "": Schema,
    "sizes": SizesSchema,
    "timing": TimingSchema,
    "fabric": FabricSchema,
    "track": TrackSchema,
}
