"""Launch a kernel that was brought, on all ranks of a world, with buffers and arguments described by values.

World.launch and symlab.simulate end up here. arguments.py has the nouns of arguments, runner.custom.nouns those of
buffers. What a rank gets is plain data, so that it can be sent to a process on a GPU.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from cases.assumptions import checked_assumptions
from cases.dtypes import DTYPES, ITEMSIZES
from kernels.own.arguments import (
    BroughtArgument,
    arguments_of,
    counts_launches,
    of_rank,
    pointers_of,
    type_of,
)
from kernels.own.functions import compiled_function, function_calls
from kernels.own.parameters import parameters_of, refuses_entry
from memory.fabric import Executable, Fabric, Launch, Traits, check_shared_bytes
from memory.pool import SymmetricPool
from reports.table.text import counted
from runner.case.brought_arguments import bound, packed_argument
from runner.case.stress import captured
from runner.custom.nouns import BufferSpec, Fill
from runner.custom.program import Call, allocate_buffers, bound_launches, launch_all, publish
from runner.request.sizes import format_bytes
from runner.request_error import near
from simulator.ptx.parse import check_start, entries_of, parse_kernel
from symlab.compiling import Compiled
from symlab.variables import Variables, VariableValue, variable_values

Kernel = str | Path | Compiled | Executable | Callable[..., Any] | Sequence[Mapping[str, Any]]
"""PTX text, the path of a PTX file, a compiled kernel, a CuTe DSL function, or several in a row: see World.launch."""


Extents = int | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Asked:
    """Launches as a user gives them: see World.launch. grid and block None: left out."""

    kernel: Kernel
    buffers: Mapping[str, Any]
    arguments: Sequence[Any] | Callable[[int], Sequence[Any]] = ()
    grid: Extents | None = None
    block: Extents | None = None
    local: Sequence[str] = ()
    variables: Variables | Callable[[int], Variables] | None = None
    entry: str | None = None
    shared_bytes: int = 0
    cluster: Extents = 1
    cooperative: bool = False
    assumptions: Sequence[str] = ()
    launches: int = 1
    graph: bool = False
    stream: int | None = None
    dependent: bool = False


def asked_in(call: Mapping[str, Any]) -> Asked:
    """Return what a call of World.launch or symlab.simulate asks, of all its arguments by name."""
    return Asked(**{one.name: call[one.name] for one in fields(Asked) if one.name in call})


OF_STEP = (
    *("kernel", "arguments", "grid", "block", "variables", "entry", "shared_bytes", "cluster", "cooperative"),
    *("assumptions", "stream", "dependent"),
)
"""What a kernel of several in a row says itself; what it leaves out is that of the whole."""


@dataclass(frozen=True, slots=True)
class Step:
    """A launch on every rank of a world: the kernel, its shape, and its arguments.

    arguments and variables: by rank. How a CuTe DSL function launches it on each rank its executable has.
    """

    executable: Executable
    launch: Launch
    arguments: tuple[tuple[BroughtArgument, ...], ...]
    variables: tuple[tuple[VariableValue, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Brought:
    """Launches on every rank of a world, on buffers that keep what they hold in between: steps in order, all of them
    many times. contents: by buffer name and rank, None for poison. graph: the steps are captured once and replayed."""

    buffers: tuple[BufferSpec, ...]
    contents: Mapping[str, tuple[torch.Tensor | None, ...]]
    steps: tuple[Step, ...]
    launches: int = 1
    graph: bool = False

    @property
    def name(self) -> str:
        return " + ".join(dict.fromkeys(one.executable.name for one in self.steps))

    @property
    def digest(self) -> str:
        """Of the kernel's PTX, or of all kernels'."""
        found = tuple(dict.fromkeys(one.executable.digest for one in self.steps))
        return found[0] if len(found) == 1 else f"sha256:{hashlib.sha256(' '.join(found).encode()).hexdigest()}"

    @property
    def arch(self) -> str:
        """The newest of its kernels', on which PTX for older ones runs."""
        return max((one.executable.arch for one in self.steps), key=lambda arch: (_generation(arch), arch[-1] in "af"))


# From what the user gives


def brought_launch(asked: Asked, ranks: int, arch: str | None = None, heap_bytes: int | None = None) -> Brought:
    """Return the launches that are asked for. arch: to compile for; None: what the PTX says, sm_90a for a function.
    heap_bytes: one rank's memory, which the buffers must fit; None: they are not compared. ValueError for whatever
    can't be."""
    buffers = asked.buffers
    if not isinstance(buffers, Mapping):
        raise ValueError(f"the buffers are of type {type(buffers).__name__} (buffers), give a dictionary by name")
    if type(asked.launches) is not int or asked.launches < 1:
        raise ValueError(f"launches is {asked.launches!r} (launches), give their number, 1 or more")
    if type(asked.graph) is not bool:
        raise ValueError(f"graph is {asked.graph!r} (graph), give True or False")
    specs, contents = _buffers(buffers, ranks, asked.local, heap_bytes)
    steps = tuple(_step(one, ranks, arch, specs) for one in _asked_steps(asked))
    return Brought(specs, contents, steps, asked.launches, asked.graph)


def _asked_steps(asked: Asked) -> Iterator[Asked]:
    """What is asked for each kernel in a row."""
    if isinstance(asked.kernel, (str, Path)) or not isinstance(asked.kernel, Sequence):
        yield asked
        return
    if not asked.kernel:
        raise ValueError("the list of kernels is empty (kernel), give one or more")
    for number, one in enumerate(asked.kernel):
        if not isinstance(one, Mapping) or "kernel" not in one:
            what = f"has {', '.join(one) or 'nothing'}" if isinstance(one, Mapping) else f"is a {type(one).__name__}"
            raise ValueError(f"kernel {number} {what} (kernel), give {{'kernel': .., 'arguments': [..]}}")
        if wrong := [name for name in one if name not in OF_STEP]:
            raise ValueError(f"kernel {number} has {wrong[0]!r} (kernel), {near(str(wrong[0]), OF_STEP)}")
        yield replace(asked, **one)


def _step(asked: Asked, ranks: int, arch: str | None, specs: tuple[BufferSpec, ...]) -> Step:
    kernel, by_name = asked.kernel, {spec.name: spec for spec in specs}
    parsed = _parsed(asked, ranks, by_name)
    values = variable_values(asked.variables or {}, ranks, by_name)
    granted = checked_assumptions(asked.assumptions)
    if is_function(kernel):
        made = _of_function(asked, arch, specs, parsed)
        launch = replace(made.host.launch, stream=asked.stream)
        return Step(replace(made, assumptions=granted), launch, parsed, variables=values)
    executable = _executable(kernel, asked.entry)
    executable = replace(executable, assumptions=tuple(dict.fromkeys((*executable.assumptions, *granted))))
    parameters = parameters_of(executable.ptx, executable.entry)
    for each in parsed:
        if unfit := refuses_entry(executable.name, each, parameters):
            raise ValueError(f"{unfit} (arguments), give one value for each, of its size and kind")
    return Step(executable, _launch(asked, executable), parsed, variables=values)


def _parsed(asked: Asked, ranks: int, by_name: Mapping[str, BufferSpec]) -> tuple[tuple[BroughtArgument, ...], ...]:
    """The arguments by rank."""
    arguments = asked.arguments
    if isinstance(arguments, str) or not (callable(arguments) or isinstance(arguments, Sequence)):
        raise ValueError(f"the arguments are of type {type(arguments).__name__} (arguments), give a list of them")
    given = [of_rank("arguments", arguments, rank) for rank in range(ranks)]
    if wrong := [each for each in given if isinstance(each, str) or not isinstance(each, Sequence)]:
        raise ValueError(f"a rank's arguments are of type {type(wrong[0]).__name__} (arguments), give a list of them")
    parsed = tuple(arguments_of(each, ranks, by_name, "arguments", is_function(asked.kernel)) for each in given)
    for each in parsed:
        for number, one in enumerate(each):
            if asked.graph and counts_launches(one):
                raise ValueError(f"argument {number} is launch: a graph's launches have the same arguments (arguments)")
    if len({tuple(map(type_of, each)) for each in parsed}) > 1:
        raise ValueError("the ranks' arguments differ in number or kind (arguments), give the same kinds on all ranks")
    return parsed


def _of_function(
    asked: Asked,
    arch: str | None,
    specs: tuple[BufferSpec, ...],
    parsed: Sequence[Sequence[BroughtArgument]],
) -> Executable:
    """A CuTe DSL function, compiled for its arguments; it computes its own launch."""
    function: Any = asked.kernel
    if asked.entry is not None:
        raise ValueError("a function has one kernel (entry), leave it out")
    name = getattr(function, "__name__", type(function).__name__)
    by_name = {spec.name: spec for spec in specs}
    usual = {"grid": None, "block": None, "shared_bytes": 0, "cluster": 1, "cooperative": False, "dependent": False}
    given = {what: getattr(asked, what) for what in usual if getattr(asked, what) != usual[what]}
    try:
        function_calls(function, parsed, by_name)
    except ValueError as error:
        raise ValueError(f"{name}: {error} (arguments)") from error
    return compiled_function(function, name, parsed, by_name, given, arch or "sm_90a")


def _launch(asked: Asked, executable: Executable) -> Launch:
    """The launch, with what the kernel itself says of its grid and block where they are left out."""
    kernel, grid, block = asked.kernel, asked.grid, asked.block
    if isinstance(kernel, Compiled):
        grid = kernel.launch.grid if grid is None else grid
        block = kernel.launch.block if block is None else block
    if block is None:
        block = parse_kernel(executable.ptx, executable.entry).required_block
    if grid is None or block is None:
        raise ValueError(f"no grid or block for {executable.name} (grid, block), give numbers of blocks and threads")
    return Launch(
        grid,
        block,
        asked.shared_bytes,
        asked.cluster,
        stream=asked.stream,
        cooperative=asked.cooperative,
        dependent=asked.dependent,
    )


def check_block(brought: Brought, most_bytes: int) -> None:
    """Raise ValueError for blocks that a kernel can't have, and for more shared memory than a block can have
    (most_bytes), before anything starts."""
    for step in brought.steps:
        made, function = step.executable, step.executable.host
        kernel = parse_kernel(made.ptx, made.entry)
        for launch in (step.launch,) if function is None else (one.launch for one in function.by_rank):
            if unfit := kernel.refuses_block(made.name, launch.block):
                raise ValueError(f"{unfit}, give such a block")
            check_shared_bytes(made.name, launch, kernel.dynamic_offset_bytes, most_bytes, kernel.target)


def adapted(brought: Brought, traits: Traits) -> Brought:
    """The launches for GPUs of another architecture: PTX of an older one that is not bound to its features runs on
    it."""
    return replace(
        brought, steps=tuple(replace(one, executable=_adapted(one.executable, traits)) for one in brought.steps)
    )


def _adapted(made: Executable, traits: Traits) -> Executable:
    if made.arch == traits.arch or made.arch[-1] in "af" or _generation(made.arch) > _generation(traits.arch):
        return made
    return replace(made, arch=traits.arch)


def _generation(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def _check_fit(specs: Sequence[BufferSpec], heap_bytes: int | None) -> None:
    """Raise ValueError for buffers beyond a rank's memory; None: it is not known."""
    needed = sum(spec.size_bytes for spec in specs)
    if heap_bytes is not None and needed > heap_bytes:
        largest = max(specs, key=lambda spec: spec.size_bytes)
        raise ValueError(
            f"the buffers take {format_bytes(needed)} a rank, {largest.name} alone {format_bytes(largest.size_bytes)}, "
            f"beyond {format_bytes(heap_bytes)} (heap_bytes), give more, or smaller buffers"
        )


def _buffers(
    given: Mapping[str, Any], ranks: int, local: Sequence[str], heap_bytes: int | None
) -> tuple[tuple[BufferSpec, ...], dict[str, tuple[torch.Tensor | None, ...]]]:
    """The buffers, and what they hold on each rank."""
    for name in given:
        if not isinstance(name, str):
            raise ValueError(f"a buffer is called {name!r} (buffers), give a name in letters, digits and underscores")
    if isinstance(local, str) or not isinstance(local, Sequence):
        raise ValueError(f"the local buffers are {local!r} (local), give a list of names of buffers")
    unknown = [name for name in local if name not in given]
    if unknown:
        raise ValueError(f"there is no buffer {unknown[0]!r} (local), the buffers are {', '.join(given) or 'none'}")
    specs, contents = [], {}
    for name, value in given.items():
        each = _contents(name, value, ranks, heap_bytes)
        shape, dtype, _ = each[0]
        if any((one[0], one[1]) != (shape, dtype) for one in each):
            raise ValueError(f"buffer {name} differs in shape or dtype between ranks (buffers), give the same on all")
        specs.append(BufferSpec(name, dtype, shape, symmetric=name not in local))
        contents[name] = tuple(one[2] for one in each)
    _check_fit(specs, heap_bytes)
    return tuple(specs), contents


_Content = tuple[tuple[int, ...], str, "torch.Tensor | None"]


def _contents(name: str, value: Any, ranks: int, heap_bytes: int | None) -> list[Any]:
    """Shape, dtype and content of a buffer on each rank; content None: poison."""
    if isinstance(value, tuple):
        return [_described(name, value, rank, ranks, heap_bytes) for rank in range(ranks)]
    if isinstance(value, list):
        if len(value) != ranks:
            raise ValueError(
                f"buffer {name} is a list of {len(value)} (buffers), give one for each of {counted(ranks, 'rank')}"
            )
        return [_of_tensor(name, one) for one in value]
    return [_of_tensor(name, value)] * ranks


def _of_tensor(name: str, value: Any) -> _Content:
    import numpy as np

    if isinstance(value, np.ndarray):
        try:
            value = torch.from_numpy(np.ascontiguousarray(value))
        except TypeError:
            known = ", ".join(ITEMSIZES)
            raise ValueError(f"buffer {name} is an array of {value.dtype} (buffers), give one of {known}") from None
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"buffer {name} is of type {type(value).__name__} (buffers), give a tensor, an array, a list of them by "
            "rank, or (shape, dtype) or (shape, dtype, fill)"
        )
    if value.layout is not torch.strided:
        raise ValueError(f"buffer {name} is sparse, {value.layout} (buffers), give a dense tensor")
    value = value.detach().cpu().contiguous()
    return tuple(value.shape) or (1,), _dtype_name(name, value.dtype), value


def _described(name: str, value: tuple[Any, ...], rank: int, ranks: int, heap_bytes: int | None) -> _Content:
    """(shape, dtype) or (shape, dtype, fill); fill: a number, a word of Fill, or a function of rank and world size. One
    that is beyond a rank's memory is refused before it is made."""
    from runner.custom.contents import content_of

    if len(value) not in (2, 3):
        raise ValueError(f"buffer {name} is a tuple of {len(value)} (buffers), give (shape, dtype) or with a fill")
    shape = tuple(value[0]) if isinstance(value[0], Sequence) else (value[0],)
    fill = value[2] if len(value) == 3 else Fill.poison
    if isinstance(fill, str) and fill not in tuple(Fill):
        raise ValueError(f"buffer {name} has the fill {fill!r} (buffers), give a number or {', '.join(Fill)}")
    dtype = _dtype_name(name, value[1])
    spec = BufferSpec(name, dtype, shape)
    _check_fit([spec], heap_bytes)
    if not isinstance(fill, str) and not callable(fill):
        return spec.shape, dtype, _all_of(spec, fill)
    spec = replace(spec, fill=Fill(fill) if isinstance(fill, str) else fill)
    content = None if spec.fill is Fill.poison else content_of(spec, rank, ranks, seed=0).cpu()
    return spec.shape, dtype, content


def _all_of(spec: BufferSpec, number: Any) -> torch.Tensor:
    """A number in every element."""

    try:
        return torch.full(spec.shape, number, dtype=DTYPES[spec.dtype])
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"buffer {spec.name} of {spec.dtype} can't be filled with {number!r} (buffers)") from error


def _dtype_name(name: str, dtype: Any) -> str:
    known = str(dtype).removeprefix("torch.")
    if known not in ITEMSIZES:
        raise ValueError(f"buffer {name} is of {known} (buffers), give one of {', '.join(ITEMSIZES)}")
    return known


# The kernel


def is_function(kernel: object) -> bool:
    """Return whether a kernel, or one of a list, is a CuTe DSL function, which is still to be compiled."""
    if isinstance(kernel, (list, tuple)):
        return any(is_function(one.get("kernel")) for one in kernel if isinstance(one, Mapping))
    return callable(kernel) and not isinstance(kernel, (Compiled, Executable))


def _executable(kernel: object, entry: str | None) -> Executable:
    """What is launched of a kernel that is no function."""
    if isinstance(kernel, (Compiled, Executable)):
        if entry is not None:
            raise ValueError("a compiled kernel has its entry (entry), leave it out")
        return kernel.executable if isinstance(kernel, Compiled) else kernel
    if isinstance(kernel, (str, Path)):
        return _of_ptx(kernel, entry)
    raise ValueError(
        f"the kernel is of type {type(kernel).__name__} (kernel), give PTX, a path of it, a compiled kernel or a CuTe "
        "DSL function"
    )


def _of_ptx(given: str | Path, entry: str | None) -> Executable:
    """A kernel of PTX text, or of a file of it."""
    if not str(given).strip():
        raise ValueError("the kernel is empty text (kernel), give the path of a PTX file, or PTX text")
    if isinstance(given, Path) or "\n" not in given:
        try:
            text, name = Path(given).read_text(encoding="utf-8"), Path(given).name
        except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a null character
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ValueError(f"{given}: {reason} (kernel), give the path of a PTX file, or PTX text") from None
    else:
        text, name = given, ""
    check_start(name or "the text", text)
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


@dataclass(frozen=True, slots=True)
class OnRank:
    """What a rank's buffers hold after a launch, as host copies, and how many of their elements were never written, in
    part or whole ({} if the fabric can't tell)."""

    outputs: dict[str, torch.Tensor]
    unwritten: dict[str, int]


def run_on_rank(fabric: Fabric, brought: Brought) -> OnRank:
    """Carry out the launches on this rank, together with all others."""
    work, rank = adapted(brought, fabric.traits), fabric.rank
    with SymmetricPool(fabric) as pool:
        given = [one for step in work.steps for one in step.arguments[rank]]
        variables = [(step.executable, one) for step in work.steps for one in step.variables[rank]]
        values = [one.value for _, one in variables]
        memory = allocate_buffers(pool, work.buffers, [*given, *values], fabric.world_size, 0)
        for name, placed in memory.buffers.items():
            if (content := work.contents[name][rank]) is not None:
                placed.write(fabric, content)
        publish(fabric, work.buffers, memory)
        kernels = [(step.executable, step.launch, step.arguments[rank]) for step in work.steps]
        launches = bound_launches(fabric, kernels, memory, work.launches)
        left = replace(memory, structs=memory.structs[len(pointers_of(given)) :])
        for (executable, one), value in zip(variables, bound(fabric, values, left), strict=True):
            fabric.set_variable(executable, one.name, one.offset_bytes, packed_argument(value))
        queue = _queue(fabric, launches, work.graph)
        fabric.synchronize()
        fabric.barrier()
        queue()
        fabric.synchronize()
        fabric.barrier()  # the others' kernels may have written here until now
        outputs, unwritten = {}, {}
        for spec in work.buffers:
            region = memory.buffers[spec.name].tensor.region
            content = fabric.read(region, 0, spec.size_bytes).view(DTYPES[spec.dtype]).view(spec.shape)
            outputs[spec.name] = content.clone()
            if (found := fabric.never_written(region)) is not None:
                unwritten[spec.name] = int(found[: spec.size_bytes].view(spec.numel, -1).any(dim=1).sum())
        return OnRank(outputs, unwritten)


def _queue(fabric: Fabric, launches: Sequence[Sequence[Call]], is_graph: bool) -> Callable[[], None]:
    """What queues all launches. A graph begins and ends with all of its streams, and its replays follow one another."""
    if is_graph:
        for executable, _, _ in launches[0]:
            fabric.load(executable)
        replay = captured(fabric, lambda: launch_all(fabric, launches[0]))

    def queue() -> None:
        for calls in launches:
            if is_graph:
                replay()
            else:
                for call in calls:
                    fabric.launch(*call)

    return queue
