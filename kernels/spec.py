"""KernelSpec: one way to do an op, and what it needs; and why a kernel can't run a case.

Kernels are data: the runner binds memory and arguments from a spec's declarations and never knows an algorithm by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from cases.assumptions import ASSUMPTIONS
from cases.case import UNIFORM, Case, Counts, Placement
from cases.dtypes import ACCUMULATORS, ALL, ITEMSIZES, NONE, REDUCTIONS, refuses_types
from cases.ops import Collective, refuses_gemm
from cases.refusal import Refusal
from cases.stress import MEANINGS, PROMISES, parts_of
from memory.fabric import Argument, ArgumentKind, Executable, Launch, Traits, refuses_shared_bytes

if TYPE_CHECKING:
    import torch


ARCHS = ("sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
"""What kernels are built for, unless their spec says otherwise."""

Fold = Literal["rank_order", "from_next_rank", "unordered"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter, in order, and where its value comes from.

    kind: "address" (own memory of buffer `of`), "peers" (address of a table in device memory: world_size int64, entry
    p is where this rank sees buffer `of` of rank p; the own entry is the own address), "counts" (address of a table in
    device memory: world_size int64, entry p is the number of elements that this rank sends to rank p), "multicast"
    (multicast address of `of`, which begins at the same place on all ranks), "numel" (Case.numel, int64), "rank" and
    "root" (int32), "patience" (int64: nanoseconds after which a wait for another rank gives up and leaves its report in
    the workspace "status", see kernels/dsl/status.py; 0: never). of: "input", "output" (in place: their places in the
    one buffer, see Collective.in_place) or a workspace's name; "" where there is nothing to name.
    """

    kind: Literal["address", "peers", "counts", "multicast", "numel", "rank", "root", "patience"]
    of: str = ""

    def argument(self, value: int) -> Argument:
        """Return the value as the argument that the compiled kernel takes."""
        return Argument(ARGUMENT_KINDS[self.kind], value)


ARGUMENT_KINDS: Mapping[str, ArgumentKind] = {
    "address": "address",
    "peers": "address",
    "counts": "address",
    "multicast": "address",
    "numel": "u64",
    "rank": "u32",
    "root": "u32",
    "patience": "u64",
}
"""The kind of argument of each kind of parameter. Kernels read numbers as signed (two's complement)."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Symmetric memory that a kernel keeps between launches.

    Flags and epochs are zeroed once before the first launch; scratch, which a kernel writes before it reads, is not.
    fill, where given, is written over and over instead of zeros: the bytes that a kernel takes for "nothing yet".
    """

    name: str
    numel: int
    dtype: str = "int32"
    zeroed: bool = True
    fill: bytes = b""

    @property
    def size_bytes(self) -> int:
        """Return its size in bytes. ValueError for an unknown dtype."""
        if self.dtype not in ITEMSIZES:
            raise ValueError(
                f"workspace {self.name!r} has the dtype {self.dtype!r}, give one of {', '.join(ITEMSIZES)}"
            )
        return self.numel * ITEMSIZES[self.dtype]

    def initial(self, size_bytes: int) -> bytes | None:
        """What size_bytes of it hold before the first launch; None: anything."""
        pattern = self.fill or (b"\0" if self.zeroed else b"")
        if not pattern:
            return None
        assert size_bytes % len(pattern) == 0, f"{self.name}: {size_bytes} bytes are no multiple of {len(pattern)}"
        return pattern * (size_bytes // len(pattern))


class Origin(Protocol):
    """The place that a spec was loaded from, by which another process loads it: kernels.brought.Place."""

    def load(self) -> KernelSpec: ...


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One way to do an op, and what it needs. Data, so that a table, a refusal and a test can read it.

    fold says in which order an element's contributions are added: "rank_order" (0, 1, .. n-1), "from_next_rank"
    (owner+1, owner+2, .. owner, where owner(case, rank) is an int64 tensor with a rank for each element of the output
    of rank: who reduces it), or "unordered" (the switch decides: no bitwise promise). one_owner says that even then an
    element is summed once and stored to all ranks, so that they agree to the bit whatever the order was. For an op
    that reduces nothing it is "rank_order". same_order False says that each rank adds in an order of its own: where all
    should have the same result, they have it but for rounding.

    choices(case) is what the device half takes, by name: all that its code depends on beside the sources, so that cases
    with equal choices share a compiled kernel.
    build(case) returns the CuTe DSL object to be compiled and imports cutlass only then: callable with `parameters`
    in their order and the number of blocks, with the kernel as its attribute `kernel`. files are the absolute paths of
    the files that its code begins with; what they import belongs to it as well (kernels/sources.py). multimem(case) is
    the exact set of multimem instructions in its PTX, without operands.

    positive_zero: "inputs" says that a contribution of -0.0 counts as +0.0, "results" that no -0.0 comes out either: a
    kernel that keeps -0.0 for a sign that nothing is there yet. max_size_bytes is the largest Case.size_bytes; the
    numbers of ranks in max_sizes have their own (limit_bytes).
    refusal(case, arch) is what else the algorithm can't do, or None. promises are names of cases.stress: what the
    kernel is right under beside plain launches; a case under anything else is refused. why_not gives the reason why a
    "dtype" or "placement" is unsupported, or something is not promised, and says what to take for "sizes" beyond
    max_size_bytes. assumptions names what the kernel relies on beyond PTX (cases/assumptions.py). nvshmem names the
    functions of NVSHMEM that the kernel calls on the device, as C has them (kernels/nvshmem_bitcode.py): their code is
    linked in, and the kernel is refused where it is not installed.

    made(case, arch) returns the code of a kernel that is brought as it is, and arguments(case, launch, rank) what it
    takes on a rank in a launch (kernels/own/arguments.py), of the buffers input and output and of workspaces;
    parameters are then the tables of peers among them. None: build gives the code, and parameters are what it takes.

    tuning is what launches take their values from (kernels.tuning.Tuning), if the spec has one; retuned(tuning) is the
    same kernel with another.

    origin is the place that kernels.brought loaded the spec from; the spec is pickled as that place. A copy made by
    dataclasses.replace has none.
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
    files: tuple[str, ...]
    archs: tuple[str, ...] = ARCHS
    owner: Callable[[Case, int], torch.Tensor] | None = None
    multimem: Callable[[Case], frozenset[str]] = lambda case: frozenset()
    max_world_size: int = 72
    one_owner: bool = False
    same_order: bool = True
    choices: Callable[[Case], Mapping[str, Any]] = lambda case: {}
    positive_zero: Literal["", "inputs", "results"] = ""
    max_size_bytes: int | None = None
    max_sizes: Mapping[int, int] = field(default_factory=dict)
    refusal: Callable[[Case, str], Refusal | None] = lambda case, arch: None
    why_not: Mapping[str, str] = field(default_factory=dict)
    promises: frozenset[str] = frozenset()
    assumptions: tuple[str, ...] = ()
    nvshmem: tuple[str, ...] = ()
    made: Callable[[Case, str], Executable] | None = field(default=None, repr=False, compare=False)
    arguments: Callable[[Case, Launch, int], tuple[Any, ...]] | None = field(default=None, repr=False, compare=False)
    tuning: Any = field(default=None, repr=False, compare=False)
    retuned: Callable[[Any], KernelSpec] | None = field(default=None, repr=False, compare=False)
    origin: Origin | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError, in one line, for a value that means nothing."""
        if isinstance(self.assumptions, str):
            raise ValueError(f"{self.name}: assumptions is a text, give a tuple: ({self.assumptions!r},)")
        for name in self.assumptions:
            if name not in ASSUMPTIONS:
                known_ones = ", ".join(ASSUMPTIONS)
                raise ValueError(f"{self.name}: assumptions has no {name!r}, give some of {known_ones}")
        if isinstance(self.nvshmem, str):
            raise ValueError(f"{self.name}: nvshmem is a text, give a tuple: ({self.nvshmem!r},)")
        if self.nvshmem:
            from kernels.nvshmem_bitcode import refuses_function

            if unknown := next(filter(None, map(refuses_function, self.nvshmem)), ""):
                raise ValueError(f"{self.name}: nvshmem: {unknown}")
        for key, values, known in (
            ("dtypes", self.dtypes, ALL),
            ("accumulators", self.accumulators, (*dict.fromkeys(itertools.chain(*ACCUMULATORS.values())), NONE)),
            ("reductions", self.reductions, (*REDUCTIONS, NONE)),
            ("placements", self.placements, tuple(map(str, Placement))),
            ("fold", (self.fold,), get_args(Fold)),
            ("positive_zero", (self.positive_zero,), ("", "inputs", "results")),
        ):
            if isinstance(values, str):
                raise ValueError(f"{self.name}: {key} is the text {values!r}, give a tuple: ({values!r},)")
            if not values:
                raise ValueError(f"{self.name}: {key} is empty, give some of {', '.join(known)}")
            for value in values:
                if value not in known:
                    words = ", ".join(one or "''" for one in known)
                    raise ValueError(f"{self.name}: {key} has no {value!r}, give {words}")
        if isinstance(self.promises, str):
            raise ValueError(f"{self.name}: promises is the text {self.promises!r}, give a set: {{{self.promises!r}}}")
        for value in sorted(set(self.promises) - set(PROMISES)):
            raise ValueError(f"{self.name}: promises has no {value!r}, give {', '.join(PROMISES)}")

    @property
    def name(self) -> str:
        return f"{self.op}/{self.algorithm}"

    def limit_bytes(self, world_size: int) -> int | None:
        """Return the largest Case.size_bytes in a world of this number of ranks; None if there is no limit."""
        return self.max_sizes.get(world_size, self.max_size_bytes)

    def __hash__(self) -> int:
        """Hash the name: not every field can be hashed, and equal specs have one name."""
        return hash(self.name)

    def variant(self, case: Case) -> str:
        """What the compiled code depends on beside the sources; ranks, addresses and grids need no other PTX."""
        return "-".join(f"{name}={value}" for name, value in sorted(self.choices(case).items()))

    def __reduce__(self) -> tuple[Callable[[Origin], KernelSpec], tuple[Origin]]:
        """Pickle the spec as its origin. PicklingError for a spec that has none."""
        if self.origin is None:
            raise PicklingError(
                f"the spec of {self.name} is bound to no name: assign it to one in a module or file, and load it from "
                "there with kernels.brought.spec_at"
            )
        return _from_origin, (self.origin,)


def _from_origin(origin: Origin) -> KernelSpec:
    return origin.load()


def refuses(spec: KernelSpec, collective: Collective, case: Case, traits: Traits) -> Refusal | None:
    """Return why the kernel can't run the case on a fabric with these traits; None if it can."""
    return (
        _refuses_values(spec, case)
        or refuses_counts(collective, case.counts)
        or refuses_gemm(collective, case.gemm, case.world_size)
        or _refuses_size(spec, collective, case)
        or spec.refusal(case, traits.arch)
        or _refuses_fabric(spec, collective, case, traits)
        or refuses_stress(spec, collective, case)
    )


def refuses_stress(spec: KernelSpec, collective: Collective, case: Case) -> Refusal | None:
    """Return why the kernel does not run under what the case names (Case.stress); None if it does."""
    names = parts_of(case.stress)
    for name in names:
        if name not in spec.promises:
            hint = spec.why_not.get(name, "it does not say so (promises)")
            return Refusal("stress", f"{spec.name} does not promise {name}, {MEANINGS[name]}", hint)
    if "dead_rank" in names and case.world_size == 1:
        return Refusal("world_size", "dead_rank takes 2 or more ranks", "one waits for another")
    if "alternating_sizes" in names and len(cases_in_turn(spec, collective, case)) < 2:
        return Refusal("sizes", f"{spec.name} takes no other size to alternate with {case.size_bytes} bytes")
    return None


SLOTS = 3
"""Number of buffers, of different data or sizes, that the launches of a case under stress take in turn."""
_VECTOR_BYTES = 16


def cases_in_turn(spec: KernelSpec, collective: Collective, case: Case) -> tuple[Case, ...]:
    """Return what the launches of a case under stress do in turn: the case itself first.

    Under alternating_sizes the others are smaller: about a third, a vector of 16 bytes, an element (each for every rank
    where the op divides its buffer), as far as the kernel takes them. Otherwise they are the same.
    """
    if "alternating_sizes" not in parts_of(case.stress):
        return (case,) * SLOTS
    step = case.itemsize * (case.world_size if collective.chunked else 1)
    parts = _VECTOR_BYTES * (case.world_size if collective.chunked else 1)
    sizes = (case.size_bytes, case.size_bytes // 3 // parts * parts, parts, step)
    smaller = [replace(case, size_bytes=size) for size in sizes if 0 < size <= case.size_bytes]
    arch = spec.archs[0]
    taken = [one for one in smaller if not _refuses_size(spec, collective, one) and (not spec.refusal(one, arch))]
    return tuple(dict.fromkeys((case, *taken)))[:SLOTS]


def _refuses_values(spec: KernelSpec, case: Case) -> Refusal | None:
    if case.name != spec.name:
        return Refusal("algorithms", f"{spec.name} does not do {case.name}")
    if unfit := refuses_types(case.dtype, case.accumulator, case.reduction):
        return unfit
    for key, value, known in (
        ("dtype", case.dtype, spec.dtypes),
        ("accumulator", case.accumulator, spec.accumulators),
        ("reduction", case.reduction, spec.reductions),
        ("placement", case.placement, spec.placements),
    ):
        why = f" ({spec.why_not[key]})" if key in spec.why_not else ""
        if unknown := refuses_value(spec.name, key, value, known, why):
            return unknown
    if not 1 <= case.world_size <= spec.max_world_size:
        reason = f"{spec.name} runs on 1 to {spec.max_world_size} ranks, not on {case.world_size}"
        return Refusal("world_size", reason)
    return None


def _refuses_size(spec: KernelSpec, collective: Collective, case: Case) -> Refusal | None:
    if unfit := refuses_elements(case) or refuses_chunks(collective, case):
        return unfit
    most = spec.limit_bytes(case.world_size)
    if most is not None and case.size_bytes > most:
        instead = f"; {spec.why_not['sizes']}" if "sizes" in spec.why_not else ""
        hint = f"up to {most} bytes, not {case.size_bytes}{instead}"
        return Refusal("sizes", f"{spec.name} is for small messages", hint)
    if not 0 <= case.root < (case.world_size if collective.rooted else 1):
        ranks = f"0 to {case.world_size - 1}" if collective.rooted else "0: it has no root"
        return Refusal("root", f"{case.op} has no root {case.root}", f"give {ranks}")
    if case.offset < 0:
        reason = f"buffers can't begin {case.offset} elements after a 16-byte boundary"
        return Refusal("offset", reason, "give 0 or more")
    return None


def _refuses_fabric(spec: KernelSpec, collective: Collective, case: Case, traits: Traits) -> Refusal | None:
    if unfit := refuses_world_size(case, traits):
        return unfit
    if traits.arch not in spec.archs:
        reason = f"{spec.name} is not built for {traits.arch}"
        return Refusal("fabric.arch", reason, f"it is for {', '.join(spec.archs)}")
    if unmapped := refuses_unmapped(spec.name, traits):
        return unmapped
    if spec.nvshmem:
        from kernels.nvshmem_bitcode import refuses_bitcode

        if absent := refuses_bitcode(spec.name, traits.arch):
            return absent
    launch = spec.launch(case)
    blocks = launch.blocks
    most = traits.block_shared_bytes
    if most and (beyond := refuses_shared_bytes(spec.name, launch.shared_bytes, 0, most)):
        return Refusal("algorithms", *beyond)
    waits_at_once = spec.made is None or collective.product is not None
    if waits_at_once and 0 < traits.multiprocessors < blocks:
        reason = (
            f"{spec.name} waits in {blocks} blocks at once for those of other ranks, and this GPU has "
            f"{traits.multiprocessors} multiprocessors to run them on"
        )
        if collective.product:
            return Refusal("m", reason, "give a smaller m or n")
        return Refusal("sizes", reason, "take a smaller size")
    return refuses_no_multicast(spec.name, traits) if spec.needs_multicast else None


# What kernels and libraries (kernels/baselines.py) both refuse


def refuses_value(name: str, key: str, value: str, known: Sequence[str], addition: str = "") -> Refusal | None:
    """Return the refusal of a value that is unsupported by the kernel or library called name. addition ends the
    reason."""
    if value in known:
        return None
    return Refusal(key, f"{name} does not support {key} {value!r}{addition}", f"it supports {', '.join(known)}")


def refuses_elements(case: Case, least_bytes: int = 0) -> Refusal | None:
    """Return the refusal of a size that is not a whole number of elements, or less than least_bytes."""
    if case.size_bytes >= least_bytes and case.size_bytes % case.itemsize == 0:
        return None
    elements = f"{case.dtype} elements of {case.itemsize} bytes"
    return Refusal("sizes", f"{case.size_bytes} bytes are no whole number of {elements}")


def refuses_counts(collective: Collective, counts: str) -> Refusal | None:
    """Return why an op can't run with a case's counts; None if it can."""
    if counts not in tuple(Counts):
        return Refusal("counts", f"there are no counts {counts!r}", f"give {', '.join(Counts)}")
    if collective.sends is not None or counts == UNIFORM:
        return None
    return Refusal("counts", f"{collective.op} has no counts per peer, such as {counts}", f"leave it at {UNIFORM}")


def refuses_chunks(collective: Collective, case: Case) -> Refusal | None:
    """Return the refusal of elements that the op can't divide evenly among the ranks."""
    if not collective.chunked or case.numel % case.world_size == 0:
        return None
    hint = f"{case.numel} are no multiple of {case.world_size} ranks"
    return Refusal("sizes", f"{case.op} divides its elements evenly", hint)


def refuses_world_size(case: Case, traits: Traits) -> Refusal | None:
    """Return the refusal of a fabric of another number of ranks than the case's."""
    if traits.world_size == case.world_size:
        return None
    reason = f"the case wants {case.world_size} ranks, and the fabric {traits.name} has {traits.world_size}"
    return Refusal("world_size", reason)


def refuses_unmapped(name: str, traits: Traits) -> Refusal | None:
    """Return the refusal of a fabric on which some ranks can't address others' memory."""
    if not traits.unmapped:
        return None
    return Refusal("fabric", f"{name} needs every rank's memory mapped on every other", traits.unmapped)


def refuses_no_multicast(name: str, traits: Traits) -> Refusal | None:
    """Return the refusal of a fabric without multicast addresses."""
    if traits.multicast:
        return None
    reason = f"{name} needs multicast addresses, and the fabric {traits.name} has none"
    return Refusal("fabric.multicast", reason, traits.multicast_reason or "no reason given")
