"""What of a kernel's program the clock knows before it runs: which loads must be back before which instruction.

Within a basic block only data decide: an instruction waits for the loads that its address, its guard or its value come
from, however many others lie between, and all other loads overlap, as a compiler may move them there. A fence, and an
access that releases, waits for all loads before it. At the end of a block a warp waits for each load whose register an
instruction of the block has read; one that was only moved (mov) goes on as the register that it was moved to. A load
whose register nothing has read stays under way in the blocks that follow, to the end of the first one that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulator.ptx.dataflow import sources_of, targets_of
from simulator.ptx.ir import Instruction
from simulator.run.decode import BlockStep, Program

Load = int | str
"""A load of the block, by its place there, or a register that is under way when the block begins."""
Loads = frozenset[Load]
_STRONG = frozenset({"acquire", "relaxed", "volatile", "release", "acq_rel", "sc"})
_RELEASES = frozenset({"release", "acq_rel", "sc"})
_ATOMIC = frozenset({"atom", "red"})
_ELSEWHERE = ("shared", "param", "local", "const")


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """An instruction that reads global memory, or at whose moment others look: strong accesses, fences, copies.

    needs, arrived: numbers of loads of its block, and registers loaded before it, that must be there first. number: of
    this load in its block, -1 if nothing needs it before the block's end. used: the block's end waits for it.
    registers: in which it stays under way. strong: polls see what it stores, or it may be a poll.
    """

    needs: tuple[int, ...]
    arrived: tuple[str, ...]
    number: int
    used: bool
    registers: tuple[str, ...]
    strong: bool


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A basic block. accesses: by the instruction's identity. enters: registers under way at its beginning that matter
    to it; read: those that its end waits for; moves: those that go on, as which registers (new, old)."""

    accesses: dict[int, AccessPlan]
    read: tuple[str, ...]
    moves: tuple[tuple[str, str], ...]
    enters: tuple[str, ...]


class Plan:
    """The plans of a program's blocks, by number. held: registers that may be under way between blocks."""

    def __init__(self, program: Program) -> None:
        self.program = program  # keeps the instructions alive, whose identities are keys
        self.held: frozenset[str] = frozenset()
        while True:  # what is under way at the end of a block is under way at the beginning of others
            flows = [_Flow(step, self.held) for step in program.steps]
            more = self.held.union(*(one.under_way for one in flows))
            if more == self.held:
                break
            self.held = more
        self.blocks = tuple(one.plan() for one in flows)


@dataclass(slots=True)
class _Flow:
    """One way through a block: the loads behind each register."""

    step: BlockStep
    held: frozenset[str]
    behind: dict[str, Loads] = field(default_factory=dict)
    moved: dict[str, Loads] = field(default_factory=dict)  # registers that are what a load gave, unread
    used: set[Load] = field(default_factory=set)
    needs: dict[int, Loads] = field(default_factory=dict)  # by place
    loads: set[int] = field(default_factory=set)
    under_way: dict[str, Load] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, instruction in enumerate(self.step.instructions):
            self._go_on(place, instruction)
        if self.step.exit.instruction is not None:
            self.used |= self._behind(sources_of(self.step.exit.instruction))
        if self.step.exit.kind in ("return", "leave", "call"):
            return
        self.under_way = {name: one for name, found in self.moved.items() for one in found if one not in self.used}

    def _behind(self, names: Iterable[str]) -> Loads:
        found: set[Load] = set()
        for name in names:
            found |= self.behind.get(name, frozenset({name}) if name in self.held else frozenset())
        return frozenset(found)

    def _go_on(self, place: int, instruction: Instruction) -> None:
        behind = self._behind(sources_of(instruction))
        targets = targets_of(instruction)
        for name in targets:
            self.moved.pop(name, None)
        if instruction.opcode == "mov" and instruction.guard is None and len(behind) < 2:
            for name in targets:
                self.behind[name] = behind
                if behind:
                    self.moved[name] = behind
            return
        self.used |= behind
        if is_timed(instruction):
            self.needs[place] = behind | self.loads | self.held if releases(instruction) else behind
        if reads_global(instruction):
            self.loads.add(place)
            behind = frozenset({place})
            self.moved |= dict.fromkeys(targets, behind)
        for name in targets:
            self.behind[name] = behind

    def plan(self) -> BlockPlan:
        """The block's plan."""
        needed = sorted({one for needs in self.needs.values() for one in needs if isinstance(one, int)})
        numbers = {place: number for number, place in enumerate(needed)}
        accesses = {}
        for place, needs in self.needs.items():
            instruction = self.step.instructions[place]
            accesses[id(instruction)] = AccessPlan(
                tuple(sorted(numbers[one] for one in needs if isinstance(one, int))),
                tuple(sorted(one for one in needs if isinstance(one, str))),
                numbers.get(place, -1),
                place in self.used,
                tuple(sorted(name for name, one in self.under_way.items() if one == place)),
                is_strong(instruction),
            )
        read = tuple(sorted(one for one in self.used if isinstance(one, str)))
        moves = tuple(sorted((new, old) for new, old in self.under_way.items() if isinstance(old, str) and new != old))
        arrived = {name for one in accesses.values() for name in one.arrived}
        enters = tuple(sorted(arrived.union(read, (old for _, old in moves))))
        return BlockPlan(accesses, read, moves, enters)


def reads_global(instruction: Instruction) -> bool:
    """Return whether an instruction may read global memory, or replicas through the switch, into registers."""
    if instruction.opcode == "multimem":
        return "ld_reduce" in instruction.qualifiers
    is_elsewhere = any(word.startswith(_ELSEWHERE) for word in instruction.qualifiers)
    return instruction.opcode in ("ld", "atom") and not is_elsewhere


def is_strong(instruction: Instruction) -> bool:
    """Return whether polls may see what an access stores, or whether it may be a poll."""
    words = instruction.qualifiers
    return not _STRONG.isdisjoint(words) or instruction.opcode in _ATOMIC or "red" in words


def releases(instruction: Instruction) -> bool:
    """Return whether it is a fence of threads, or an access that releases."""
    if instruction.opcode in ("fence", "membar"):
        return "proxy" not in instruction.qualifiers
    return not _RELEASES.isdisjoint(instruction.qualifiers)


def is_timed(instruction: Instruction) -> bool:
    """Return whether the moment at which an instruction takes place matters to others, or to its own result."""
    if instruction.opcode in ("fence", "membar", "cp", "mbarrier"):
        return True
    return reads_global(instruction) or (instruction.opcode in ("st", "red", "multimem") and is_strong(instruction))
