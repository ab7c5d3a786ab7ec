"""The nouns of a custom kernel: its buffers, its arguments, and what must come out.

They hold no PTX and no memory, so a YAML file, a Python call and a per-rank program share them. Every rule that can be
told from the description alone is kept at construction (ValueError, in one line).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from cases.dtypes import ITEMSIZES
from kernels.own.arguments import WORDS, BroughtArgument, check_buffers, references_of
from memory.fabric import Launch

if TYPE_CHECKING:
    import torch

MAX_NUMEL = 1 << 40
"""Elements of a buffer: beyond any memory, and far below what 64-bit sizes overflow at."""


class Fill(StrEnum):
    """What a buffer holds before every checked launch."""

    poison = "poison"
    """Nothing: a read of it is a fault in the simulator, and gives bytes of 0xFF or 0x5A on GPUs. Elements of a
    compared buffer that the kernel never writes are wrong, whatever the reference says."""
    zeros = "zeros"
    rank = "rank"
    """The rank's number in every element."""
    random = "random"
    """Floats: uniform in [0, 1); integers: any value of the dtype. Drawn from seed, buffer and rank."""
    normal = "normal"
    """Floats only: a normal distribution of mean 0 and variance 1. Drawn from seed, buffer and rank."""


FillFunction = Callable[[int, int], "torch.Tensor"]
"""fill(rank, world_size): a host tensor of the buffer's dtype and shape."""

Contents = Mapping[str, "torch.Tensor"]
"""Host tensors of one rank by buffer name, each of its buffer's dtype and shape."""

Reference = Callable[[Sequence[Contents]], Sequence["Contents | None"]]
"""reference(inputs): from what all ranks' buffers hold before a launch, by rank, to what they must hold after it, by
rank: the compared buffers. None, or a buffer that is left out: not compared on that rank."""


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer that each rank has.

    shape: elements in each dimension, the last contiguous. symmetric: the other ranks reach it, through a table of
    peers or a multicast address; False: only its own rank's kernel gets its address. fill: what it holds before each
    checked launch.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    symmetric: bool = True
    fill: Fill | FillFunction = Fill.poison

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"a buffer is called {self.name!r}: give a name in letters, digits and underscores")
        if self.name in WORDS:
            raise ValueError(f"a buffer is called {self.name!r}: as an argument this is a number, give another name")
        if self.dtype not in ITEMSIZES:
            raise ValueError(f"buffer {self.name}: unknown dtype {self.dtype!r}, give one of {', '.join(ITEMSIZES)}")
        if not self.shape or not all(type(count) is int and count > 0 for count in self.shape):
            raise ValueError(f"buffer {self.name}: shape is {list(self.shape)}, give whole numbers from 1")
        if self.numel > MAX_NUMEL:
            raise ValueError(f"buffer {self.name}: {self.numel} elements, give at most {MAX_NUMEL}")
        if self.fill is Fill.normal and not self.dtype.startswith(("float", "bfloat")):
            raise ValueError(f"buffer {self.name}: fill 'normal' is for floats, not for {self.dtype}, give random")

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.numel * ITEMSIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a float may be from the reference: |actual - expected| <= absolute + relative * |expected|.

    Both 0: bit for bit (any NaN equals any other), as integers always are.
    """

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        for name in ("absolute", "relative"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ValueError(f"tolerance.{name} is {value!r}: give a number from 0")

    @property
    def is_bitwise(self) -> bool:
        return not self.absolute and not self.relative

    @property
    def formula(self) -> str:
        """The bound in words; "" if bit for bit."""
        return "" if self.is_bitwise else f"{self.absolute:g} + {self.relative:g} * |expected|"


def check_launches(launches: object) -> None:
    """Raise ValueError for what is no number of launches."""
    if type(launches) is not int or launches < 1:
        raise ValueError(f"launches is {launches!r}: give the number of launches in a row, 1 or more")


@dataclass(frozen=True, slots=True)
class CustomSpec:
    """What a custom kernel is given, and what must come out; the kernel itself is beside it.

    name: of the kernel, for records and messages. launch None: a CuTe DSL function's own, known when it is compiled.
    arguments: one for each parameter of the kernel or the function, in order. reference None: nothing is compared.
    launches: number in a row, between fills and the comparison, on buffers that keep what they hold. then: kernels that
    follow in each launch, on the same buffers.
    """

    name: str
    launch: Launch | None
    buffers: tuple[BufferSpec, ...]
    arguments: tuple[BroughtArgument, ...]
    reference: Reference | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    launches: int = 1
    then: tuple[CustomSpec, ...] = ()

    def __post_init__(self) -> None:
        check_launches(self.launches)
        names = [buffer.name for buffer in self.buffers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two buffers are called {twice[0]}: give each a name of its own")
        by_name = {buffer.name: buffer for buffer in self.buffers}
        for number, argument in enumerate(self.arguments):
            check_buffers(f"argument {number}", argument, by_name)

    @property
    def every_argument(self) -> tuple[BroughtArgument, ...]:
        """The arguments of all kernels."""
        return (*self.arguments, *(argument for one in self.then for argument in one.arguments))

    @property
    def needs_multicast(self) -> bool:
        return any(kind == "multicast" for one in self.every_argument for kind, _ in references_of(one))
