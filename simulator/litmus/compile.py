"""From a litmus program to a PTX kernel, so that the simulated GPUs can run it.

All threads are in one kernel. Each is alone in its warp, since the threads of a barrier with a number of threads count
by warps. A thread begins when the clock has reached its parameter `start`, so that a caller chooses which thread goes
first without an access to memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

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
WARP = 32
NOTE = "  // "
"""Between a line of PTX and what it comes from: `T0: st.weak [x], 1`."""
_RELATIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class NotCompiled(ValueError):
    """The program has something that a kernel of the simulator can't have; the message says what."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A litmus program as a kernel for `ranks` GPUs.

    Its parameters: the address of each rank's memory, of its multicast, of the results of this rank, the rank, and for
    each thread the clock (ns) at which it begins. memory: by location, the rank and the byte where it lies; size_bytes:
    of one rank's memory. blocks: of a grid; cluster: blocks of a cluster; threads: of a block. registers: a thread's
    number and register for each 8 bytes of the results.
    """

    ptx: str
    ranks: int
    blocks: int
    cluster: int
    threads: int
    size_bytes: int
    memory: dict[str, tuple[int, int]]
    has_multicast: bool
    registers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a thread runs in the launch."""

    rank: int
    block: int
    thread: int


def kernels_of(program: Program) -> Kernel:
    """Return the kernel of a program. Raises NotCompiled for a second address of a location that is not multicast, and
    for bulk copies, which can't go from global to global memory."""
    ranks = max(thread.place.rank for thread in program.threads) + 1
    memory, multicasts = _laid_out(program, ranks)
    spots, blocks, cluster = _spots(program)
    registers = tuple((number, name) for number, thread in enumerate(program.threads) for name in _registers(thread))
    threads = WARP * (max(spot.thread for spot in spots) // WARP + 1)
    writer = _Writer(ranks, memory, multicasts, registers)
    size = LOCATION_BYTES * max(len(program.memory.initial), 1)
    ptx = writer.module(program, spots)
    return Kernel(ptx, ranks, blocks, cluster, threads, size, memory, bool(multicasts), registers)


def _laid_out(program: Program, ranks: int) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Rank and byte of each location, and the byte of each multicast address."""
    memory: dict[str, tuple[int, int]] = {}
    multicasts: dict[str, int] = {}
    for name, locations in program.memory.aliases.items():
        if len(locations) < 2:
            raise NotCompiled(f"{name} is a second address of {locations[0]}; a rank has one address of each location")
        if len(locations) != ranks or any(one in memory for one in locations):
            raise NotCompiled(f"{name} stands for {len(locations)} locations; it takes one on each of {ranks} ranks")
        offset = len(multicasts) * LOCATION_BYTES
        multicasts[name] = offset
        memory |= {one: (rank, offset) for rank, one in enumerate(locations)}
    offset = len(multicasts) * LOCATION_BYTES
    for name in program.memory.initial:
        if name not in memory:
            memory[name] = (0, offset)
            offset += LOCATION_BYTES
    return memory, multicasts


def _spots(program: Program) -> tuple[list[_Spot], int, int]:
    """Where each thread runs; the number of blocks of a grid, and of a cluster."""
    places = [thread.place for thread in program.threads]
    groups: dict[tuple[int, object], list[int]] = {}
    for place in places:
        group = groups.setdefault((place.rank, _cluster_of(place)), [])
        if place.block not in group:
            group.append(place.block)
    cluster = max(len(group) for group in groups.values())
    numbers: dict[tuple[int, object], int] = {}
    for key in groups:
        numbers[key] = sum(1 for other in numbers if other[0] == key[0])
    used: dict[tuple[int, int], int] = {}
    spots = []
    for place in places:
        key = (place.rank, _cluster_of(place))
        block = numbers[key] * cluster + groups[key].index(place.block)
        warp = used.get((place.rank, block), 0)
        used[place.rank, block] = warp + 1
        spots.append(_Spot(place.rank, block, warp * WARP))
    return spots, cluster * (max(numbers.values()) + 1), cluster


def _cluster_of(place: Place) -> object:
    return ("block", place.block) if place.cluster is None else place.cluster


def _registers(thread: Thread) -> list[str]:
    """The registers of a thread, in the order in which it names them."""
    found = dict.fromkeys(name for name, _ in thread.registers)
    for one in thread.instructions:
        if isinstance(one, Access):
            found |= dict.fromkeys((*one.destinations, *(s for s in one.sources if isinstance(s, str))))
            if isinstance(one.expected, str):
                found[one.expected] = None
        elif isinstance(one, Compute):
            found |= dict.fromkeys((one.destination, *(s for s in one.sources if isinstance(s, str))))
        elif isinstance(one, Branch):
            found |= dict.fromkeys(s for s in (one.left, one.right) if isinstance(s, str))
        elif isinstance(one, Barrier) and isinstance(one.name, str):
            found[one.name] = None
    found.pop("_", None)
    return list(found)


@dataclass(slots=True)
class _Writer:
    """Writes the module. names: of temporary registers, counted."""

    ranks: int
    memory: dict[str, tuple[int, int]]
    multicasts: dict[str, int]
    registers: tuple[tuple[int, str], ...]
    temporaries: int = 0

    def module(self, program: Program, spots: list[_Spot]) -> str:
        parameters = [f"u64 memory{rank}" for rank in range(self.ranks)]
        parameters += ["u64 multicast", "u64 results", "u32 rank"]
        parameters += [f"u64 start{number}" for number in range(len(spots))]
        code, heads, tails = [], [], []
        for number, (thread, spot) in enumerate(zip(program.threads, spots, strict=True)):
            heads += [
                f"setp.eq.u32 %p0, %rank, {spot.rank};",
                f"setp.eq.and.u32 %p0, %ctaid.x, {spot.block}, %p0;",
                f"setp.eq.and.u32 %p0, %thread, {spot.thread}, %p0;",
                f"@%p0 bra WAIT{number};",
            ]
            code += [f"BODY{number}:", *self._thread(number, thread)]
            # behind all bodies, so that a thread that has begun comes before those that have not
            tails += [
                f"WAIT{number}: mov.u64 %now, %globaltimer;",
                f"setp.lt.u64 %p0, %now, %start{number};",
                f"@%p0 bra WAIT{number};",
                f"bra BODY{number};",
            ]
        declared = [f".reg .b64 %{self._register(number, name)};" for number, name in self.registers]
        declared += [f".reg .b64 %t<{self.temporaries + 1}>;", f".reg .b32 %u<{self.temporaries + 1}>;"]
        declared += [".reg .pred %p<2>;", ".reg .b64 %now;", ".reg .b32 %thread;"]
        heads = ["mov.u32 %thread, %tid.x;", "mov.u32 %block, %ctaid.x;", *heads, "ret;"]
        heads = [line.replace("%ctaid.x, ", "%block, ") if "setp" in line else line for line in heads]
        declared.append(".reg .b32 %block;")
        loads = []
        for one in parameters:
            kind, name = one.split()
            declared.append(f".reg .b{kind[1:]} %{name};")
            loads.append(f"ld.param.{kind} %{name}, [{name}];")
        listed = ", ".join(f".param .{one}" for one in parameters)
        lines = [*declared, *loads, *heads, *code, *tails]
        head = f".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry litmus({listed})"
        return f"{head}\n{{\n  " + "\n  ".join(lines) + "\n}\n"

    def _register(self, number: int, name: str) -> str:
        return f"v{number}_{name}"

    def _temporary(self) -> int:
        self.temporaries += 1
        return self.temporaries - 1

    def _thread(self, number: int, thread: Thread) -> list[str]:
        lines = [f"mov.b64 %{self._register(number, name)}, {dict(thread.registers).get(name, 0)};"
                 for name in _registers(thread)]  # fmt: skip
        for one in thread.instructions:
            lines += [f"{line}{NOTE}{thread.name}: {one.text}" for line in self._instruction(number, one)]
        for place, (owner, name) in enumerate(self.registers):
            if owner == number:
                lines.append(f"st.global.b64 [%results+{8 * place}], %{self._register(number, name)};")
        return [*lines, "ret;"]

    def _instruction(self, number: int, one: Instruction) -> list[str]:
        match one:
            case Access():
                return self._access(number, one)
            case Fence():
                return [f"fence.{one.order}.{one.scope};"]
            case ProxyFence():
                return [f"fence.proxy.{one.proxy};"]
            case Barrier():
                name = one.name if isinstance(one.name, int) else None
                if name is None:
                    raise NotCompiled("the name of a barrier is in a register")
                count = "" if not one.count else f", {WARP * one.count}"
                return [f"bar.{one.kind} {name}{count};"]
            case Compute():
                return self._compute(number, one)
            case Branch():
                return self._branch(number, one)
            case Label():
                return [f"L{number}_{one.name}:"]
            case BulkCopy() | CommitGroup() | WaitGroup():
                raise NotCompiled("a bulk copy between two places of global memory")
            case _:
                assert_never(one)

    def _value(self, number: int, operand: Operand) -> str:
        return f"%{self._register(number, operand)}" if isinstance(operand, str) else str(operand)

    def _address(self, address: Address) -> str:
        if address.name in self.multicasts:
            return f"[%multicast+{self.multicasts[address.name] + 4 * address.word}]"
        rank, offset = self.memory[address.name]
        return f"[%memory{rank}+{offset + 4 * address.word}]"

    def _word(self, number: int, operand: Operand, bits: int) -> tuple[list[str], str]:
        """A value in a register of its width."""
        at = self._temporary()
        lines = [f"mov.b64 %t{at}, {self._value(number, operand)};"]
        if bits == 64:
            return lines, f"%t{at}"
        return [*lines, f"cvt.u32.u64 %u{at}, %t{at};"], f"%u{at}"

    def _access(self, number: int, one: Access) -> list[str]:
        before, given = [], []
        operands = [*([one.expected] if one.operation == "cas" else []), *one.sources]
        for operand in operands:
            lines, register = self._word(number, operand, one.bits)
            before += lines
            given.append(register)
        targets, after = [], []
        for name in one.destinations:
            at = self._temporary()
            targets.append(f"%t{at}" if one.bits == 64 else f"%u{at}")
            if name != "_":
                move = f"mov.b64 %{self._register(number, name)}, %t{at};"
                after.append(move if one.bits == 64 else f"cvt.u64.u32 %{self._register(number, name)}, %u{at};")
        vector = f".v{len(one.sources)}" if one.opcode == "st" and len(one.sources) > 1 else ""
        vector = f".v{len(one.destinations)}" if one.opcode == "ld" and len(one.destinations) > 1 else vector
        order = f".{one.order}" + (f".{one.scope}" if one.scope else "")
        is_counted = one.operation in ("add", "min", "max") or one.is_multimem
        kind = f".{'u' if is_counted and one.opcode != 'st' else 'b'}{one.bits}"
        operation = f".{one.operation}" if one.operation else ""
        opcode: str = one.opcode
        if one.is_multimem:
            opcode = "multimem." + ("ld_reduce" if one.opcode == "ld" else one.opcode)
        name = f"{opcode}{order}.global{operation}{vector}{kind}"
        into = _braced(targets) if len(targets) > 1 else "".join(targets)
        if one.opcode in ("atom", "red"):
            parts = [*([into or "_"] if one.opcode == "atom" else []), self._address(one.address), *given]
        elif one.opcode == "ld":
            parts = [into, self._address(one.address)]
        else:
            parts = [self._address(one.address), _braced(given) if len(given) > 1 else given[0]]
        return [*before, f"{name} {', '.join(parts)};", *after]

    def _compute(self, number: int, one: Compute) -> list[str]:
        lines, given = [], []
        for operand in one.sources:
            more, register = self._word(number, operand, 32)
            lines += more
            given.append(register)
        at = self._temporary()
        kind = {"mov": "mov.b32", "mul": "mul.lo.u32"}.get(
            one.operation, f"{one.operation}.{'u' if one.operation in ('add', 'sub') else 'b'}32"
        )
        lines.append(f"{kind} %u{at}, {', '.join(given)};")
        return [*lines, f"cvt.u64.u32 %{self._register(number, one.destination)}, %u{at};"]

    def _branch(self, number: int, one: Branch) -> list[str]:
        if not one.relation:
            return [f"bra L{number}_{one.label};"]
        left, first = self._word(number, one.left, 64)
        right, second = self._word(number, one.right, 64)
        test = f"setp.{_RELATIONS[one.relation]}.u64 %p1, {first}, {second};"
        return [*left, *right, test, f"@%p1 bra L{number}_{one.label};"]


def _braced(registers: list[str]) -> str:
    return "{" + ", ".join(registers) + "}"
