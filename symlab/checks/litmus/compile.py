"""From a litmus program to one PTX kernel for all its threads, so that the simulated GPUs can run it.

Each thread of the program is a thread of the kernel, in the block, cluster and rank that the program says; all others
return at once. A label before each instruction makes it a step of its own, also where steps are whole basic blocks.
A thread stores what its registers hold in its rank's `seen` before each barrier, at which it may wait for ever, and at
its end. What bulk copies read is in the shared memory of the one block that uses it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from symlab.checks.litmus import program as nouns
from symlab.checks.litmus.unfold import barrier_names

ENTRY = "litmus"
LOCATION_BYTES = 32
SLOT_BYTES = 8
WARP = 32
NOTE = "  // "
"""Between a line of PTX and what it comes from: `T0: st.weak [x], 1`."""
_COPY_BYTES = 16
"""Bulk copies have multiples of this."""
_RELATIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class NotCompiled(ValueError):
    """A program has something that a kernel can't have; the message says what."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Symmetric memory of LOCATION_BYTES on each rank: its name, and what each rank's part begins with."""

    name: str
    initial: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Pointer:
    """A parameter that is an address: of a rank's part of a tensor, of its second address, or of a tensor's multicast
    address."""

    name: str
    kind: Literal["own", "alias", "multicast"]
    tensor: int
    rank: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel ENTRY of a program, and how to launch it: once on each rank, with grid blocks of block threads.

    Its parameters are the rank (u32), the address of the rank's `seen`, the addresses of `pointers`, and for each of
    `starts` threads the clock (ns) at which it begins (u64 each). locations: tensor and rank of each location, but for
    those in shared memory. slots: rank and byte of `seen` with a register, by thread and name ("r0!": whether it was
    written), and of whether the thread has ended ("").
    """

    ptx: str
    world_size: int
    grid: int
    block: int
    cluster: int
    tensors: tuple[Tensor, ...]
    pointers: tuple[Pointer, ...]
    starts: int
    locations: dict[str, tuple[int, int]]
    shared: tuple[str, ...]
    slots: dict[tuple[str, str], tuple[int, int]]

    @property
    def seen_bytes(self) -> int:
        """Size of a rank's `seen`."""
        return SLOT_BYTES * len(self.slots)


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a thread of the program runs: rank, block of the rank's grid, and thread of the block."""

    rank: int
    block: int
    thread: int


def kernel_of(program: nouns.Program, *, unit: Literal["lane", "warp"] = "lane", has_starts: bool = False) -> Kernel:
    """Return the kernel. Raises NotCompiled for a program that no kernel can be.

    unit: whether the threads of a block are lanes side by side, or each is the first lane of a warp of its own; it is
    that anyway where a barrier counts threads, since PTX counts them by warps. has_starts: each thread waits for a time
    of the clock, so that a caller chooses which one goes first without an access to memory.
    """
    stride = WARP if unit == "warp" or _has_counts(program) else 1
    spots, grid, cluster = _spots(program, stride)
    block = stride * max(Counter((one.rank, one.block) for one in spots).values())
    shared = _shared(program)
    tensors, locations = _tensors(program.memory, _multicasts(program), shared)
    world_size = max([one.rank + 1 for one in spots] + [len(one) for one in tensors])
    _check_multicasts(program, world_size)
    writer = _Writer(program, spots, shared, _slots(program, spots), has_starts)
    return Kernel(
        writer.text(),
        world_size,
        grid,
        block,
        cluster,
        tuple(
            Tensor("+".join(one), tuple(_initial(program.memory, one, rank) for rank in range(world_size)))
            for one in tensors
        ),
        tuple(_pointer(program, name, locations) for name in writer.names),
        len(spots) if has_starts else 0,
        locations,
        shared,
        writer.slots,
    )


# Where things are


def _has_counts(program: nouns.Program) -> bool:
    """Whether some barrier counts threads."""
    return any(isinstance(one, nouns.Barrier) and one.count is not None for one in _all_of(program))


def _own_barriers(program: nouns.Program, *, needs_begin: bool) -> tuple[int | None, int | None]:
    """The barriers before a thread's first instruction and after its last, where there is one: such as the program does
    not use. Raises NotCompiled if too few are left."""
    needs = [_has_counts(program), needs_begin]
    names = [one.name for one in _all_of(program) if isinstance(one, nouns.Barrier)]
    has_registers = any(isinstance(name, str) for name in names)
    used = set(barrier_names(program) if has_registers else names)
    free = [number for number in range(nouns.BARRIERS) if number not in used]
    if len(free) < sum(needs):
        raise NotCompiled(
            f"the program uses {nouns.BARRIERS - len(free)} barriers of {nouns.BARRIERS}, "
            f"and the kernel needs {sum(needs)} of its own"
        )
    finish, begin = (free.pop() if needed else None for needed in needs)
    return begin, finish


def _all_of(program: nouns.Program) -> list[nouns.Instruction]:
    return [one for thread in program.threads for one in thread.instructions]


def _spots(program: nouns.Program, stride: int) -> tuple[list[_Spot], int, int]:
    """Where threads run, how many blocks a rank has, and how many a cluster.

    Blocks without a cluster are in clusters of their own, which no other thread of the program is in.
    """
    places = list(dict.fromkeys(thread.place for thread in program.threads))
    units: dict[int, dict[object, list[nouns.Place]]] = defaultdict(dict)
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
    counts: Counter[nouns.Place] = Counter()
    spots = []
    for thread in program.threads:
        spots.append(_Spot(thread.place.rank, numbers[thread.place], stride * counts[thread.place]))
        counts[thread.place] += 1
    return spots, grid, size


def _multicasts(program: nouns.Program) -> list[str]:
    """The names that are multicast addresses: those of several locations, and what multimem alone accesses."""
    used: dict[str, set[bool]] = defaultdict(set)
    for one in _all_of(program):
        if isinstance(one, nouns.Access):
            used[one.address.name].add(one.is_multimem)
    return [name for name, parts in program.memory.aliases.items() if len(parts) > 1 or used[name] == {True}]


def _check_multicasts(program: nouns.Program, world_size: int) -> None:
    """Refuse to load what was stored on ranks that have no location of it."""
    for name in _multicasts(program):
        count = len(program.memory.locations(name))
        used = {one.opcode for one in _all_of(program) if isinstance(one, nouns.Access) and one.address.name == name}
        if count < world_size and "ld" in used and len(used) > 1:
            raise NotCompiled(f"{name} stands for {count} locations; it takes one on each of {world_size} ranks")


def _shared(program: nouns.Program) -> tuple[str, ...]:
    """Locations that bulk copies read: they lie in the shared memory of the one block that uses them."""
    memory = program.memory
    copies = [one for one in _all_of(program) if isinstance(one, nouns.BulkCopy)]
    for one in copies:
        if one.source.word or one.destination.word or one.source.name in memory.aliases:
            raise NotCompiled(f"{one.text}: a kernel copies from the start of a location to the start of one")
        target = memory.locations(one.destination.name)
        used = [at for other in _all_of(program) for at in _addresses(other) if target == memory.locations(at.name)]
        if any(one.words <= at.word < _copied_bytes(one) // 4 for at in used):
            raise NotCompiled(f"{one.text}: a kernel copies multiples of 16 bytes, and the others here are used")
    sources = tuple(dict.fromkeys(one.source.name for one in copies))
    for name in sources:
        if len({(one.place.rank, one.place.block) for one in program.threads if name in _names_in(one)}) > 1:
            raise NotCompiled(f"a bulk copy reads {name}, which several blocks use: it would lie in shared memory")
        if any(name in memory.locations(one.destination.name) for one in copies):
            raise NotCompiled(f"bulk copies read and write {name}")
        if any(name in parts for parts in memory.aliases.values()):
            raise NotCompiled(f"a bulk copy reads {name}, which has a second address: shared memory has none")
    return sources


def _copied_bytes(one: nouns.BulkCopy) -> int:
    return -(-4 * one.words // _COPY_BYTES) * _COPY_BYTES


def _addresses(one: nouns.Instruction) -> tuple[nouns.Address, ...]:
    if isinstance(one, nouns.Access):
        return (one.address,)
    return (one.source, one.destination) if isinstance(one, nouns.BulkCopy) else ()


def _names_in(thread: nouns.Thread) -> set[str]:
    return {at.name for one in thread.instructions for at in _addresses(one)}


def _tensors(
    memory: nouns.Memory, multicasts: Sequence[str], shared: tuple[str, ...]
) -> tuple[list[tuple[str, ...]], dict[str, tuple[int, int]]]:
    """The locations of each tensor, by rank, and the tensor and rank of each location."""
    groups: list[tuple[str, ...]] = []
    for name in multicasts:
        parts = memory.locations(name)
        if any(part in group for group in groups for part in parts):
            raise NotCompiled(f"{name} shares locations with another multicast address")
        groups.append(parts)
    grouped = {part for group in groups for part in group}
    groups += [(name,) for name in memory.initial if name not in grouped and name not in shared]
    return groups, {name: (at, rank) for at, group in enumerate(groups) for rank, name in enumerate(group)}


def _initial(memory: nouns.Memory, locations: tuple[str, ...], rank: int) -> bytes:
    words = memory.initial[locations[rank]] if rank < len(locations) else ()
    return b"".join(word.to_bytes(4, "little") for word in words).ljust(LOCATION_BYTES, b"\0")


def _pointer(program: nouns.Program, name: str, locations: dict[str, tuple[int, int]]) -> Pointer:
    if name in program.memory.initial:
        return Pointer(name, "own", *locations[name])
    tensor, rank = locations[program.memory.locations(name)[0]]
    return (
        Pointer(name, "multicast", tensor, 0) if name in _multicasts(program) else Pointer(name, "alias", tensor, rank)
    )


def _slots(program: nouns.Program, spots: list[_Spot]) -> dict[tuple[str, str], tuple[int, int]]:
    slots: dict[tuple[str, str], tuple[int, int]] = {}
    for thread, spot in zip(program.threads, spots, strict=True):
        registers = _registers(thread)
        for name in ("", *registers, *(f"{one}!" for one in registers)):
            slots[thread.name, name] = (spot.rank, SLOT_BYTES * len(slots))
    return slots


def _registers(thread: nouns.Thread) -> tuple[str, ...]:
    """All registers of a thread, each once, in the order in which it names them."""
    found: list[nouns.Operand] = []
    for one in thread.instructions:
        if isinstance(one, nouns.Access):
            found += [*one.destinations, *one.sources, one.expected]
        elif isinstance(one, nouns.Compute):
            found += [one.destination, *one.sources]
        elif isinstance(one, nouns.Branch):
            found += [one.left, one.right]
        elif isinstance(one, nouns.Barrier):
            found.append(one.name)
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))


# The text


class _Writer:
    """Writes the text of a kernel. names: of its parameters that are addresses."""

    def __init__(
        self,
        program: nouns.Program,
        spots: list[_Spot],
        shared: tuple[str, ...],
        slots: dict[tuple[str, str], tuple[int, int]],
        has_starts: bool,
    ) -> None:
        self.program, self.spots, self.shared, self.slots, self.has_starts = program, spots, shared, slots, has_starts
        self.names = [name for name in (*program.memory.initial, *program.memory.aliases) if name not in shared]
        self.has_counts = _has_counts(program)
        self.begin, self.finish = _own_barriers(program, needs_begin=self.has_counts or bool(shared))
        self.lines: list[str] = []
        self.labels = 0
        self.note = ""

    def text(self) -> str:
        """Return the module."""
        starts = [f"u64 start{number}" for number in range(len(self.spots)) if self.has_starts]
        parameters = ["u32 rank", "u64 seen", *(f"u64 {_at(name)}" for name in self.names), *starts]
        head = ", ".join(f".param .{one.split()[0]} {ENTRY}_{one.split()[1]}" for one in parameters)
        # the first version with fence.acquire and fence.release
        self.lines = [".version 8.6", ".target sm_90a", ".address_size 64", f".visible .entry {ENTRY}({head})", "{"]
        self._declare(parameters)
        for number, spot in enumerate(self.spots):
            self._add(f"setp.eq.u32 %q, %rank, {spot.rank}")
            for register, value in (("%ctaid.x", spot.block), ("%tid.x", spot.thread)):
                self._add(f"mov.u32 %i, {register}")
                self._add(f"setp.eq.and.u32 %q, %i, {value}, %q")
            self._add(f"@%q bra HEAD{number}")
        self._add("ret")
        for number, thread in enumerate(self.program.threads):
            self._body(number, thread)
        # behind all bodies, so that a thread that has begun comes before those that have not
        for number, thread in enumerate(self.program.threads):
            self._head(number, thread)
        return "\n".join([*self.lines, "}"]) + "\n"

    def _add(self, line: str) -> None:
        self.lines.append(f"  {line};{self.note}")

    def _label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def _declare(self, parameters: list[str]) -> None:
        self._add(".reg .pred %q")
        self._add(".reg .b32 %i, %rank, %t<8>")
        self._add(".reg .b64 %seen, %now, %w<8>")
        for name in self.shared:
            self._add(f".shared .align 16 .b8 {_at(name)}[{LOCATION_BYTES}]")
        for number, thread in enumerate(self.program.threads):
            for name in _registers(thread):
                self._add(f".reg .b64 {_register(number, name)}, {_written(number, name)}")
        for one in parameters:
            kind, name = one.split()
            if name not in ("rank", "seen"):
                self._add(f".reg .b64 %{name}")
            self._add(f"ld.param.{kind} %{name}, [{ENTRY}_{name}]")

    def _head(self, number: int, thread: nouns.Thread) -> None:
        """What comes before a thread's first instruction: registers, shared memory, and the time at which it begins."""
        self._label(f"HEAD{number}")
        for name in _registers(thread):
            self._add(f"mov.u64 {_register(number, name)}, 0")
            self._add(f"mov.u64 {_written(number, name)}, 0")
        mine = [name for name in self.shared if self._first_user(name) == number]
        for name in mine:
            for word, value in enumerate(self.program.memory.initial[name]):
                self._add(f"st.shared.u32 [{_at(name)}+{4 * word}], {value}")
        if mine:
            self._add("fence.proxy.async")
        if self.begin is not None:  # until other threads have returned, and shared memory is as it begins
            self._add(f"barrier.sync {self.begin}")
        if self.has_starts:
            self._label(f"WAIT{number}")
            self._add("mov.u64 %now, %globaltimer")
            self._add(f"setp.lt.u64 %q, %now, %start{number}")
            self._add(f"@%q bra WAIT{number}")
        self._add(f"bra BODY{number}")

    def _first_user(self, name: str) -> int:
        return next(number for number, thread in enumerate(self.program.threads) if name in _names_in(thread))

    def _body(self, number: int, thread: nouns.Thread) -> None:
        self._label(f"BODY{number}")
        for one in thread.instructions:
            if isinstance(one, nouns.Barrier):
                self._keep(number)
            self.labels += 1
            self._label(f"CUT{self.labels}")
            self.note = f"{NOTE}{thread.name}: {one.text}"
            self._instruction(number, one)
            self.note = ""
        if any(isinstance(one, nouns.BulkCopy) for one in thread.instructions):  # a block may not end before its copies
            self._add("cp.async.bulk.commit_group")
            self._add("cp.async.bulk.wait_group 0")
        self._keep(number)
        self._add("mov.u64 %w0, 1")
        self._store(number, "", "%w0")
        if self.finish is not None:  # a thread that has returned would count as one that has come
            self._add(f"barrier.sync {self.finish}")
        self._add("ret")

    def _keep(self, number: int) -> None:
        """Store what the registers of a thread hold."""
        for name in _registers(self.program.threads[number]):
            self._store(number, name, _register(number, name))
            self._store(number, f"{name}!", _written(number, name))

    def _store(self, number: int, name: str, register: str) -> None:
        _, place = self.slots[self.program.threads[number].name, name]
        self._add(f"st.global.u64 [%seen+{place}], {register}")

    def _instruction(self, number: int, one: nouns.Instruction) -> None:
        match one:
            case nouns.Access():
                self._access(number, one)
            case nouns.Fence():
                self._add(f"fence.{one.order}.{one.scope}")
            case nouns.ProxyFence():
                self._add(f"fence.proxy.{one.proxy}")
            case nouns.Barrier():
                name = self._given(number, one.name, 0, 32)
                self._add(f"barrier.{one.kind} {name}" + (f", {WARP * one.count}" if one.count else ""))
            case nouns.BulkCopy():
                where = f"[{self._place(one.destination)}], [{self._place(one.source)}], {_copied_bytes(one)}"
                self._add(f"cp.async.bulk.global.shared::cta.bulk_group {where}")
            case nouns.CommitGroup():
                self._add("cp.async.bulk.commit_group")
            case nouns.WaitGroup():
                self._add(f"cp.async.bulk.wait_group{'.read' if one.is_read else ''} {one.pending}")
            case nouns.Compute():
                self._compute(number, one)
            case nouns.Branch():
                self._branch(number, one)
            case nouns.Label():
                self._label(f"T{number}_{one.name}")

    def _place(self, address: nouns.Address) -> str:
        offset = f"+{4 * address.word}" if address.word else ""
        return f"{'' if address.name in self.shared else '%'}{_at(address.name)}{offset}"

    def _given(self, number: int, operand: nouns.Operand, at: int, bits: int) -> str:
        """An operand in a register of its width: of the temporary ones the one numbered `at`, if it takes one."""
        if isinstance(operand, str) and bits == 64:
            return _register(number, operand)
        target = f"%t{at}" if bits == 32 else f"%w{at}"
        if isinstance(operand, str):
            self._add(f"cvt.u32.u64 {target}, {_register(number, operand)}")
        else:
            self._add(f"mov.b{bits} {target}, {operand}")
        return target

    def _wrote(self, number: int, name: str, register: str, bits: int) -> None:
        """Give a register of the program its value."""
        self._add(f"{'cvt.u64.u32' if bits == 32 else 'mov.u64'} {_register(number, name)}, {register}")
        self._add(f"mov.u64 {_written(number, name)}, 1")

    def _access(self, number: int, one: nouns.Access) -> None:
        given = [self._given(number, source, at, one.bits) for at, source in enumerate(one.sources)]
        if one.operation == "cas":
            given.insert(0, self._given(number, one.expected, 7, one.bits))
        targets = [f"%{'t' if one.bits == 32 else 'w'}{at}" for at in range(len(one.destinations))]
        place = f"[{self._place(one.address)}]"
        opcode = f"multimem.{'ld_reduce' if one.opcode == 'ld' else one.opcode}" if one.is_multimem else one.opcode
        space = "shared" if one.address.name in self.shared else "global"
        operation = ".add" if opcode == "multimem.ld_reduce" else f".{one.operation}" if one.operation else ""
        count = max(len(targets), len(given)) if one.opcode in ("ld", "st") else 1
        vector = f".v{count}" if count > 1 else ""
        head = f"{opcode}{_manner(one)}.{space}{operation}{vector}.{_kind(one)}{one.bits}"
        if one.opcode in ("atom", "red"):
            parts = [*targets, place, *given]
        elif one.opcode == "ld":
            parts = [_braced(targets), place]
        else:
            parts = [place, _braced(given)]
        self._add(f"{head} {', '.join(parts)}")
        for target, name in zip(targets, one.destinations, strict=True):
            self._wrote(number, name, target, one.bits)

    def _compute(self, number: int, one: nouns.Compute) -> None:
        bits = 64 if one.operation == "mov" else 32
        given = [self._given(number, source, at, bits) for at, source in enumerate(one.sources)]
        if one.operation == "mov":
            self._wrote(number, one.destination, given[0], 64)
            return
        words = {"add": "add.u32", "sub": "sub.u32", "mul": "mul.lo.u32"}
        self._add(f"{words.get(one.operation, f'{one.operation}.b32')} %i, {', '.join(given)}")
        self._wrote(number, one.destination, "%i", 32)

    def _branch(self, number: int, one: nouns.Branch) -> None:
        label = f"T{number}_{one.label}"
        if not one.relation:
            self._add(f"bra {label}")
            return
        left, right = (self._given(number, operand, at, 64) for at, operand in enumerate((one.left, one.right)))
        self._add(f"setp.{_RELATIONS[one.relation]}.u64 %q, {left}, {right}")
        self._add(f"@%q bra {label}")


def _at(name: str) -> str:
    return f"at_{name}"


def _register(number: int, name: str) -> str:
    return f"%T{number}_{name}"


def _written(number: int, name: str) -> str:
    """The register that says whether another one was written."""
    return f"%W{number}_{name}"


def _braced(registers: list[str]) -> str:
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


def _kind(one: nouns.Access) -> str:
    """The type of an access: unsigned for what counts, and for multimem."""
    return "u" if one.is_multimem or one.operation in ("add", "min", "max") else "b"


def _manner(one: nouns.Access) -> str:
    """Order and scope as PTX writes them."""
    if "mmio" in one.text:
        return ".mmio.relaxed.sys"
    if "volatile" in one.text:
        return ".volatile"
    return ".weak" if one.order == "weak" else f".{one.order}.{one.scope}"
