"""Launch a kernel that was brought, on all ranks of a world, with buffers and arguments described by values.

World.launch and symlab.simulate end up here. The nouns of buffers and numbers are those of `op: custom`
(runner.custom.nouns). What a rank gets is plain data, so that it can be sent to a process on a GPU.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.compile import compiled_callable
from kernels.numeric.dtypes import DTYPES, ITEMSIZES
from memory.fabric import PACKINGS, Argument, Executable, Fabric, Launch, Traits
from memory.pool import SymmetricPool
from memory.tensor import SymmetricTensor
from reports.table.text import counted
from runner.custom.nouns import BUFFER_KINDS, NUMBER_KINDS, ArgumentSpec, BufferSpec, Fill
from simulator.ptx.parse import entries_of, parse_kernel
from symlab.compiling import Compiled

if TYPE_CHECKING:
    import torch

Kernel = str | Path | Compiled | Executable | Callable[..., Any]
"""PTX text, the path of a PTX file, a compiled kernel, or a CuTe DSL function."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MAX_STRUCT_ALIGNMENT_BYTES = 16
_FORMS = (
    '"data" (the address of a buffer), ("peers", "data"), ("peer", "data", 1), ("multicast", "data"), ("u32", 5), '
    '("s32", "rank"), ("f32", 0.5), ("bytes", b".."), ("struct", [..])'
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


BroughtArgument = ArgumentSpec | PeerArgument | StructArgument


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kernel is launched, as far as it is given: see memory.fabric.Launch."""

    grid: int | tuple[int, int, int] | None = None
    block: int | tuple[int, int, int] | None = None
    shared_bytes: int = 0
    cluster: int | tuple[int, int, int] = 1
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Brought:
    """A launch on every rank of a world: the kernel, its shape, its buffers with what they hold, and its arguments.

    contents: by buffer name and rank, None for poison. arguments: by rank.
    """

    executable: Executable
    launch: Launch
    buffers: tuple[BufferSpec, ...]
    contents: Mapping[str, tuple[torch.Tensor | None, ...]]
    arguments: tuple[tuple[BroughtArgument, ...], ...]


# From what the user gives


def brought_launch(
    kernel: Kernel,
    ranks: int,
    shape: Shape,
    buffers: Mapping[str, Any],
    arguments: Sequence[Any] | Callable[[int], Sequence[Any]],
    local: Sequence[str] = (),
    entry: str | None = None,
    arch: str | None = None,
) -> Brought:
    """Return the launch that the arguments of World.launch describe. arch: to compile for; None: what the PTX says,
    sm_90a for a function. ValueError for whatever can't be."""
    if not isinstance(buffers, Mapping):
        raise ValueError(f"the buffers are of type {type(buffers).__name__} (buffers), give a dictionary by name")
    if isinstance(arguments, str) or not (callable(arguments) or isinstance(arguments, Sequence)):
        raise ValueError(f"the arguments are of type {type(arguments).__name__} (arguments), give a list of them")
    specs, contents = _buffers(buffers, ranks, local)
    given = [arguments(rank) if callable(arguments) else arguments for rank in range(ranks)]
    parsed = tuple(tuple(_argument(number, one) for number, one in enumerate(each)) for each in given)
    for each in parsed:
        for number, one in enumerate(each):
            _check_buffers(number, one, {spec.name: spec for spec in specs}, ranks)
    if len({tuple(map(_type_of, each)) for each in parsed}) > 1:
        raise ValueError("the ranks' arguments differ in number or kind (arguments), give the same kinds on all ranks")
    executable = _executable(kernel, entry, arch, parsed[0], {spec.name: spec for spec in specs})
    parsed = tuple(_fitting(executable, each, takes_more=is_function(kernel)) for each in parsed)
    return Brought(executable, _launch(kernel, executable, shape), specs, contents, parsed)


def _launch(kernel: Kernel, executable: Executable, shape: Shape) -> Launch:
    """The launch, with what the kernel itself says of its grid and block where they are left out."""
    grid, block = shape.grid, shape.block
    if isinstance(kernel, Compiled):
        grid, block = grid or kernel.launch.grid, block or kernel.launch.block
    block = block or parse_kernel(executable.ptx, executable.entry).required_block
    if grid is None or block is None:
        raise ValueError(f"no grid or block for {executable.name} (grid, block), give numbers of blocks and threads")
    return Launch(grid, block, shape.shared_bytes, shape.cluster, cooperative=shape.cooperative)


def adapted(brought: Brought, traits: Traits) -> Brought:
    """The launch for GPUs of another architecture: PTX of an older one that is not bound to its features runs on it."""
    made = brought.executable
    if made.arch == traits.arch or made.arch[-1] in "af" or _generation(made.arch) > _generation(traits.arch):
        return brought
    return replace(brought, executable=replace(made, arch=traits.arch))


def _generation(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def _buffers(
    given: Mapping[str, Any], ranks: int, local: Sequence[str]
) -> tuple[tuple[BufferSpec, ...], dict[str, tuple[torch.Tensor | None, ...]]]:
    """The buffers, and what they hold on each rank."""
    unknown = [name for name in local if name not in given]
    if unknown:
        raise ValueError(f"there is no buffer {unknown[0]!r} (local), the buffers are {', '.join(given) or 'none'}")
    specs, contents = [], {}
    for name, value in given.items():
        each = _contents(name, value, ranks)
        shape, dtype, _ = each[0]
        if any((one[0], one[1]) != (shape, dtype) for one in each):
            raise ValueError(f"buffer {name} differs in shape or dtype between ranks (buffers), give the same on all")
        specs.append(BufferSpec(name, dtype, shape, symmetric=name not in local))
        contents[name] = tuple(one[2] for one in each)
    return tuple(specs), contents


_Content = tuple[tuple[int, ...], str, "torch.Tensor | None"]


def _contents(name: str, value: Any, ranks: int) -> list[Any]:
    """Shape, dtype and content of a buffer on each rank; content None: poison."""
    if isinstance(value, tuple):
        return [_described(name, value, rank, ranks) for rank in range(ranks)]
    if isinstance(value, list):
        if len(value) != ranks:
            raise ValueError(
                f"buffer {name} is a list of {len(value)} (buffers), give one for each of {counted(ranks, 'rank')}"
            )
        return [_of_tensor(name, one) for one in value]
    return [_of_tensor(name, value)] * ranks


def _of_tensor(name: str, value: Any) -> _Content:
    import numpy as np
    import torch

    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.ascontiguousarray(value))
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"buffer {name} is of type {type(value).__name__} (buffers), give a tensor, an array, a list of them by "
            "rank, or (shape, dtype) or (shape, dtype, fill)"
        )
    value = value.detach().cpu().contiguous()
    return tuple(value.shape) or (1,), _dtype_name(name, value.dtype), value


def _described(name: str, value: tuple[Any, ...], rank: int, ranks: int) -> _Content:
    """(shape, dtype) or (shape, dtype, fill); fill: a number, a word of Fill, or a function of rank and world size."""
    from runner.custom.contents import content_of

    if len(value) not in (2, 3):
        raise ValueError(f"buffer {name} is a tuple of {len(value)} (buffers), give (shape, dtype) or with a fill")
    shape = tuple(value[0]) if isinstance(value[0], Sequence) else (value[0],)
    fill = value[2] if len(value) == 3 else Fill.poison
    if isinstance(fill, str) and fill not in tuple(Fill):
        raise ValueError(f"buffer {name} has the fill {fill!r} (buffers), give a number or {', '.join(Fill)}")
    dtype = _dtype_name(name, value[1])
    if not isinstance(fill, str) and not callable(fill):
        spec = BufferSpec(name, dtype, shape)
        return spec.shape, dtype, _all_of(spec, fill)
    spec = BufferSpec(name, dtype, shape, fill=Fill(fill) if isinstance(fill, str) else fill)
    content = None if spec.fill is Fill.poison else content_of(spec, rank, ranks, seed=0).cpu()
    return spec.shape, dtype, content


def _all_of(spec: BufferSpec, number: Any) -> torch.Tensor:
    """A number in every element."""
    import torch

    try:
        return torch.full(spec.shape, number, dtype=DTYPES[spec.dtype])
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"buffer {spec.name} of {spec.dtype} can't be filled with {number!r} (buffers)") from error


def _dtype_name(name: str, dtype: Any) -> str:
    known = str(dtype).removeprefix("torch.")
    if known not in ITEMSIZES:
        raise ValueError(f"buffer {name} is of {known} (buffers), give one of {', '.join(ITEMSIZES)}")
    return known


# Arguments


def _argument(number: int, value: Any) -> BroughtArgument:
    if isinstance(value, str):
        return ArgumentSpec("address", value)
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        kind, *rest = value
        if kind == "peer" and len(rest) == 2 and isinstance(rest[0], str) and type(rest[1]) is int:
            return PeerArgument(rest[0], rest[1])
        if kind == "struct" and len(rest) == 1 and isinstance(rest[0], Sequence) and rest[0]:
            return StructArgument(tuple(_argument(number, one) for one in rest[0]))
        if kind in (*NUMBER_KINDS, *BUFFER_KINDS, "bytes") and len(rest) == 1:
            return ArgumentSpec(kind, rest[0])
    raise ValueError(f"argument {number} is {value!r} (arguments), give one of {_FORMS}")


def _names(argument: BroughtArgument) -> list[tuple[str, str]]:
    """The buffers that an argument refers to, each with the kind."""
    if isinstance(argument, StructArgument):
        return [one for member in argument.members for one in _names(member)]
    if isinstance(argument, PeerArgument):
        return [("peer", argument.buffer)]
    return [(argument.kind, argument.buffer)] if argument.buffer else []


def _check_buffers(number: int, argument: BroughtArgument, specs: Mapping[str, BufferSpec], ranks: int) -> None:
    for kind, name in _names(argument):
        if name not in specs:
            known = ", ".join(specs) or "none are given"
            raise ValueError(f"argument {number}: there is no buffer {name!r} (arguments), the buffers are {known}")
        if kind != "address" and not specs[name].symmetric:
            raise ValueError(f"argument {number}: {kind} of {name}, which is local (local), leave it out there")
    if isinstance(argument, PeerArgument) and not 0 <= argument.rank < ranks:
        raise ValueError(f"argument {number}: there is no rank {argument.rank} (arguments), give 0 to {ranks - 1}")


def _type_of(argument: BroughtArgument) -> tuple[Any, ...]:
    if isinstance(argument, StructArgument):
        return ("struct", *map(_type_of, argument.members))
    if isinstance(argument, PeerArgument):
        return ("address",)
    return ("address",) if argument.buffer else (argument.kind, argument.size_bytes)


def _size_bytes(argument: BroughtArgument) -> int:
    if isinstance(argument, StructArgument):
        return _layout(argument)[1]
    return 8 if isinstance(argument, PeerArgument) else argument.size_bytes


def _layout(argument: StructArgument) -> tuple[list[int], int]:
    """Where the members of a struct begin, and its size."""
    offsets, top, widest = [], 0, 1
    for member in argument.members:
        alignment = _alignment(member)
        top = -(-top // alignment) * alignment
        offsets.append(top)
        top += _size_bytes(member)
        widest = max(widest, alignment)
    return offsets, -(-top // widest) * widest


def _alignment(argument: BroughtArgument) -> int:
    if isinstance(argument, StructArgument):
        return max(map(_alignment, argument.members))
    if isinstance(argument, ArgumentSpec) and argument.kind == "bytes":
        return 1
    return min(_size_bytes(argument), MAX_STRUCT_ALIGNMENT_BYTES)


def _fitting(executable: Executable, given: Sequence[Any], takes_more: bool) -> tuple[BroughtArgument, ...]:
    """The arguments that the kernel takes. ValueError if they are not its parameters in number and size.

    takes_more: arguments at the end may be for the host alone, as a CuTe DSL function's number of blocks.
    """
    parameters = parse_kernel(executable.ptx, executable.entry).parameters
    if len(given) < len(parameters) or (len(given) > len(parameters) and not takes_more):
        raise ValueError(
            f"{executable.name} has {counted(len(parameters), 'parameter')}, and {len(given)} were given (arguments), "
            "give one for each"
        )
    for number, (parameter, argument) in enumerate(zip(parameters, given, strict=False)):
        if parameter.size_bytes != _size_bytes(argument):
            raise ValueError(
                f"parameter {number} of {executable.name} is {parameter.type} of {parameter.size_bytes} bytes, and "
                f"argument {number} has {_size_bytes(argument)} (arguments), give a value of that size"
            )
    return tuple(given[: len(parameters)])


# The kernel


def is_function(kernel: Kernel) -> bool:
    """Return whether a kernel is a CuTe DSL function, which is still to be compiled."""
    return callable(kernel) and not isinstance(kernel, (Compiled, Executable))


def _executable(
    kernel: Kernel,
    entry: str | None,
    arch: str | None,
    arguments: Sequence[BroughtArgument],
    specs: Mapping[str, BufferSpec],
) -> Executable:
    if isinstance(kernel, (Compiled, Executable)):
        if entry is not None:
            raise ValueError("a compiled kernel has its entry (entry), leave it out")
        return kernel.executable if isinstance(kernel, Compiled) else kernel
    if isinstance(kernel, (str, Path)):
        return _of_ptx(kernel, entry)
    if not callable(kernel):
        raise ValueError(
            f"the kernel is of type {type(kernel).__name__} (kernel), give PTX, a path of it, a compiled kernel or a "
            "CuTe DSL function"
        )
    if entry is not None:
        raise ValueError("a function has one kernel (entry), leave it out")
    name = getattr(kernel, "__name__", type(kernel).__name__)
    types = [_compiled_type(name, one, specs) for one in arguments]
    try:
        return compiled_callable(kernel, name, types, arch or "sm_90a")
    except ValueError as error:  # the compiler's messages have colours and many lines
        raise ValueError(" ".join(_COLOUR.sub("", str(error)).split())) from error


def _compiled_type(name: str, argument: BroughtArgument, specs: Mapping[str, BufferSpec]) -> tuple[str, str]:
    """Kind and dtype of an argument of a CuTe DSL function."""
    if isinstance(argument, StructArgument) or (isinstance(argument, ArgumentSpec) and argument.kind == "bytes"):
        raise ValueError(f"{name} is a CuTe DSL function, which takes no bytes (arguments), give buffers and numbers")
    if isinstance(argument, PeerArgument):
        return "address", specs[argument.buffer].dtype
    if argument.kind == "peers":
        return "address", "int64"
    return ("address", specs[argument.buffer].dtype) if argument.buffer else (argument.kind, "")


def _of_ptx(given: str | Path, entry: str | None) -> Executable:
    """A kernel of PTX text, or of a file of it."""
    if not str(given).strip():
        raise ValueError("the kernel is empty text (kernel), give the path of a PTX file, or PTX text")
    if isinstance(given, Path) or "\n" not in given:
        try:
            text, name = Path(given).read_text(encoding="utf-8"), Path(given).name
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ValueError(f"{given}: {reason} (kernel), give the path of a PTX file, or PTX text") from None
    else:
        text, name = given, ""
    entries = entries_of(text)
    if not entries:
        raise ValueError(f"{name or 'the text'} has no kernel (kernel), give PTX with an .entry")
    if entry is None and len(entries) > 1:
        raise ValueError(f"{name or 'the PTX'} has {len(entries)} kernels (entry), give one of {', '.join(entries)}")
    if entry is not None and entry not in entries:
        raise ValueError(f"{name or 'the PTX'} has no kernel {entry} (entry), give one of {', '.join(entries)}")
    chosen = entry or entries[0]
    target = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    if target is None:
        raise ValueError(f"{name or 'the PTX'} has no .target (kernel), give a whole PTX module")
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return Executable(f"{name}:{chosen}" if name else chosen, chosen, target.group(1), text, digest)


# On a rank


def run_on_rank(fabric: Fabric, brought: Brought) -> dict[str, torch.Tensor]:
    """Launch once on this rank, together with all others; returns host copies of its buffers afterwards."""
    import torch

    work = adapted(brought, fabric.traits)
    with SymmetricPool(fabric) as pool:
        tensors: dict[str, SymmetricTensor] = {}
        for spec in work.buffers:
            made = tensors[spec.name] = pool.tensor(spec.shape, DTYPES[spec.dtype], name=spec.name)
            if not spec.symmetric:
                fabric.declare_local(made.region)
            content = work.contents[spec.name][fabric.rank]
            if content is not None:
                made.write(content)
        own = work.arguments[fabric.rank]
        tables: dict[str, SymmetricTensor] = {}
        for name in dict.fromkeys(name for one in own for kind, name in _names(one) if kind == "peers"):
            tables[name] = pool.tensor(fabric.world_size, torch.int64, name=f"peers of {name}")
            tables[name].write(torch.tensor(tensors[name].peer_addresses(), dtype=torch.int64))
            fabric.declare_local(tables[name].region)
        arguments = tuple(_bound(one, fabric, tensors, tables) for one in own)
        fabric.synchronize()
        fabric.barrier()
        fabric.launch(work.executable, work.launch, arguments)
        fabric.synchronize()
        fabric.barrier()  # the others' kernels may have written here until now
        return {name: tensor.read().clone() for name, tensor in tensors.items()}


def _bound(
    argument: BroughtArgument,
    fabric: Fabric,
    tensors: Mapping[str, SymmetricTensor],
    tables: Mapping[str, SymmetricTensor],
) -> Argument:
    """The value of an argument on this rank."""
    if isinstance(argument, PeerArgument):
        return Argument("address", tensors[argument.buffer].peer(argument.rank).address)
    if isinstance(argument, StructArgument):
        content = bytearray(_layout(argument)[1])
        for offset, member in zip(_layout(argument)[0], argument.members, strict=True):
            bound = _bound(member, fabric, tensors, tables)
            raw = PACKINGS[bound.kind].pack(bound.value)
            struct.pack_into(f"{len(raw)}s", content, offset, raw)
        return Argument("bytes", bytes(content))
    address = 0
    if argument.kind == "peers":
        address = tables[argument.buffer].address
    elif argument.kind == "multicast":
        address = tensors[argument.buffer].multicast().address
    elif argument.buffer:
        address = tensors[argument.buffer].address
    return argument.bound(fabric.rank, fabric.world_size, address)
