"""All final states of a litmus program: which the model allows, and which axiom forbids each of the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from symlab.checks.litmus.cycle import Violation, violation
from symlab.checks.litmus.model import (
    AXIOMS,
    Fixed,
    Numbers,
    Orders,
    Relation,
    closed,
    cyclic,
    fixed,
    has_late_loads,
    is_mixed,
    orders,
    races,
    violated,
)
from symlab.checks.litmus.program import Condition, Program, Seen, compared, holds, seen_by
from symlab.checks.litmus.unfold import Loaded, Number, Skeleton, Value, skeletons

MAXIMUM_EXECUTIONS = 100_000
"""The number of executions, whole or begun, that a program may have: some seconds."""

MAXIMUM_EXPLAINED = 30_000
"""The number of executions up to which those that the model forbids are looked at, too."""

_STEPS = 2
"""Executions that are begun count, too: how many of these there may be for each that is looked at to explain."""

_TRIES = 6
"""Number of executions of a forbidden state to look for its shortest contradiction in."""

_BATCH = 1024
"""Number of executions to treat at once, for memory's sake."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A final state: values in the order of Judgement.seen, and the threads that wait at a barrier for ever.

    The value of a register is None if its thread waits for ever before the access that writes it. has_race says that an
    allowed execution with this end has a data race (8.7.1). why is None if it is allowed. needs_late_load: each allowed
    execution with this end has a load that takes effect after a later store of its own thread.
    """

    values: tuple[int | None, ...]
    blocked: tuple[str, ...]
    is_allowed: bool
    has_race: bool
    why: Violation | None = None
    needs_late_load: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the model says of a program: its final states, and for each condition whether it holds.

    executions is how many it allows. mixed_race names two accesses of different sizes that race: then the model says
    nothing (8.7.2), and no condition holds. is_explained says whether outcomes has the forbidden ones, too.
    """

    program: Program
    seen: tuple[Seen, ...]
    outcomes: tuple[Outcome, ...]
    executions: int
    is_explained: bool
    mixed_race: tuple[str, str] | None

    @property
    def allowed(self) -> tuple[Outcome, ...]:
        """The outcomes that the model allows."""
        return tuple(one for one in self.outcomes if one.is_allowed)

    @property
    def has_deadlock(self) -> bool:
        """Whether all threads may wait for ever."""
        return any(len(one.blocked) == len(self.program.threads) for one in self.allowed)

    def holds(self, condition: Condition) -> bool:
        """Return whether a condition of the program holds over all final states that the model allows.

        States in which no thread ends, or in which a register of the condition has no value, are left out.
        """
        if self.mixed_race is not None:
            return False
        named = set(seen_by(condition.expression))
        results = []
        for one in self.allowed:
            state = {seen: value for seen, value in zip(self.seen, one.values, strict=True) if value is not None}
            if named <= set(state) and len(one.blocked) < len(self.program.threads):
                results.append(holds(condition.expression, state))
        if condition.quantifier == "exists":
            return any(results)
        return all(results) if condition.quantifier == "always" else not any(results)


def judged(program: Program, *, is_explained: bool = True) -> Judgement:
    """Return what the model says of a program.

    is_explained asks for the forbidden outcomes, with reasons. Raises ValueError if it has too many executions.
    """
    plans = [(skeleton, fixed(skeleton)) for skeleton in skeletons(program)]
    if is_explained and sum(_size(one) for _, one in plans) <= MAXIMUM_EXPLAINED:
        try:
            return _judgement(program, plans, _Budget(program.name, _STEPS * MAXIMUM_EXPLAINED), is_explained=True)
        except TooManyExecutions:  # some axioms leave more coherence orders than the bound knows of
            pass
    return _judgement(program, plans, _Budget(program.name, MAXIMUM_EXECUTIONS), is_explained=False)


def _judgement(
    program: Program, plans: list[tuple[Skeleton, Fixed]], budget: _Budget, *, is_explained: bool
) -> Judgement:
    tally = _Tally(program, final_names(program), is_explained)
    for skeleton, one in plans:
        for batch in _executions(skeleton, one, budget, is_pruned=not is_explained):
            tally.add(skeleton, one, batch)
    outcomes = sorted(tally.outcomes(), key=_by_value)
    return Judgement(program, tally.seen, tuple(outcomes), tally.executions, is_explained, tally.mixed_race)


def _by_value(one: Outcome) -> tuple[object, ...]:
    return one.blocked, tuple(-1 if value is None else value for value in one.values)


def final_names(program: Program) -> tuple[Seen, ...]:
    """Return what a final state shows: registers that accesses write, and all that conditions are about."""
    seen = [
        Seen(thread.name, register)
        for thread in program.threads
        for one in thread.instructions
        for register in getattr(one, "destinations", ())
    ]
    named = {one for condition in program.conditions for one in seen_by(condition.expression)}
    return tuple(dict.fromkeys([*seen, *sorted(named - set(seen))]))


class TooManyExecutions(ValueError):
    """A program has more executions than the judge looks at."""


@dataclass(slots=True)
class _Budget:
    """How many executions are left to look at."""

    name: str
    left: int

    def spend(self, number: int) -> None:
        """Count executions. Raises TooManyExecutions, a ValueError, if none is left."""
        self.left -= number
        if self.left < 0:
            raise TooManyExecutions(
                f"{self.name}: more than {MAXIMUM_EXECUTIONS:,} executions, make the program smaller: "
                "fewer reads and writes of one location"
            )


# Executions


@dataclass(frozen=True, slots=True)
class _Batch:
    """Executions of one skeleton: for each its orders, and the value of each event."""

    orders: Orders
    coherence: Relation
    from_reads: Relation
    values: NDArray[np.uint64]


Slot = tuple[int, int]
"""A read, and which of its words."""


def _slots(one: Fixed) -> list[Slot]:
    return [
        (number, at) for number in np.flatnonzero(one.is_read).tolist() for at in range(len(one.events[number].cells))
    ]


def _writers(one: Fixed, slot: Slot) -> list[int]:
    """The writes that a word of a read may come from."""
    cell = one.events[slot[0]].cells[slot[1]]
    own = one.update[slot[0]]
    return [
        int(number) for number in np.flatnonzero(one.is_write) if cell in one.events[number].cells and not own[number]
    ]


def _size(one: Fixed) -> float:
    """An upper bound of the number of executions, without regard to any axiom."""
    size = 1.0
    for slot in _slots(one):
        size *= len(_writers(one, slot))
    strong = one.same_location & one.is_write[:, None] & one.is_write & one.morally_strong
    pairs = np.triu(strong, 1).sum() + np.triu(one.sc_fences, 1).sum()
    return float(size * 2.0**pairs)


def _executions(skeleton: Skeleton, one: Fixed, budget: _Budget, *, is_pruned: bool) -> Iterator[_Batch]:
    """Yield the executions of a skeleton in batches. Pruned, these are only such that no axiom forbids."""
    slots = _slots(one)
    fences, _ = _oriented(np.zeros((1, one.size, one.size), dtype=bool), np.triu(one.sc_fences, 1)[None], budget)
    waiting = [(0, np.full((len(fences), len(slots)), -1, dtype=np.int64), fences)]
    while waiting:
        depth, sources, fence_sc = waiting.pop()
        if len(sources) > _BATCH:
            waiting += [
                (depth, sources[at : at + _BATCH], fence_sc[at : at + _BATCH]) for at in range(0, len(sources), _BATCH)
            ]
            continue
        budget.spend(len(sources))
        if is_pruned and depth > 0:
            keep = _may_go_on(one, slots, sources, fence_sc)
            sources, fence_sc = sources[keep], fence_sc[keep]
        if not len(sources):
            continue
        if depth == len(slots):
            yield from _completed(skeleton, one, slots, sources, fence_sc, budget, is_pruned=is_pruned)
            continue
        choices = _writers(one, slots[depth])
        longer = np.repeat(sources, len(choices), axis=0)
        longer[:, depth] = np.tile(choices, len(sources))
        waiting.append((depth + 1, longer, np.repeat(fence_sc, len(choices), axis=0)))


def _reads_from(one: Fixed, slots: list[Slot], sources: Numbers) -> Relation:
    relation = np.zeros((len(sources), one.size, one.size), dtype=bool)
    for at, (read, _) in enumerate(slots):
        is_chosen = sources[:, at] >= 0
        relation[np.flatnonzero(is_chosen), sources[is_chosen, at], read] = True
    return relation


def _may_go_on(one: Fixed, slots: list[Slot], sources: Numbers, fence_sc: Relation) -> NDArray[np.bool_]:
    """Whether executions that are begun contradict no axiom yet: more reads only add to each order."""
    found = orders(one, _reads_from(one, slots, sources), fence_sc)
    coherence = _forced(one, found.causality)
    from_reads = _from_reads(one, slots, sources, coherence)
    wrong = violated(one, found, from_reads, coherence)
    is_wrong = np.any([relation.any(axis=(-2, -1)) for relation in wrong.values()], axis=0)
    return np.asarray(~is_wrong & ~cyclic(coherence))


def _forced(one: Fixed, causality: Relation | None) -> Relation:
    """Coherence order as far as it has no choice: initial writes first, and (8.10.1) causality order."""
    writes = one.is_write[:, None] & one.is_write & one.same_location
    start = one.is_initial[:, None] & ~one.is_initial & writes
    return start if causality is None else closed(start | (causality & writes))


def _from_reads(one: Fixed, slots: list[Slot], sources: Numbers, coherence: Relation) -> Relation:
    """From a read to the writes that follow, in coherence order, the one that it returns a word of (8.9.7)."""
    relation = np.zeros((len(sources), one.size, one.size), dtype=bool)
    for at, slot in enumerate(slots):
        rows = np.flatnonzero(sources[:, at] >= 0)
        later = coherence[rows, sources[rows, at]]
        covers = np.zeros(one.size, dtype=bool)
        covers[_writers(one, slot)] = True
        covers |= one.update[slot[0]]
        relation[rows, slot[0]] |= later & covers
    return relation


def _oriented(start: Relation, pairs: Relation, budget: _Budget) -> tuple[Relation, Numbers]:
    """All transitive orders that have a start and relate each pair in one direction or the other.

    Starts and pairs are arrays [execution, from, to]; the second result is which execution an order is for.
    """
    whole: list[tuple[Relation, Numbers]] = []
    waiting = [(start, np.arange(len(start)))]
    while waiting:
        relation, origin = waiting.pop()
        if len(relation) > _BATCH:
            waiting += [(relation[at : at + _BATCH], origin[at : at + _BATCH]) for at in range(0, len(origin), _BATCH)]
            continue
        relation = closed(relation)
        keep = ~cyclic(relation)
        relation, origin = relation[keep], origin[keep]
        budget.spend(len(relation))
        flat = (pairs[origin] & ~relation & ~np.swapaxes(relation, -1, -2)).reshape(len(origin), -1)
        is_whole = ~flat.any(axis=1)
        whole.append((relation[is_whole], origin[is_whole]))
        relation, origin, flat = relation[~is_whole], origin[~is_whole], flat[~is_whole]
        if not len(origin):
            continue
        first, second = np.unravel_index(flat.argmax(axis=1), relation.shape[1:])
        for a, b in ((first, second), (second, first)):
            longer = relation.copy()
            longer[np.arange(len(origin)), a, b] = True
            waiting.append((longer, origin))
    return np.concatenate([one for one, _ in whole]), np.concatenate([one for _, one in whole])


def _completed(
    skeleton: Skeleton,
    one: Fixed,
    slots: list[Slot],
    sources: Numbers,
    fence_sc: Relation,
    budget: _Budget,
    *,
    is_pruned: bool,
) -> Iterator[_Batch]:
    """Add values and coherence orders to executions whose reads are all chosen."""
    reads_from = _reads_from(one, slots, sources)
    values, is_stable = _values(skeleton, one, slots, sources)
    keep = _taken(skeleton, values) & is_stable
    sources, fence_sc, reads_from, values = sources[keep], fence_sc[keep], reads_from[keep], values[keep]
    if not len(sources):
        return
    found = orders(one, reads_from, fence_sc)
    writes = one.is_write[:, None] & one.is_write & one.same_location & ~np.eye(one.size, dtype=bool)
    related = (one.morally_strong | found.causality | np.swapaxes(found.causality, -1, -2)) & writes
    start = _forced(one, found.causality if is_pruned else None)
    start = np.broadcast_to(start, related.shape)
    related = related & ~one.is_initial & ~one.is_initial[:, None]
    coherence, rows = _oriented(start, related, budget)
    for at in range(0, len(rows), _BATCH):
        chosen, here = rows[at : at + _BATCH], coherence[at : at + _BATCH]
        these = Orders(*(getattr(found, name)[chosen] for name in Orders.__dataclass_fields__))
        from_reads = _from_reads(one, slots, sources[chosen], here)
        yield _Batch(these, here, from_reads, values[chosen])


# Values


def _values(
    skeleton: Skeleton, one: Fixed, slots: list[Slot], sources: Numbers
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The value that each event reads or writes, in each execution, and whether there is one.

    Where reads and dependencies make a circle (8.10.4), it is one that justifies itself, if there is such a value.
    """
    values = np.zeros((len(sources), one.size), dtype=np.uint64)
    rows = np.arange(len(sources))
    for _ in range(len(slots) + 2):
        before = values.copy()
        for number, event in enumerate(one.events):
            if event.kind == "W":
                values[:, number] = _evaluated(skeleton, event.value, values, event.bits)
        values[:, one.is_read] = 0
        for at, (read, word) in enumerate(slots):
            cell = one.events[read].cells[word]
            origin = np.array([event.cells.index(cell) if cell in event.cells else 0 for event in one.events])
            source = sources[:, at]
            part = values[rows, source] >> (32 * origin[source]).astype(np.uint64) & np.uint64(0xFFFFFFFF)
            values[:, read] |= part << np.uint64(32 * word)
        is_stable: NDArray[np.bool_] = (before == values).all(axis=1)
        if is_stable.all():
            break
    return values, is_stable


def _evaluated(skeleton: Skeleton, value: Value, values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """A value in each execution, cut to its bits."""
    mask = np.uint64((1 << bits) - 1)
    if isinstance(value, Number):
        return np.full(len(values), value.value & int(mask), dtype=np.uint64)
    if isinstance(value, Loaded):
        return values[:, skeleton.number(value)] & mask
    left, right = (_evaluated(skeleton, part, values, value.bits) for part in (value.left, value.right))
    functions = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "min": np.minimum,
        "max": np.maximum,
    }
    result: NDArray[np.uint64] = functions[value.operation](left, right)
    return result & np.uint64((1 << value.bits) - 1) & mask


def _taken(skeleton: Skeleton, values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether the values lead through the skeleton's ways."""
    keep = np.ones(len(values), dtype=bool)
    for one in skeleton.constraints:
        left, right = (_evaluated(skeleton, part, values, 64) for part in (one.left, one.right))
        keep &= np.array([compared(one.relation, int(a), int(b)) for a, b in zip(left, right, strict=True)], dtype=bool)
    return keep


# Final states


State = tuple[tuple[int | None, ...], tuple[str, ...]]
"""Values, and blocked threads."""


@dataclass(slots=True)
class _Tally:
    """Final states, as they are found."""

    program: Program
    seen: tuple[Seen, ...]
    is_explained: bool
    allowed: dict[State, bool] = field(default_factory=dict)
    in_order: set[State] = field(default_factory=set)  # ends of allowed executions without late loads
    forbidden: dict[State, Violation] = field(default_factory=dict)
    tries: dict[State, int] = field(default_factory=dict)
    executions: int = 0
    mixed_race: tuple[str, str] | None = None

    def outcomes(self) -> Iterator[Outcome]:
        """Yield all final states."""
        for (values, blocked), has_race in self.allowed.items():
            is_late = (values, blocked) not in self.in_order
            yield Outcome(values, blocked, True, has_race, needs_late_load=is_late)
        for (values, blocked), why in self.forbidden.items():
            if (values, blocked) not in self.allowed:
                yield Outcome(values, blocked, False, False, why)

    def add(self, skeleton: Skeleton, one: Fixed, batch: _Batch) -> None:
        """Take the final states of a batch."""
        wrong = violated(one, batch.orders, batch.from_reads, batch.coherence)
        marks = np.array([wrong[name].any(axis=(-2, -1)) for name in AXIOMS])
        racing = races(one, batch.orders)
        late = has_late_loads(one, batch.orders)
        states = self._states(skeleton, one, batch)
        for row in range(len(batch.values)):
            broken = [name for name, is_broken in zip(AXIOMS, marks[:, row], strict=True) if is_broken]
            if not broken:
                self.executions += 1
                self._allow(states[row], one, racing[row])
                if not late[row]:
                    self.in_order.update(states[row])
                continue
            for state in states[row]:
                if self.is_explained and state not in self.allowed:
                    self._forbid(state, one, batch, row, broken)

    def _allow(self, states: list[State], one: Fixed, racing: Relation) -> None:
        has_race = bool(racing.any())
        for state in states:
            self.allowed[state] = self.allowed.get(state, False) or has_race
        if has_race and self.mixed_race is None:
            mixed = np.argwhere(racing & is_mixed(one))
            if len(mixed):
                self.mixed_race = tuple(_named(self.program, one, int(number)) for number in mixed[0])  # type: ignore[assignment]

    def _forbid(self, state: State, one: Fixed, batch: _Batch, row: int, broken: list[str]) -> None:
        """Keep why a state is forbidden: of its executions, one that contradicts few axioms, in few steps."""
        known = self.forbidden.get(state)
        self.tries[state] = self.tries.get(state, 0) + 1
        if known is not None and (len(broken) > len(known.axioms) or self.tries[state] > _TRIES):
            return
        names = [_named(self.program, one, number) for number in range(one.size)]
        found = violation(one, _row(batch.orders, row), batch.from_reads[row], batch.coherence[row], broken, names)
        if known is None or (len(found.axioms), len(found.steps)) < (len(known.axioms), len(known.steps)):
            self.forbidden[state] = found

    def _states(self, skeleton: Skeleton, one: Fixed, batch: _Batch) -> list[list[State]]:
        """The final states of each execution: several if racing writes are last at a location, in no order."""
        columns: list[list[tuple[int | None, ...]]] = []
        for seen in self.seen:
            value = skeleton.registers.get((seen.thread, seen.name), Number(0))
            if not seen.thread:
                columns.append(self._last(seen, one, batch))
            elif value is None:
                columns.append([(None,)] * len(batch.values))
            else:
                columns.append([(number,) for number in _evaluated(skeleton, value, batch.values, 64).tolist()])
        return [
            [(values, skeleton.blocked) for values in itertools.product(*choices)]
            for choices in (zip(*columns, strict=True) if columns else [()] * len(batch.values))
        ]

    def _last(self, seen: Seen, one: Fixed, batch: _Batch) -> list[tuple[int | None, ...]]:
        """The values of a word, in each execution, that no write follows in coherence order."""
        cell = (seen.name, seen.word)
        writes = np.array([number for number in np.flatnonzero(one.is_write) if cell in one.events[number].cells], int)
        if not len(writes):
            return [(self.program.memory.initial[seen.name][seen.word],)] * len(batch.values)
        is_last = np.asarray(~batch.coherence[:, writes[:, None], writes].any(axis=2))
        shifts = np.array([32 * one.events[number].cells.index(cell) for number in writes], dtype=np.uint64)
        words = batch.values[:, writes] >> shifts & np.uint64(0xFFFFFFFF)
        return [tuple(sorted(set(row[last].tolist()))) for row, last in zip(words, is_last, strict=True)]


def _row(found: Orders, row: int) -> Orders:
    return Orders(*(getattr(found, name)[row] for name in Orders.__dataclass_fields__))


def _named(program: Program, one: Fixed, number: int) -> str:
    """An event as messages name it: its thread and its instruction, of an atomic operation which half."""
    event = one.events[number]
    if event.thread < 0:
        return event.text
    half = ""
    if one.update[number].any() or one.update[:, number].any():
        half = " (its read)" if event.kind == "R" else " (its write)"
    return f"{program.threads[event.thread].name}: {event.text}{half}"
