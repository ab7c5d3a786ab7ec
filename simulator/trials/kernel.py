"""A litmus program as one PTX kernel for all its threads, and where its memory lies.

Each thread of the program is a thread of the kernel, in the block, cluster and rank that the program says; all others
return at once. A label before each access makes it a step of its own. What a register holds is stored in the rank's
own `seen` behind each instruction that may change it, so that it is known of threads that never end, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

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
    Place,
    Program,
    ProxyFence,
    Thread,
    WaitGroup,
)

LOCATION_BYTES = 32
COPY_BYTES = 16
"""What a bulk copy of the program copies: fewer PTX does not have."""
SLOT_BYTES = 8
WARP = 32
_RELATIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class NoKernel(ValueError):
    """A program has something that a kernel can't have; the message says what."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel of a program, and how to launch it.

    groups: the symmetric tensors, each the locations that lie at one place of several ranks, by rank. owners: of each
    location its tensor and its rank. names: parameters that are addresses, in order; multicast and aliases: of which
    tensor, and of which location. slots: where `seen` holds a register, by thread and name, or a thread's end ("").
    """

    ptx: str
    world_size: int
    grid: int
    block: int
    cluster: int
    groups: tuple[tuple[str, ...], ...]
    owners: dict[str, tuple[int, int]]
    names: tuple[str, ...]
    multicast: dict[str, int]
    aliases: dict[str, str]
    shared: tuple[str, ...]
    slots: dict[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a thread of the program runs: rank, block of the rank's grid, and thread of the block."""

    rank: int
    block: int
    thread: int


def kernel_of(program: Program) -> Kernel:
    """Return the kernel. Raises NoKernel for a program that no kernel can be."""
    spots, grid, cluster = _spots(program)
    stride = WARP if _has_counts(program) else 1
    spots = [replace(one, thread=one.thread * stride) for one in spots]
    block = stride * max(Counter((one.rank, one.block) for one in spots).values())
    shared = _shared(program)
    groups, owners = _groups(program, shared)
    multicast = {
        name: groups.index(parts) for name, parts in program.memory.aliases.items() if _is_multicast(program, name)
    }
    aliases = {name: parts[0] for name, parts in program.memory.aliases.items() if name not in multicast}
    names = tuple(name for name in (*program.memory.initial, *program.memory.aliases) if name not in shared)
    slots = _slots(program, spots)
    world_size = max([one.rank + 1 for one in spots] + [len(one) for one in groups])
    text = _Writer(program, spots, names, shared, slots).text()
    return Kernel(text, world_size, grid, block, cluster, groups, owners, names, multicast, aliases, shared, slots)


def _has_counts(program: Program) -> bool:
    """Whether some barrier counts threads, which PTX does by warps."""
    return any(isinstance(one, Barrier) and one.count is not None for t in program.threads for one in t.instructions)


def _is_multicast(program: Program, name: str) -> bool:
    """Whether a name is a multicast address: multimem accesses it."""
    used = [
        one.is_multimem
        for thread in program.threads
        for one in thread.instructions
        if isinstance(one, Access) and one.address.name == name
    ]
    return len(program.memory.locations(name)) > 1 or (bool(used) and all(used))


def _spots(program: Program) -> tuple[list[_Spot], int, int]:
    """Where threads run, how many blocks a rank has, and how many a cluster.

    Blocks without a cluster are in clusters of their own, which no other thread of the program is in.
    """
    places = list(dict.fromkeys(thread.place for thread in program.threads))
    units: dict[int, dict[object, list[Place]]] = defaultdict(dict)
    for one in places:
        units[one.rank].setdefault(one if one.cluster is None else one.cluster, []).append(one)
    size = max(len(blocks) for of_rank in units.values() for blocks in of_rank.values())
    grid = size * max(map(len, units.values()))
    numbers = {
        place: number * size + position
        for of_rank in units.values()
        for number, blocks in enumerate(of_rank.values())
        for position, place in enumerate(blocks)
    }
    counts: Counter[Place] = Counter()
    spots = []
    for thread in program.threads:
        spots.append(_Spot(thread.place.rank, numbers[thread.place], counts[thread.place]))
        counts[thread.place] += 1
    return spots, grid, size


def _shared(program: Program) -> tuple[str, ...]:
    """Locations that bulk copies read: they lie in the shared memory of the one block that uses them."""
    all_of_them = [one for thread in program.threads for one in thread.instructions]
    copies = [one for one in all_of_them if isinstance(one, BulkCopy)]
    for one in copies:
        if one.source.word or one.destination.word or one.source.name in program.memory.aliases:
            raise NoKernel(f"{one.text}: a kernel copies from the start of a location to the start of one")
    sources = tuple(dict.fromkeys(one.source.name for one in copies))
    for name in sources:
        blocks = {
            (thread.place.rank, thread.place.block)
            for thread in program.threads
            for one in thread.instructions
            if name in _names_of(one)
        }
        if len(blocks) > 1:
            raise NoKernel(f"a bulk copy reads {name}, which several blocks use: it would lie in shared memory")
        if any(program.memory.initial[name]):
            raise NoKernel(f"{name}, which a bulk copy reads, lies in shared memory, which begins as 0")
        if any(one.destination.name == name for one in copies):
            raise NoKernel(f"bulk copies read and write {name}")
    return sources


def _names_of(one: Instruction) -> tuple[str, ...]:
    if isinstance(one, Access):
        return (one.address.name,)
    return (one.source.name, one.destination.name) if isinstance(one, BulkCopy) else ()


def _groups(
    program: Program, shared: tuple[str, ...]
) -> tuple[tuple[tuple[str, ...], ...], dict[str, tuple[int, int]]]:
    """The tensors, and the tensor and rank of each location."""
    groups: list[tuple[str, ...]] = []
    for name, parts in program.memory.aliases.items():
        if _is_multicast(program, name):
            if any(part in group for group in groups for part in parts):
                raise NoKernel(f"{name} shares locations with another multicast address")
            groups.append(parts)
    grouped = {part for group in groups for part in group}
    groups += [(name,) for name in program.memory.initial if name not in grouped and name not in shared]
    return tuple(groups), {name: (at, rank) for at, group in enumerate(groups) for rank, name in enumerate(group)}


def _slots(program: Program, spots: list[_Spot]) -> dict[tuple[str, str], tuple[int, int]]:
    """Rank and offset of each register, of whether it was written ("r0!"), and of each thread's end ("")."""
    slots: dict[tuple[str, str], tuple[int, int]] = {}
    for thread, spot in zip(program.threads, spots, strict=True):
        registers = _registers(thread)
        for name in ("", *registers, *(f"{one}!" for one in registers)):
            slots[thread.name, name] = (spot.rank, SLOT_BYTES * len(slots))
    return slots


def _registers(thread: Thread) -> tuple[str, ...]:
    """All registers of a thread, each once."""
    found = [name for name, _ in thread.registers]
    for one in thread.instructions:
        if isinstance(one, Access):
            found += [*one.destinations, *(name for name in (*one.sources, one.expected) if isinstance(name, str))]
        elif isinstance(one, Compute):
            found += [one.destination, *(name for name in one.sources if isinstance(name, str))]
        elif isinstance(one, Branch):
            found += [name for name in (one.left, one.right) if isinstance(name, str)]
        elif isinstance(one, Barrier) and isinstance(one.name, str):
            found.append(one.name)
    return tuple(dict.fromkeys(found))


class _Writer:
    """Writes the text of a kernel."""

    def __init__(
        self,
        program: Program,
        spots: list[_Spot],
        names: tuple[str, ...],
        shared: tuple[str, ...],
        slots: dict[tuple[str, str], tuple[int, int]],
    ) -> None:
        self.program, self.spots, self.names, self.shared, self.slots = program, spots, names, shared, slots
        self.lines: list[str] = []
        self.labels = 0

    def text(self) -> str:
        """Return the module."""
        parameters = ["u32 rank", "u64 seen", *(f"u64 {name}" for name in map(_address, self.names))]
        head = ",".join(f" .param .{one.split()[0]} litmus_{one.split()[1]}" for one in parameters)
        self.lines = [".version 9.0", ".target sm_90a", ".address_size 64", f".visible .entry litmus({head})", "{"]
        self._declare(parameters)
        for number, spot in enumerate(self.spots):
            self._add(f"setp.eq.u32 %q, %rank, {spot.rank}")
            for register, value in (("%ctaid.x", spot.block), ("%tid.x", spot.thread)):
                self._add(f"mov.u32 %i, {register}")
                self._add(f"setp.eq.and.u32 %q, %i, {value}, %q")
            self._add(f"@%q bra THREAD{number}")
        self._add("ret")
        for number, thread in enumerate(self.program.threads):
            self.lines.append(f"THREAD{number}:")
            self._thread(number, thread)
        return "\n".join([*self.lines, "}"]) + "\n"

    def _add(self, line: str) -> None:
        self.lines.append(f"  {line};")

    def _declare(self, parameters: list[str]) -> None:
        self._add(".reg .pred %q")
        self._add(".reg .b32 %i, %j, %k, %rank, %t<8>")
        self._add(".reg .b64 %seen, %w<8>, %pair")
        for name in self.shared:
            self._add(f".shared .align 16 .b8 {_address(name)}[{LOCATION_BYTES}]")
        for number, thread in enumerate(self.program.threads):
            for name in _registers(thread):
                self._add(f".reg .b64 {self._register(number, name)}")
        for one in parameters:
            kind, name = one.split()
            if name not in ("rank", "seen"):
                self._add(f".reg .b64 %{name}")
            self._add(f"ld.param.{kind} %{name}, [litmus_{name}]")

    def _register(self, number: int, name: str) -> str:
        return f"%T{number}_{name}"

    def _cut(self) -> None:
        """Begin a step."""
        self.labels += 1
        self.lines.append(f"CUT{self.labels}:")

    def _thread(self, number: int, thread: Thread) -> None:
        start = dict(thread.registers)
        for name in _registers(thread):
            self._add(f"mov.u64 {self._register(number, name)}, {start.get(name, 0)}")
        if _has_counts(self.program):  # until the other threads of the warps have returned
            self._add("barrier.sync 14")
        for name in self.shared:
            if self._first_user(name) == number:
                for word, value in enumerate(self.program.memory.initial[name]):
                    self._add(f"st.shared.u32 [{_address(name)}+{4 * word}], {value}")
        for at, one in enumerate(thread.instructions):
            self._cut()
            self._instruction(number, at, one)
        if any(isinstance(one, BulkCopy) for one in thread.instructions):  # a block may not end before its copies
            self._add("cp.async.bulk.commit_group")
            self._add("cp.async.bulk.wait_group 0")
        self._add("mov.u64 %w0, 1")
        self._keep(number, "", "%w0")
        if _has_counts(self.program):  # a thread that has returned would count as one that has come
            self._add("barrier.sync 15")
        self._add("ret")

    def _first_user(self, name: str) -> int:
        return next(
            number
            for number, thread in enumerate(self.program.threads)
            if any(name in _names_of(one) for one in thread.instructions)
        )

    def _keep(self, number: int, name: str, register: str) -> None:
        """Store what a register holds."""
        thread = self.program.threads[number].name
        self._add(f"st.global.u64 [%seen+{self.slots[thread, name][1]}], {register}")
        if name:
            self._add("mov.u64 %pair, 1")
            self._add(f"st.global.u64 [%seen+{self.slots[thread, f'{name}!'][1]}], %pair")

    def _instruction(self, number: int, at: int, one: Instruction) -> None:
        if isinstance(one, Access):
            self._access(number, one)
        elif isinstance(one, Fence):
            self._add(f"fence.{one.order}.{one.scope}")
        elif isinstance(one, ProxyFence):
            self._add(f"fence.proxy.{one.proxy}")
        elif isinstance(one, Barrier):
            name = one.name
            if isinstance(name, str):
                self._add(f"cvt.u32.u64 %i, {self._register(number, name)}")
            count = "" if one.count in (None, 0) else f", {WARP * (one.count or 0)}"
            self._add(f"barrier.{one.kind} {'%i' if isinstance(name, str) else name}{count}")
        elif isinstance(one, BulkCopy):
            where = f"[{self._place(one.destination)}], [{_address(one.source.name)}], {COPY_BYTES}"
            self._add(f"cp.async.bulk.global.shared::cta.bulk_group {where}")
        elif isinstance(one, CommitGroup):
            self._add("cp.async.bulk.commit_group")
        elif isinstance(one, WaitGroup):
            self._add(f"cp.async.bulk.wait_group{'.read' if one.is_read else ''} {one.pending}")
        elif isinstance(one, Compute):
            self._compute(number, one)
        elif isinstance(one, Branch):
            self._branch(number, one)
        elif isinstance(one, Label):
            self.lines.append(f"T{number}_{one.name}:")

    def _place(self, address: Address) -> str:
        offset = f"+{4 * address.word}" if address.word else ""
        prefix = "" if address.name in self.shared else "%"
        return f"{prefix}{_address(address.name)}{offset}"

    def _narrow(self, number: int, operand: Operand, to: str, bits: int) -> str:
        """An operand of an instruction, in a register of its width."""
        if isinstance(operand, int):
            return str(operand)
        if bits == 64:
            return self._register(number, operand)
        self._add(f"cvt.u32.u64 %t{to}, {self._register(number, operand)}")
        return f"%t{to}"

    def _access(self, number: int, one: Access) -> None:
        words = _manner(one)
        space = "shared" if one.address.name in self.shared else "global"
        place = f"[{self._place(one.address)}]"
        count = max(len(one.destinations), len(one.sources))
        vector = f".v{count}" if count > 1 else ""
        given = [self._narrow(number, source, str(at), one.bits) for at, source in enumerate(one.sources)]
        if one.bits == 64 or one.opcode not in ("ld", "st"):
            given = [self._loaded(text, at, one.bits) for at, text in enumerate(given)]
        if one.opcode == "st":
            head = f"multimem.st{words}.global" if one.is_multimem else f"st{words}.{space}"
            given = [self._loaded(text, at, one.bits) for at, text in enumerate(given)]
            value = given[0] if count == 1 else "{" + ", ".join(given) + "}"
            self._add(f"{head}{vector}.{'u' if one.is_multimem else 'b'}{one.bits} {place}, {value}")
            return
        targets = [f"%t{at}" if one.bits == 32 else f"%w{at}" for at in range(len(one.destinations))]
        if one.opcode == "ld":
            target = targets[0] if count == 1 else "{" + ", ".join(targets) + "}"
            head = f"multimem.ld_reduce{words}.global.add" if one.is_multimem else f"ld{words}.{space}"
            self._add(f"{head}{vector}.{'u' if one.is_multimem else 'b'}{one.bits} {target}, {place}")
        elif one.opcode == "red":
            head = "multimem.red" if one.is_multimem else "red"
            self._add(f"{head}{words}.{space}.{one.operation}.{_kind(one)} {place}, {given[0]}")
        else:
            expected = ""
            if one.operation == "cas":
                expected = f"{self._loaded(self._narrow(number, one.expected, '7', one.bits), 7, one.bits)}, "
            self._add(f"atom{words}.{space}.{one.operation}.{_kind(one)} {targets[0]}, {place}, {expected}{given[0]}")
        for target, name in zip(targets, one.destinations, strict=True):
            register = self._register(number, name)
            self._add(f"cvt.u64.u32 {register}, {target}" if one.bits == 32 else f"mov.u64 {register}, {target}")
            self._keep(number, name, register)

    def _loaded(self, text: str, at: int, bits: int) -> str:
        """A literal in a register."""
        if text.startswith("%"):
            return text
        register = f"%t{at}" if bits == 32 else f"%w{at}"
        self._add(f"mov.b{bits} {register}, {text}")
        return register

    def _compute(self, number: int, one: Compute) -> None:
        target = self._register(number, one.destination)
        if one.operation == "mov":
            source = one.sources[0]
            self._add(f"mov.u64 {target}, {source if isinstance(source, int) else self._register(number, source)}")
        else:
            left, right = (self._narrow(number, source, str(at), 32) for at, source in enumerate(one.sources))
            words = {"add": "add.u32", "sub": "sub.u32", "mul": "mul.lo.u32"}
            self._add(f"{words.get(one.operation, f'{one.operation}.b32')} %i, {left}, {right}")
            self._add(f"cvt.u64.u32 {target}, %i")
        self._keep(number, one.destination, target)

    def _branch(self, number: int, one: Branch) -> None:
        label = f"T{number}_{one.label}"
        if not one.relation:
            self._add(f"bra {label}")
            return
        left, right = (
            self._register(number, operand) if isinstance(operand, str) else str(operand)
            for operand in (one.left, one.right)
        )
        self._add(f"setp.{_RELATIONS[one.relation]}.u64 %q, {self._loaded(left, 6, 64)}, {self._loaded(right, 7, 64)}")
        self._add(f"@%q bra {label}")


def _address(name: str) -> str:
    return f"at_{name}"


def _kind(one: Access) -> str:
    """The type of an atomic operation."""
    is_bits = one.operation in ("and", "or", "xor", "exch", "cas")
    return f"{'b' if is_bits else 'u'}{one.bits}"


def _manner(one: Access) -> str:
    """Order and scope as PTX writes them."""
    if "mmio" in one.text:
        return ".mmio.relaxed.sys"
    if "volatile" in one.text:
        return ".volatile"
    if one.order == "weak":
        return "" if one.opcode == "st" and not one.is_multimem else ".weak"
    return f".{one.order}.{one.scope}"
