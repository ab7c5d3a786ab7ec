"""A parsed kernel made ready to run: slots for registers, functions for instructions, what each block reads and writes.

Registers that live across basic blocks are kept in arrays over all lanes. The others exist only while a chunk of
lanes runs through their block: they share a few scratch arrays that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from simulator.isa import find, key_of
from simulator.isa.architectures import lacks
from simulator.isa.memory import element_type
from simulator.isa.operands import refusal, symbols_of, width_of, wrong_special
from simulator.isa.registry import DTYPES, LaneFrame, Lanes, Run, UnknownInstruction
from simulator.memory.space import LaneFault
from simulator.ptx.cut import cut_at_accesses, is_access
from simulator.ptx.dataflow import (
    ALIGNED,
    BLOCK_ENDS,
    COLLECTIVES,
    OF_WARPGROUPS,
    fragments_of,
    homes_of,
    live_in,
    reads_clock,
    reads_memory,
    registers_of,
    seen_as_bits,
    sources_of,
    targets_of,
    writes_memory,
)
from simulator.ptx.ir import (
    Address,
    Block,
    Function,
    Group,
    Immediate,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Prototype,
    Register,
    Symbol,
    Unsupported,
)
from simulator.ptx.parse import entries_of, parse_kernel
from simulator.run.calls import CallSite, Place, address_of

if TYPE_CHECKING:
    from memory.fabric import Launch
    from simulator.run.together import Common

WHOLE = 255
"""More accesses than a basic block is run for at once: to its end."""

CHUNK_LANES = 16384
"""Lanes run together at most: few enough for the cache, enough to make a dispatch cheap (tests/benchmarks)."""

_CLASS_DTYPE = {"pred": "?", "b8": "u1", "b16": "u2", "b32": "u4", "b64": "u8"}
SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ctaid", "clusterid", "cluster_ctaid") for axis in "xyz"}
SPECIAL |= {"%laneid", "%warpid", "%smid", "%cluster_ctarank", "%gridid", "%envreg1", "%envreg2"}
SPECIAL |= {f"%lanemask_{word}" for word in ("eq", "lt", "le", "gt", "ge")}
_UNIFORM = {f"%{name}.{axis}" for name in ("ntid", "nctaid", "nclusterid", "cluster_nctaid") for axis in "xyz"}
_UNIFORM |= {"%nwarpid", "%nsmid", "%dynamic_smem_size", "%cluster_nctarank", "%is_explicit_cluster"}
_ODD_SPECIALS = {"%gridid": "u8", "%is_explicit_cluster": "?"}
"""Special registers that do not have 32 bits."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a block ends.

    kind: "jump" (to taken), "branch" (by predicate slot), "barrier" or "wait" (for copies; then taken), "return" (where
    the predicate holds), "call" (site), "leave" (a function), "table" (to the block that slot names). Lanes for which a
    predicate does not hold go on at fallthrough. unit: whose lanes meet at a barrier, "block" or "warp".

    "collective": lanes of a warp meet by the mask in slot and run together; "warpgroup": those of a
    warpgroup; "numbered": threads of a block meet at the
    barrier whose number is in slot, count_slot of them (-1: all), and run together if there is something to run; who
    only arrives goes on at once (waits). "cluster": threads arrive at the barrier of their cluster, or wait there
    (waits). reads and writes: the slots that run uses.

    Lanes meet at all places of the same key, with the same mask or barrier. If they came from more than one place,
    common runs in place of run; sources: slots of what lanes bring, and whether it is negated; results: slots where
    the results go, -1 where nothing takes them.
    """

    kind: str
    taken: int = -1
    fallthrough: int = -1
    predicate: int = -1
    negated: bool = False
    instruction: Instruction | None = None
    unit: str = ""
    site: CallSite | None = None
    slot: int = -1
    table: tuple[int, ...] = ()
    run: Run | None = None
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    count_slot: int = -1
    waits: bool = True
    key: str = ""
    sources: tuple[tuple[int, bool], ...] = ()
    results: tuple[int, ...] = ()
    common: Common | None = None

    @property
    def ways(self) -> list[int]:
        """The blocks that lanes may go on to; of a call, where it goes on afterwards."""
        ends = self.kind in ("return", "leave")
        ways = (-1 if ends else self.taken, self.fallthrough if self.predicate >= 0 else -1, *self.table)
        return [one for one in ways if one >= 0]


@dataclass(frozen=True, slots=True, eq=False)
class BlockStep:
    """A basic block ready to run: functions in order, and its registers by where they live."""

    index: int
    runs: tuple[Run, ...]
    count: int
    exit: Exit
    kept_reads: tuple[int, ...]
    kept_writes: tuple[int, ...]
    local: tuple[tuple[int, str, int], ...]  # slot, dtype, scratch number
    instructions: tuple[Instruction, ...]
    reads_memory: bool
    writes_memory: bool
    reads_clock: bool
    accesses: int = 0
    stores: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A decoded kernel.

    slots: how many; kept: dtype of each slot kept over all lanes; specials: slots of special registers. further: of a
    kernel in pieces, the next piece of each piece's block, -1 where there is none; empty of one in blocks. fragments:
    slots of the registers that wgmma takes or gives, with their names. torn: by the
    piece of a vector access, the one that runs its first part. kept_names: slots of kept, by the names of their
    registers. joined: pieces run as one, made as they are needed. has_tensor_memory: whether it has a tcgen05.
    """

    kernel: Kernel
    slots: int
    kept: dict[int, str]
    specials: dict[int, str]
    constants: tuple[tuple[int, Lanes], ...]
    steps: tuple[BlockStep, ...]
    spin_headers: dict[int, tuple[int, ...]]  # a block that a loop without stores returns to: the slots live there
    voting_spins: frozenset[int]  # those of them whose loop has votes: a warp sleeps as a whole or not at all
    sites: tuple[CallSite, ...]
    parameter_slots: dict[str, int]
    unsupported: tuple[Unsupported, ...]
    further: tuple[int, ...] = ()
    fragments: dict[int, str] = field(default_factory=dict)
    torn: dict[int, int] = field(default_factory=dict)
    kept_names: dict[str, int] = field(default_factory=dict)
    joined: dict[tuple[int, int, int], BlockStep] = field(default_factory=dict)
    has_tensor_memory: bool = False

    def vector_bytes(self, index: int) -> int:
        """Return the bytes of the vector access that a piece is."""
        return max(vector_bytes(one) for one in self.steps[index].instructions)

    def reach(self, index: int, accesses: int, tears: int = 0) -> BlockStep:
        """Return the step that begins at a piece and goes on, within its block, for that number of accesses and what
        needs no memory after them. tears: the least bytes of a vector access that is torn: of the first one among them
        the first part alone runs; 0: all are whole."""
        if not self.further:
            return self.steps[index]
        key = (index, accesses, tears)
        if key not in self.joined:
            chain, seen = [self.steps[index]], self.steps[index].accesses
            while (following := self.further[chain[-1].index]) >= 0:
                seen += self.steps[following].accesses
                if seen > max(accesses, 1):
                    break
                if tears and following in self.torn and self.vector_bytes(following) >= tears:
                    chain.append(self.steps[self.torn[following]])
                    break
                chain.append(self.steps[following])
            if tears and index in self.torn and self.vector_bytes(index) >= tears:
                chain = [self.steps[self.torn[index]]]
            self.joined[key] = _joined(chain)
        return self.joined[key]


def vector_bytes(instruction: Instruction) -> int:
    """Return the bytes of a vector access by one lane; 0 for other instructions."""
    count = instruction.elements
    return count * np.dtype(DTYPES[element_type(instruction)]).itemsize if count > 1 else 0


def _joined(chain: list[BlockStep]) -> BlockStep:
    """Pieces of one block, which run one after another, as one step."""
    if len(chain) == 1:
        return chain[0]
    return BlockStep(
        index=chain[0].index,
        runs=tuple(run for one in chain for run in one.runs),
        count=sum(one.count for one in chain),
        exit=chain[-1].exit,
        kept_reads=tuple(sorted({slot for one in chain for slot in one.kept_reads})),
        kept_writes=tuple(sorted({slot for one in chain for slot in one.kept_writes})),
        local=tuple(local for one in chain for local in one.local),
        instructions=tuple(instruction for one in chain for instruction in one.instructions),
        reads_memory=any(one.reads_memory for one in chain),
        writes_memory=any(one.writes_memory for one in chain),
        reads_clock=any(one.reads_clock for one in chain),
        accesses=sum(one.accesses for one in chain),
        stores=any(one.stores for one in chain),
    )


def decode(ptx: str, entry: str, is_by_block: bool = True) -> Program:
    """Return the kernel ready to run. What it can't run faults when a thread gets there (Program.unsupported lists it).

    is_by_block: False for one that can stop between any two accesses to memory. Raises PtxSyntaxError naming the PTX
    line.
    """
    return _decoded(ptx, entry, is_by_block)  # lru_cache tells an argument that is left out from its default


@lru_cache(maxsize=128)
def _decoded(ptx: str, entry: str, is_by_block: bool) -> Program:
    kernel = parse_kernel(ptx, entry)
    return _Decoder(kernel if is_by_block else cut_at_accesses(kernel)).program()


def shared_bytes_of(kernel: Kernel, launch: Launch) -> int:
    """Return the bytes of shared memory that a block has: the kernel's own, and behind them the launch's."""
    return kernel.dynamic_offset_bytes + launch.shared_bytes if launch.shared_bytes else kernel.shared_bytes


def unsupported_forms(ptx: str) -> tuple[Unsupported, ...]:
    """Return all forms of all kernels of a module, and of the functions that they may call, that the simulator does not
    have, by line. Raises PtxSyntaxError for text that has no structure."""
    found = {one for entry in entries_of(ptx) for one in decode(ptx, entry).unsupported}
    return tuple(sorted(found, key=lambda one: (one.line, one.text)))


class _Decoder:
    """Gives slots; is the Binder that builders ask."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.target = kernel.target
        self.slot_of: dict[str, int] = {}
        self.dtype_of: dict[int, str] = {}
        self.constants: list[tuple[int, Lanes]] = []
        self.constant_of: dict[tuple[int, str], int] = {}
        self.count = 0
        self.instruction: Instruction | None = None
        self.seen_as_bits = seen_as_bits(kernel)
        self.parameters = {one.name: (position, one.size_bytes) for position, one in enumerate(kernel.parameters)}
        self.places = _places(kernel)
        self.functions = {one.name: one for one in kernel.functions}
        self.used_symbols: set[int] = set()  # slots, of the instruction that is built
        self.sites: list[CallSite] = []
        self.owners = _owners(kernel)
        self.plain_barriers = _has_plain_barriers(kernel)
        self.plain_warps = _has_plain_warp_barriers(kernel)
        self.unsupported: list[Unsupported] = list(kernel.unsupported)
        self.failed: set[Instruction] = set()
        self.fragments = fragments_of(kernel)
        self.bad_ends: dict[Instruction, str] = {}
        every = [one for block in kernel.blocks for one in block.instructions]
        self.is_paired = any("cta_group::2" in one.qualifiers for one in every)
        self.has_tensor_memory = any(one.opcode == "tcgen05" for one in every)

    def _new(self) -> int:
        self.count += 1
        return self.count - 1

    def _register(self, name: str) -> int:
        if name not in self.slot_of:
            if name in SPECIAL or name in _UNIFORM:
                dtype = _ODD_SPECIALS.get(name, "u4")
            elif name in self.kernel.registers:
                dtype = _CLASS_DTYPE[self.kernel.registers[name]]
            else:
                where = self.instruction.where() if self.instruction else name
                raise UnknownInstruction(f"the simulator has no register {name}; {where}")
            self.slot_of[name] = self._new()
            self.dtype_of[self.slot_of[name]] = dtype
        return self.slot_of[name]

    def read(self, operand: Operand, dtype: str) -> int:
        if isinstance(operand, Register):
            return self._register(operand.name)
        if isinstance(operand, Symbol):
            place, number = self.place(operand.name)
            if place == "variable":
                return self._address(f"&{operand.name}+{operand.offset_bytes}", "u8")
            assert place != "frame", "an address of a frame is another one in each call"
            if place == "shared" and self.is_paired:
                return self._address(f"&.{dtype}+{number + operand.offset_bytes}", dtype)
            operand = Immediate(number + operand.offset_bytes)
        assert isinstance(operand, Immediate), operand
        kind = np.dtype(dtype)
        unsigned = "?" if dtype == "?" else f"u{kind.itemsize}"
        bits = _literal_bits(operand, kind.itemsize) & ((1 << (8 * kind.itemsize)) - 1)
        key = (bits, unsigned)
        if key not in self.constant_of:
            self.constant_of[key] = self._new()
            self.constants.append((self.constant_of[key], np.array([bits], unsigned)))
        return self.constant_of[key]

    def _address(self, name: str, dtype: str) -> int:
        """The slot that holds the address of a module's variable, which differs between ranks, or one of shared memory
        with the tag of the thread's own block (isa/spaces.py)."""
        if name not in self.slot_of:
            self.slot_of[name] = self._new()
            self.dtype_of[self.slot_of[name]] = dtype
        self.used_symbols.add(self.slot_of[name])
        return self.slot_of[name]

    def place(self, name: str) -> tuple[str, int]:
        return self.places[name]

    def write(self, operand: Operand) -> int:
        assert isinstance(operand, Register), operand
        return self._register(operand.name)

    def register_dtype(self, operand: Operand) -> str:
        assert isinstance(operand, Register), operand
        return self.dtype_of[self._register(operand.name)]

    def bits_matter(self, operand: Operand) -> bool:
        assert isinstance(operand, Register), operand
        return operand.name in self.seen_as_bits

    def parameter(self, name: str) -> tuple[int, int]:
        return self.parameters[name]

    def program(self) -> Program:
        homes = homes_of(self.kernel)
        steps = tuple(self._step(block, homes) for block in self.kernel.blocks)
        special = {
            slot: name
            for name, slot in self.slot_of.items()
            if name in SPECIAL or name in _UNIFORM or name.startswith("&")
        }
        local = {slot for step in steps for slot, _, _ in step.local}
        kept = {
            slot: self.dtype_of[slot]
            for name, slot in self.slot_of.items()
            if slot not in local and slot not in special
        }
        names = {one.register for f in self.kernel.functions for one in (*f.returns, *f.parameters) if one.register}
        live = self._live_slots(steps, kept)
        spins, voting = _spin_headers(steps)
        return Program(
            kernel=self.kernel,
            slots=self.count,
            kept=kept,
            specials=special,
            constants=tuple(self.constants),
            steps=steps,
            spin_headers={first: tuple(sorted(live[first])) for first in spins},
            voting_spins=voting,
            sites=tuple(self._with_saves(one, live) for one in self.sites),
            parameter_slots={name: self.slot_of[name] for name in names if name in self.slot_of},
            unsupported=tuple(sorted(dict.fromkeys(self.unsupported), key=lambda one: one.line)),
            further=_further(self.kernel.blocks),
            fragments={self.slot_of[name]: name for name in self.fragments if name in self.slot_of},
            torn={one.index: one.index + 1 for one in self.kernel.blocks if one.piece == "whole"},
            has_tensor_memory=self.has_tensor_memory,
            kept_names={name: slot for name, slot in self.slot_of.items() if slot in kept},
        )

    def _with_saves(self, site: CallSite, live: list[set[int]]) -> CallSite:
        """The call with the registers that are needed after it, if it can come back to the function that it is in."""
        owner = self.owners[site.following]
        reached = self._reached_from(site.function)
        return replace(site, saves=tuple(sorted(live[site.following]))) if owner in reached else site

    def _reached_from(self, function: Function | None) -> set[str]:
        """The functions that may run during a call; an indirect call may be of any."""
        if function is None:
            return set(self.functions)
        found, todo = {function.name}, [function.name]
        while todo:
            name = todo.pop()
            for site in self.sites:
                if self.owners[site.following] == name:
                    called = set(self.functions) if site.function is None else {site.function.name}
                    todo += called - found
                    found |= called
        return found

    def _live_slots(self, steps: tuple[BlockStep, ...], kept: dict[int, str]) -> list[set[int]]:
        successors = [step.exit.ways for step in steps]
        live = live_in(self.kernel, successors)
        return [{self.slot_of[name] for name in names if self.slot_of.get(name) in kept} for names in live]

    def _step(self, block: Block, homes: dict[str, int]) -> BlockStep:
        runs: list[Run] = []
        symbols: set[int] = set()
        instructions = list(block.instructions)
        last = self._exit(block)
        body = instructions[:-1] if last.instruction is not None else instructions[:]
        for position, instruction in enumerate(body):
            self.instruction = instruction
            self.used_symbols = set()
            runs.append(self._run(instruction))
            symbols |= self.used_symbols
            if instruction in self.failed:  # what it reads and writes may not even exist
                instructions[position] = replace(instruction, operands=())
        block = replace(block, instructions=tuple(instructions))
        reads, writes = registers_of(block)
        local = self._scratch(block, homes)
        names = {name for name, _, _ in local}
        return BlockStep(
            index=block.index,
            runs=tuple(runs),
            count=sum(one.part != 2 for one in block.instructions),
            exit=last,
            kept_reads=tuple(
                sorted({self._register(n) for n in reads | writes if n not in names and n not in _UNIFORM} | symbols)
            ),
            kept_writes=tuple(sorted({self._register(n) for n in writes if n not in names})),
            local=tuple((self._register(name), dtype, number) for name, dtype, number in local),
            instructions=tuple(body),
            reads_memory=any(map(reads_memory, body)),
            writes_memory=any(map(writes_memory, body)),
            reads_clock=any(map(reads_clock, body)),
            accesses=sum(map(is_access, body)),
            stores=any(map(_stores, body)),
        )

    def _run(self, instruction: Instruction) -> Run:
        """The instruction's function; of one that the simulator does not have, a function that faults."""
        try:
            return self._guarded(instruction, self._watched(instruction, self._built(instruction)))
        except UnknownInstruction as error:
            reason = str(error).removesuffix(f"; {instruction.where()}")
        self.failed.add(instruction)
        self.unsupported.append(Unsupported(instruction.line, instruction.text, reason))

        def fault(frame: LaneFrame) -> None:
            raise LaneFault(0, reason, UnknownInstruction)

        if instruction.guard is not None and self.kernel.registers.get(instruction.guard[0].name) != "pred":
            return fault
        return self._guarded(replace(instruction, operands=()), fault)

    def _watched(self, instruction: Instruction, run: Run) -> Run:
        """The function of an instruction, which has to leave registers alone that a wgmma still uses."""
        if not self.fragments:
            return run
        plain = replace(instruction, guard=None)
        names = [[one for one in of(plain) if one in self.fragments] for of in (sources_of, targets_of)]
        if not any(names):
            return run
        from simulator.isa.wgmma import watched

        return watched(run, instruction, *([self._register(one) for one in some] for some in names))

    def _built(self, instruction: Instruction) -> Run:
        if instruction.unsupported or instruction in self.bad_ends:
            raise UnknownInstruction(instruction.unsupported or self.bad_ends[instruction])
        operation = find(instruction)
        self._judge(instruction)
        try:
            if instruction.opcode == "call":
                return self._builtin(instruction)
            if instruction.part:
                from simulator.isa.tearing import torn

                return torn(instruction, self, operation.build)
            return operation.build(instruction, self)
        except (AssertionError, KeyError, ValueError, IndexError, AttributeError):
            raise UnknownInstruction(f"the simulator has no such operands of {operation.key}") from None

    def _judge(self, instruction: Instruction) -> None:
        """Raise UnknownInstruction for an instruction that does not assemble, by the types of its operands and by the
        names in it; and for one that the module's .target does not have."""
        reason = lacks(instruction, self.target) or refusal(instruction, self.kernel.types)
        if instruction.opcode == "mov" and not reason:
            is_declared = any(one in self.kernel.types for one in sources_of(replace(instruction, guard=None)))
            reason = "" if is_declared else wrong_special(instruction)
        known = (self.places, self.kernel.labels, self.kernel.targets, self.kernel.prototypes)
        for symbol in symbols_of(instruction) if not reason else ():
            if not any(symbol.name in names for names in known):
                reason = self._missing(symbol.name, instruction)
                break
        if reason := reason or self._beyond_parameter(instruction):
            raise UnknownInstruction(reason)

    def _beyond_parameter(self, instruction: Instruction) -> str:
        """What to say of a load from a kernel's parameter that goes beyond its end, "" of others."""
        source = instruction.operands[-1] if instruction.operands else None
        if instruction.opcode != "ld" or not isinstance(source, Address) or not isinstance(source.base, Symbol):
            return ""
        if source.base.name not in self.parameters:
            return ""
        size, width = self.parameters[source.base.name][1], width_of(instruction)
        start = source.offset_bytes + source.base.offset_bytes
        if 0 <= start <= size - width:
            return ""
        return f"a load of {width} bytes at byte {start} of parameter {source.base.name}, which has {size} bytes"

    def _missing(self, name: str, instruction: Instruction) -> str:
        """What to say of a name without a declaration."""
        kernel, shown = self.kernel, name.partition("@")[0]
        if any(one.name == name for one in kernel.variables):
            return f"{shown} is .extern, and this module does not define it"
        if any(name in one.text for one in kernel.unsupported):
            return f"the declaration of {shown} is unsupported"
        words = set(instruction.qualifiers)
        if instruction.opcode == "call":
            return f"there is no function {shown}; the module has {_listed(self.functions)}"
        if instruction.opcode == "bra":
            return f"a branch to a label that isn't there: {shown}"
        if "param" in words:
            return f"there is no parameter {shown}; the kernel has {_listed(one.name for one in kernel.parameters)}"
        if "shared" in words or "shared::cta" in words:
            return f"there is no shared variable {shown}; the kernel has {_listed(one.name for one in kernel.shared)}"
        return f"nothing is declared with the name {shown}"

    def _guarded(self, instruction: Instruction, run: Run) -> Run:
        if instruction.guard is None:
            return run
        register, negated = instruction.guard
        predicate = self._register(register.name)
        targets = [self._register(name) for name in targets_of(instruction)]
        named = {self._register(name) for name in (*sources_of(instruction), *targets_of(instruction))}
        used = sorted(named | self.used_symbols)

        def guarded(frame: LaneFrame) -> None:
            mask = frame.regs[predicate]
            if negated:
                mask = ~mask
            if mask.all():
                run(frame)
            elif mask.any():
                lanes = np.flatnonzero(mask)
                some = frame.batch.narrow(frame, lanes, used)
                try:
                    run(some)
                except LaneFault as fault:
                    raise LaneFault(int(lanes[fault.lane]), fault.message, fault.kind) from None
                for slot in targets:
                    frame.regs[slot][lanes] = some.regs[slot]

        return guarded

    def _exit(self, block: Block) -> Exit:
        """How the block ends; an end that the simulator does not have stays among the instructions, and faults."""
        following = block.following
        falls = Exit("jump", following) if following >= 0 else Exit(self._return_kind(block))
        end = block.instructions[-1] if block.instructions else None
        if (
            end is None
            or end.unsupported
            or not (end.opcode in BLOCK_ENDS or end.is_group_wait or end.is_of_tensor_memory)
        ):
            return falls
        try:
            find(end)
            self._judge(end)
            predicate = self._register(end.guard[0].name) if end.guard is not None else -1
            made = self._exit_of(block, end, following)
        except UnknownInstruction as error:
            self.bad_ends[end] = str(error).removesuffix(f"; {end.where()}")
            return falls
        except (AssertionError, KeyError, ValueError, IndexError, AttributeError):
            self.bad_ends[end] = f"the simulator has no such operands of {key_of(end)}"
            return falls
        if made is None:
            return falls
        return replace(
            made,
            instruction=end,
            fallthrough=following if end.guard is not None else -1,
            predicate=predicate,
            negated=end.guard is not None and end.guard[1],
        )

    def _return_kind(self, block: Block) -> str:
        return "return" if block.index >= self.kernel.first else "leave"

    def _exit_of(self, block: Block, end: Instruction, following: int) -> Exit | None:
        """The way out of an instruction that ends a block, None for one that is a function in the block."""
        if end.opcode == "bra":
            target = end.operands[0] if end.operands else None
            if not isinstance(target, Symbol) or target.name not in self.kernel.labels:
                name = target.name.partition("@")[0] if isinstance(target, Symbol) else ""
                raise UnknownInstruction(f"a branch to a label that isn't there: {name}".removesuffix(": "))
            return Exit("jump" if end.guard is None else "branch", self.kernel.labels[target.name])
        if end.opcode == "brx":
            index, table = end.operands
            assert isinstance(table, Symbol)
            ways = tuple(self.kernel.labels[name] for name in self.kernel.targets[table.name])
            return Exit("table", slot=self.read(index, "u4"), table=ways)
        if end.opcode in COLLECTIVES or (end.opcode == "bar" and "warp" in end.qualifiers):
            return self._collective(end, following)
        if end.opcode in ALIGNED or end.opcode in OF_WARPGROUPS or end.is_of_tensor_memory:
            return self._aligned(end, following)
        if end.is_cluster_barrier:
            assert not end.operands
            return Exit("cluster", following, waits="wait" in end.qualifiers)
        if end.opcode in ("bar", "barrier"):
            return Exit("barrier", following, unit="block") if self.plain_barriers else self._numbered(end, following)
        if end.opcode == "call":
            site = self._site(end, following)
            return None if site is None else Exit("call", following, site=site)
        if end.is_group_wait:
            is_all = "wait_all" in end.qualifiers
            assert len(end.operands) == (0 if is_all else 1)
            assert all(isinstance(one, Immediate) and not one.bits >> 31 for one in end.operands)
            return Exit("wait", following)
        return Exit(self._return_kind(block) if end.opcode == "ret" else "return")

    # Meetings

    def _collective(self, end: Instruction, following: int) -> Exit:
        """An instruction of some lanes of a warp; the barrier of all of them has a way of its own."""
        mask = end.operands[-1]
        if end.opcode == "bar":
            assert len(end.operands) == 1
            if self.plain_warps and isinstance(mask, Immediate) and mask.bits & 0xFFFFFFFF == 0xFFFFFFFF:
                return Exit("barrier", following, unit="warp")
        slot = self.read(mask, "u4")
        return replace(self._together(end), kind="collective", taken=following, slot=slot, unit="")

    def _aligned(self, end: Instruction, following: int) -> Exit:
        """An instruction of all lanes of a warp, or of a warpgroup, who come to the same place."""
        if not {"sync", "aligned"} <= set(end.qualifiers):
            raise UnknownInstruction(f"does not assemble: {end.mnemonic} lacks .sync.aligned")
        run = find(end).build(end, self)
        names = [{*sources_of(replace(end, guard=None)), *targets_of(end)}, set(targets_of(end))]
        reads, writes = (tuple(sorted(self._register(one) for one in some if one not in _UNIFORM)) for some in names)
        made = Exit("warpgroup", following, run=run, reads=reads, writes=writes, key=f"{key_of(end)} {following}")
        if end.opcode in OF_WARPGROUPS:
            return made
        every = self.read(Immediate(0xFFFFFFFF), "u4")
        return replace(made, kind="collective", slot=every, run=self._watched(end, run))

    def _numbered(self, end: Instruction, following: int) -> Exit:
        """A barrier by number, with a count of threads or without."""
        operands = list(end.operands)
        is_reduction = "red" in end.qualifiers
        if is_reduction:
            operands = operands[1:-1]
        assert 1 <= len(operands) <= 2
        waits = "arrive" not in end.qualifiers
        assert waits or len(operands) == 2
        made = self._together(end) if is_reduction else Exit("", instruction=end)
        slots = [self.read(one, "u4") for one in operands]
        count_slot = slots[1] if len(slots) == 2 else -1
        return replace(
            made, kind="numbered", taken=following, slot=slots[0], count_slot=count_slot, waits=waits, unit=""
        )

    def _together(self, end: Instruction) -> Exit:
        """What lanes run when all have come; a barrier of a warp runs nothing."""
        from simulator.run.together import common_of, meeting_key, results_in_order, sources_in_order

        if end.opcode == "bar" and "warp" in end.qualifiers:
            return Exit("", instruction=end, key=meeting_key(end))
        run = self._watched(end, find(end).build(end, self))
        targets = {self._register(name) for name in targets_of(end)}
        plain = replace(end, guard=None)
        reads = {self._register(name) for name in (*sources_of(plain), *targets_of(end)) if name not in _UNIFORM}
        common = common_of(end)
        places = [one.register if isinstance(one, Negated) else one for one in sources_in_order(end)]
        negated = [isinstance(one, Negated) for one in sources_in_order(end)]
        slots = [self.read(one, kind) for one, kind in zip(places, common.kinds, strict=True)]
        return Exit(
            "",
            run=run,
            reads=tuple(sorted(reads)),
            writes=tuple(sorted(targets)),
            key=meeting_key(end),
            sources=tuple(zip(slots, negated, strict=True)),
            results=tuple(-1 if one == Register("_") else self.write(one) for one in results_in_order(end)),
            common=common,
        )

    # Calls

    def _site(self, end: Instruction, following: int) -> CallSite | None:
        """A call; None of a function that has no body here."""
        returns, target, arguments, *rest = end.operands
        assert isinstance(returns, Group)
        assert isinstance(arguments, Group)
        function, slot, prototype = None, -1, None
        if isinstance(target, Symbol):
            function = self.functions[target.name]
            if function.first < 0:
                return None
            sizes = [[one.size_bytes for one in group] for group in (function.returns, function.parameters)]
        else:
            assert isinstance(rest[0], Symbol)
            slot = self.read(target, "u8")
            prototype = self._prototype(rest[0].name)
            sizes = [list(prototype.returns), list(prototype.parameters)]
        block = following - 1
        owner = self.owners[block]
        passed = [
            tuple(self._passed(one, size) for one, size in zip(group.parts, wanted, strict=True))
            for group, wanted in zip((returns, arguments), sizes, strict=True)
        ]
        frame_bytes = self.functions[owner].frame_bytes if owner else self.kernel.frame_bytes
        site = CallSite(len(self.sites), end, function, slot, passed[1], passed[0], (), frame_bytes, following)
        self.sites.append(site)
        return site

    def _prototype(self, name: str) -> Prototype:
        """A prototype, or that of the first function in a list of those that may be called."""
        if name in self.kernel.prototypes:
            return self.kernel.prototypes[name]
        one = self.functions[self.kernel.targets[name][0]]
        sizes = [tuple(part.size_bytes for part in group) for group in (one.returns, one.parameters)]
        return Prototype(sizes[0], sizes[1])

    def _passed(self, operand: Operand, size_bytes: int) -> Place:
        if isinstance(operand, Symbol):
            kind, offset = self.place(operand.name)
            assert kind == "frame"
            return Place("frame", offset, size_bytes)
        if isinstance(operand, Register):
            assert np.dtype(self.register_dtype(operand)).itemsize == size_bytes
            return Place("slot", self._register(operand.name), size_bytes)
        assert isinstance(operand, Immediate)
        return Place("constant", _literal_bits(operand, size_bytes), size_bytes)

    def _builtin(self, instruction: Instruction) -> Run:
        """A call of a function that has no body here: one that every GPU has, or none."""
        target = instruction.operands[1]
        function = self.functions.get(target.name) if isinstance(target, Symbol) else None
        if function is None or function.first >= 0:
            raise UnknownInstruction("the simulator can't make this call")
        if function.name in ("malloc", "free"):
            raise UnknownInstruction(f"device-side {function.name} is unsupported: give the kernel a buffer for it")
        from simulator.isa.system import BUILTINS

        if function.name not in BUILTINS:
            raise UnknownInstruction(f"{function.name} has no body in this module, and the simulator has none for it")
        return BUILTINS[function.name](instruction, self)

    def _scratch(self, block: Block, homes: dict[str, int]) -> list[tuple[str, str, int]]:
        """Linear scan: a scratch array is free again after its register's last use, but not in that instruction."""
        last_use: dict[str, int] = {}
        for position, instruction in enumerate(block.instructions):
            for name in (*sources_of(instruction), *targets_of(instruction)):
                last_use[name] = position
        free: dict[str, list[int]] = {}
        made: dict[str, int] = {}
        out: list[tuple[str, str, int]] = []
        number_of: dict[str, int] = {}
        for position, instruction in enumerate(block.instructions):
            for name in targets_of(instruction):
                if homes.get(name) == block.index and name not in number_of:
                    dtype = _CLASS_DTYPE[self.kernel.registers[name]]
                    pool = free.setdefault(dtype, [])
                    if not pool:
                        pool.append(made.setdefault(dtype, 0))
                        made[dtype] += 1
                    number_of[name] = pool.pop()
                    out.append((name, dtype, number_of[name]))
            for name in {*sources_of(instruction), *targets_of(instruction)}:
                if last_use[name] == position and name in number_of:
                    free[_CLASS_DTYPE[self.kernel.registers[name]]].append(number_of[name])
        return out


def _stores(instruction: Instruction) -> bool:
    """Whether other threads may see what it changes."""
    return is_access(instruction) and (writes_memory(instruction) or instruction.opcode == "atom")


def _further(blocks: Sequence[Block]) -> tuple[int, ...]:
    """Program.further of a kernel's blocks."""
    if not any(one.piece for one in blocks):
        return ()
    return tuple(
        one.following if one.following >= 0 and blocks[one.following].piece and one.piece != "first" else -1
        for one in blocks
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(one.partition("@")[0] for one in names) or "none"


def _places(kernel: Kernel) -> dict[str, tuple[str, int]]:
    """What each name of the kernel stands for (see Binder.place)."""
    places = {one.name: ("shared", one.offset_bytes) for one in kernel.shared}
    places |= {one.name: ("variable", -1) for one in kernel.variables if one.linkage != "extern"}
    places |= {one.name: ("frame", one.offset_bytes) for one in kernel.frame.values()}
    places |= {one.name: ("function", address_of(one.number)) for one in kernel.functions}
    places |= {
        one.name: ("parameter", at) for one, at in zip(kernel.parameters, parameter_offsets(kernel), strict=True)
    }
    return places


def parameter_offsets(kernel: Kernel) -> list[int]:
    """Return where in the block of all parameters each one begins, and at the end its size."""
    offsets, top = [], 0
    for one in kernel.parameters:
        top = -(-top // one.alignment_bytes) * one.alignment_bytes
        offsets.append(top)
        top += one.size_bytes
    return offsets


def _owners(kernel: Kernel) -> list[str]:
    """The name of the function that each block belongs to, "" for the kernel's own."""
    starts = {one.first: one.name for one in kernel.functions if one.first >= 0} | {kernel.first: ""}
    owners: list[str] = []
    for block in kernel.blocks:
        owners.append(starts.get(block.index, owners[-1] if owners else ""))
    return owners


def _literal_bits(operand: Immediate, size_bytes: int) -> int:
    """The bits of a literal in a register of size_bytes: a float literal of the other width is converted."""
    if operand.width_bits == 64 and size_bytes == 4:
        return int(np.float64(np.uint64(operand.bits).view(np.float64)).astype(np.float32).view(np.uint32))
    if operand.width_bits == 32 and size_bytes == 8:
        return int(np.uint32(operand.bits).view(np.float32).astype(np.float64).view(np.uint64))
    return operand.bits


def _has_plain_barriers(kernel: Kernel) -> bool:
    """Whether the kernel's barriers of blocks are all barrier 0 of all threads, which is the fastest."""
    return all(
        one.operands == (Immediate(0),) and "sync" in one.qualifiers
        for block in kernel.blocks
        for one in block.instructions
        if one.opcode in ("bar", "barrier") and "warp" not in one.qualifiers and not one.is_cluster_barrier
    )


def _has_plain_warp_barriers(kernel: Kernel) -> bool:
    """Whether no barrier of a warp has its mask in a register: one of all lanes then never meets one with a mask."""
    return not any(
        isinstance(operand, Register)
        for block in kernel.blocks
        for one in block.instructions
        if one.opcode == "bar" and "warp" in one.qualifiers
        for operand in one.operands
    )


def _spin_headers(steps: tuple[BlockStep, ...]) -> tuple[list[int], frozenset[int]]:
    """Loops that load, do not store and look at no clock, by their first block; and those of them that vote.

    A lane that comes back there with the same registers, while no memory changed, will come back for ever; where the
    loop has votes, a warp all of whose lanes do.
    """
    after, before = _edges(steps)
    found: dict[int, bool] = {}  # by the first block: whether each way back has votes
    for step in steps:
        taken = step.exit.taken if step.exit.kind in ("jump", "branch") else -1
        if not 0 <= taken <= step.index:
            continue
        # The blocks on the ways from first to last, wherever they stand: compilers put some behind all others.
        between = _reached(after, taken, step.index) & _reached(before, step.index, taken)
        ways = (steps[taken : step.index + 1], [steps[index] for index in sorted(between)])
        if any(_only_looks(one, votes=True) for one in ways):
            has_votes = not any(_only_looks(one, votes=False) for one in ways)
            found[taken] = has_votes and found.get(taken, True)
    return list(found), frozenset(first for first, has_votes in found.items() if has_votes)


def _only_looks(body: Sequence[BlockStep], votes: bool) -> bool:
    """Whether a loop's blocks load, and neither store, look at a clock nor wait at a barrier. votes: they may vote."""
    meets = {"barrier", "collective", "warpgroup", "numbered", "cluster", "call"}
    still = not any(
        one.writes_memory or one.reads_clock or (one.exit.kind in meets and not (votes and _is_vote(one.exit)))
        for one in body
    )
    return still and any(one.reads_memory for one in body)


def _is_vote(way_out: Exit) -> bool:
    return way_out.instruction is not None and way_out.instruction.opcode == "vote"


def _edges(steps: tuple[BlockStep, ...]) -> tuple[list[set[int]], list[set[int]]]:
    """The blocks that each block may go on to, and those that it may be come to from."""
    after = [set(step.exit.ways) for step in steps]
    before: list[set[int]] = [set() for _ in steps]
    for index, following in enumerate(after):
        for one in following:
            before[one].add(index)
    return after, before


def _reached(edges: list[set[int]], start: int, end: int) -> set[int]:
    """What can be reached from start, going no further than end; both included."""
    found, todo = {start, end}, [start] if start != end else []
    while todo:
        new = edges[todo.pop()] - found
        found |= new
        todo += new
    return found
