"""Case: one point of an experiment, and the words that its axes take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from cases.documents import LATER
from cases.dtypes import ITEMSIZES
from cases.stress import NO_STRESS


class Placement(StrEnum):
    """Where a case's output is. Members of these enums are named as they are written: OmegaConf reads names."""

    out_of_place = "out_of_place"
    in_place = "in_place"
    """Input and output share one buffer, see Collective.in_place."""


class Inputs(StrEnum):
    """What a case's data is, see runner/case/inputs.py."""

    exact = "exact"
    """Every sum is exact, so that all bits must agree."""
    normal = "normal"
    edge = "edge"
    """NaN, infinities, zeros, subnormals, the largest values among normal ones."""


class Counts(StrEnum):
    """How many elements ranks send to each other, of an op with counts per peer (Collective.sends)."""

    uniform = "uniform"
    """Each rank sends as many to every rank."""
    skewed = "skewed"
    """Some ranks are sent more than others, as the popular experts of a mixture."""
    zeros = "zeros"
    """Pairs of ranks with nothing between them; a rank that sends nothing, and another one that receives nothing."""


UNIFORM = Counts.uniform.value

Sends = tuple[tuple[int, ...], ...]
"""Elements that each rank sends to each: Sends[rank][peer]."""


@dataclass(frozen=True, slots=True)
class Case:
    """One point of an experiment: everything that decides what runs and what must come out.

    size_bytes has nccl-tests' meaning for the op (all_reduce, broadcast, reduce, send_recv: the buffer; all_gather: the
    whole output; reduce_scatter, all_to_all: the whole input; all_to_all_v: what a rank sends on average). accumulator
    and reduction are names of cases/dtypes.py ("native": the dtype itself; for float32 that and "float32"
    mean the same), both "none" where the op only moves data. placement is of Placement, inputs of Inputs. root is the
    rank that gives (broadcast) or gets (reduce); 0 for other ops. offset is how many elements after a 16-byte boundary
    both buffers begin. stress is of cases.stress.Stress, or several of them joined by +: what the case runs under.
    counts is of Counts; uniform for ops without counts per peer.

    gemm, of an op that multiplies, is (M, N, K) of the one product C (M, N) = A (M, K) B (N, K)^T that a rank computes:
    M are all ranks' rows; N are a rank's columns of all_gather_matmul, K is a rank's depth of matmul_reduce_scatter and
    matmul_all_reduce. size_bytes are then those of C. None for all other ops.
    """

    op: str
    algorithm: str
    dtype: str
    accumulator: str
    reduction: str
    size_bytes: int
    world_size: int
    placement: str = Placement.out_of_place.value
    inputs: str = Inputs.normal.value
    seed: int = 0
    root: int = 0
    offset: int = 0
    stress: str = NO_STRESS
    counts: str = field(default=UNIFORM, metadata=LATER)
    gemm: tuple[int, int, int] | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        """Raise ValueError for a gemm that is not three positive numbers."""
        if self.gemm is not None and (len(self.gemm) != 3 or min(self.gemm) < 1):
            raise ValueError(f"gemm is {list(self.gemm)}, give M, N and K, each 1 or more")

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
    def flops(self) -> int:
        """Floating point operations of the product that a rank computes; 0 of an op that does not multiply."""
        return 2 * math.prod(self.gemm) if self.gemm else 0

    @property
    def id(self) -> str:
        """A stable name for files, tests and anchors; two cases are equal just when their ids are.

        Records refuse another id. A new axis goes to the end, and only off its default, so that ids of before stay as
        they are.
        """
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
                *([f"r{self.root}"] if self.root else []),
                *([f"o{self.offset}"] if self.offset else []),
                *([f"stress_{self.stress}"] if self.stress != NO_STRESS else []),
                *([f"counts_{self.counts}"] if self.counts != UNIFORM else []),
                *(["m{}n{}k{}".format(*self.gemm)] if self.gemm else []),
            ]
        )
