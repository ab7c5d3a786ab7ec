"""The nouns of a custom kernel: its buffers, its arguments, and what must come out.

They hold no PTX and no memory, so a YAML file, a Python call and a per-rank program share them. Every rule that can be
told from the description alone is kept at construction (ValueError, in one line).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, get_args

from cases.dtypes import ITEMSIZES
from memory.fabric import PACKINGS, Argument, ArgumentKind, Launch, packed

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


NumberKind = Literal["u32", "s32", "u64", "s64", "f32", "f64"]
BufferKind = Literal["address", "peers", "multicast", "tensor", "tensors", "dynamic_tensor", "dynamic_tensors"]
Word = Literal["rank", "world_size"]
NUMBER_KINDS: tuple[str, ...] = get_args(NumberKind)
BUFFER_KINDS: tuple[str, ...] = get_args(BufferKind)
WORDS: tuple[str, ...] = get_args(Word)
TENSOR_KINDS = ("tensor", "tensors", "dynamic_tensor", "dynamic_tensors")
FUNCTION_KINDS = (*TENSOR_KINDS, "constexpr")
"""Kinds that a CuTe DSL function takes, and PTX does not."""

OWN_KINDS = ("address", "tensor", "dynamic_tensor")
"""Kinds that reach the own rank's buffer alone, so that it may be a local one."""

_UNSIGNED: dict[str, ArgumentKind] = {"s32": "u32", "s64": "u64"}
_SIGNED_BITS = {"s32": 31, "s64": 63}


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """The value of one kernel parameter on every rank.

    kind: "address" (of buffer `value` on the own rank), "peers" (address of a table in device memory: world_size
    64-bit addresses, entry p is where this rank sees buffer `value` of rank p), "multicast" (the address that reaches
    buffer `value` of all ranks), a number ("u32", "s32", "u64", "s64", "f32", "f64"; of integers, value may be the
    word "rank" or "world_size"), or "bytes" (a struct by value).

    Of a CuTe DSL function also "tensor" (a cute.Tensor of buffer `value`, with its shape as constants), "tensors" (a
    list of them, of all ranks), "dynamic_tensor" and "dynamic_tensors" (whose shape is read at run time), and
    "constexpr" (a constant of the code; the word "world_size" stands for it).
    """

    kind: NumberKind | BufferKind | Literal["bytes", "constexpr"]
    value: str | int | float | bytes | None

    def __post_init__(self) -> None:
        if self.kind in BUFFER_KINDS:
            if not isinstance(self.value, str):
                raise ValueError(f"an argument {self.kind} of {self.value!r}: give the name of a buffer")
        elif self.kind == "bytes":
            if not isinstance(self.value, bytes) or not self.value:
                raise ValueError(f"an argument bytes of {self.value!r}: give at least one byte")
        elif self.kind in NUMBER_KINDS:
            self._check_number()
        elif self.kind == "constexpr":
            if self.value == "rank":
                raise ValueError("an argument constexpr of 'rank': all ranks run the same code, give {u32: rank}")
        else:
            kinds = ", ".join((*BUFFER_KINDS, *NUMBER_KINDS, "bytes", "constexpr"))
            raise ValueError(f"an argument of unknown kind {self.kind!r}: give one of {kinds}")

    def _check_number(self) -> None:
        if isinstance(self.value, str):
            if self.value not in WORDS or self.kind.startswith("f"):
                words = "" if self.kind.startswith("f") else f" or {' or '.join(WORDS)}"
                raise ValueError(f"an argument {self.kind} of {self.value!r}: give a number{words}")
            return
        if isinstance(self.value, (bool, bytes)) or self.value is None:
            raise ValueError(f"an argument {self.kind} of {self.value!r}: give a number")
        bits = _SIGNED_BITS.get(self.kind)
        if bits is not None and not (isinstance(self.value, int) and -(1 << bits) <= self.value < 1 << bits):
            raise ValueError(f"an argument {self.kind} of {self.value!r}: give -2^{bits} to 2^{bits} - 1")
        if self.kind.startswith("u") and not (isinstance(self.value, int) and self.value >= 0):
            raise ValueError(f"an argument {self.kind} of {self.value!r}: give 0 to 2^{self.kind[1:]} - 1")
        packed(self.kind, [self.size_bytes], [self._argument(self.value)])

    @property
    def size_bytes(self) -> int:
        """Bytes of the parameter that takes it."""
        if isinstance(self.value, bytes):
            return len(self.value)
        kind = "address" if self.kind in BUFFER_KINDS else _UNSIGNED.get(self.kind, self.kind)
        size_bytes = PACKINGS[kind].size_bytes
        assert size_bytes is not None
        return size_bytes

    @property
    def buffer(self) -> str:
        """The name of the buffer that it refers to; "" if none."""
        return str(self.value) if self.kind in BUFFER_KINDS else ""

    def bound(self, rank: int, world_size: int, address: int = 0) -> Argument:
        """Return the value on a rank. address: what the kind says of its buffer there; unused if it has none."""
        if self.buffer:
            return Argument("address", address)
        if isinstance(self.value, str):
            return self._argument(rank if self.value == "rank" else world_size)
        assert self.value is not None
        return self._argument(self.value)

    def _argument(self, value: float | bytes) -> Argument:
        kind = _UNSIGNED.get(self.kind, self.kind)
        assert kind in PACKINGS
        return Argument(kind, value)  # type: ignore[arg-type]


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


@dataclass(frozen=True, slots=True)
class CustomSpec:
    """What a custom kernel is given, and what must come out; the kernel itself is beside it.

    name: of the kernel, for records and messages. launch None: a CuTe DSL function's own, known when it is compiled.
    arguments: one for each parameter of the kernel or the function, in order. reference None: nothing is compared.
    """

    name: str
    launch: Launch | None
    buffers: tuple[BufferSpec, ...]
    arguments: tuple[ArgumentSpec, ...]
    reference: Reference | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)

    def __post_init__(self) -> None:
        names = [buffer.name for buffer in self.buffers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two buffers are called {twice[0]}: give each a name of its own")
        by_name = {buffer.name: buffer for buffer in self.buffers}
        for number, argument in enumerate(self.arguments):
            if not argument.buffer:
                continue
            if argument.buffer not in by_name:
                known = ", ".join(names) or "none are given"
                raise ValueError(f"argument {number}: there is no buffer {argument.buffer!r}: the buffers are {known}")
            if argument.kind not in OWN_KINDS and not by_name[argument.buffer].symmetric:
                raise ValueError(
                    f"argument {number}: {argument.kind} of {argument.buffer}, which is local: make it symmetric"
                )

    @property
    def needs_multicast(self) -> bool:
        return any(argument.kind == "multicast" for argument in self.arguments)

    @property
    def tables(self) -> tuple[str, ...]:
        """The buffers of which the kernel gets a table of peers, each once."""
        return tuple(dict.fromkeys(one.buffer for one in self.arguments if one.kind == "peers"))
