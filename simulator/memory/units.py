"""Writes of one unit of eight bytes that observers may still read, and the coherence order among them.

A unit holds whole histories: each read chooses among the writes that the axioms of the PTX ISA (8.10) leave it, given
all that ran before; each write takes a place in coherence order, which is partial, as in 8.9.6: two writes have an
order if they are morally strong or if causality orders them. What a new place in that order would contradict, in what
was read before, is looked at before it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from simulator.memory.chance import Chance
from simulator.memory.clocks import ALIAS, ASYNC, BASE, Clock, Head, Place

UNIT_BYTES = 8
MAX_WRITES = 24
"""Writes of a unit that are kept; the oldest ones are then no longer read."""
MAX_READS = 64
"""Reads of a unit that are kept, with which a write that takes an early place must agree."""
TRIES = 8


@dataclass(slots=True, eq=False)
class Access:
    """One access of up to eight bytes: who makes it, how, and where within its unit.

    observer and count: a column of the clocks and its counter, the second half being bulk copies. clock is what comes
    before it. mask has a bit for each byte. is_coherent: of system scope and strong, which makes its address the same
    as another one of the bytes, for others of that kind.
    """

    observer: int
    count: int
    place: Place
    clock: Clock
    mask: int
    alias: int = 0
    is_strong: bool = False
    scope: int = 0
    is_async: bool = False
    is_coherent: bool = False

    @property
    def common_alias(self) -> int:
        """The address at which it synchronizes with others."""
        return 0 if self.is_coherent else self.alias


@dataclass(slots=True, eq=False)
class Write:
    """A write: its bytes in place, the writes of the unit before it in coherence order, and who has observed it."""

    access: Access
    value: int
    before: set[Write] = field(default_factory=set)
    heads: tuple[Head, ...] = ()
    source: Write | None = None  # of an atomic operation: what it read
    observers: dict[tuple[int, int, int, bool], int] = field(default_factory=dict)
    is_initial: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What a read returned, and which writes came before it in causality order, by group of bytes."""

    sources: tuple[tuple[int, Write], ...]
    covered: frozenset[Write]


def is_morally_strong(one: Access, other: Access) -> bool:
    """Return whether two accesses of a unit are morally strong (8.6)."""
    same_address = one.alias == other.alias or (one.is_coherent and other.is_coherent)
    if one.mask != other.mask or not same_address or one.is_async != other.is_async:
        return False
    if one.observer == other.observer:
        return not one.is_async
    if not (one.is_strong and other.is_strong):
        return False
    return one.place.includes(one.scope, other.place) and other.place.includes(other.scope, one.place)


def is_before(reader: Access, observer: int, count: int, same_address: bool, is_async: bool, place: Place) -> bool:
    """Return whether an access precedes another in proxy-preserved base causality order (8.9.5)."""
    clock = reader.clock
    if reader.is_async:
        near = is_async and (place.rank, place.block) == (reader.place.rank, reader.place.block)
        if not near and clock[ASYNC, observer] < count:
            return False
    return bool(clock[BASE if same_address else ALIAS, observer] >= count)


def is_covered(reader: Access, write: Write) -> bool:
    """Return whether a write precedes an access in causality order: by itself, or because it was observed."""
    if write.is_initial:
        return True
    one = write.access
    same = one.alias == reader.alias or (one.is_coherent and reader.is_coherent)
    if is_before(reader, one.observer, one.count, same, one.is_async, one.place):
        return True
    for (observer, alias, mask, is_coherent), count in write.observers.items():
        same = alias == reader.alias or (is_coherent and reader.is_coherent)
        if mask & reader.mask and is_before(reader, observer, count, same, False, one.place):
            return True
    return False


def groups_of(mask: int) -> tuple[int, ...]:
    """The words of 32 bits, or parts of them, that a mask has."""
    return tuple(part for part in (mask & 0x0F, mask & 0xF0) if part)


class Unit:
    """The history of eight bytes."""

    __slots__ = ("last_read", "reads", "shown", "writes")

    def __init__(self, initial: int, base: Access) -> None:
        first = Write(base, initial, is_initial=True)
        self.writes: list[Write] = [first]
        self.reads: list[Read] | None = []
        self.shown: list[Write] = [first] * UNIT_BYTES
        """The write that is last, for each byte."""
        self.last_read: list[Write] = []
        """What the latest read returned."""

    # Values

    def value(self) -> int:
        """Return the bytes as they are when all is visible."""
        total = 0
        for byte in range(UNIT_BYTES):
            total |= self.shown[byte].value & (0xFF << 8 * byte)
        return total

    def is_quiet(self) -> bool:
        """Return whether no write but the initial one is kept."""
        return len(self.writes) == 1

    # Reads

    def candidates(self, reader: Access, covered: frozenset[Write], group: int) -> list[Write]:
        """The writes that an access may read a group of bytes from: none that a write before it follows (8.10.6)."""
        later = [one for one in covered if one.access.mask & group]
        return [
            one for one in self.writes if one.access.mask & group and not any(one in other.before for other in later)
        ]

    def covered(self, reader: Access) -> frozenset[Write]:
        """The writes that precede an access in causality order."""
        return frozenset(one for one in self.writes if one.access.mask & reader.mask and is_covered(reader, one))

    def read(self, reader: Access, chance: Chance) -> tuple[int, bool]:
        """Choose what a read returns; note that it was read. Return the bytes, and whether all of them are the last."""
        covered = self.covered(reader)
        chosen = self._choose(reader, covered, chance)
        self.note(reader, chosen, covered)
        value, is_last = 0, True
        for group, one in chosen:
            value |= one.value & BITS[group]
            is_last &= all(self.shown[byte] is one for byte in range(UNIT_BYTES) if group >> byte & 1)
        chance.is_late |= not is_last
        return value, is_last

    def _choose(self, reader: Access, covered: frozenset[Write], chance: Chance) -> tuple[tuple[int, Write], ...]:
        groups = [part for whole in groups_of(reader.mask) for part in self._parts(whole)]
        last = tuple((group, self.shown[group.bit_length() - 1]) for group in groups)
        if len(self.writes) == 1 or chance.is_fresh():
            return last
        choices = [self.candidates(reader, covered, group) for group in groups]
        for _ in range(TRIES):
            chosen = tuple((group, chance.choice(some)) for group, some in zip(groups, choices, strict=True))
            if not _is_torn(reader, chosen):
                return chosen
        return last

    def _parts(self, group: int) -> list[int]:
        """The group, or its bytes if some write has only some of them or they have different last writes."""
        last = {id(self.shown[byte]) for byte in range(UNIT_BYTES) if group >> byte & 1}
        is_whole = all(not one.access.mask & group or one.access.mask & group == group for one in self.writes)
        return (
            [group] if is_whole and len(last) == 1 else [1 << byte for byte in range(UNIT_BYTES) if group >> byte & 1]
        )

    def note(self, reader: Access, chosen: Sequence[tuple[int, Write]], covered: frozenset[Write]) -> None:
        """Keep a read, and mark what it observes (8.9.2)."""
        self.last_read = [one for _, one in chosen]
        for one in self.last_read:
            if self.is_observed(one, reader):
                key = (reader.observer, reader.alias, reader.mask, reader.is_coherent)
                one.observers[key] = min(reader.count, one.observers.get(key, reader.count))
        if self.reads is not None and len(self.writes) > 1:
            self.reads.append(Read(tuple(chosen), covered))
            if len(self.reads) > MAX_READS:
                self.reads = None  # from now on, writes take the last place only

    def is_observed(self, write: Write, reader: Access) -> bool:
        """Return whether an access that reads a write observes it."""
        return not write.is_initial and is_morally_strong(write.access, reader)

    # Writes

    def write(self, made: Write, chance: Chance) -> None:
        """Take a write in, at a place in coherence order that chance chooses among the possible ones."""
        forced = self._forced(made)
        early = not chance.is_fresh()
        if not early or not self._try(made, forced, chance):
            self._put_last(made, forced)
        self._show(made, chance)
        self._prune()

    def update(
        self, reader: Access, made: Callable[[int, Write | None], Write | None], chance: Chance
    ) -> tuple[int, Write | None]:
        """Carry out an atomic operation: choose what it reads, and a place right behind that (8.10.3).

        made: gives the write for what was read, None if there is none. Returns what was read.
        """
        covered = self.covered(reader)
        for source in self._sources(reader, covered, chance):
            if self._may_follow(reader, source, covered):
                return self._updated(reader, source, covered, made, chance)
        chosen = tuple((group, self.shown[group.bit_length() - 1]) for group in groups_of(reader.mask))
        value = self.value() & BITS[reader.mask]
        self.note(reader, chosen, covered)
        write = made(value, chosen[0][1])
        if write is not None:
            self._put_last(write, self._forced(write))
            self._show(write, chance)
        return value, write

    def _updated(
        self,
        reader: Access,
        source: Write,
        covered: frozenset[Write],
        made: Callable[[int, Write | None], Write | None],
        chance: Chance,
    ) -> tuple[int, Write | None]:
        """An atomic operation that reads from a source."""
        chance.is_late |= source is not self.shown[reader.mask.bit_length() - 1]
        value = source.value & BITS[reader.mask]
        chosen = [(group, source) for group in groups_of(reader.mask)]
        self.note(reader, chosen, covered)
        write = made(value, source)
        if write is None:
            return value, None
        write.source = source
        forced = self._forced(write)
        late = [one for one in self._rivals(write, forced) if source in one.before]
        if (not late and chance.is_fresh()) or not self._try(write, forced, chance, after=late):
            self._put_last(write, forced)
        self._show(write, chance)
        self._prune()
        return value, write

    def _sources(self, reader: Access, covered: frozenset[Write], chance: Chance) -> list[Write]:
        """What an atomic operation may read all its bytes from, in the order in which to try."""
        found = [
            one for one in self.candidates(reader, covered, reader.mask) if one.access.mask & reader.mask == reader.mask
        ]
        chance.shuffle(found)
        last = self.shown[reader.mask.bit_length() - 1]
        if last in found and chance.is_fresh():
            found.remove(last)
            found.insert(0, last)
        return found

    def _may_follow(self, reader: Access, source: Write, covered: frozenset[Write]) -> bool:
        """Return whether an atomic operation may read from a source and write right behind it."""
        trial = Write(reader, 0, source=source)
        observed = {source, *source.before} if is_morally_strong(source.access, reader) else set()
        forced = observed.union(*({one, *one.before} for one in covered))
        late = [one for one in self.writes if source in one.before and is_morally_strong(one.access, reader)]
        if not late:
            return self._is_possible(trial, forced, ())
        return not any(one in forced for one in late) and self._is_possible(trial, forced, late)

    def _forced(self, made: Write) -> set[Write]:
        """What comes before a write in coherence order for certain (8.10.1)."""
        forced: set[Write] = set()
        for one in self.writes:
            if one.access.mask & made.access.mask and is_covered(made.access, one):
                forced.add(one)
                forced |= one.before
        if made.source is not None and is_morally_strong(made.source.access, made.access):
            forced |= {made.source, *made.source.before}
        return forced

    def _rivals(self, made: Write, forced: set[Write]) -> list[Write]:
        """Writes that a new one must have an order with, and has none yet."""
        return [
            one
            for one in self.writes
            if one not in forced and one.access.mask & made.access.mask and is_morally_strong(one.access, made.access)
        ]

    def _try(self, made: Write, forced: set[Write], chance: Chance, after: Sequence[Write] = ()) -> bool:
        """Put a write before some of its rivals, for certain before those in `after`. Says whether that is possible."""
        rivals = sorted(self._rivals(made, forced), key=lambda one: len(one.before))
        if not rivals or self.reads is None:
            return False
        for _ in range(TRIES):
            cut = chance.below(len(rivals) + 1)
            before = set(forced)
            for one in rivals[:cut]:
                before |= {one, *one.before}
            late = [one for one in rivals if one not in before]
            if all(one in late for one in after) and self._is_possible(made, before, late):
                chance.is_late |= bool(late)
                self._insert(made, before, late)
                return True
        late = [one for one in rivals if one in after or any(two in one.before for two in after)]
        before = set(forced)
        for one in rivals:
            if one not in late:
                before |= {one, *one.before}
        if after and not any(one in before for one in late) and self._is_possible(made, before, late):
            self._insert(made, before, late)
            return True
        if after and self._is_possible(made, forced, rivals):
            self._insert(made, forced, rivals)
            return True
        return False

    def _is_possible(self, made: Write, before: set[Write], late: Sequence[Write]) -> bool:
        """Return whether a place agrees with all that was read (8.10.3, 8.10.6)."""
        if self.reads is None and late:
            return False
        follows = self._following(late)
        earlier = {made, *before}
        if follows & earlier:
            return False
        after = {one: (one.before | earlier if one in follows else one.before) for one in self.writes}
        after[made] = set(before)
        for one in (*self.writes, made):
            source = one.source
            if source is None:
                continue
            for other, known in after.items():
                if source in known and other in after[one] and is_morally_strong(other.access, one.access):
                    return False
        for read in self.reads or ():
            for group, source in read.sources:
                if any(one.access.mask & group and source in after.get(one, ()) for one in read.covered):
                    return False
        return True

    def _following(self, late: Sequence[Write]) -> set[Write]:
        return {one for one in self.writes if one in late or any(two in one.before for two in late)}

    def _insert(self, made: Write, before: set[Write], late: Sequence[Write]) -> None:
        for one in self._following(late):
            one.before |= {made, *before}
        made.before = set(before)
        self.writes.append(made)

    def _put_last(self, made: Write, forced: set[Write]) -> None:
        before = set(forced)
        for one in self._rivals(made, forced):
            before |= {one, *one.before}
        made.before = before
        self.writes.append(made)

    def _show(self, made: Write, chance: Chance) -> None:
        """Choose the last write of each byte: of racing ones either."""
        chosen: dict[tuple[int, ...], Write] = {}
        lasts: dict[tuple[int, ...], list[Write]] = {}
        for byte in range(UNIT_BYTES):
            if not made.access.mask >> byte & 1:
                continue
            mine = [one for one in self.writes if one.access.mask >> byte & 1]
            writes = tuple(map(id, mine))
            if writes not in lasts:  # bytes of one word mostly have the same writes
                earlier = set().union(*(one.before for one in mine))
                lasts[writes] = [one for one in mine if one not in earlier]
            last = lasts[writes]
            key = tuple(map(id, last))
            if key not in chosen:
                usual = last.index(made) if made in last else len(last) - 1
                chosen[key] = last[0] if len(last) == 1 else chance.choice(last, usual)
                chance.is_late |= chosen[key] is not last[usual]
            self.shown[byte] = chosen[key]

    def _prune(self) -> None:
        """Forget the oldest writes of a long history: no one reads them any longer."""
        if len(self.writes) <= MAX_WRITES:
            return
        kept = set(self.shown)
        dropped = {one for one in self.writes[: len(self.writes) - MAX_WRITES // 2] if one not in kept}
        for one in tuple(dropped):
            dropped |= one.before
        self.writes = [one for one in self.writes if one not in dropped]
        for one in self.writes:
            one.before -= dropped
            if one.source in dropped:
                one.source = None
        self.reads = None


def _is_torn(reader: Access, chosen: Sequence[tuple[int, Write]]) -> bool:
    """Return whether a read would take one part from a morally strong write and another from before it (8.10.3)."""
    for _, one in chosen:
        if not is_morally_strong(one.access, reader):
            continue
        if any(other in one.before for group, other in chosen if one.access.mask & group):
            return True
    return False


def _bits(mask: int) -> int:
    """The bits of the bytes in a mask."""
    return sum(0xFF << 8 * byte for byte in range(UNIT_BYTES) if mask >> byte & 1)


BITS = [_bits(mask) for mask in range(256)]
