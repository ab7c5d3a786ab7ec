"""Arguments of CuTe DSL functions: what the compiler gets, and what host code gets in their place.

A function takes pointers, numbers, cute.Tensors, lists of tensors, and constants. What its parameters are annotated
with decides where an argument can be read in two ways: the address of a buffer is a tensor for a cute.Tensor.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cases.dtypes import ITEMSIZES
from kernels.compile import compiled_apart, with_relative_paths
from kernels.functions import CallArgument, CompiledFunction, compiled_callable
from kernels.hosting import HostLaunch
from kernels.own.arguments import NUMBER_KINDS, TENSOR_KINDS, ArgumentSpec, BroughtArgument, PeerArgument
from memory.fabric import PACKINGS, Argument, Executable, Launch

_TENSOR = re.compile(r"(\w+\.)*Tensor")
_TENSORS = re.compile(r"(\w+\.)*(list|List|tuple|Tuple|Sequence)\[(\w+\.)*Tensor\b.*\]")
_CONSTEXPR = re.compile(r"(\w+\.)*Constexpr(\[.*\])?")
_POINTER = re.compile(r"(\w+\.)*Pointer")


class Shaped(Protocol):
    """What a function has to know of a buffer: its elements, and their number in each dimension."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class ShapedBuffer:
    """What the compiler and arguments have to know of a buffer."""

    dtype: str
    shape: tuple[int, ...]
    symmetric: bool = True

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class Input:
    """One value that a function's host code gets at run time.

    argument is a number, or of kind "address", "peers" or "multicast"; peer: whose buffer an address is of, None for
    the own rank's. extents: of a tensor that is read at run time its shape, else empty. is_of_launch: known at the
    launch alone, as addresses and patience are.
    """

    argument: ArgumentSpec
    peer: int | None = None
    extents: tuple[int, ...] = ()

    @property
    def is_of_launch(self) -> bool:
        return bool(self.argument.buffer) or self.argument.value == "patience"

    def content(self, rank: int, world_size: int) -> bytes:
        """Return its bytes as host code takes them; what is_of_launch is a number of 8 zero bytes."""
        if not self.is_of_launch:
            bound = self.argument.bound(rank, world_size)
            return PACKINGS[bound.kind].pack(bound.value)
        # A tensor is a structure: the address, the extents (32 bits each), the strides but the last's (64 bits each).
        content = bytes(8) + struct.pack(f"<{len(self.extents)}i", *self.extents)
        strides: list[int] = []
        for extent in reversed(self.extents[1:]):
            strides.insert(0, extent * (strides[0] if strides else 1))
        return content + bytes(-len(content) % 8) + struct.pack(f"<{len(strides)}q", *strides)


@dataclass(frozen=True, slots=True)
class FunctionLaunch:
    """How a compiled function launches its kernel: by rank, what its host code gets, and what it made of that."""

    inputs: tuple[tuple[Input, ...], ...]
    by_rank: tuple[HostLaunch, ...]

    @property
    def launch(self) -> Launch:
        """Rank 0's."""
        return self.by_rank[0].launch

    def arguments(self, rank: int, value_of: Callable[[Input], int]) -> tuple[Argument, ...]:
        """Return the kernel's arguments on a rank. value_of: the value of an input that is_of_launch."""
        return self.by_rank[rank].arguments([value_of(one) if one.is_of_launch else 0 for one in self.inputs[rank]])


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function's arguments on a rank: as the compiler gets them, and as inputs of its host code."""

    arguments: tuple[CallArgument, ...]
    inputs: tuple[Input, ...]


def compiled_function(
    function: Any,
    name: str,
    by_rank: Sequence[Sequence[BroughtArgument]],
    buffers: Mapping[str, Shaped],
    given: Mapping[str, Any],
    arch: str,
) -> Executable:
    """Compile a function and return it with what it launches on each rank (FunctionLaunch, as its host). by_rank:
    arguments; given: what was said of the launch, by Launch's names.

    Both happen in a process of its own, whose end is a ValueError. Raises ValueError where it launches otherwise than
    was said, and for what function_calls, compiled_callable and HostCode.launch refuse.
    """
    calls = function_calls(function, by_rank, buffers)

    def step() -> Executable:
        made = compiled_callable(function, name, calls[0].arguments, arch)
        text = with_relative_paths(made.executable.ptx)
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        return replace(made.executable, ptx=text, digest=digest, host=_launched(made, calls, given))

    return compiled_apart(step, f"compiling {name} for {arch}")


def _launched(compiled: CompiledFunction, calls: Sequence[FunctionCall], given: Mapping[str, Any]) -> FunctionLaunch:
    name, by_rank = compiled.executable.name, []
    for rank, call in enumerate(calls):
        contents = [one.content(rank, len(calls)) for one in call.inputs]
        try:
            made = compiled.host.launch(contents, [one.is_of_launch for one in call.inputs])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        said = replace(made.launch, **given)
        for what in given:
            if getattr(said, what) != getattr(made.launch, what):
                raise ValueError(
                    f"{name} launches with {what} {getattr(made.launch, what)}, and {getattr(said, what)} is given "
                    f"({what}), leave it out"
                )
        by_rank.append(made)
    return FunctionLaunch(tuple(call.inputs for call in calls), tuple(by_rank))


def function_calls(
    function: Any, by_rank: Sequence[Sequence[BroughtArgument]], buffers: Mapping[str, Shaped]
) -> list[FunctionCall]:
    """Return a function's calls on all ranks. ValueError, in one line, for what it can't take, and for constants that
    differ: the code of all ranks is rank 0's."""
    calls = [function_call(function, each, buffers, len(by_rank)) for each in by_rank]
    if any(call.arguments != calls[0].arguments for call in calls):
        raise ValueError("the function gets other types or constants on some ranks: give the same on all")
    return calls


def function_call(
    function: Any, arguments: Sequence[BroughtArgument], buffers: Mapping[str, Shaped], world_size: int
) -> FunctionCall:
    """Return a function's call. Raises ValueError, in one line, for what a function can't take."""
    told, inputs = [], []
    for number, (argument, wanted) in enumerate(zip(arguments, wanted_kinds(function, len(arguments)), strict=True)):
        one, made = _called(number, argument, wanted, buffers, world_size)
        told.append(one)
        inputs += made
    return FunctionCall(tuple(told), tuple(inputs))


def wanted_kinds(function: Any, count: int) -> list[str]:
    """Return what each of the first parameters is annotated with, as far as it matters: "tensor", "tensors",
    "constexpr", "pointer", else ""."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    found = [_annotated(one.annotation) for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
    return (found + [""] * count)[:count]


def _annotated(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else str(annotation)
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        text = annotation.__name__
    for name, pattern in (("tensors", _TENSORS), ("tensor", _TENSOR), ("constexpr", _CONSTEXPR), ("pointer", _POINTER)):
        if pattern.fullmatch(text.strip()):
            return name
    return ""


def _called(
    number: int, given: BroughtArgument, wanted: str, buffers: Mapping[str, Shaped], world_size: int
) -> tuple[CallArgument, list[Input]]:
    """An argument for the compiler, and its inputs."""
    if not isinstance(given, (ArgumentSpec, PeerArgument)) or given.kind == "bytes":
        raise ValueError(f"argument {number} is a {given.kind} by value: a function takes buffers and numbers")
    made = Input(given.address, given.rank) if isinstance(given, PeerArgument) else Input(given)
    argument = made.argument
    if argument.value == "launch":
        raise ValueError(f"argument {number} is launch: a function's launches have the same arguments")
    if argument.kind == "constexpr" or (wanted == "constexpr" and argument.kind in NUMBER_KINDS):
        if argument.value in ("rank", "patience"):
            raise ValueError(
                f"argument {number} is a constant, the same on all ranks, in all launches: it can't be {argument.value}"
            )
        return CallArgument("constexpr", value=world_size if argument.value == "world_size" else argument.value), []
    if argument.kind in NUMBER_KINDS:
        return CallArgument(argument.kind), [made]
    buffer = buffers[argument.buffer]
    kind = _as_wanted(argument.kind, wanted)
    if wanted == "pointer" and kind in TENSOR_KINDS:
        raise ValueError(f"argument {number} is a {kind}, and the function takes a cute.Pointer there: give an address")
    if wanted in ("tensor", "tensors") and kind.removeprefix("dynamic_") != wanted:
        what = "a list of cute.Tensors" if wanted == "tensors" else "a cute.Tensor"
        raise ValueError(f"argument {number} is {argument.kind}, and the function takes {what} there: give {wanted}")
    if kind in TENSOR_KINDS and argument.offset_bytes:
        raise ValueError(f"argument {number} is {argument.value!r}: a tensor begins where its buffer does")
    if kind not in TENSOR_KINDS:
        return CallArgument("address", "int64" if kind == "peers" else buffer.dtype), [made]
    is_dynamic = kind.startswith("dynamic_")
    address = ArgumentSpec("multicast" if argument.kind == "multicast" else "address", argument.buffer)
    one = replace(made, argument=address, extents=buffer.shape if is_dynamic else ())
    tensor = CallArgument("tensor", buffer.dtype, buffer.shape, is_dynamic)
    if not kind.endswith("tensors"):
        return tensor, [one]
    members = [replace(one, peer=rank) for rank in range(world_size)]
    return CallArgument("tensors", members=(tensor,) * world_size), members


def _as_wanted(kind: str, wanted: str) -> str:
    """An address is a tensor where one is wanted, and a table of peers the list of theirs."""
    if wanted == "tensor" and kind in ("address", "multicast"):
        return "tensor"
    return "tensors" if wanted == "tensors" and kind == "peers" else kind
