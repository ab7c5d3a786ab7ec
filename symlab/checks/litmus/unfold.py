"""From a program to its events: each way through each thread's code, and which threads meet at which barrier.

A Skeleton is all of an execution that does not depend on what reads return: the model's relations are over its events.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace

from symlab.checks.litmus import program as nouns
from symlab.checks.litmus.meet import Arrival, meetings

INITIAL = -1
"""The thread of the writes that initialize memory (8.2.6)."""

Cell = tuple[str, int]
"""A word of memory: a location, and which of its words."""


@dataclass(frozen=True, slots=True)
class Number:
    """A value that is known."""

    value: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The value that a read returns: event number `index` of a thread."""

    thread: int
    index: int


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an operation on two values, cut to a number of bits."""

    operation: str
    left: Value
    right: Value
    bits: int


Value = Number | Loaded | Result


def loads_of(value: Value) -> frozenset[Loaded]:
    """Return the reads that a value depends on."""
    if isinstance(value, Result):
        return loads_of(value.left) | loads_of(value.right)
    return frozenset((value,)) if isinstance(value, Loaded) else frozenset()


@dataclass(frozen=True, slots=True)
class Event:
    """One operation of the memory model (8.4).

    kind is R, W, F (fence) or B (barrier). step is its instruction's number in the thread: events of one instruction
    have no order among them (8.2.4), except that an atomic operation's read comes before its write. proxy is that of
    the access, or the one that a proxy fence is for. after holds events that an asynchronous access, or a wait for such
    ones (is_wait), comes after without being in program order. cells is what it accesses, name the address that it has.
    """

    thread: int
    step: int
    kind: str
    text: str
    order: str = ""
    scope: str = ""
    proxy: str = "generic"
    name: str = ""
    cells: tuple[Cell, ...] = ()
    value: Value = Number(0)
    dependencies: frozenset[Loaded] = frozenset()
    partner: int = -1
    is_red: bool = False
    is_async: bool = False
    is_wait: bool = False
    after: tuple[int, ...] = ()

    @property
    def bits(self) -> int:
        """The width of its value."""
        return 32 * len(self.cells)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What must hold for a thread to take its way: a branch, or whether a cas stored."""

    relation: str
    left: Value
    right: Value


@dataclass(slots=True)
class Way:
    """One way through a thread's code. Numbers of events in it (partner, after, Loaded) are of this thread."""

    thread: int
    registers: dict[str, Value]
    events: list[Event] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    control: frozenset[Loaded] = frozenset()
    groups: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    arrivals: list[Arrival] = field(default_factory=list)

    def copied(self) -> Way:
        """Return a way that goes on by itself."""
        return Way(*(copy(getattr(self, one.name)) for one in fields(self)))

    def value(self, operand: nouns.Operand) -> Value:
        """Return an operand's value: 0 for a register that nothing wrote."""
        return Number(operand) if isinstance(operand, int) else self.registers.get(operand, Number(0))

    def add(self, event: Event) -> int:
        """Add an event and return its number."""
        dependencies = loads_of(event.value) | self.control | event.dependencies
        self.events.append(replace(event, dependencies=dependencies))
        return len(self.events) - 1

    def constrain(self, relation: str, left: Value, right: Value) -> None:
        """Add a constraint; how many events came before it tells whether a thread that is stuck got there."""
        self.constraints.append(Constraint(relation, left, right))
        self.known.append(len(self.events))


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The events of one way through all threads, with the values they have in terms of reads.

    registers holds None where a thread waits for ever before the access that writes the register. met holds pairs of
    barrier events that synchronize. blocked names threads that wait at a barrier for ever.
    """

    events: tuple[Event, ...]
    constraints: tuple[Constraint, ...]
    registers: Mapping[tuple[str, str], Value | None]
    starts: tuple[int, ...]
    met: tuple[tuple[int, int], ...]
    blocked: tuple[str, ...]
    places: tuple[nouns.Place, ...]

    def number(self, load: Loaded) -> int:
        """Return the number of a read among all events."""
        return self.starts[load.thread] + load.index


def skeletons(program: nouns.Program) -> Iterator[Skeleton]:
    """Yield all skeletons of a program. Loops end in their first turn: README.md says why that loses nothing."""
    names = barrier_names(program)
    ways = [list(_ways(number, thread, program.memory, names)) for number, thread in enumerate(program.threads)]
    for thread, found in zip(program.threads, ways, strict=True):
        if not found:
            raise ValueError(
                f"{program.name}: thread {thread.name} has no way to its end, let its loop end with a branch"
            )
    for chosen in itertools.product(*ways):
        for meeting in meetings(_arrivals(program, chosen)):
            yield _joined(program, chosen, meeting.met, dict(meeting.blocked))


def _arrivals(program: nouns.Program, ways: Sequence[Way]) -> list[list[Arrival]]:
    """What each thread arrives at, with the number of threads that each barrier waits for."""
    blocks = [(thread.place.rank, thread.place.block) for thread in program.threads]
    sizes = Counter(blocks)
    found: list[list[Arrival]] = []
    for way, block in zip(ways, blocks, strict=True):
        found.append([])
        for one in way.arrivals:
            count = sizes[block] if one.count is None else one.count
            found[-1].append(replace(one, block=block, count=count))
    return found


def barrier_names(program: nouns.Program) -> tuple[int, ...]:
    """Return the numbers that a barrier in a register may have: all of the program's that are a barrier's."""
    numbers = {0}
    numbers.update(value for words in program.memory.initial.values() for value in words)
    for one in (one for thread in program.threads for one in thread.instructions):
        operands: tuple[nouns.Operand, ...] = ()
        if isinstance(one, nouns.Access | nouns.Compute):
            operands = one.sources
        elif isinstance(one, nouns.Barrier):
            operands = (one.name,)
        numbers.update(operand for operand in operands if isinstance(operand, int))
    return tuple(sorted(number for number in numbers if 0 <= number < nouns.BARRIERS))


def _joined(
    program: nouns.Program,
    ways: tuple[Way, ...],
    met: frozenset[tuple[tuple[int, int], tuple[int, int]]],
    stuck: dict[int, int],
) -> Skeleton:
    """One skeleton of chosen ways; stuck gives the barrier event after which a thread does not go on."""
    lengths = [stuck.get(way.thread, len(way.events) - 1) + 1 for way in ways]
    cells = {
        cell for way, length in zip(ways, lengths, strict=True) for one in way.events[:length] for cell in one.cells
    }
    cells |= {(name, 0) for name in program.memory.initial}
    start = [
        Event(INITIAL, 0, "W", f"initial {name}" + (f"+{4 * word}" if word else ""), cells=((name, word),),
              value=Number(program.memory.initial[name][word]))
        for name, word in sorted(cells)
    ]  # fmt: skip
    starts = list(itertools.accumulate(lengths, initial=len(start)))
    events = list(start)
    constraints: list[Constraint] = []
    registers: dict[tuple[str, str], Value | None] = {}
    for way, length in zip(ways, lengths, strict=True):
        first = starts[way.thread]
        for one in way.events[:length]:
            partner = one.partner + first if one.partner >= 0 else -1
            events.append(replace(one, partner=partner, after=tuple(first + other for other in one.after)))
        constraints += [one for one, known in zip(way.constraints, way.known, strict=True) if known <= length]
        for name, value in way.registers.items():
            is_known = all(load.index < length for load in loads_of(value))
            registers[program.threads[way.thread].name, name] = value if is_known else None
    pairs = tuple((starts[a] + i, starts[b] + j) for (a, i), (b, j) in sorted(met))
    blocked = tuple(program.threads[thread].name for thread in sorted(stuck))
    places = tuple(thread.place for thread in program.threads)
    return Skeleton(tuple(events), tuple(constraints), registers, tuple(starts[:-1]), pairs, blocked, places)


# One thread


def _ways(number: int, thread: nouns.Thread, memory: nouns.Memory, names: tuple[int, ...]) -> Iterator[Way]:
    """Yield all ways through a thread's code."""
    labels = {one.name: at for at, one in enumerate(thread.instructions) if isinstance(one, nouns.Label)}
    for one in thread.instructions:
        if isinstance(one, nouns.Branch) and one.label not in labels:
            raise ValueError(f"thread {thread.name}: no label '{one.label}' for '{one.text}', add '{one.label}:'")
    start = Way(number, {})
    waiting = [(0, start)]
    while waiting:
        at, way = waiting.pop()
        while at < len(thread.instructions):
            one = thread.instructions[at]
            if isinstance(one, nouns.Branch):
                target = labels[one.label]
                if one.relation:
                    other = way.copied()
                    _decide(other, one, is_taken=False)
                    waiting.append((at + 1, other))
                    _decide(way, one, is_taken=True)
                if target <= at:
                    break
                at = target
                continue
            others = _step(way, one, at, memory, names)
            waiting += [(at + 1, other) for other in others]
            at += 1
        else:
            yield way


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _decide(way: Way, one: nouns.Branch, *, is_taken: bool) -> None:
    """Constrain the way to one side of a branch; all that follows depends on the branch's reads."""
    left, right = way.value(one.left), way.value(one.right)
    way.constrain(one.relation if is_taken else _OPPOSITE[one.relation], left, right)
    way.control |= loads_of(left) | loads_of(right)


def _step(way: Way, one: nouns.Instruction, at: int, memory: nouns.Memory, names: tuple[int, ...]) -> list[Way]:
    """Carry out one instruction, on the way and on the other ways that begin here, which are returned."""
    others: list[Way] = []
    if isinstance(one, nouns.Access):
        if one.operation == "cas":
            others.append(way.copied())
            _failed_cas(others[-1], one, at, memory)
        _access(way, one, at, memory)
    elif isinstance(one, nouns.Fence):
        way.add(Event(way.thread, at, "F", one.text, one.order, one.scope))
    elif isinstance(one, nouns.ProxyFence):
        way.add(Event(way.thread, at, "F", one.text, proxy=one.proxy))
    elif isinstance(one, nouns.Barrier):
        if isinstance(one.name, str) and not isinstance(way.value(one.name), Number):
            others += [way.copied() for _ in names[1:]]
        for branch, name in zip((way, *others), names, strict=False):
            _arrive(branch, one, at, name)
    elif isinstance(one, nouns.Compute):
        values = [way.value(source) for source in one.sources]
        way.registers[one.destination] = (
            values[0] if one.operation == "mov" else Result(one.operation, values[0], values[1], 32)
        )
    elif isinstance(one, nouns.BulkCopy):
        _copy(way, one, at, memory)
    elif isinstance(one, nouns.CommitGroup):
        way.groups.append(())
    elif isinstance(one, nouns.WaitGroup):
        _wait(way, one, at)
    return others


def _arrive(way: Way, one: nouns.Barrier, at: int, name: int) -> None:
    """Arrive at the barrier of that number, if it is in a register that a read wrote; else at the one it has."""
    value = way.value(one.name)
    if isinstance(value, Number):
        name = value.value
    else:
        way.constrain("==", value, Number(name))
    event = way.add(Event(way.thread, at, "B", one.text))
    way.arrivals.append(Arrival((way.thread, event), name, one.count, one.kind == "sync"))


def _parts(
    address: nouns.Address, bits: int, count: int, memory: nouns.Memory
) -> list[tuple[str, int, tuple[Cell, ...]]]:
    """The scalar accesses of one instruction: name, which element, and cells, for each location of a multicast one."""
    words = bits // 32
    locations = memory.locations(address.name)
    return [
        (
            address.name if len(locations) == 1 else f"{address.name}@{location}",
            element,
            tuple((location, address.word + element * words + word) for word in range(words)),
        )
        for element in range(count)
        for location in locations
    ]


def _access(way: Way, one: nouns.Access, at: int, memory: nouns.Memory) -> None:
    """ld, st, atom, red; a multimem one does so at each replica, and ld_reduce returns the sum."""
    read = Event(way.thread, at, "R", one.text, _order_of(one, "acquire"), one.scope, is_red=one.opcode == "red")
    write = Event(way.thread, at, "W", one.text, _order_of(one, "release"), one.scope)
    results: dict[int, Value] = {}
    count = max(len(one.destinations), len(one.sources))
    for name, element, cells in _parts(one.address, one.bits, count, memory):
        old: Value = Number(0)
        number = -1
        if one.opcode != "st":
            number = way.add(replace(read, name=name, cells=cells))
            old = Loaded(way.thread, number)
            results[element] = Result("add", results[element], old, one.bits) if element in results else old
        if one.opcode == "ld":
            continue
        value = way.value(one.sources[element])
        if one.operation == "cas":
            way.constrain("==", old, way.value(one.expected))
        elif one.operation not in ("", "exch"):
            value = Result(one.operation, old, value, one.bits)
        depends = frozenset((old,)) if isinstance(old, Loaded) else frozenset()
        way.add(replace(write, name=name, cells=cells, value=value, partner=number, dependencies=depends))
    for element, register in enumerate(one.destinations):
        way.registers[register] = results[element]


def _failed_cas(way: Way, one: nouns.Access, at: int, memory: nouns.Memory) -> None:
    """A cas whose comparison fails is a read alone: atomic operations write "if they result in a write" (table 20)."""
    read = Event(way.thread, at, "R", one.text, _order_of(one, "acquire"), one.scope)
    for name, _, cells in _parts(one.address, one.bits, 1, memory):
        old = Loaded(way.thread, way.add(replace(read, name=name, cells=cells)))
        way.constrain("!=", old, way.value(one.expected))
        way.registers[one.destinations[0]] = old


def _order_of(one: nouns.Access, half: str) -> str:
    """The order of an access's read, or of its write: half is "acquire", or "release"."""
    if one.order == "acq_rel":
        return half
    return one.order if one.order in ("weak", half) else "relaxed"


def _copy(way: Way, one: nouns.BulkCopy, at: int, memory: nouns.Memory) -> None:
    """A bulk copy: per word a read and a write of the async proxy, after what the thread did before (8.9.1.1)."""
    before = tuple(number for number, event in enumerate(way.events) if not event.is_async)
    sources = _parts(one.source, 32, one.words, memory)
    targets = _parts(one.destination, 32, one.words, memory)
    for source, target in zip(sources, targets, strict=True):
        read = Event(way.thread, at, "R", one.text, "weak", proxy="async", is_async=True, after=before)
        number = way.add(replace(read, name=source[0], cells=source[2]))
        write = replace(read, kind="W", name=target[0], cells=target[2], value=Loaded(way.thread, number))
        way.groups[-1] += (number, way.add(replace(write, after=(*before, number))))


def _wait(way: Way, one: nouns.WaitGroup, at: int) -> None:
    """Completion of all groups but the last `pending`; an implicit proxy fence follows, for these copies alone."""
    committed = way.groups[:-1]
    done = committed[: max(len(committed) - one.pending, 0)]
    after = tuple(number for group in done for number in group if way.events[number].kind == "R" or not one.is_read)
    way.add(Event(way.thread, at, "F", one.text, proxy="async", is_wait=True, after=after))
