"""Weak memory: heaps in which each observer sees a store at a time of its own, as the PTX memory model allows it.

All stores still take place one after another, and Space.memory holds what is left when all are visible. Beside it lie
histories. A weak store that follows, in causality order, all that it overwrites is kept as a whole with its old bytes
(_Stored); each word knows the latest of these. A read whose latest store comes before it in causality order has no
choice. Any other access goes through the history of its eight bytes (units.py). What comes before what is in
clocks.py, which order.py feeds from the simulator's events.

What this never shows: a load that takes effect after a later store of its own thread. At once visible are, besides what
hosts write: reductions by bulk copies, rows of tensor copies that cut words, atomics of 128 bits, whole lines that a
warp stores at once in a kernel that declares the assumption warp_128, and accesses to shared memory by generic
addresses, of other blocks of the cluster, by atomics, and by copies into it. cp.async and wgmma read what is there when
all is visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.memory.chance import Chance, Place
from simulator.memory.clocks import ALIAS, ASYNC, BASE, MAX_OBSERVERS, SCOPES, Clocks, Head
from simulator.memory.heaps import Allocation, lazy_bytes
from simulator.memory.space import Addresses, Indices, Space, Span, View
from simulator.memory.units import UNIT_BYTES, Access, Unit, Write
from simulator.observe.events import LateAccess, tell
from simulator.observe.lanes import Launched, ids_of
from simulator.ptx.ir import Instruction

WORD_BYTES = 4
LINE_BYTES = 128
SLOW = -1
"""What a word's latest store is if its unit has a history of its own."""
ALIAS_WINDOW = 64
"""The windows from here on are second addresses of the heaps' windows, in worlds that have them (aliases=True)."""
SHARED_BYTES = 1 << 28
"""Room behind the heaps for the shared memory of all blocks that run; what does not fit is visible at once."""
Bytes = npt.NDArray[np.uint8]
_TYPE = re.compile(r"(?:[busf]|bf)(8|16|32|64|128)(?:x\d)?")
_SHARED = Allocation(0, "shared memory", 0, 0, 0, unwritten=False)
_ORDERS = frozenset({"weak", "relaxed", "acquire", "release", "acq_rel", "volatile"})


@dataclass(frozen=True, slots=True)
class Manner:
    """How an instruction accesses memory. element_bytes: those of its elements that are seen together, 4 or 8."""

    order: str
    scope: int
    element_bytes: int
    is_red: bool
    is_cas: bool

    @property
    def is_strong(self) -> bool:
        return self.order != "weak"

    @property
    def is_system(self) -> bool:
        return self.order != "weak" and self.scope == SCOPES["sys"]


@dataclass(slots=True, eq=False)
class _Stored:
    """One step's weak stores: words (places in memory divided by 4), what they held, and the latest store before."""

    first: int
    words: Indices
    numbers: npt.NDArray[np.int32]
    values: npt.NDArray[np.uint32]
    latest: npt.NDArray[np.int32]
    element_words: int
    position_of: dict[int, int] | None = None

    def find(self, word: int) -> int:
        """Return the last position of a word."""
        if self.position_of is None:
            self.position_of = {one: position for position, one in enumerate(self.words.tolist())}
        return self.position_of[word]


@dataclass(slots=True)
class _Now:
    """The access that is being made: which lanes, how, and by which address."""

    view: View
    manner: Manner
    alias: int
    line: int

    def place(self, position: int) -> Place:
        """Return the place of one lane's access, as choices have it (chance.Late)."""
        return _place(self.view.launched, int(self.view.lanes[position]), self.line)


def _place(launched: Launched, lane: int, line: int) -> Place:
    at, rest = divmod(lane, launched.threads)
    return launched.numbers[at], launched.threads, launched.ranks[at] * launched.threads + rest, line


def _are_whole_lines(view: View, span: Span) -> bool:
    """Whether each warp accesses whole lines of 128 aligned bytes."""
    lanes, block = ids_of(view.lanes), view.launched.block
    warps = lanes // block * block + lanes % block // 32
    _, counts = np.unique(np.stack([warps, span.index // LINE_BYTES]), axis=1, return_counts=True)
    return bool((counts * span.width_bytes == LINE_BYTES).all())


class WeakSpace(Space):
    """Space whose loads may return what stores overwrote, as long as nothing that PTX orders contradicts it.

    aliases: whether each heap has a second address for each byte. observers: their number at most. is_coherent: strong
    accesses of system scope by an ordinary and by a multicast address of the same bytes synchronize (PTX ISA 9.3,
    8.6.1; 8.x does not say so).
    """

    def __init__(
        self,
        world_size: int,
        heap_bytes: int,
        multicast: bool,
        seed: int,
        aliases: bool = False,
        observers: int = MAX_OBSERVERS,
        is_coherent: bool = True,
        chance: Chance | None = None,
    ) -> None:
        super().__init__(world_size, heap_bytes, multicast)
        self.observers, self.is_coherent = observers, is_coherent
        self.clocks = Clocks(world_size, observers)
        self.aliases = aliases
        self.seed = seed
        self.chance = chance or Chance(seed)
        self.units: dict[int, Unit] = {}
        self.memory = lazy_bytes(self.end + SHARED_BYTES)
        self.latest = lazy_bytes(len(self.memory)).view(np.int32)
        self.shared_top = self.end
        self.stored: list[_Stored] = []
        self._numbers = 1
        self._by_number: list[_Stored] = []
        self._observer = np.zeros(1024, np.int64)
        self._count = np.zeros(1024, np.int32)
        self._alias = np.zeros(1024, np.int8)
        self._now: _Now | None = None
        self._manners: dict[tuple[int, int, bool], tuple[Instruction, str, Manner]] = {}
        self.copying: tuple[Launched, Any] | None = None
        self.copies: dict[tuple[int, int], tuple[Access, Launched, int]] = {}

    def release(self) -> None:
        super().release()
        self.latest = np.empty(0, np.int32)
        self.units, self.stored, self._by_number = {}, [], []

    def restart(self) -> None:
        """Begin anew: all is visible, and chance is as at first."""
        self.settle()
        self.clocks = Clocks(self.world_size, self.observers)
        self.chance.restart(self.seed)
        self.copies = {}

    # Which access it is

    def resolve(
        self, view: View, addresses: Addresses, width_bytes: int, instruction: Instruction, action: str
    ) -> Span:
        alias = 0
        if self.aliases:
            windows = (
                np.subtract(addresses, view.base, dtype=np.uint64, casting="unsafe").view(np.int64)
            ) // self.capacity
            if (windows >= ALIAS_WINDOW).all() and (windows < ALIAS_WINDOW + self.world_size).all():
                alias = 2
                addresses = addresses - np.uint64(ALIAS_WINDOW * self.capacity)
        span = super().resolve(view, addresses, width_bytes, instruction, action)
        self._now = _Now(view, self._manner(view, instruction, action), alias, instruction.line)
        return span

    def resolve_multicast(
        self, view: View, addresses: Addresses, width_bytes: int, instruction: Instruction, action: str
    ) -> list[Span]:
        spans = super().resolve_multicast(view, addresses, width_bytes, instruction, action)
        self._now = _Now(view, self._manner(view, instruction, action), 1, instruction.line)
        return spans

    def alias_address(self, viewer: int, allocation: Allocation) -> int:
        """Return the second address at which a rank sees an allocation."""
        assert self.aliases
        return self.address(viewer, allocation) + ALIAS_WINDOW * self.capacity

    def _manner(self, view: View, instruction: Instruction, action: str) -> Manner:
        whole_bytes = view.launched.whole_bytes if action in ("load", "store") else 0
        is_atomic = action in ("atomic", "red")
        is_wide = is_atomic and view.launched.has_system_atomics
        known = self._manners.get((id(instruction), whole_bytes, is_wide))
        if known is not None and known[1] == action:
            return known[2]
        words = instruction.qualifiers
        order = next((one for one in words if one in _ORDERS), "relaxed" if is_atomic else "weak")
        default = "sys" if order == "volatile" or action == "red" else "gpu"
        scope = SCOPES[next((one for one in words if one in SCOPES), default)]
        scope = SCOPES["sys"] if is_wide and scope == SCOPES["gpu"] else scope
        bits = next((int(found[1]) for one in reversed(words) if (found := _TYPE.fullmatch(one))), 32)
        is_red = instruction.opcode == "red" or action == "red"
        together = max(bits // 8, WORD_BYTES, min(whole_bytes, UNIT_BYTES))
        made = Manner(order, scope, min(together, UNIT_BYTES), is_red, "cas" in words)
        self._manners[id(instruction), whole_bytes, is_wide] = (instruction, action, made)
        return made

    # Loads

    def gather(self, span: Span, element: str) -> npt.NDArray[np.generic]:
        now = self._now
        assert now is not None
        found = super().gather(span, element)
        words = self._words(span)
        latest = self.latest[words]
        if not latest.any():
            return found
        who = self.clocks.observers_of(now.view.launched, now.view.lanes)
        open_lanes = self._uncovered(latest, who[:, None], now.alias).any(axis=1)
        if not open_lanes.any():
            return found
        rows = np.array(found)
        flat = rows.view(np.uint8).reshape(len(rows), -1)
        starts = span.index
        for lane in np.flatnonzero(open_lanes).tolist():
            start = int(starts[lane])
            place = self._begin(now, lane)
            flat[lane] = self._read(int(who[lane]), start, span.width_bytes, now)
            self._end(place, now, lane, start, flat[lane])
        return rows

    # Accesses with a choice

    def _begin(self, now: _Now, position: int) -> Place | None:
        """One lane's access begins, for which something may be drawn. None if choices are neither kept nor followed."""
        if not self.chance.has_places:
            return None
        place = now.place(position)
        self.chance.begin(place)
        return place

    def _end(
        self, place: Place | None, now: _Now, position: int, index: int, seen: Bytes, newest: Bytes | None = None
    ) -> None:
        """It is over. seen: what it read or stored; newest: what is there when all is visible; None: look there."""
        self.chance.end(place)
        if place is not None and self.events.late and self.chance.is_late:
            newest = self.memory[index : index + len(seen)] if newest is None else newest
            if not np.array_equal(seen, newest):
                lane = int(now.view.lanes[position])
                who = (now.view.launched, range(lane, lane + 1), self.events.step)
                tell(self.events.late, LateAccess(*who, index, seen.copy(), newest.copy()))

    def _words(self, span: Span) -> Indices:
        """The words of each lane's access."""
        count = max(span.width_bytes // WORD_BYTES, 1)
        return (span.index // WORD_BYTES)[:, None] + np.arange(count)

    def _uncovered(self, latest: Any, who: Any, alias: int) -> npt.NDArray[np.bool_]:
        """Which latest stores of words do not precede the accesses of observers, as far as a look at clocks tells."""
        safe = np.maximum(latest, 0)
        layer = (self._alias[safe] != alias).astype(np.int64)
        known = self.clocks.rows[who, layer, self._observer[safe]] >= self._count[safe]
        found: npt.NDArray[np.bool_] = (latest != 0) & ((latest == SLOW) | ~known)
        return found

    def _read(self, who: int, start: int, size_bytes: int, now: _Now) -> npt.NDArray[np.uint8]:
        """What one lane reads, element by element, through histories."""
        out = np.empty(size_bytes, np.uint8)
        step = min(now.manner.element_bytes, size_bytes)
        for offset in self._shuffled(range(0, size_bytes, step), now.manner.is_strong):
            unit = self._unit((start + offset) // UNIT_BYTES)
            shift = (start + offset) % UNIT_BYTES
            mask = ((1 << step) - 1) << shift
            access = self._access(who, mask, now)
            number = (start + offset) // UNIT_BYTES
            value, is_last = unit.read(access, self.chance)
            if now.manner.is_strong:
                self._acquire(unit, access, number, now)
            if not is_last:
                self.version += 1  # a spin that saw an old value may see another one
            out[offset : offset + step] = np.frombuffer((value >> 8 * shift).to_bytes(8, "little")[:step], np.uint8)
        return out

    def _shuffled(self, offsets: range, has_effects: bool) -> list[int]:
        """Elements of a vector are accesses in no order (8.2.4). has_effects: others can tell which was first."""
        found = list(offsets)
        if len(found) > 1:
            self.chance.shuffle(found)
            self.chance.is_late |= has_effects and found != list(offsets)
        return found

    def _access(self, who: int, mask: int, now: _Now) -> Access:
        clocks = self.clocks
        return Access(
            who, clocks.now(who), clocks.places[who], clocks.rows[who], mask, now.alias,
            now.manner.is_strong, now.manner.scope, False, self.is_coherent and now.manner.is_system,
        )  # fmt: skip

    def _acquire(self, unit: Unit, access: Access, number: int, now: _Now, sources: Any = None) -> None:
        """What a strong read synchronizes with."""
        clocks, who = self.clocks, access.observer
        if not now.manner.is_red:
            for one in unit.last_read:
                if one.heads and unit.is_observed(one, access):
                    clocks.observe(who, one.heads, number, access.mask, access.common_alias)
            if now.manner.order in ("acquire", "acq_rel"):
                clocks.acquire_read(who, number, access.mask, access.common_alias, access.scope)

    # Stores

    def scatter(self, span: Span, rows: npt.NDArray[np.generic]) -> None:
        now = self._now
        assert now is not None
        who = self.clocks.observers_of(now.view.launched, now.view.lanes)
        can_be_fast = np.bool_(not now.manner.is_strong and span.width_bytes % WORD_BYTES == 0)
        words = self._words(span)
        if now.view.launched.has_whole_lines and _are_whole_lines(now.view, span):
            self._show(words)
            super().scatter(span, rows)
            return
        latest, slow = self._by_histories(
            words, lambda latest: ~can_be_fast | self._uncovered(latest, who[:, None], now.alias)
        )
        fast = np.flatnonzero(~slow)
        if len(fast):
            counts = self.clocks.rows[who[fast], 0, who[fast]]
            self._keep(words[fast], latest[fast], who[fast], counts, now.alias, now.manner.element_bytes)
        super().scatter(span, rows)
        if slow.any():
            data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
            for lane in np.flatnonzero(slow).tolist():
                start = int(span.index[lane])
                place = self._begin(now, lane)
                self._write(int(who[lane]), start, data[lane], now)
                self._end(place, now, lane, start, data[lane])

    def _by_histories(self, words: Indices, uncovered: Callable[[Any], Any]) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Return the latest stores of words, a row an access, and which accesses go through histories, which are made:
        those of which some word's latest store is uncovered."""
        while True:  # a history takes in both words of eight bytes, and so another access's
            latest = self.latest[words]
            slow: npt.NDArray[np.bool_] = np.asarray(uncovered(latest).any(axis=1))
            new = np.unique(words[slow][latest[slow] != SLOW] // 2)
            if not len(new):
                return latest, slow
            for number in new.tolist():
                self._unit(number)

    def _show(self, words: Indices) -> None:
        """What is stored to words next is visible to all at once."""
        self.latest[words] = 0
        for number in np.unique(words // 2).tolist() if self.units else ():
            self.units.pop(number, None)

    def _keep(self, words: Any, latest: Any, who: Any, counts: Any, alias: int, element_bytes: int) -> None:
        """Note weak stores that follow all that they overwrite, before they do."""
        distinct, which = np.unique(who, return_inverse=True)
        first = self._numbers
        self._numbers += len(distinct)
        while self._numbers > len(self._observer):
            self._observer, self._count, self._alias = (
                np.concatenate([one, np.zeros_like(one)]) for one in (self._observer, self._count, self._alias)
            )
        here = slice(first, self._numbers)
        self._observer[here] = distinct
        self._count[first + which] = counts
        self._alias[here] = alias
        numbers = np.repeat((first + which).astype(np.int32), words.shape[1])
        flat = words.reshape(-1)
        stored = _Stored(
            first, flat, numbers, self.memory.view(np.uint32)[flat], latest.reshape(-1).copy(),
            element_bytes // WORD_BYTES,
        )  # fmt: skip
        self.stored.append(stored)
        self._by_number += [stored] * len(distinct)
        self.latest[flat] = numbers

    def _write(self, who: int, start: int, data: npt.NDArray[np.uint8], now: _Now) -> None:
        """One lane's store, element by element, through histories. Its bytes are in memory already."""
        step = min(now.manner.element_bytes, len(data))
        for offset in self._shuffled(range(0, len(data), step), True):
            number, shift = divmod(start + offset, UNIT_BYTES)
            unit = self._unit(number)
            access = self._access(who, ((1 << step) - 1) << shift, now)
            heads = self._heads(access, number, now)
            value = int.from_bytes(data[offset : offset + step].tobytes(), "little") << 8 * shift
            unit.write(Write(access, value, heads=heads), self.chance)
            self._settle(number, unit)

    def _heads(self, access: Access, number: int, now: _Now) -> tuple[Head, ...]:
        if not now.manner.is_strong:
            return ()
        is_release = now.manner.order in ("release", "acq_rel")
        return self.clocks.heads_of_write(
            access.observer, number, access.mask, access.common_alias, access.scope, is_release
        )

    def _settle(self, number: int, unit: Unit) -> None:
        """Put what a unit shows at last into memory."""
        start = number * UNIT_BYTES
        self.memory[start : start + UNIT_BYTES] = np.frombuffer(unit.value().to_bytes(8, "little"), np.uint8)

    # Atomics

    def exchange(
        self, index: Indices, kind: str, combine: Callable[[Any, Any], Any], order: Indices | None = None
    ) -> tuple[Any, bool]:
        """Read, combine(lanes, old) and write back, lane by lane. Returns the old values, and whether any changed."""
        now = self._now
        assert now is not None
        size = np.dtype(kind).itemsize
        old = np.empty(len(index), kind)
        changed = False
        who = self.clocks.observers_of(now.view.launched, now.view.lanes)
        for lane in range(len(index)) if order is None else order.tolist():
            start = int(index[lane])
            place = np.array([lane])
            if size > UNIT_BYTES:
                old[lane], one = self._exchange_wide(start, kind, combine, place)
                changed |= one
                continue
            number, shift = divmod(start, UNIT_BYTES)
            unit = self._unit(number)
            mask = ((1 << size) - 1) << shift
            reader = self._access(int(who[lane]), mask, now)

            def made(found: int, source: Write | None) -> Write | None:
                before = np.frombuffer((found >> 8 * shift).to_bytes(8, "little")[:size], kind)  # noqa: B023
                after = np.asarray(combine(place, before), kind)  # noqa: B023
                if now.manner.is_cas and after.tobytes() == before.tobytes():
                    return None
                return self._updated(unit, reader, number, source, after, shift, now)  # noqa: B023

            place_of_lane, newest = self._begin(now, lane), self.memory[start : start + size].copy()
            value, write = unit.update(reader, made, self.chance)
            if write is None:
                self._acquire(unit, reader, number, now)
            old[lane] = np.frombuffer((value >> 8 * shift).to_bytes(8, "little")[:size], kind)[0]
            changed |= write is not None
            self._settle(number, unit)
            self._end(place_of_lane, now, lane, start, old[lane : lane + 1].view(np.uint8), newest)
        return old, changed

    def _updated(
        self, unit: Unit, reader: Access, number: int, source: Write | None, after: Any, shift: int, now: _Now
    ) -> Write:
        """The write of an atomic operation: it carries on what its source releases, if it observes it."""
        self._acquire(unit, reader, number, now)
        access = self._access(reader.observer, reader.mask, now)
        heads = self._heads(access, number, now)
        if source is not None and unit.is_observed(source, reader):
            heads = tuple(dict.fromkeys((*heads, *source.heads)))
        return Write(access, int.from_bytes(after.tobytes(), "little") << 8 * shift, heads=heads)

    def _exchange_wide(self, start: int, kind: str, combine: Any, place: Any) -> tuple[Any, bool]:
        """128 bits: they are always the last ones, and visible at once."""
        before = self.memory[start : start + 16].view(kind)[:1].copy()
        after = np.asarray(combine(place, before), kind)
        self._forget(start, start + 16)
        self.memory[start : start + 16] = np.frombuffer(after.tobytes(), np.uint8)
        return before[0], after.tobytes() != before.tobytes()

    # Histories

    def _unit(self, number: int) -> Unit:
        """The history of eight bytes; it is made from what stores of whole steps overwrote."""
        found = self.units.get(number)
        if found is None:
            found = self.units[number] = self._made_unit(number)
            self.latest[2 * number : 2 * number + 2] = SLOW
        return found

    def _made_unit(self, number: int) -> Unit:
        chains = [self._chain(2 * number + half) for half in range(2)]
        base = Access(0, 0, self.clocks.places[0], self.clocks.rows[0], 0xFF)
        unit = Unit(chains[0][0] | chains[1][0] << 32, base)
        parts: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for half, (_, chain) in enumerate(chains):
            for stored_number, value in chain:
                whole = self._by_number[stored_number - 1].element_words == 2
                key = (stored_number, 0 if whole else half)
                parts.setdefault(key, []).append((half, value))
        for (stored_number, _), halves in sorted(parts.items()):
            observer = int(self._observer[stored_number])
            who = observer % self.clocks.count
            mask = sum(0x0F << 4 * half for half, _ in halves)
            value = sum(one << 32 * half for half, one in halves)
            access = Access(
                observer, int(self._count[stored_number]), self.clocks.places[who], self.clocks.rows[who], mask,
                int(self._alias[stored_number]), is_async=observer >= self.clocks.count,
            )  # fmt: skip
            before = {one for one in unit.writes if one.access.mask & mask}
            before = before.union(*(one.before for one in before))
            made = Write(access, value, before)
            unit.writes.append(made)
            for half, _ in halves:
                unit.shown[4 * half : 4 * half + 4] = [made] * 4
        return unit

    def _chain(self, word: int) -> tuple[int, list[tuple[int, int]]]:
        """What a word held before all kept stores, and these in order: number and value."""
        number, value = int(self.latest[word]), int(self.memory.view(np.uint32)[word])
        chain: list[tuple[int, int]] = []
        while number > 0:
            stored = self._by_number[number - 1]
            position = stored.find(word)
            chain.append((number, value))
            value, number = int(stored.values[position]), int(stored.latest[position])
        return value, chain[::-1]

    # Shared memory

    def make_shared(self, blocks: int, row_bytes: int) -> tuple[npt.NDArray[np.uint8], int]:
        start = self.shared_top
        if start + blocks * row_bytes > len(self.memory):
            return super().make_shared(blocks, row_bytes)
        self.shared_top = start + -(-blocks * row_bytes // 64) * 64
        found = self.memory[start : start + blocks * row_bytes]
        found[:] = 0
        return found.reshape(blocks, row_bytes), start

    def _shared_span(
        self, view: View, places: Indices, width_bytes: int, instruction: Instruction, action: str
    ) -> Span:
        self._now = _Now(view, self._manner(view, instruction, action), 0, instruction.line)
        return Span(places, int(places[0]), "scattered", width_bytes, _SHARED)

    def load_shared(
        self, view: View, places: Indices, width_bytes: int, kind: str, instruction: Instruction
    ) -> npt.NDArray[np.generic]:
        """Return what lanes read at places of shared memory, as gather does."""
        return self.gather(self._shared_span(view, places, width_bytes, instruction, "load"), kind)

    def store_shared(
        self, view: View, places: Indices, rows: npt.NDArray[np.generic], instruction: Instruction
    ) -> None:
        """Store a matrix of one row a lane at places of shared memory."""
        width_bytes = rows.shape[1] * rows.itemsize
        self.scatter(self._shared_span(view, places, width_bytes, instruction, "store"), rows)

    def read_shared(self, shared_start: int, start: int, found: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return found.copy() if shared_start < 0 else self._as_seen(shared_start + start, found.copy())

    def settle_at(self, places: Any, size_bytes: int) -> None:
        units = np.unique((places[:, None] + np.arange(0, size_bytes + UNIT_BYTES - 1, UNIT_BYTES)) // UNIT_BYTES)
        if size_bytes > 1:
            units = np.unique(np.concatenate([units, (places + size_bytes - 1) // UNIT_BYTES]))
        words = np.concatenate([2 * units, 2 * units + 1])
        if self.latest[words].any():
            for number in units.tolist():
                self.units.pop(number, None)
            self.latest[words] = 0

    # Bulk copies

    def issue(self, launched: Launched, lane: int, number: int) -> None:
        """A lane issues a bulk copy: it sees what came before."""
        clocks = self.clocks
        (who,) = clocks.distinct(launched, range(lane, lane + 1))
        clocks.issued[who] += 1
        clock = clocks.snapshot(who)
        access = Access(clocks.count + who, int(clocks.issued[who]), clocks.places[who], clock, 0xFF, is_async=True)
        self.copies[id(launched), number] = (access, launched, lane)

    def read_bulk(self, index: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        found, before = super().read_bulk(index, size_bytes), index % WORD_BYTES
        if not before and not size_bytes % WORD_BYTES:
            return self._as_seen(index, found)
        first, end = index - before, -(-(index + size_bytes) // WORD_BYTES) * WORD_BYTES
        return self._as_seen(first, self.memory[first:end].copy())[before : before + size_bytes]

    def _as_seen(self, index: int, found: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """What the bulk copy that is under way reads at a place, whose bytes are `found` when all is visible."""
        access = self._copy_access()
        first, last = index // WORD_BYTES, -(-(index + len(found)) // WORD_BYTES)
        latest = self.latest[first:last]
        if access is None or not latest.any():
            return found
        newest = found.copy()
        for word in np.flatnonzero(self._uncovered_by_copy(latest, access)).tolist():
            unit = self._unit((first + word) // 2)
            half = (first + word) % 2
            reader = replace(access, mask=0x0F << 4 * half)
            place = self._begin_copy()
            value, _ = unit.read(reader, self.chance)
            self.chance.end(place)
            at = (first + word) * WORD_BYTES - index
            found[at : at + WORD_BYTES] = np.frombuffer((value >> 32 * half).to_bytes(8, "little")[:4], np.uint8)
        self._tell_copy(index, found, newest)
        return found

    def _tell_copy(self, index: int, seen: Bytes, newest: Bytes) -> None:
        """Tell of a bulk copy that reads something else than what is there when all is visible."""
        if self.events.late and self.copying is not None and not np.array_equal(seen, newest):
            launched, number = self.copying
            lane = self.copies[id(launched), number][2]
            how = (launched, range(lane, lane + 1), self.events.step, index)
            tell(self.events.late, LateAccess(*how, seen.copy(), newest, number))

    def write_bulk(self, index: int, data: npt.NDArray[np.uint8], chosen: npt.NDArray[np.bool_] | None = None) -> None:
        access = self._copy_access()
        if access is None or chosen is not None or index % WORD_BYTES or len(data) % WORD_BYTES:
            self._forget(index, index + len(data))
            super().write_bulk(index, data, chosen)
            return
        words = (np.arange(index, index + len(data), WORD_BYTES) // WORD_BYTES)[:, None]
        latest, slow = self._by_histories(words, lambda latest: self._uncovered_by_copy(latest, access))
        fast = np.flatnonzero(~slow)
        if len(fast):
            ones = np.ones(len(fast), np.int64)
            self._keep(words[fast], latest[fast], ones * access.observer, ones * access.count, 0, WORD_BYTES)
        super().write_bulk(index, data)
        for position in np.flatnonzero(slow).tolist():
            number, half = divmod(int(words[position, 0]), 2)
            unit = self._unit(number)
            value = int.from_bytes(data[4 * position : 4 * position + 4].tobytes(), "little") << 32 * half
            place = self._begin_copy()
            unit.write(Write(replace(access, mask=0x0F << 4 * half), value), self.chance)
            self.chance.end(place)
            self._settle(number, unit)

    def _begin_copy(self) -> Place | None:
        """An access of the bulk copy that is under way begins, as _begin says of lanes."""
        if not self.chance.has_places or self.copying is None:
            return None
        launched, number = self.copying
        place = _place(launched, self.copies[id(launched), number][2], 0)
        self.chance.begin(place)
        return place

    def _uncovered_by_copy(self, latest: Any, access: Access) -> npt.NDArray[np.bool_]:
        """Which latest stores of words do not precede a bulk copy."""
        safe = np.maximum(latest, 0)
        columns, counts = self._observer[safe], self._count[safe]
        layers = [ASYNC, BASE] if not self._alias[safe].any() else [ASYNC, BASE, ALIAS]
        known = np.logical_and.reduce([access.clock[layer, columns] >= counts for layer in layers])
        found: npt.NDArray[np.bool_] = (latest != 0) & ((latest == SLOW) | ~known)
        return found

    def _copy_access(self) -> Access | None:
        if self.copying is None:
            return None
        launched, number = self.copying
        found = self.copies.get((id(launched), number))
        return None if found is None else found[0]

    # Forgetting

    def settle(self) -> None:
        """All that was stored is visible to all."""
        for one in self.stored:
            self.latest[one.words] = 0
        for number in self.units:
            self.latest[2 * number : 2 * number + 2] = 0
        self.units, self.stored, self._by_number, self._numbers = {}, [], [], 1
        self.shared_top = self.end

    def settle_rank(self, rank: int) -> None:
        """All that was stored in a rank's heap is visible to all."""
        self._forget(rank * self.capacity, (rank + 1) * self.capacity)

    def _forget(self, start: int, end: int) -> None:
        first, last = start // UNIT_BYTES, -(-end // UNIT_BYTES)
        if last - first < len(self.units):
            numbers = [one for one in range(first, last) if one in self.units]
        else:
            numbers = [one for one in self.units if first <= one < last]
        for number in numbers:
            del self.units[number]
        if last - first <= 1 << 16:
            self.latest[2 * first : 2 * last] = 0
            return
        for one in self.stored:
            mine = one.words[(one.words >= 2 * first) & (one.words < 2 * last)]
            self.latest[mine] = 0
        for number in numbers:
            self.latest[2 * number : 2 * number + 2] = 0

    def _added(self, made: Allocation) -> Allocation:
        found = super()._added(made)
        if hasattr(self, "units"):
            self._forget(made.start, made.end)
        return found

    def host_write(self, allocation: Allocation, offset_bytes: int, data: npt.NDArray[np.uint8]) -> None:
        super().host_write(allocation, offset_bytes, data)
        start = allocation.start + offset_bytes
        self._forget(start, start + len(data))

    def make_poison(self, index: int, size_bytes: int) -> None:
        super().make_poison(index, size_bytes)
        self._forget(index, index + size_bytes)
