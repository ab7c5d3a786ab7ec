"""The nouns of a litmus program: threads and where they run, memory and its aliases, instructions, and conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

WORD_BITS = 32
RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
SCOPES = ("cta", "cluster", "gpu", "sys")
"""Narrow to wide (8.5)."""

BARRIERS = 16
"""The number of barriers of a block: 0 to 15."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread runs: its rank (one GPU each), and its cluster and block, whose numbers count within the rank.

    cluster is None for a block that is a cluster by itself.
    """

    rank: int = 0
    block: int = 0
    cluster: int | None = None

    def shares(self, scope: str, other: Place) -> bool:
        """Return whether the scope around this thread includes a thread at the other place (8.5)."""
        if scope == "sys":
            return True
        if scope == "gpu" or self.rank != other.rank:
            return self.rank == other.rank
        in_block = self.block == other.block
        return in_block or (scope == "cluster" and self.cluster is not None and self.cluster == other.cluster)


@dataclass(frozen=True, slots=True)
class Address:
    """A name of memory and an offset in words of 32 bits."""

    name: str
    word: int = 0

    def __str__(self) -> str:
        return f"[{self.name}+{4 * self.word}]" if self.word else f"[{self.name}]"


Operand = int | str
"""A number, or the name of a register."""


@dataclass(frozen=True, slots=True)
class Access:
    """ld, st, atom, red, or one of multimem's: what it accesses, how strongly, and which registers it reads and writes.

    order is weak, relaxed, acquire, release or acq_rel; scope is "" for a weak one. bits is the width of an element.
    destinations and sources have one element for each element of a vector; expected is cas' comparison.
    """

    opcode: Literal["ld", "st", "atom", "red"]
    order: str
    scope: str
    address: Address
    bits: int = WORD_BITS
    destinations: tuple[str, ...] = ()
    sources: tuple[Operand, ...] = ()
    operation: str = ""
    expected: Operand = 0
    is_multimem: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """fence.sc, .acq_rel, .acquire or .release, with its scope."""

    order: str
    scope: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ProxyFence:
    """fence.proxy.alias or fence.proxy.async."""

    proxy: Literal["alias", "async"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Barrier:
    """bar.sync or bar.arrive; count is how many threads it waits for, None for all of the block."""

    kind: Literal["sync", "arrive"]
    name: Operand
    count: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class BulkCopy:
    """cp.async.bulk: the async proxy reads the source and writes the destination, in words of 32 bits."""

    destination: Address
    source: Address
    words: int = 1
    text: str = ""


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """cp.async.bulk.commit_group: the bulk copies since the last one are a group."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """cp.async.bulk.wait_group: waits until at most `pending` groups are left; .read waits for their reads alone."""

    pending: int
    is_read: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Compute:
    """mov, add, sub, mul, and, or, xor on registers and numbers of 32 bits."""

    operation: str
    destination: str
    sources: tuple[Operand, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """bra: a jump to a label if left relation right holds (relation is "" for always)."""

    label: str
    relation: str = ""
    left: Operand = 0
    right: Operand = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A place to jump to."""

    name: str
    text: str = ""


Instruction = Access | Fence | ProxyFence | Barrier | BulkCopy | CommitGroup | WaitGroup | Compute | Branch | Label


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread: its name, its place, and its instructions in order."""

    name: str
    place: Place
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """All memory: initial words by location, and the locations that each further name stands for.

    An alias is another address of one location (8.2.2); a multicast address stands for several (8.2.3).
    """

    initial: dict[str, tuple[int, ...]]
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def locations(self, name: str) -> tuple[str, ...]:
        """Return the locations that a name stands for."""
        return self.aliases.get(name, (name,))


@dataclass(frozen=True, slots=True, order=True)
class Seen:
    """Something that a final state has: a register of a thread, or (thread is "") a word of a location."""

    thread: str
    name: str
    word: int = 0

    def __str__(self) -> str:
        if self.thread:
            return f"{self.thread}.{self.name}"
        return f"{self.name}+{4 * self.word}" if self.word else self.name


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two values."""

    relation: str
    left: Seen | int
    right: Seen | int


@dataclass(frozen=True, slots=True)
class Combined:
    """not (one part), and, or."""

    operator: Literal["not", "and", "or"]
    parts: tuple[Expression, ...]


Expression = Compare | Combined


@dataclass(frozen=True, slots=True)
class Condition:
    """What a program claims: an allowed final state with this exists, never does, or it always holds."""

    quantifier: Literal["exists", "never", "always"]
    expression: Expression
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """A litmus program."""

    name: str
    title: str
    memory: Memory
    threads: tuple[Thread, ...]
    conditions: tuple[Condition, ...]


def compared(relation: str, left: int, right: int) -> bool:
    """Return whether a comparison holds."""
    return bool(RELATIONS[relation](left, right))


def holds(expression: Expression, state: dict[Seen, int]) -> bool:
    """Return whether an expression holds in a final state."""
    if isinstance(expression, Compare):
        left, right = (state[one] if isinstance(one, Seen) else one for one in (expression.left, expression.right))
        return compared(expression.relation, left, right)
    parts = [holds(part, state) for part in expression.parts]
    if expression.operator == "not":
        return not parts[0]
    return all(parts) if expression.operator == "and" else any(parts)


def seen_by(expression: Expression) -> tuple[Seen, ...]:
    """Return the registers and words of memory that an expression is about."""
    if isinstance(expression, Compare):
        return tuple(one for one in (expression.left, expression.right) if isinstance(one, Seen))
    return tuple(one for part in expression.parts for one in seen_by(part))
