"""The schema of conf/: every key, its type, and where it lies. Which words a key takes is in enums,
each once, with whatever the words are about; runner/request/validate.py says which other values are allowed.

Members of the enums are named as they are written: OmegaConf reads an enum by its members' names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from cases.case import Counts, Inputs, Placement
from cases.record.nccl_settings import NcclAlgorithm, NcclProtocol
from cases.record.timing import L2State, Mode, Window
from cases.stress import NO_STRESS
from runner.world.fabrics import FabricName
from simulator.options import Granularity, Memory, MultimemModel, Schedule


class TimingMode(StrEnum):
    """How times are taken, if at all."""

    graph = Mode.graph.value
    """A CUDA graph of many calls, replayed."""
    eager = Mode.eager.value
    """Calls from Python."""
    none = "none"
    """Nothing is timed."""


class Limit(StrEnum):
    """Where the limit of the links is from."""

    measured = "measured"
    """Plain copies in the same run."""
    none = "none"


class PlacementChoice(StrEnum):
    """Where a job's cases have their outputs."""

    out_of_place = Placement.out_of_place.value
    in_place = Placement.in_place.value
    both = "both"
    """Each case out of place and in place, as nccl-tests runs them."""

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Return the placements of the cases, in the order in which they run."""
        return tuple(Placement) if self is PlacementChoice.both else (Placement(self.value),)


class Isolation(StrEnum):
    """What a job shares its world with."""

    none = "none"
    """The jobs before and after it, where they want the same world."""
    process = "process"
    """Nothing: it has a world of its own."""


class HostMemory(StrEnum):
    """What happens to a job of simulated ranks whose upper bound of memory is above what the host has available."""

    check = "check"
    """It is refused before anything runs."""
    ignore = "ignore"
    """It runs: the bound may be too high. Where it is not, the system may kill the process."""


class TrackName(StrEnum):
    """Where records are mirrored to."""

    mlflow = "mlflow"
    none = "none"


@dataclass
class SizesSchema:
    """Bytes as nccl-tests counts them for the op: min, min*factor, .. up to max; or just the given list."""

    min: Any = "auto"
    max: Any = "auto"
    factor: int = 8
    list: Any = None


@dataclass
class CheckSchema:
    """What is checked: every result against the reference, and in the simulator the order of accesses (races; null: of
    kernels that are brought)."""

    results: bool = True
    races: bool | None = None


@dataclass
class FabricSchema:
    """What it runs on. share_gpus belongs to GPUs; all others but name and heap_bytes (null: what suits the fabric)
    belong to the simulator.

    granularity is block where a configuration has none: those of records from before there was a choice.
    """

    name: FabricName = FabricName.auto
    arch: str = "sm_90a"
    heap_bytes: Any = None
    multicast: bool = True
    multimem: MultimemModel = MultimemModel.exact
    schedule: Schedule = Schedule.fair
    granularity: Granularity | None = Granularity.block
    memory: Memory = Memory.strong
    seed: int = 0
    step_budget: int | None = None
    gpu: Any = None
    share_gpus: bool = False


@dataclass
class TrackSchema:
    """Where records are mirrored to."""

    name: TrackName = TrackName.mlflow
    uri: str = "sqlite:///mlflow.db"
    experiment: str = "symlab"


@dataclass
class LibrarySchema:
    """Which version of NCCL the ranks load, a path or an installed version; null: what torch brings. And what it is
    restricted to; null: its own choice."""

    nccl: Any = None
    nccl_algo: NcclAlgorithm | None = None
    nccl_proto: NcclProtocol | None = None
    nccl_channels: int | None = None
    nccl_graph_mixing: bool | None = None


@dataclass
class TimingSchema:
    """How times are taken; only real fabrics have any. Meanings: TimingRequest."""

    mode: TimingMode = TimingMode.graph
    window: Window = Window.kernel
    l2: L2State = L2State.rotate
    warmup: int = 3
    samples: int = 50
    calls: int | None = None
    limit: Limit = Limit.measured
    dependent_launch: bool = False
    shared: bool = False
    predict: bool = False
    lead_in_calls: int = 0
    precision: float | None = None
    min_busbw_gbps: float | None = None


@dataclass
class Schema:
    """Every key that a configuration can have; conf/config.yaml gives the values that they start from.

    custom is the section of op=custom, null of all others; its keys are those of runner/custom/description.py.
    """

    op: str = "all_reduce"
    algorithms: Any = "auto"
    baselines: Any = "auto"
    dtype: str = "auto"
    accumulator: str = "auto"
    reduction: str = "auto"
    world_size: int = 2
    sizes: SizesSchema = field(default_factory=SizesSchema)
    placement: PlacementChoice = PlacementChoice.out_of_place
    root: int = 0
    offset: int = 0
    counts: Counts = Counts.uniform
    stress: str = NO_STRESS
    stress_seeds: int = 8
    inputs: Inputs = Inputs.normal
    seed: int = 0
    check: CheckSchema = field(default_factory=CheckSchema)
    launches: int = 2
    deadline_s: float = 120.0
    records: str = "records"
    cache_dir: str = "~/.cache/symlab/kernels"
    isolation: Isolation = Isolation.none
    custom: Any = None
    tuned: str = "auto"
    host_memory: HostMemory = HostMemory.check
    library: LibrarySchema = field(default_factory=LibrarySchema)
    timing: TimingSchema = field(default_factory=TimingSchema)
    fabric: FabricSchema = field(default_factory=FabricSchema)
    track: TrackSchema = field(default_factory=TrackSchema)


SECTIONS: dict[str, type] = {
    "": Schema,
    "sizes": SizesSchema,
    "check": CheckSchema,
    "library": LibrarySchema,
    "timing": TimingSchema,
    "fabric": FabricSchema,
    "track": TrackSchema,
}

BOOLEANS = frozenset(
    f"{section}.{field.name}" if section else field.name
    for section, schema in SECTIONS.items()
    for field in fields(schema)
    if field.type in ("bool", "bool | None")
)
"""Keys whose value is true or false."""
