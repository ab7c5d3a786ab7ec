"""Arguments of a kernel of the user's own, as data: one parser for YAML and Python, and one value on each rank.

In YAML an argument is {kind: value}, in Python also a tuple (kind, value). Structs have members of all kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from memory.fabric import PACKINGS, Argument, ArgumentKind, packed

NumberKind = Literal["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"]
BufferKind = Literal["address", "peers", "multicast", "tensor", "tensors", "dynamic_tensor", "dynamic_tensors"]
NUMBER_KINDS: tuple[str, ...] = get_args(NumberKind)
BUFFER_KINDS: tuple[str, ...] = get_args(BufferKind)
WORDS = ("rank", "world_size", "launch", "patience")
"""What an integer may be instead of a number. launch counts those in a row, from 0; patience is the most nanoseconds
that a wait for another rank may take, 0 for ever."""

TENSOR_KINDS = ("tensor", "tensors", "dynamic_tensor", "dynamic_tensors")
FUNCTION_KINDS = (*TENSOR_KINDS, "constexpr")
"""Kinds that a CuTe DSL function takes, and PTX does not."""

OWN_KINDS = ("address", "tensor", "dynamic_tensor")
"""Kinds that reach the own rank's buffer alone, so that it may be a local one."""

KINDS = (*BUFFER_KINDS, "peer", "addresses", *NUMBER_KINDS, "bytes", "struct", "pointer", "constexpr")
MAX_STRUCT_ALIGNMENT_BYTES = 16
MAX_STRUCT_BYTES = 32_764
"""What all parameters of a kernel can have together (PTX ISA, "Kernel Function Parameters")."""

_REFERENCE = re.compile(r"(\w+)(?:\s*\+\s*(\d+))?")


def referred(reference: str) -> tuple[str, int]:
    """Return the buffer's name and the bytes from its begin of "name" or "name+16". ValueError for other text."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise ValueError(f"{reference!r} names no buffer: give its name, or name+16 for 16 bytes from its begin on")
    return found[1], int(found[2] or 0)


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """The value of one kernel parameter on every rank.

    kind: "address" (of buffer `value` on the own rank), "peers" (address of a table in device memory: world_size
    64-bit addresses, entry p is where this rank sees buffer `value` of rank p), "multicast" (the address that reaches
    buffer `value` of all ranks), each of "name+16" also 16 bytes from the buffer's begin on; a number ("u8" to "u64",
    "s8" to "s64", "f32", "f64"; of integers, value may be one of WORDS), or "bytes" (by value).

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
            if referred(self.value)[1] and self.kind in TENSOR_KINDS:
                raise ValueError(f"an argument {self.kind} of {self.value!r}: a tensor begins where its buffer does")
        elif self.kind == "bytes":
            if not isinstance(self.value, bytes) or not self.value:
                raise ValueError(f"an argument bytes of {self.value!r}: give at least one byte, in YAML in hexadecimal")
        elif self.kind in NUMBER_KINDS:
            self._check_number()
        elif self.kind == "constexpr":
            if self.value in ("rank", "launch", "patience"):
                raise ValueError(
                    f"an argument constexpr of {self.value!r}: all run the same code, give {{u32: {self.value}}}"
                )
        else:
            raise ValueError(f"an argument of unknown kind {self.kind!r}: give one of {', '.join(KINDS)}")

    def _check_number(self) -> None:
        if isinstance(self.value, str):
            if self.value == "patience" and self.kind != "u64":
                raise ValueError(f"an argument {self.kind} of 'patience': give {{u64: patience}}")
            if self.value not in WORDS or self.kind.startswith("f"):
                words = "" if self.kind.startswith("f") else f" or {' or '.join(WORDS)}"
                raise ValueError(f"an argument {self.kind} of {self.value!r}: give a number{words}")
            return
        if isinstance(self.value, (bool, bytes)) or self.value is None:
            raise ValueError(f"an argument {self.kind} of {self.value!r}: give a number")
        if not self.kind.startswith("f"):
            bits = int(self.kind[1:]) - (self.kind[0] == "s")
            lowest = -(1 << bits) if self.kind[0] == "s" else 0
            if not (isinstance(self.value, int) and lowest <= self.value < 1 << bits):
                least = f"-2^{bits}" if lowest else "0"
                raise ValueError(f"an argument {self.kind} of {self.value!r}: give {least} to 2^{bits} - 1")
        packed(self.kind, [self.size_bytes], [self._argument(self.value)])

    @property
    def size_bytes(self) -> int:
        """Bytes of the parameter that takes it."""
        if isinstance(self.value, bytes):
            return len(self.value)
        kind = "address" if self.kind in BUFFER_KINDS else _packed_kind(self.kind)
        size_bytes = PACKINGS[kind].size_bytes
        assert size_bytes is not None
        return size_bytes

    @property
    def alignment_bytes(self) -> int:
        return 1 if self.kind == "bytes" else self.size_bytes

    @property
    def buffer(self) -> str:
        """The name of the buffer that it refers to; "" if none."""
        return referred(str(self.value))[0] if self.kind in BUFFER_KINDS else ""

    @property
    def offset_bytes(self) -> int:
        """Where in its buffer the address that it is lies."""
        return referred(str(self.value))[1] if self.kind in BUFFER_KINDS else 0

    def bound(self, rank: int, world_size: int, address: int = 0, launch: int = 0, patience: int = 0) -> Argument:
        """Return the value on a rank. address: what the kind says of its buffer there; unused if it has none."""
        if self.buffer:
            return Argument("address", address)
        if isinstance(self.value, str):
            words = (rank, world_size, launch, patience)
            return self._argument(dict(zip(WORDS, words, strict=True))[self.value])
        assert self.value is not None
        return self._argument(self.value)

    def _argument(self, value: float | bytes) -> Argument:
        return Argument(_packed_kind(self.kind), value)


@dataclass(frozen=True, slots=True)
class PeerArgument:
    """The address at which this rank sees a buffer of one other rank. reference: "name" or "name+16"."""

    reference: str
    rank: int
    kind: Literal["peer"] = "peer"
    size_bytes: int = 8
    alignment_bytes: int = 8

    @property
    def address(self) -> ArgumentSpec:
        """The address of the own rank's."""
        return ArgumentSpec("address", self.reference)


@dataclass(frozen=True, slots=True)
class StructArgument:
    """A struct by value: its members by their offset in bytes. What lies between them is zero."""

    members: tuple[tuple[int, BroughtArgument], ...]
    size_bytes: int
    kind: Literal["struct"] = "struct"

    @property
    def alignment_bytes(self) -> int:
        return max(one.alignment_bytes for _, one in self.members)


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """The address of a struct in memory of this rank, which no other rank reaches."""

    target: StructArgument
    kind: Literal["pointer"] = "pointer"
    size_bytes: int = 8
    alignment_bytes: int = 8


BroughtArgument = ArgumentSpec | PeerArgument | StructArgument | PointerArgument


# From what is given


def of_rank(key: str, given: Any, rank: int) -> Any:
    """Return what is given for a rank: as it is, or what a function returns. ValueError naming one that raises."""
    if not callable(given):
        return given
    try:
        return given(rank)
    except Exception as error:
        name = getattr(given, "__name__", type(given).__name__)
        text = " ".join(str(error).split()) or "no message"
        raise ValueError(f"{name} raises {type(error).__name__} for rank {rank}: {text} ({key})") from error


def argument_of(place: str, value: Any, ranks: int, key: str = "arguments") -> BroughtArgument:
    """Return the argument that a value stands for. ValueError if none, naming place ("argument 3") and key."""
    try:
        return _argument(value, ranks)
    except ValueError as error:
        raise ValueError(f"{place}: {error} ({key})") from error


def arguments_of(
    given: Sequence[Any], ranks: int, buffers: Mapping[str, Placed], key: str, is_function: bool
) -> tuple[BroughtArgument, ...]:
    """Return the arguments that values stand for, in order, of a CuTe DSL function (is_function) or of PTX.

    key: that of the values, with {} in place of an argument's number. ValueError, in one line, for what can't be."""
    found = []
    for number, value in enumerate(given):
        place, where = f"argument {number}", key.format(number)
        found.append(argument_of(place, value, ranks, where))
        check_buffers(place, found[-1], buffers, where)
        if not is_function:
            check_of_ptx(place, found[-1], where)
    return tuple(found)


def _argument(value: Any, ranks: int) -> BroughtArgument:
    """A word is of 32 bits, patience of 64, and any other text the address of a buffer."""
    kind: Any
    given: Any
    if isinstance(value, str):
        kind, given = {**dict.fromkeys(WORDS, "u32"), "patience": "u64"}.get(value, "address"), value
    elif isinstance(value, tuple) and len(value) > 1:
        kind, given = value[0], value[1] if len(value) == 2 else list(value[1:])
    elif isinstance(value, Mapping) and len(value) == 1:
        ((kind, given),) = value.items()
    else:
        raise ValueError(
            f"{value!r} is no argument: give the name of a buffer, {', '.join(WORDS)}, or a kind with its value, "
            f'{{u32: 7}} or in Python ("u32", 7); kinds are {", ".join(KINDS)}'
        )
    if kind == "peer":
        return _peer(given, ranks)
    if kind == "addresses":
        return _addresses(given, ranks)
    if kind in ("struct", "pointer"):
        made = _struct(kind, given, ranks)
        if kind == "pointer" and counts_launches(made):
            raise ValueError("a pointer to launch: memory keeps what it holds, give launch by value")
        return made if kind == "struct" else PointerArgument(made)
    if kind == "bytes" and isinstance(given, str):
        with suppress(ValueError):  # said by ArgumentSpec
            given = bytes.fromhex(given)
    return ArgumentSpec(kind, given)


def _peer(given: Any, ranks: int) -> PeerArgument:
    if not (
        isinstance(given, (list, tuple)) and len(given) == 2 and isinstance(given[0], str) and type(given[1]) is int
    ):
        raise ValueError(f"a peer of {given!r}: give a buffer and a rank, as {{peer: [data, 1]}}")
    if not 0 <= given[1] < ranks:
        raise ValueError(f"there is no rank {given[1]}, give 0 to {ranks - 1}")
    referred(given[0])
    return PeerArgument(given[0], given[1])


def _addresses(given: Any, ranks: int) -> StructArgument:
    """The addresses of all ranks' buffers by value, with zeros up to a length."""
    reference, length = given if isinstance(given, (list, tuple)) and len(given) == 2 else (given, ranks)
    if not isinstance(reference, str) or type(length) is not int:
        raise ValueError(f"addresses of {given!r}: give a buffer, or one and a length, as {{addresses: [data, 8]}}")
    if length < ranks:
        raise ValueError(f"addresses of {ranks} ranks in a length of {length}: give {ranks} or more")
    return StructArgument(tuple((8 * rank, _peer([reference, rank], ranks)) for rank in range(ranks)), 8 * length)


def _struct(kind: str, given: Any, ranks: int) -> StructArgument:
    """Members in a list, laid out as in C, or by their offsets, with the whole `size` if it is given."""
    if not isinstance(given, (list, tuple, Mapping)) or not given:
        raise ValueError(f"a {kind} of {given!r}: give a list of members, or {{0: data, 8: {{u32: 7}}}}, by offset")
    members: list[tuple[int, BroughtArgument]] = []
    by_offset = isinstance(given, Mapping)
    pairs = given.items() if isinstance(given, Mapping) else enumerate(given)
    named: dict[str, Any] = {str(place): one for place, one in pairs}  # JSON has offsets as text
    size = named.pop("size", None)
    if wrong := [place for place in named if not place.isdecimal() or int(place) >= MAX_STRUCT_BYTES]:
        raise ValueError(f"the offset {wrong[0]} of a {kind}: give bytes, 0 to {MAX_STRUCT_BYTES - 1}, or size")
    end, widest = 0, 1
    for text in sorted(named, key=int):
        place = int(text)
        try:
            one = _argument(named[text], ranks)
        except ValueError as error:
            raise ValueError(f"member {place}: {error}") from error
        alignment_bytes = min(one.alignment_bytes, MAX_STRUCT_ALIGNMENT_BYTES)
        offset = place if by_offset else -(-end // alignment_bytes) * alignment_bytes
        if offset < end:
            raise ValueError(f"member {offset} of a {kind}: that before it ends at {end}, give offsets from there")
        members.append((offset, one))
        end, widest = offset + one.size_bytes, max(widest, alignment_bytes)
    if not members:
        raise ValueError(f"a {kind} without members: give one or more by offset, as {{0: data, 8: {{u32: 7}}}}")
    if size is not None and (type(size) is not int or not end <= size <= MAX_STRUCT_BYTES):
        raise ValueError(f"the size {size!r} of a {kind}: its members end at {end}, give {end} to {MAX_STRUCT_BYTES}")
    return StructArgument(tuple(members), -(-end // widest) * widest if size is None else size)


# What is known of them


def parts_of(argument: BroughtArgument) -> Iterator[ArgumentSpec | PeerArgument | PointerArgument]:
    """Yield an argument, or the members of a struct and of what a pointer leads to, behind the pointer."""
    if isinstance(argument, StructArgument):
        for _, one in argument.members:
            yield from parts_of(one)
        return
    yield argument
    if isinstance(argument, PointerArgument):
        yield from parts_of(argument.target)


def counts_launches(argument: BroughtArgument) -> bool:
    """Return whether the word launch is in an argument, which is another number in each launch then."""
    return any(isinstance(one, ArgumentSpec) and one.value == "launch" for one in parts_of(argument))


def references_of(argument: BroughtArgument) -> list[tuple[str, str]]:
    """Return how an argument refers to buffers: kind and reference ("name" or "name+16") of each."""
    found = [one for one in parts_of(argument) if not isinstance(one, PointerArgument)]
    return [
        (one.kind, one.reference if isinstance(one, PeerArgument) else str(one.value))
        for one in found
        if isinstance(one, PeerArgument) or one.buffer
    ]


def tables_of(arguments: Iterable[BroughtArgument]) -> tuple[str, ...]:
    """Return what arguments have tables of peers of, "name" or "name+16", each once."""
    found = [reference for one in arguments for kind, reference in references_of(one) if kind == "peers"]
    return tuple(dict.fromkeys(found))


def pointers_of(arguments: Iterable[BroughtArgument]) -> tuple[PointerArgument, ...]:
    """Return all pointers to structs in arguments, each before those in its struct."""
    return tuple(part for one in arguments for part in parts_of(one) if isinstance(part, PointerArgument))


def type_of(argument: BroughtArgument) -> tuple[Any, ...]:
    """Return what must be the same on all ranks: kinds and sizes."""
    if isinstance(argument, StructArgument):
        return ("struct", argument.size_bytes, *((offset, type_of(one)) for offset, one in argument.members))
    if isinstance(argument, PointerArgument):
        return ("pointer", type_of(argument.target))
    if isinstance(argument, PeerArgument):
        return ("address",)
    if argument.kind in FUNCTION_KINDS:
        return (argument.kind,)
    return ("address",) if argument.buffer else (argument.kind, argument.size_bytes)


class Placed(Protocol):
    """What arguments have to know of a buffer. symmetric: whether other ranks reach it."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def symmetric(self) -> bool: ...


def check_buffers(place: str, argument: BroughtArgument, buffers: Mapping[str, Placed], key: str = "arguments") -> None:
    """Raise ValueError for a buffer that does not exist, an offset beyond it, and others' access to a local one."""
    for kind, reference in references_of(argument):
        name, offset_bytes = referred(reference)
        if name not in buffers:
            known = f"the buffers are {', '.join(buffers)}" if buffers else "no buffers are given"
            raise ValueError(f"{place}: there is no buffer {name!r} ({key}), {known}; a number has a kind, {{u32: 7}}")
        if offset_bytes >= buffers[name].size_bytes:
            last = buffers[name].size_bytes - 1
            raise ValueError(f"{place}: {reference} is beyond the buffer ({key}), give at most {name}+{last}")
        if kind not in OWN_KINDS and not buffers[name].symmetric:
            raise ValueError(
                f"{place}: {kind} of {name}, which is local ({key}), give the own rank's, or make it symmetric, in "
                "Python leave it out of local"
            )


def check_of_ptx(place: str, argument: BroughtArgument, key: str = "arguments") -> None:
    """Raise ValueError for what only CuTe DSL functions take."""
    for one in parts_of(argument):
        if one.kind in FUNCTION_KINDS:
            raise ValueError(
                f"{place} is a {one.kind} ({key}), which CuTe DSL functions alone take, give the address of a buffer, "
                "or a number"
            )


def _packed_kind(kind: str) -> ArgumentKind:
    """The kind of PACKINGS: a register has no sign."""
    return f"u{kind[1:]}" if kind[0] == "s" else kind  # type: ignore[return-value]
