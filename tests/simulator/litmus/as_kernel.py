"""From a litmus program to PTX: one kernel for all ranks, in which each thread of the program is a warp's first lane.

A rank's part of memory is one buffer, in which each location has 32 bytes; the locations of a multicast address lie at
the same place of all ranks. What bulk copies read is in the shared memory of the thread's block. At its end each thread
stores its registers, eight bytes each, into the rank's results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simulator.litmus.program import (
    Access,
    Address,
    Barrier,
    Branch,
    BulkCopy,
    CommitGroup,
    Compute,
    Fence,
    Instruction,
    Label,
    Operand,
    Program,
    ProxyFence,
    Seen,
    Thread,
    WaitGroup,
)

LOCATION_BYTES = 32
RESULT_BYTES = 8
WARP = 32
ENTRY = "litmus"
VERSION = "8.6"
"""Of PTX: the first with fence.acquire and fence.release."""

_RELATIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_UNSIGNED = ("add", "min", "max")
_COPY_BYTES = 16
"""Bulk copies have multiples of this."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """What runs a program: each rank launches the kernel ENTRY of ptx once, with grid blocks of block threads.

    Parameters, in order: the address of each rank's memory as the launching rank sees it (u64), the multicast address
    of memory (u64, where has_multicast), the address of the own results (u64), the rank (u32). memory: the words that
    each rank's memory begins with. locations: rank and first byte of each location, but for those in shared memory.
    results: rank and first byte of each register.
    """

    ptx: str
    world_size: int
    grid: int
    block: int
    has_multicast: bool
    memory: tuple[tuple[int, ...], ...]
    results_bytes: int
    locations: Mapping[str, tuple[int, int]]
    results: Mapping[Seen, tuple[int, int]]


@dataclass(slots=True)
class _Layout:
    """Where everything is: locations by rank and byte, shared ones by block and byte, registers by rank and byte."""

    program: Program
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    results: dict[Seen, tuple[int, int]] = field(default_factory=dict)
    warps: dict[str, int] = field(default_factory=dict)
    world_size: int = 1
    grid: int = 1
    block: int = WARP


def kernels_of(program: Program) -> Kernels:
    """Return the kernel of a program. Raises ValueError for what simulated GPUs cannot run, naming it."""
    layout = _laid_out(program)
    bytes_of_memory = max((start for _, start in layout.places.values()), default=0) + LOCATION_BYTES
    memory = [[0] * (bytes_of_memory // 4) for _ in range(layout.world_size)]
    for name, (rank, start) in layout.places.items():
        words = program.memory.initial[name]
        memory[rank][start // 4 : start // 4 + len(words)] = words
    starts = [start for _, start in layout.results.values()]
    return Kernels(
        ptx="\n".join(_module(layout)) + "\n",
        world_size=layout.world_size,
        grid=layout.grid,
        block=layout.block,
        has_multicast=_has_multicast(program),
        memory=tuple(map(tuple, memory)),
        results_bytes=max(starts, default=0) + RESULT_BYTES,
        locations=layout.places,
        results=layout.results,
    )


# Where things are


def _laid_out(program: Program) -> _Layout:
    groups = program.memory.aliases
    for name, targets in groups.items():
        if len(targets) == 1:
            raise ValueError(
                f"{program.name}: '{name}' is an alias of one location, which simulated memory does not have"
            )
    layout = _Layout(program)
    ranks = [thread.place.rank for thread in program.threads]
    layout.world_size = max([max(ranks) + 1, *map(len, groups.values())])
    layout.grid = max(thread.place.block for thread in program.threads) + 1
    counts: dict[tuple[int, int], int] = {}
    for thread in program.threads:
        if thread.place.cluster is not None:
            raise ValueError(f"{program.name}: {thread.name} is in a cluster; the kernel has none")
        place = (thread.place.rank, thread.place.block)
        layout.warps[thread.name] = counts.get(place, 0)
        counts[place] = counts.get(place, 0) + 1
    layout.block = WARP * max(counts.values())
    for one in _copies(program):
        _share(layout, one)
    _place(layout)
    starts: dict[int, int] = {}
    for thread in program.threads:
        for register in _registers(thread):
            rank = thread.place.rank
            layout.results[Seen(thread.name, register)] = (rank, starts.get(rank, 0))
            starts[rank] = starts.get(rank, 0) + RESULT_BYTES
    return layout


def _copies(program: Program) -> Iterator[BulkCopy]:
    for thread in program.threads:
        yield from (one for one in thread.instructions if isinstance(one, BulkCopy))


def _share(layout: _Layout, copy: BulkCopy) -> None:
    """Put the source of a copy into shared memory."""
    program, name = layout.program, copy.source.name
    users = [thread for thread in program.threads if any(name in _names(one) for one in thread.instructions)]
    others = [one for one in _copies(program) if one.destination.name == name]
    if len(users) > 1 or others or name in {part for targets in program.memory.aliases.values() for part in targets}:
        raise ValueError(f"{program.name}: '{name}' is copied from, and not by its one thread alone")
    if copy.words % 4 and _beyond(program, copy):
        raise ValueError(f"{program.name}: '{copy.text}' is not of 16 bytes, and the others of its target are used")
    layout.shared.setdefault(name, LOCATION_BYTES * len(layout.shared))


def _beyond(program: Program, copy: BulkCopy) -> bool:
    """Whether anything uses a word of the copy's target that it writes for its size's sake alone."""
    named = [address for thread in program.threads for one in thread.instructions for address in _addresses(one)]
    first = copy.destination.word + copy.words
    return any(one.name == copy.destination.name and one.word >= first for one in named)


def _addresses(one: Instruction) -> tuple[Address, ...]:
    if isinstance(one, Access):
        return (one.address,)
    return (one.destination, one.source) if isinstance(one, BulkCopy) else ()


def _names(one: Instruction) -> set[str]:
    return {address.name for address in _addresses(one)}


def _place(layout: _Layout) -> None:
    """Give each location a place: those of a multicast address one after another rank's, others with a first user."""
    program, start = layout.program, 0
    for name, targets in program.memory.aliases.items():
        for rank, target in enumerate(targets):
            if target in layout.places:
                raise ValueError(
                    f"{program.name}: '{target}' belongs to two multicast addresses, of which '{name}' is one"
                )
            layout.places[target] = (rank, start)
        start += LOCATION_BYTES
    for name in program.memory.initial:
        if name in layout.places or name in layout.shared:
            continue
        using = (thread for thread in program.threads if any(name in _names(one) for one in thread.instructions))
        first = next(using, program.threads[0])
        layout.places[name] = (first.place.rank, start)
        start += LOCATION_BYTES


def _has_multicast(program: Program) -> bool:
    return any(isinstance(one, Access) and one.is_multimem for thread in program.threads for one in thread.instructions)


def _registers(thread: Thread) -> list[str]:
    """All registers of a thread, in the order of their first appearance."""
    names = dict.fromkeys(name for name, _ in thread.registers)
    for one in thread.instructions:
        operands: tuple[Operand, ...] = ()
        if isinstance(one, Access):
            operands = (*one.destinations, *one.sources, one.expected)
        elif isinstance(one, Compute):
            operands = (one.destination, *one.sources)
        elif isinstance(one, Branch):
            operands = (one.left, one.right)
        elif isinstance(one, Barrier):
            operands = (one.name,)
        names |= dict.fromkeys(operand for operand in operands if isinstance(operand, str))
    return list(names)


# The text


def _module(layout: _Layout) -> Iterator[str]:
    ranks = range(layout.world_size)
    pointers = [*(f"memory_{rank}" for rank in ranks), *(["all"] if _has_multicast(layout.program) else []), "results"]
    parameters = [*(f".param .u64 {ENTRY}_{name}" for name in pointers), f".param .u32 {ENTRY}_rank"]
    yield from (f".version {VERSION}", ".target sm_90a", ".address_size 64")
    if layout.shared:
        yield f".shared .align 16 .b8 tiles[{LOCATION_BYTES * len(layout.shared)}];"
    yield f".visible .entry {ENTRY}({', '.join(parameters)})"
    yield "{"
    yield "  .reg .pred %p; .reg .b32 %rank, %block, %thread, %lane, %w<4>; .reg .b64 %at, %d<4>;"
    for name in pointers:
        yield f"  .reg .b64 %{name}; ld.param.u64 %{name}, [{ENTRY}_{name}];"
    yield f"  ld.param.u32 %rank, [{ENTRY}_rank];"
    yield "  mov.u32 %block, %ctaid.x; mov.u32 %thread, %tid.x;"
    yield "  and.b32 %lane, %thread, 31; shr.u32 %thread, %thread, 5;"
    yield "  setp.ne.u32 %p, %lane, 0; @%p ret;"
    yield f"  mad.lo.u32 %block, %rank, {layout.grid}, %block;"
    yield f"  mad.lo.u32 %thread, %block, {layout.block // WARP}, %thread;"
    for thread in layout.program.threads:
        place = thread.place.rank * layout.grid + thread.place.block
        number = place * (layout.block // WARP) + layout.warps[thread.name]
        yield f"  setp.eq.u32 %p, %thread, {number}; @%p bra {thread.name};"
    yield "  ret;"
    for thread in layout.program.threads:
        yield from _thread(layout, thread)
    yield "}"


def _thread(layout: _Layout, thread: Thread) -> Iterator[str]:
    yield f"{thread.name}:"
    registers = _registers(thread)
    values = dict(thread.registers)
    for name in registers:
        yield f"  .reg .b64 %{thread.name}_{name}; mov.u64 %{thread.name}_{name}, {values.get(name, 0)};"
    used = {name for one in thread.instructions for name in _names(one)}
    for name in sorted(used & set(layout.shared)):
        for word, value in enumerate(layout.program.memory.initial[name]):
            yield f"  st.shared.u32 [tiles+{layout.shared[name] + 4 * word}], {value};"
    if used & set(layout.shared):
        yield "  fence.proxy.async;"
    text = _Text(layout, thread.name)
    for one in thread.instructions:
        yield from (f"  {line}" for line in text.of(one))
    for name in registers:
        _, start = layout.results[Seen(thread.name, name)]
        yield f"  st.global.u64 [%results+{start}], %{thread.name}_{name};"
    if any(isinstance(one, BulkCopy) for one in thread.instructions):
        # a block may not end before its shared memory is read
        yield "  cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
    yield "  ret;"


@dataclass(frozen=True, slots=True)
class _Text:
    """The instructions of a thread as PTX."""

    layout: _Layout
    thread: str

    def of(self, one: Instruction) -> list[str]:
        """Return the lines of an instruction."""
        match one:
            case Access():
                return self._access(one)
            case Fence():
                return [f"fence.{one.order}.{one.scope};"]
            case ProxyFence():
                return [f"fence.proxy.{one.proxy};"]
            case Barrier():
                return self._barrier(one)
            case BulkCopy():
                return self._copy(one)
            case CommitGroup():
                return ["cp.async.bulk.commit_group;"]
            case WaitGroup():
                return [f"cp.async.bulk.wait_group{'.read' if one.is_read else ''} {one.pending};"]
            case Compute():
                return self._compute(one)
            case Branch():
                return self._branch(one)
            case Label():
                return [f"{self.thread}_{one.name}:"]

    def _register(self, name: str) -> str:
        return f"%{self.thread}_{name}"

    def _value(self, operand: Operand) -> str:
        """An operand of 64 bits."""
        return self._register(operand) if isinstance(operand, str) else str(operand & (1 << 64) - 1)

    def _where(self, address: Address) -> tuple[str, str]:
        """The state space and the address."""
        name, more = address.name, 4 * address.word
        if name in self.layout.shared:
            return "shared", f"[tiles+{self.layout.shared[name] + more}]"
        targets = self.layout.program.memory.aliases.get(name)
        rank, start = self.layout.places[targets[0] if targets else name]
        return "global", f"[%{'all' if targets else f'memory_{rank}'}+{start + more}]"

    def _access(self, one: Access) -> list[str]:
        space, address = self._where(one.address)
        how = one.order if one.order == "weak" else f"{one.order}.{one.scope}"
        if one.opcode in ("ld", "st") and ".volatile" in one.text:
            how = "volatile"
        count = len(one.destinations if one.opcode == "ld" else one.sources) if one.opcode in ("ld", "st") else 1
        vector = f".v{count}" if count > 1 else ""
        signed = "u" if one.operation in _UNSIGNED else "b"
        kind = f"{signed}{one.bits}"
        operation = f".{one.operation}" if one.operation else ""
        lines, sources = self._taken(one)
        if one.is_multimem:
            head = {"ld": "ld_reduce", "st": "st", "red": "red"}[one.opcode]
            opcode = f"multimem.{head}.{how}.global{operation}.u{one.bits}"
        else:
            opcode = f"{one.opcode}.{how}.{space}{operation}{vector}.{kind}"
        found = [f"%{'w' if one.bits == 32 else 'd'}{at}" for at in range(len(one.destinations))]
        operands = [address, *sources]
        if found:
            operands.insert(0, _braced(found))
        lines.append(f"{opcode} {', '.join(operands)};")
        width = "cvt.u64.u32" if one.bits == 32 else "mov.u64"
        return lines + [f"{width} {self._register(a)}, {b};" for a, b in zip(one.destinations, found, strict=True)]

    def _taken(self, one: Access) -> tuple[list[str], list[str]]:
        """Lines that put the sources of an access into registers of its width, and those registers."""
        values = ([one.expected] if one.operation == "cas" else []) + list(one.sources)
        names = [f"%{'w' if one.bits == 32 else 'd'}{at}" for at in range(len(values))]
        lines = [
            f"mov.u{one.bits} {name}, {value & (1 << one.bits) - 1};"
            if isinstance(value, int)
            else f"{'cvt.u32.u64' if one.bits == 32 else 'mov.u64'} {name}, {self._register(value)};"
            for name, value in zip(names, values, strict=True)
        ]
        return lines, names if one.operation == "cas" else ([_braced(names)] if names else [])

    def _barrier(self, one: Barrier) -> list[str]:
        lines, name = [], str(one.name)
        if isinstance(one.name, str):
            lines, name = [f"cvt.u32.u64 %w0, {self._register(one.name)};"], "%w0"
        count = f", {WARP * one.count}" if one.count else ""
        return [*lines, f"bar.{one.kind} {name}{count};"]

    def _copy(self, one: BulkCopy) -> list[str]:
        (_, to), (_, source) = self._where(one.destination), self._where(one.source)
        size = -(-4 * one.words // _COPY_BYTES) * _COPY_BYTES
        return [f"cp.async.bulk.global.shared::cta.bulk_group {to}, {source}, {size};"]

    def _compute(self, one: Compute) -> list[str]:
        target = self._register(one.destination)
        kind = "b64" if one.operation in ("and", "or", "xor") else "u64"
        low = ".lo" if one.operation == "mul" else ""
        sources = ", ".join(map(self._value, one.sources))
        return [f"{one.operation}{low}.{kind} {target}, {sources};", f"and.b64 {target}, {target}, 0xffffffff;"]

    def _branch(self, one: Branch) -> list[str]:
        label = f"{self.thread}_{one.label}"
        if not one.relation:
            return [f"bra {label};"]
        return [
            f"mov.u64 %d0, {self._value(one.left)};",
            f"setp.{_RELATIONS[one.relation]}.u64 %p, %d0, {self._value(one.right)};",
            f"@%p bra {label};",
        ]


def _braced(names: list[str]) -> str:
    return f"{{{', '.join(names)}}}" if len(names) > 1 else names[0]
