"""The table of keys: each with its type, default, limits and meaning. Schema, validation, help, runner/KEYS.md,
completion and the lines about keys without effect are made of it.

Words of a key are an enum, which stands with whatever the words are about. Members of the enums are named as they are
written: OmegaConf reads an enum by its members' names.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

from cases.case import Counts, Inputs, Placement
from cases.dtypes import FLOATS, INTEGERS
from cases.record.nccl_settings import MAX_CHANNELS, NcclAlgorithm, NcclProtocol
from cases.record.timing import L2State, Mode
from cases.stress import NO_STRESS
from kernels.tuning import MAX_WORLD_SIZE
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


SIMULATOR, GPUS = "simulator", "GPUs"
"""What a key may belong to alone."""

MOST = (1 << 63) - 1
"""The largest whole number that a key without a limit of its own takes."""


def key(
    default: Any, meaning: str = "", *, of: str = "", least: float = 0, most: float = MOST, rare: bool = False
) -> Any:
    """Return a key of the table.

    of: SIMULATOR or GPUS, what alone it is about. least, most: limits of a number. rare: only `--help --all` shows it.
    """
    metadata = {"meaning": meaning, "of": of, "least": least, "most": most, "rare": rare}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class SizesSchema:
    """Bytes as nccl-tests counts them for the op: min, min*factor, .. up to max; or just the given list."""

    list: Any = key(None, "in place of min, max and factor: sizes=[0,8,1K]")
    min: Any = key("auto", "bytes as nccl-tests counts them: min, min x factor, .. up to max; auto: 1K")
    max: Any = key("auto", "auto: 64K")
    factor: int = key(8, least=2)


@dataclass
class CheckSchema:
    """What is checked: every result against the reference, and in the simulator the order of accesses."""

    results: bool = key(True, "compare every output with the reference; check=false is short for check.results=false")
    races: bool | None = key(
        None, "look for unordered accesses; a case with a race is WRONG; null: of brought ones", of=SIMULATOR
    )


@dataclass
class FabricSchema:
    """What it runs on."""

    name: FabricName = key(FabricName.auto, "auto: nvshmem where that is possible, otherwise the simulator")
    heap_bytes: Any = key(
        None,
        "symmetric memory of a rank; null: 256M in the simulator, 8G on a GPU; auto: half of what the GPUs have free",
    )
    share_gpus: bool = key(False, "whether ranks may share them: results with fewer GPUs than ranks, untimed", of=GPUS)
    gpu: Any = key(
        None,
        "the GPU whose limits hold, {gpus}; blocks that do not fit at once wait; null: all blocks are there at once",
    )
    schedule: Schedule = key(
        Schedule.fair, "which lanes run next; random, adversarial, priority: by fabric.seed", of=SIMULATOR
    )
    memory: Memory = key(
        Memory.strong, "weak: each thread sees a store at a time of its own, as far as PTX lets it", of=SIMULATOR
    )
    seed: int = key(0, "which random or adversarial order, and what weak memory shows", of=SIMULATOR)
    arch: str = key(
        "sm_90a",
        "also sm_100a, ..; the GPU's where fabric.gpu names one and this is not given",
        of=SIMULATOR,
        rare=True,
    )
    multicast: bool = key(True, "whether it has multicast", of=SIMULATOR, rare=True)
    multimem: MultimemModel = key(
        MultimemModel.exact,
        "exact sums as hardware does; stated: in the precision that PTX states",
        of=SIMULATOR,
        rare=True,
    )
    granularity: Granularity | None = key(
        None,
        "what runs at once: an access, a block; null: access, of fair block",
        of=SIMULATOR,
        rare=True,
    )
    step_budget: int | None = key(
        None, "maximum number of steps of a launch; null: no maximum", of=SIMULATOR, least=1, rare=True
    )


@dataclass(unsafe_hash=True)
class TrackRequest:
    """Where records are mirrored to; name none keeps records only."""

    name: TrackName = key(TrackName.mlflow, "where records are mirrored to")
    uri: str = key("sqlite:///mlflow.db", "MLflow's tracking URI")
    experiment: str = key("symlab", "MLflow's experiment", rare=True)


@dataclass
class LibrarySchema:
    """Which NCCL the ranks load, and what it is restricted to."""

    nccl: Any = key(
        None,
        "the path of an NCCL, such as /lib/libnccl.so.2; null: what torch brings",
        of=GPUS,
        rare=True,
    )
    nccl_algo: NcclAlgorithm | None = key(
        None, "the one algorithm that NCCL may take, for the baseline nccl; null: its own choice", of=GPUS, rare=True
    )
    nccl_proto: NcclProtocol | None = key(None, "the same for its protocol", of=GPUS, rare=True)
    nccl_channels: int | None = key(
        None, "the same for its channels, which are blocks: 1 to 64", of=GPUS, least=1, most=MAX_CHANNELS, rare=True
    )
    nccl_graph_mixing: bool | None = key(
        None,
        "false: NCCL adds no nodes of its own to graphs, with which graphs and other calls could be under way at once; "
        "null: NCCL's default, true",
        of=GPUS,
        rare=True,
    )


@dataclass(unsafe_hash=True)
class TimingRequest:
    """How times are taken; only real fabrics have any. What the words mean, their enums say.

    A sample is the mean of `calls` calls (None: as many as make a sample long enough for its size).
    """

    mode: TimingMode = key(TimingMode.graph, "graph: replayed CUDA graphs; eager: calls from Python", of=GPUS)
    samples: int = key(50, "number of samples that count", of=GPUS, least=1, most=10_000)
    warmup: int = key(3, "number of samples that do not count", of=GPUS, most=1000)
    calls: int | None = key(None, "number of calls in a sample; null: what suits the size", of=GPUS, least=1, most=1000)
    l2: L2State = key(
        L2State.rotate,
        "rotate: calls go through several buffers in turn; hot: one buffer, left in the L2 cache",
        of=GPUS,
    )
    min_busbw_gbps: float | None = key(
        None,
        "exit code 1 if the average bus bandwidth of our kernels is below it, in GB/s",
        of=GPUS,
        least=0.001,
        most=1_000_000,
    )
    limit: Limit = key(Limit.measured, "whether the links' own limit is measured beside", of=GPUS, rare=True)
    dependent_launch: bool = key(
        False,
        "whether our kernels begin before the launch before them ends; they wait before they touch memory",
        of=GPUS,
        rare=True,
    )


@dataclass(unsafe_hash=True, kw_only=True)
class PlainKeys:
    """Keys that a request has as the configuration has them."""

    op: str = key("all_reduce", "what to compute")
    algorithms: Any = key(
        "auto",
        "names: [one_shot,two_shot], and kernels of your own: [two_shot,my/ring.py:SPEC]; auto: all that "
        "the fabric can run; all: the others, too, each refused with the reason; best, alone or in a list: at each "
        "size what a table has (tuned); [best,auto]: beside all that auto is; two_shot@t512b64l8p: with 512 threads, "
        "64 blocks, 8 loads in flight, pushed",
    )
    baselines: Any = key("auto", "names: [nccl]; none; auto: all on GPUs, none simulated")
    dtype: str = key(
        "auto",
        f"{', '.join(FLOATS)}, {', '.join(INTEGERS)}; where data only moves uint8, too. dtype=bfloat16/native gives "
        "dtype and accumulator",
    )
    accumulator: str = key(
        "auto",
        "of sums: native, the dtype itself; float32 for 32, 16 and 8 bits; float16 for 8 bits; auto: float32 where "
        "that exists, otherwise native",
    )
    reduction: str = key(
        "auto", "sum, min, max, avg; of integers and, or, xor, too; auto: sum, or none where data only moves"
    )
    world_size: int = key(2, f"number of ranks, 1 to {MAX_WORLD_SIZE}", least=1, most=MAX_WORLD_SIZE)
    placement: PlacementChoice = key(
        PlacementChoice.out_of_place, "whether the output is where the input is; both: each case in both"
    )
    root: int = key(0, "the rank that gives (broadcast) or gets (reduce)")
    offset: int = key(
        0, "number of elements after a 16-byte boundary at which both buffers begin", most=1 << 20, rare=True
    )
    counts: Counts = key(
        Counts.uniform,
        "all_to_all_v's: how many elements ranks send to each other, the same total; zeros: one rank sends nothing, "
        "one gets nothing",
        rare=True,
    )
    m: int | None = key(
        None, "of ops that multiply: rows of A and C, those of all ranks", least=1, most=1 << 30, rare=True
    )
    n: int | None = key(None, "the same: columns of C that a rank computes", least=1, most=1 << 30, rare=True)
    k: int | None = key(
        None, "the same: products that a rank adds for each element of C", least=1, most=1 << 30, rare=True
    )
    inputs: Inputs = key(
        Inputs.normal,
        "exact: every sum is exact, so all bits must agree; edge: NaN, infinities, zeros, subnormals, the largest "
        "values, integers that wrap around",
    )
    seed: int = key(0, "of the inputs")
    stress: str = key(
        NO_STRESS,
        "what launches run under, several joined by +, such as late_rank+alternating_sizes: none, late_rank, "
        "no_host_barrier, alternating_sizes, two_streams, graph_out_of_step, dead_rank; what a kernel's spec does not "
        "promise is refused with the reason",
    )
    stress_seeds: int = key(
        8,
        "number of random orders, from fabric.seed on, that a case runs in under stress",
        of=SIMULATOR,
        least=1,
        most=100_000,
        rare=True,
    )
    launches: int = key(2, "number of checked launches of a case", least=1, most=1000)
    deadline_s: float = key(120.0, "maximum seconds for a case", least=0.001, most=10_000_000)
    host_memory: HostMemory = key(
        HostMemory.check,
        "refuse what may take more memory than the host has available; that bound may be too high",
        of=SIMULATOR,
        rare=True,
    )
    tuned: str = key(
        "auto",
        "of algorithms=best: a table that symlab tune wrote; auto: the project's for this type of GPU",
    )
    custom: Any = key(
        None, "of op=custom: a kernel of your own with its buffers, see conf/exp/custom_{{ptx,cute}}.yaml"
    )


@dataclass(kw_only=True)
class Schema(PlainKeys):
    """Every key that a configuration can have, with the value that it starts from.

    The keys of custom are those of runner/custom/description.py.
    """

    records: str = key("records", "the folder for records")
    cache_dir: str = key("~/.cache/symlab/kernels", "the folder for compiled kernels", rare=True)
    sizes: SizesSchema = key(SizesSchema)
    check: CheckSchema = key(CheckSchema)
    timing: TimingRequest = key(TimingRequest)
    fabric: FabricSchema = key(FabricSchema)
    track: TrackRequest = key(TrackRequest)
    library: LibrarySchema = key(LibrarySchema)


SECTIONS: Mapping[str, type] = MappingProxyType(
    {
        "": Schema,
        "sizes": SizesSchema,
        "check": CheckSchema,
        "timing": TimingRequest,
        "fabric": FabricSchema,
        "track": TrackRequest,
        "library": LibrarySchema,
    }
)


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the table. kind: its type, without None. words: all that it takes, if it takes only words."""

    name: str
    kind: Any
    default: Any
    is_optional: bool
    words: tuple[str, ...]
    meaning: str
    of: str
    least: float
    most: float
    rare: bool

    @property
    def wanted(self) -> str:
        """What a value of it is, for messages."""
        if self.kind is bool:
            return "true or false"
        if self.words:
            return f"one of {', '.join(self.words)}"
        if self.kind not in (int, float):
            return "a word"
        if self.most == MOST:
            return f"{self.least:g} or more, below 2**63"
        return f"{self.least:g} to {self.most:.10g}"


def _keys_of(section: str, schema: type) -> typing.Iterator[Key]:
    kinds = typing.get_type_hints(schema)
    for one in dataclasses.fields(schema):
        if one.name in SECTIONS:
            continue
        known = [kind for kind in typing.get_args(kinds[one.name]) if kind is not type(None)] or [kinds[one.name]]
        kind = known[0]
        words = tuple(map(str, kind)) if isinstance(kind, type) and issubclass(kind, Enum) else ()
        yield Key(
            f"{section}.{one.name}" if section else one.name,
            kind,
            one.default,
            type(None) in typing.get_args(kinds[one.name]),
            ("true", "false") if kind is bool else words,
            **one.metadata,
        )


KEYS: Mapping[str, Key] = MappingProxyType(
    {one.name: one for section, schema in SECTIONS.items() for one in _keys_of(section, schema)}
)
"""The table, by the keys' dotted names."""
