"""A parsed kernel made ready to run: slots for registers, functions for instructions, what each block reads and writes.

Registers that live across basic blocks are kept in arrays over all lanes. The others exist only while a chunk of
lanes runs through their block: they share a few scratch arrays that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simulator.isa import find
from simulator.isa.registry import LaneFrame, Lanes, Run, UnknownInstruction
from simulator.memory.space import LaneFault
from simulator.ptx.dataflow import (
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
from simulator.ptx.ir import Block, Immediate, Instruction, Kernel, Operand, Register, Symbol
from simulator.ptx.parse import parse_kernel

CHUNK_LANES = 16384
"""Lanes run together at most: few enough for the cache, enough to make a dispatch cheap (tests/benchmarks)."""

_CLASS_DTYPE = {"pred": "?", "b8": "u1", "b16": "u2", "b32": "u4", "b64": "u8"}
SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ctaid") for axis in "xyz"} | {"%laneid", "%warpid", "%smid"}
_UNIFORM = {
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%nwarpid",
    "%nsmid",
    "%dynamic_smem_size",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a block ends.

    kind: "jump" (to taken), "branch" (by predicate slot), "barrier" or "wait" (for copies; then taken), "return" (where
    the predicate holds). unit: whose lanes meet at a barrier, "block" or "warp".
    """

    kind: str
    taken: int = -1
    fallthrough: int = -1
    predicate: int = -1
    negated: bool = False
    instruction: Instruction | None = None
    unit: str = ""

    @property
    def ways(self) -> list[int]:
        """The blocks that lanes may go on to."""
        falls = self.kind == "branch" or (self.kind == "return" and self.predicate >= 0)
        ways = (self.taken if self.kind != "return" else -1, self.fallthrough if falls else -1)
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


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A decoded kernel.

    slots: how many; kept: dtype of each slot kept over all lanes; specials: slots of special registers.
    """

    kernel: Kernel
    slots: int
    kept: dict[int, str]
    specials: dict[int, str]
    constants: tuple[tuple[int, Lanes], ...]
    steps: tuple[BlockStep, ...]
    spin_headers: dict[int, tuple[int, ...]]  # a block that a loop without stores returns to: the slots live there


@lru_cache(maxsize=128)
def decode(ptx: str, entry: str) -> Program:
    """Raises PtxSyntaxError or UnknownInstruction naming the PTX line."""
    return _Decoder(parse_kernel(ptx, entry)).program()


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
        self.shared_symbols = {one.name: one.offset_bytes for one in kernel.shared}
        self.seen_as_bits = seen_as_bits(kernel)
        self.parameters = {one.name: (position, one.size_bytes) for position, one in enumerate(kernel.parameters)}

    def _new(self) -> int:
        self.count += 1
        return self.count - 1

    def _register(self, name: str) -> int:
        if name not in self.slot_of:
            if name in SPECIAL or name in _UNIFORM:
                dtype = "u4"
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
        if isinstance(operand, Symbol) and operand.name in self.shared_symbols:
            operand = Immediate(self.shared_symbols[operand.name])
        assert isinstance(operand, Immediate), operand
        kind = np.dtype(dtype)
        unsigned = "?" if dtype == "?" else f"u{kind.itemsize}"
        bits = operand.bits & ((1 << (8 * kind.itemsize)) - 1)
        key = (bits, unsigned)
        if key not in self.constant_of:
            self.constant_of[key] = self._new()
            self.constants.append((self.constant_of[key], np.array([bits], unsigned)))
        return self.constant_of[key]

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
        special = {slot: name for name, slot in self.slot_of.items() if name in SPECIAL or name in _UNIFORM}
        local = {slot for step in steps for slot, _, _ in step.local}
        kept = {
            slot: self.dtype_of[slot]
            for name, slot in self.slot_of.items()
            if slot not in local and name not in _UNIFORM and name not in SPECIAL
        }
        return Program(
            kernel=self.kernel,
            slots=self.count,
            kept=kept,
            specials=special,
            constants=tuple(self.constants),
            steps=steps,
            spin_headers=_spin_headers(steps, self._live_slots(steps, kept)),
        )

    def _live_slots(self, steps: tuple[BlockStep, ...], kept: dict[int, str]) -> list[set[int]]:
        successors = [step.exit.ways for step in steps]
        live = live_in(self.kernel, successors)
        return [{self.slot_of[name] for name in names if self.slot_of.get(name) in kept} for names in live]

    def _step(self, block: Block, homes: dict[str, int]) -> BlockStep:
        runs: list[Run] = []
        body = list(block.instructions)
        last = self._exit(block)
        if last.instruction is not None:
            body.pop()
        for instruction in body:
            self.instruction = instruction
            runs.append(self._run(instruction))
        reads, writes = registers_of(block)
        local = self._scratch(block, homes)
        names = {name for name, _, _ in local}
        return BlockStep(
            index=block.index,
            runs=tuple(runs),
            count=len(block.instructions),
            exit=last,
            kept_reads=tuple(
                sorted({self._register(n) for n in reads | writes if n not in names and n not in _UNIFORM})
            ),
            kept_writes=tuple(sorted({self._register(n) for n in writes if n not in names})),
            local=tuple((self._register(name), dtype, number) for name, dtype, number in local),
            instructions=tuple(body),
            reads_memory=any(map(reads_memory, body)),
            writes_memory=any(map(writes_memory, body)),
            reads_clock=any(map(reads_clock, body)),
        )

    def _run(self, instruction: Instruction) -> Run:
        operation = find(instruction)
        try:
            run = operation.build(instruction, self)
        except (AssertionError, KeyError, ValueError):
            raise UnknownInstruction(
                f"the simulator has no such operands of {operation.key}; {instruction.where()}"
            ) from None
        if instruction.guard is None:
            return run
        register, negated = instruction.guard
        predicate = self._register(register.name)
        targets = [self._register(name) for name in targets_of(instruction)]
        used = sorted({self._register(name) for name in (*sources_of(instruction), *targets_of(instruction))})

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
                    raise LaneFault(int(lanes[fault.lane]), fault.message) from None
                for slot in targets:
                    frame.regs[slot][lanes] = some.regs[slot]

        return guarded

    def _exit(self, block: Block) -> Exit:
        following = block.index + 1
        end = block.instructions[-1] if block.instructions else None
        if following >= len(self.kernel.blocks):
            following = -1
        if end is None or not (end.opcode in ("bra", "ret", "exit", "bar", "barrier") or end.is_group_wait):
            return Exit("jump", following) if following >= 0 else Exit("return")
        find(end)
        predicate, negated = -1, False
        if end.guard is not None:
            predicate, negated = self._register(end.guard[0].name), end.guard[1]
        if end.opcode == "bra":
            target = end.operands[0] if end.operands else None
            if not isinstance(target, Symbol) or target.name not in self.kernel.labels:
                raise UnknownInstruction(f"a branch to a label that isn't there; {end.where()}")
            taken = self.kernel.labels[target.name]
            kind = "jump" if end.guard is None else "branch"
            return Exit(kind, taken, following, predicate, negated, end)
        if end.opcode in ("bar", "barrier"):
            return Exit("barrier", following, instruction=end, unit=_unit_of(end))
        if end.is_group_wait:
            if end.guard is not None or len(end.operands) != 1 or not isinstance(end.operands[0], Immediate):
                raise UnknownInstruction(f"the simulator has wait_group for a number, unguarded; {end.where()}")
            return Exit("wait", following, instruction=end)
        return Exit("return", -1, following, predicate, negated, end)

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


def _unit_of(end: Instruction) -> str:
    """Return whose lanes meet: all of the block or all of the warp. Other barriers are unsupported."""
    operand = end.operands[0] if len(end.operands) == 1 and end.guard is None else None
    if "warp" in end.qualifiers:
        if isinstance(operand, Immediate) and operand.bits & 0xFFFFFFFF == 0xFFFFFFFF:
            return "warp"
        raise UnknownInstruction(f"the simulator has bar.warp.sync of whole warps (-1) only; {end.where()}")
    if operand != Immediate(0):
        raise UnknownInstruction(f"the simulator has barrier 0 for all threads only; {end.where()}")
    return "block"


def _spin_headers(steps: tuple[BlockStep, ...], live: list[set[int]]) -> dict[int, tuple[int, ...]]:
    """Loops that load, do not store and look at no clock: their first block, and the registers alive there.

    A lane that comes back there with the same registers, while no memory changed, will come back for ever.
    """
    headers: dict[int, tuple[int, ...]] = {}
    for step in steps:
        taken = step.exit.taken if step.exit.kind in ("jump", "branch") else -1
        if not 0 <= taken <= step.index:
            continue
        if _only_looks(steps[taken : step.index + 1]) or _only_looks(_loop(steps, taken, step.index)):
            headers[taken] = tuple(sorted(live[taken]))
    return headers


def _only_looks(body: Sequence[BlockStep]) -> bool:
    """Whether a loop's blocks load, and neither store, look at a clock nor wait at a barrier."""
    still = not any(one.writes_memory or one.reads_clock or one.exit.kind == "barrier" for one in body)
    return still and any(one.reads_memory for one in body)


def _loop(steps: tuple[BlockStep, ...], first: int, last: int) -> list[BlockStep]:
    """The blocks on the ways from first to last, wherever they stand: compilers put some behind all others."""
    after = {step.index: set(step.exit.ways) for step in steps}
    before: dict[int, set[int]] = {step.index: set() for step in steps}
    for index, following in after.items():
        for one in following:
            before[one].add(index)
    between = _reached(after, first, last) & _reached(before, last, first)
    return [steps[index] for index in sorted(between)]


def _reached(edges: dict[int, set[int]], start: int, end: int) -> set[int]:
    """What can be reached from start, going no further than end; both included."""
    found, todo = {start, end}, [start] if start != end else []
    while todo:
        new = edges[todo.pop()] - found
        found |= new
        todo += new
    return found
