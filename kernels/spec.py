"""The nouns: Case (one point), Collective (what an op means), KernelSpec (one way to do it, and what it needs).

Kernels are data: the runner binds memory and arguments from a spec's declarations and never knows an algorithm by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from memory.fabric import Traits

if TYPE_CHECKING:
    import torch

Fold = Literal["rank_order", "from_next_rank", "unordered"]

ITEMSIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of an element, by the names that configurations and records use."""


class _Dtypes(Mapping[str, "torch.dtype"]):
    """Torch's types of those names. Torch, seconds to import, is imported when one is asked for, not before."""

    def __getitem__(self, name: str) -> torch.dtype:
        import torch

        return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ITEMSIZES)

    def __len__(self) -> int:
        return len(ITEMSIZES)


DTYPES: Mapping[str, torch.dtype] = _Dtypes()


@dataclass(frozen=True, slots=True)
class Case:
    """One point of an experiment: everything that decides what runs and what must come out.

    size_bytes has nccl-tests' meaning for the op (all_reduce: the buffer). accumulator is "float32" or "native" (the
    dtype itself; for dtype float32 both names are allowed and mean the same). placement is "out_of_place" or
    "in_place"; inputs "exact" or "normal".
    """

    op: str
    algorithm: str
    dtype: str
    accumulator: str
    reduction: str
    size_bytes: int
    world_size: int
    placement: str = "out_of_place"
    inputs: str = "normal"
    seed: int = 0

    @property
    def name(self) -> str:
        """The catalogue key of the kernel asked for: "all_reduce/one_shot"."""
        return f"{self.op}/{self.algorithm}"

    @property
    def itemsize(self) -> int:
        return ITEMSIZES[self.dtype]

    @property
    def numel(self) -> int:
        """Elements in size_bytes."""
        return self.size_bytes // self.itemsize

    @property
    def id(self) -> str:
        """A stable name for files, tests and anchors; two cases are equal just when their ids are."""
        return "-".join(
            [
                self.op,
                self.algorithm,
                self.dtype,
                self.accumulator,
                self.reduction,
                f"n{self.world_size}",
                f"{self.size_bytes}B",
                self.placement,
                self.inputs,
                f"s{self.seed}",
            ]
        )


@dataclass(frozen=True, slots=True)
class Collective:
    """What an op means, apart from how it is done.

    counts(numel, world_size) gives the elements of one rank's input and output buffer. outputs(inputs, rank) gives, for
    the world's inputs (one 1-D tensor a rank), the parts that are combined into that rank's output, in rank order: the
    check folds them. bus_factor(world_size) is nccl-tests' busbw = algbw * factor.
    """

    op: str
    counts: Callable[[int, int], tuple[int, int]]
    outputs: Callable[[list[torch.Tensor], int], list[torch.Tensor]]
    bus_factor: Callable[[int], float]
    same_on_all_ranks: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter, in order, and where its value comes from.

    kind: "address" (own memory of buffer `of`), "peers" (address of a table in device memory: world_size int64, entry
    p is where this rank sees buffer `of` of rank p; the own entry is the own address), "multicast" (multicast address
    of `of`), "numel" (Case.numel, int64), "rank" (int32), "patience" (int64: nanoseconds after which a wait for another
    rank gives up and leaves its report in the workspace "status", see kernels/status.py; 0: never). of: "input",
    "output" (in place: the input's buffer) or a workspace's name.
    """

    kind: Literal["address", "peers", "multicast", "numel", "rank", "patience"]
    of: str = ""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Symmetric memory that a kernel keeps between launches.

    Flags and epochs are zeroed once before the first launch; scratch, which a kernel writes before it reads, is not.
    """

    name: str
    numel: int
    dtype: str = "int32"
    zeroed: bool = True


@dataclass(frozen=True, slots=True)
class Launch:
    """How a case is launched: grid blocks of block threads."""

    grid: int
    block: int


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One way to do an op, and what it needs. Data, so that a table, a refusal and a test can read it.

    fold says in which order an element's contributions are added: "rank_order" (0, 1, .. n-1), "from_next_rank"
    (owner+1, owner+2, .. owner, where owner(numel, world_size, dtype) is an int64 tensor of numel ranks: who reduces
    each element), or "unordered" (the switch decides: no bitwise promise). one_owner says that even then an element is
    summed once and stored to all ranks, so that they agree to the bit whatever the order was.

    choices(case) is what the device half takes, by name: all that its code depends on beside the sources.
    build(case) returns the CuTe DSL object to be compiled and imports cutlass only then: callable with `parameters`
    in their order and the number of blocks, with the kernel as its attribute `kernel`. sources are the project files,
    relative to the project's root, that its code depends on. multimem(case) is the exact set of multimem instructions
    in its PTX, without operands.
    """

    op: str
    algorithm: str
    summary: str
    dtypes: tuple[str, ...]
    accumulators: tuple[str, ...]
    reductions: tuple[str, ...]
    placements: tuple[str, ...]
    needs_multicast: bool
    fold: Fold
    parameters: tuple[Parameter, ...]
    workspaces: Callable[[Case], tuple[Workspace, ...]]
    launch: Callable[[Case], Launch]
    build: Callable[[Case], Any]
    sources: tuple[str, ...]
    archs: tuple[str, ...] = ("sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
    owner: Callable[[int, int, str], torch.Tensor] | None = None
    multimem: Callable[[Case], frozenset[str]] = lambda case: frozenset()
    max_world_size: int = 72
    one_owner: bool = False
    choices: Callable[[Case], Mapping[str, Any]] = lambda case: {}

    @property
    def name(self) -> str:
        return f"{self.op}/{self.algorithm}"

    def variant(self, case: Case) -> str:
        """What the compiled code depends on beside the sources; ranks, addresses and grids need no other PTX."""
        known = {"world_size", "dtype", "accumulator", "threads"}
        others = [f"-{name}={value}" for name, value in sorted(self.choices(case).items()) if name not in known]
        block = self.launch(case).block
        return f"n{case.world_size}-{case.dtype}-{case.accumulator}-{case.reduction}-b{block}" + "".join(others)


def refuses(spec: KernelSpec, case: Case, traits: Traits) -> str | None:
    """Why the kernel can't run the case on a fabric with these traits, in words a user can act on; None when it can."""
    return _refuses_values(spec, case) or _refuses_size(case) or _refuses_fabric(spec, case, traits)


def _refuses_values(spec: KernelSpec, case: Case) -> str | None:
    if case.name != spec.name:
        return f"{spec.name} does not do {case.name}"
    for what, value, allowed in (
        ("dtype", case.dtype, spec.dtypes),
        ("accumulator", case.accumulator, spec.accumulators),
        ("reduction", case.reduction, spec.reductions),
        ("placement", case.placement, spec.placements),
    ):
        if value not in allowed:
            return f"{spec.name} has no {what} {value!r} for {case.dtype}: it has {', '.join(allowed)}"
    if not 1 <= case.world_size <= spec.max_world_size:
        return f"{spec.name} runs on 1 to {spec.max_world_size} ranks, not on {case.world_size}"
    return None


def _refuses_size(case: Case) -> str | None:
    if case.size_bytes < case.itemsize:
        return f"{case.size_bytes} bytes hold no element of {case.dtype}: the smallest size is {case.itemsize} bytes"
    if case.size_bytes % case.itemsize:
        return f"{case.size_bytes} bytes are no whole number of {case.dtype} elements of {case.itemsize} bytes"
    return None


def _refuses_fabric(spec: KernelSpec, case: Case, traits: Traits) -> str | None:
    if traits.world_size != case.world_size:
        return f"the case wants {case.world_size} ranks, and the fabric {traits.name} has {traits.world_size}"
    if traits.arch not in spec.archs:
        return f"{spec.name} is not built for {traits.arch}: it is for {', '.join(spec.archs)}"
    if traits.unmapped:
        return f"{spec.name} needs every rank's memory mapped on every other: {traits.unmapped}"
    if spec.needs_multicast and not traits.multicast:
        reason = traits.multicast_reason or "no reason given"
        return f"{spec.name} needs multicast addresses, and the fabric {traits.name} has none: {reason}"
    return None
