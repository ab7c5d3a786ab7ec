"""Arguments of brought kernels on a rank: the values of what kernels/own/arguments.py describes, from memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from kernels.own.arguments import BroughtArgument, PeerArgument, PointerArgument, StructArgument
from kernels.own.functions import Input
from memory.fabric import PACKINGS, Argument, Fabric
from memory.tensor import SymmetricTensor
from runner.case.buffers import Buffer


@dataclass(frozen=True, slots=True)
class BroughtMemory:
    """A rank's buffers by name, tables of peers by what they are of ("name" or "name+16"), and the structs that
    pointers among the arguments lead to, in their order. patience: the word's value, in nanoseconds."""

    buffers: Mapping[str, Buffer]
    tables: Mapping[str, Buffer]
    structs: tuple[SymmetricTensor, ...] = ()
    patience: int = 0


def bound(
    fabric: Fabric, arguments: Sequence[BroughtArgument], memory: BroughtMemory, launch: int = 0
) -> tuple[Argument, ...]:
    """Return the values of arguments on this rank, for which memory was allocated; structs behind pointers are written
    to it. launch: the word's value."""
    structs = iter(memory.structs)
    return tuple(_bound(fabric, one, memory, structs, launch) for one in arguments)


def _bound(
    fabric: Fabric, given: BroughtArgument, memory: BroughtMemory, structs: Iterator[SymmetricTensor], launch: int
) -> Argument:
    if isinstance(given, PeerArgument):
        return Argument("address", value_of(Input(given.address, given.rank), memory))
    if isinstance(given, StructArgument):
        content = bytearray(given.size_bytes)
        for offset, member in given.members:
            raw = packed_argument(_bound(fabric, member, memory, structs, launch))
            content[offset : offset + len(raw)] = raw
        return Argument("bytes", bytes(content))
    if isinstance(given, PointerArgument):
        made = next(structs)
        raw = packed_argument(_bound(fabric, given.target, memory, structs, launch))
        made.write(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        fabric.declare_local(made.region)
        return Argument("address", made.address)
    address = value_of(Input(given), memory) if given.buffer else 0
    return given.bound(fabric.rank, fabric.world_size, address, launch, memory.patience)


def packed_argument(argument: Argument) -> bytes:
    """Return an argument's bytes."""
    return PACKINGS[argument.kind].pack(argument.value)


def value_of(one: Input, memory: BroughtMemory) -> int:
    """The value on this rank of an input that is_of_launch: an address, or patience."""
    argument = one.argument
    if not argument.buffer:
        return memory.patience
    if argument.kind == "peers":
        return memory.tables[str(argument.value)].address
    buffer = memory.buffers[argument.buffer]
    if one.peer is not None:  # asked of no other rank, which may be out of reach
        return buffer.peer_address(one.peer) + argument.offset_bytes
    return (buffer.multicast_address() if argument.kind == "multicast" else buffer.address) + argument.offset_bytes
