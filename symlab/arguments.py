"""What a brought kernel gets: arguments and values of a module's variables, as a user gives them and as data.

The nouns of numbers and buffers are those of `op: custom` (runner.custom.nouns).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.custom.nouns import BUFFER_KINDS, FUNCTION_KINDS, NUMBER_KINDS, OWN_KINDS, ArgumentSpec, BufferSpec

Variables = Mapping[str, Any]
"""What is written into variables of a kernel's module: by name a value, or by name values by offset in bytes."""
MAX_STRUCT_ALIGNMENT_BYTES = 16
_FORMS = (
    '"data" (the address of a buffer), ("peers", "data"), ("peer", "data", 1), ("multicast", "data"), ("u32", 5), '
    '("s32", "rank"), ("f32", 0.5), ("bytes", b".."), ("struct", [..]), ("pointer", [..]); to a function also '
    '("tensor", "data"), ("tensors", "data"), ("dynamic_tensor", "data"), ("constexpr", 8)'
)


@dataclass(frozen=True, slots=True)
class PeerArgument:
    """The address at which this rank sees a buffer of one other rank."""

    buffer: str
    rank: int


@dataclass(frozen=True, slots=True)
class StructArgument:
    """A struct by value, laid out as C does: each member at a multiple of its size."""

    members: tuple[BroughtArgument, ...]


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """The address of a struct in memory of this rank, which no other rank reaches."""

    target: StructArgument


BroughtArgument = ArgumentSpec | PeerArgument | StructArgument | PointerArgument


@dataclass(frozen=True, slots=True)
class VariableValue:
    """What is written into a module's variable before the launch, from offset_bytes on."""

    name: str
    offset_bytes: int
    value: BroughtArgument


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


def argument_of(place: str, value: Any) -> BroughtArgument:
    """Return the argument that a value stands for, ValueError if none. place: "argument 3" or "variable table", for
    messages."""
    if isinstance(value, str):
        return ArgumentSpec("address", value)
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        kind, *rest = value
        if kind == "peer" and len(rest) == 2 and isinstance(rest[0], str) and type(rest[1]) is int:
            return PeerArgument(rest[0], rest[1])
        is_list = len(rest) == 1 and isinstance(rest[0], Sequence) and not isinstance(rest[0], str) and len(rest[0]) > 0
        if kind in ("struct", "pointer") and is_list:
            members = StructArgument(tuple(argument_of(place, one) for one in rest[0]))
            return members if kind == "struct" else PointerArgument(members)
        if kind in (*NUMBER_KINDS, *BUFFER_KINDS, "bytes", "constexpr") and len(rest) == 1:
            try:
                return ArgumentSpec(kind, rest[0])
            except ValueError as error:
                raise ValueError(f"{place}: {error} ({_key(place)})") from error
    raise ValueError(f"{place} is {value!r} ({_key(place)}), give one of {_FORMS}")


def buffers_of(argument: BroughtArgument) -> list[tuple[str, str]]:
    """Return the buffers that an argument refers to: kind and name of each."""
    if isinstance(argument, StructArgument):
        return [one for member in argument.members for one in buffers_of(member)]
    if isinstance(argument, PointerArgument):
        return buffers_of(argument.target)
    if isinstance(argument, PeerArgument):
        return [("peer", argument.buffer)]
    return [(argument.kind, argument.buffer)] if argument.buffer else []


def _key(place: str) -> str:
    """The argument of World.launch that a place is in."""
    return f"{place.split()[0]}s"


def check_buffers(place: str, argument: BroughtArgument, specs: Mapping[str, BufferSpec], ranks: int) -> None:
    """Raise ValueError for a buffer or a rank that does not exist, and for others' access to a local buffer."""
    if isinstance(argument, PointerArgument):
        argument = argument.target
    if isinstance(argument, StructArgument):
        for member in argument.members:
            check_buffers(place, member, specs, ranks)
        return
    for kind, name in buffers_of(argument):
        if name not in specs:
            known = f"the buffers are {', '.join(specs)}" if specs else "no buffers are given"
            raise ValueError(f"{place}: there is no buffer {name!r} ({_key(place)}), {known}")
        if kind not in OWN_KINDS and not specs[name].symmetric:
            raise ValueError(f"{place}: {kind} of {name}, which is local (local), leave it out there")
    if isinstance(argument, PeerArgument) and not 0 <= argument.rank < ranks:
        raise ValueError(f"{place}: there is no rank {argument.rank} ({_key(place)}), give 0 to {ranks - 1}")


def variable_values(
    given: Variables | Callable[[int], Variables], ranks: int, specs: Mapping[str, BufferSpec]
) -> tuple[tuple[VariableValue, ...], ...]:
    """Return what is written into variables of the module, by rank. ValueError for what can't be."""
    by_rank = [of_rank("variables", given, rank) for rank in range(ranks)]
    found = tuple(tuple(one for name in each for one in _variable(name, each[name])) for each in map(_named, by_rank))
    for each in found:
        for one in each:
            check_of_ptx(f"variable {one.name}", one.value)
            check_buffers(f"variable {one.name}", one.value, specs, ranks)
    if len({tuple((one.name, one.offset_bytes, type_of(one.value)) for one in each) for each in found}) > 1:
        raise ValueError("the ranks' variables differ in kind (variables), give the same on all ranks")
    return found


def _named(given: Any) -> Variables:
    if not isinstance(given, Mapping):
        raise ValueError(f"the variables are of type {type(given).__name__} (variables), give a dictionary by name")
    return given


def _variable(name: str, value: Any) -> list[VariableValue]:
    """The parts of a variable's value: bytes, an argument, or a dictionary of them by offset in bytes."""
    parts = value if isinstance(value, Mapping) else {0: value}
    found = []
    for offset, one in parts.items():
        if type(offset) is not int or offset < 0:
            raise ValueError(f"variable {name}: the offset {offset!r} is no number of bytes (variables)")
        given = ("bytes", one) if isinstance(one, bytes) else one
        found.append(VariableValue(name, offset, argument_of(f"variable {name}", given)))
    return found


def type_of(argument: BroughtArgument) -> tuple[Any, ...]:
    """Return what must be the same on all ranks: kinds and sizes."""
    if isinstance(argument, StructArgument):
        return ("struct", *map(type_of, argument.members))
    if isinstance(argument, PointerArgument):
        return ("pointer", type_of(argument.target))
    if isinstance(argument, PeerArgument):
        return ("address",)
    if argument.kind in FUNCTION_KINDS:
        return (argument.kind,)
    return ("address",) if argument.buffer else (argument.kind, argument.size_bytes)


def size_bytes_of(argument: BroughtArgument) -> int:
    """Return the bytes of the parameter that takes an argument."""
    if isinstance(argument, StructArgument):
        return layout(argument)[1]
    return 8 if isinstance(argument, (PeerArgument, PointerArgument)) else argument.size_bytes


def layout(argument: StructArgument) -> tuple[list[int], int]:
    """Return where the members of a struct begin, and its size, in bytes."""
    offsets, top, widest = [], 0, 1
    for member in argument.members:
        alignment = _alignment(member)
        top = -(-top // alignment) * alignment
        offsets.append(top)
        top += size_bytes_of(member)
        widest = max(widest, alignment)
    return offsets, -(-top // widest) * widest


def _alignment(argument: BroughtArgument) -> int:
    if isinstance(argument, StructArgument):
        return max(map(_alignment, argument.members))
    if isinstance(argument, ArgumentSpec) and argument.kind == "bytes":
        return 1
    return min(size_bytes_of(argument), MAX_STRUCT_ALIGNMENT_BYTES)


def check_of_ptx(place: str, argument: BroughtArgument) -> None:
    """Raise ValueError for what only CuTe DSL functions take."""
    if isinstance(argument, PointerArgument):
        argument = argument.target
    if isinstance(argument, StructArgument):
        for member in argument.members:
            check_of_ptx(place, member)
    elif isinstance(argument, ArgumentSpec) and argument.kind in FUNCTION_KINDS:
        raise ValueError(
            f"{place} is a {argument.kind} ({_key(place)}), which CuTe DSL functions alone take, give the address of a "
            "buffer, or a number"
        )
