"""Where some lanes wait for some others: instructions that the lanes of a warp carry out together, and numbered
barriers of a block with any number of threads. Barriers of all lanes are in barriers.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.memory.space import LaneFault, fault_where
from simulator.observe.lanes import Group, Ids, ids_of
from simulator.run.decode import Exit

WARP = 32
BARRIERS = 16
"""Numbered barriers of a block."""


@dataclass(slots=True)
class Arrived:
    """Lanes that came to an instruction, with the mask that each of them gave."""

    way_out: Exit
    lanes: Ids
    masks: Ids


@dataclass(slots=True)
class Warps:
    """Who waits for the rest of its mask, by opcode and qualifiers (Exit.key).

    alive: a word a warp, of lanes that have not returned.
    """

    block: int
    lanes: int
    alive: npt.NDArray[np.uint32] = field(init=False)
    waiting: dict[str, list[Arrived]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alive = self._bits(np.arange(self.lanes))

    @property
    def _per_block(self) -> int:
        return -(-self.block // WARP)

    def warps_of(self, lanes: Ids) -> Ids:
        """The number of each lane's warp within the launch."""
        blocks, threads = np.divmod(lanes, self.block)
        found: Ids = blocks * self._per_block + threads // WARP
        return found

    def places_of(self, lanes: Ids) -> Ids:
        """Each lane's place in its warp."""
        found: Ids = lanes % self.block % WARP
        return found

    def _bits(self, lanes: Ids) -> npt.NDArray[np.uint32]:
        """A word a warp, with the bits of these lanes."""
        count = -(-self.lanes // self.block) * self._per_block
        weights = np.left_shift(np.int64(1), self.places_of(lanes)).astype(np.float64)
        return np.bincount(self.warps_of(lanes), weights, count).astype(np.uint32)

    def arrive(self, way_out: Exit, group: Group, masks: Ids) -> list[tuple[Exit, Ids]]:
        """Lanes come; returns those whose sets are complete, ascending, by their way out. Raises LaneFault."""
        lanes = ids_of(group)
        others = masks >> self.places_of(lanes) & 1 == 0
        fault_where(others, lambda lane: f"a thread that is not in its own mask {int(masks[lane]):#x}")
        self.waiting.setdefault(way_out.key, []).append(Arrived(way_out, lanes, masks))
        return self._complete(way_out.key)

    def leave(self, group: Group) -> list[list[tuple[Exit, Ids]]]:
        """Lanes return for good: nothing waits for them any longer. Returns who goes on, a list an instruction."""
        self.alive &= ~self._bits(ids_of(group))
        return [self._complete(key) for key in list(self.waiting)]

    def _complete(self, key: str) -> list[tuple[Exit, Ids]]:
        entries = self.waiting.get(key)
        if not entries:
            return []
        lanes = np.concatenate([one.lanes for one in entries])
        masks = np.concatenate([one.masks for one in entries])
        warps = self.warps_of(lanes)
        sets, number = np.unique(warps << 32 | masks, return_inverse=True)
        bits = np.left_shift(np.int64(1), self.places_of(lanes)).astype(np.float64)
        come = np.bincount(number, bits).astype(np.int64)
        full = come == (sets & 0xFFFFFFFF & self.alive[sets >> 32])
        if not full.any():
            return []
        ready = full[number]
        going: dict[int, list[Ids]] = {}
        ways: dict[int, Exit] = {}
        staying: list[Arrived] = []
        start = 0
        for one in entries:
            mask = ready[start : start + len(one.lanes)]
            start += len(one.lanes)
            if mask.any():
                ways[id(one.way_out)] = one.way_out
                going.setdefault(id(one.way_out), []).append(one.lanes[mask])
            if not mask.all():
                staying.append(Arrived(one.way_out, one.lanes[~mask], one.masks[~mask]))
        self.waiting[key] = staying
        if not staying:
            del self.waiting[key]
        return [(ways[one], np.sort(np.concatenate(parts), kind="stable")) for one, parts in going.items()]

    def report(self) -> list[tuple[Exit, Ids, int]]:
        """For a deadlock's report: instruction, the lanes of a warp that wait there, and the places they wait for."""
        found = []
        for entries in self.waiting.values():
            sets = [self.warps_of(one.lanes) << 32 | one.masks for one in entries]
            come: dict[int, int] = {}
            for one, numbers in zip(entries, sets, strict=True):
                for number, place in zip(numbers.tolist(), self.places_of(one.lanes).tolist(), strict=True):
                    come[number] = come.get(number, 0) | 1 << place
            for one, numbers in zip(entries, sets, strict=True):
                for number in np.unique(numbers).tolist():
                    missing = number & 0xFFFFFFFF & int(self.alive[number >> 32]) & ~come[number]
                    found.append((one.way_out, one.lanes[numbers == number], missing))
        return found


@dataclass(slots=True)
class Numbered:
    """One numbered barrier of one block, that threads have come to.

    expected: threads that it needs. is_all: nothing but barriers of all threads so far, which need no thread that has
    returned. whole: the first and the last thread of each run of whole warps that has come, as long as nothing but
    whole warps came; apart: after that, how often each place of each warp has come.
    """

    expected: int
    key: str
    is_all: bool = True
    whole: list[tuple[int, int]] = field(default_factory=list)
    apart: npt.NDArray[np.int64] | None = None
    waiting: list[tuple[Exit, Ids]] = field(default_factory=list)


@dataclass(slots=True)
class NumberedBarriers:
    """The numbered barriers of a launch's blocks, those that threads have come to, by block and number.

    A barrier counts warps, each as 32 threads: one has come with the last of its threads that have not returned.
    """

    warps: Warps
    alive: Ids  # threads by block that have not returned; shared with the barriers of whole blocks
    open: dict[tuple[int, int], Numbered] = field(default_factory=dict)

    def arrive(
        self, way_out: Exit, group: Group, numbers: Ids, counts: Ids, waits: bool
    ) -> list[tuple[int, list[tuple[Exit, Ids]]]]:
        """Lanes come; counts: of threads that the barrier needs, 0 for all. Returns who goes on, a list a barrier, with
        its number. Raises LaneFault.
        """
        lanes = ids_of(group)
        text = f"a block has barriers 0 to {BARRIERS - 1}"
        fault_where((numbers < 0) | (numbers >= BARRIERS), lambda lane: f"barrier {int(numbers[lane])}; {text}")
        text_of_counts = f"threads; it takes a multiple of {WARP}"
        fault_where(counts % WARP != 0, lambda lane: f"a barrier of {int(counts[lane])} {text_of_counts}")
        keys = lanes // self.warps.block * BARRIERS + numbers
        released = []
        for key in np.unique(keys).tolist():
            mine = np.flatnonzero(keys == key)
            one = self._opened(divmod(key, BARRIERS), way_out, mine, counts)
            self._count(key // BARRIERS, one, lanes[mine] % self.warps.block)
            if waits:
                one.waiting.append((way_out, lanes[mine]))
            come, needed = self._standing(key // BARRIERS, one)
            if come > needed:
                text = f"{come} threads came to barrier {key % BARRIERS}, which is for {needed}"
                raise LaneFault(int(mine[0]), text)
            if come == needed:
                released.append((key % BARRIERS, self._release(divmod(key, BARRIERS))))
        return released

    def _opened(self, key: tuple[int, int], way_out: Exit, mine: Ids, counts: Ids) -> Numbered:
        """The barrier that lanes come to; it must be used as those before them use it."""
        every = -(-self.warps.block // WARP) * WARP
        wanted = np.where(counts[mine] == 0, every, counts[mine])
        one = self.open.get(key)
        if one is None:
            one = self.open[key] = Numbered(int(wanted[0]), way_out.key)
        others = "all" if one.is_all else str(one.expected)
        different = wanted != one.expected
        if different.any():
            lane = int(mine[np.argmax(different)])
            text = f"barrier {key[1]} for {int(counts[lane]) or 'all'} threads, which others use for {others}"
            raise LaneFault(lane, text)
        if way_out.key != one.key:
            text = f"{way_out.key or 'bar.sync or bar.arrive'} at barrier {key[1]}, where others are in "
            raise LaneFault(int(mine[0]), text + (one.key or "bar.sync or bar.arrive"))
        one.is_all = one.is_all and not counts[mine].any()
        return one

    def _count(self, block: int, one: Numbered, threads: Ids) -> None:
        """Threads of a block come, ascending. Whole warps of a block of which no thread has returned are quick."""
        first, last = int(threads[0]), int(threads[-1])
        is_whole = last - first + 1 == len(threads) and first % WARP == 0
        is_whole = is_whole and ((last + 1) % WARP == 0 or last + 1 == self.warps.block)
        if one.apart is None and is_whole and self._is_full(block):
            one.whole.append((first, last))
        else:
            self._places(one).reshape(-1)[threads] += 1

    def _is_full(self, block: int) -> bool:
        return int(self.alive[block]) == self.warps.block

    def _places(self, one: Numbered) -> npt.NDArray[np.int64]:
        """How often each place of each warp has come; counted so from now on."""
        if one.apart is None:
            one.apart = np.zeros((-(-self.warps.block // WARP), WARP), np.int64)
            for first, last in one.whole:
                one.apart.reshape(-1)[first : last + 1] += 1
        return one.apart

    def _standing(self, block: int, one: Numbered) -> tuple[int, int]:
        """How many threads have come, by warps, and how many the barrier needs."""
        if one.apart is None and self._is_full(block):
            return sum(-(-(last + 1 - first) // WARP) * WARP for first, last in one.whole), one.expected
        come = WARP * int(self._counted(block, one).sum())
        if not one.is_all:
            return come, one.expected
        asked = self._alive_places(block) | (self._places(one) > 0)
        return come, WARP * int(np.count_nonzero(asked.any(axis=1)))

    def _alive_places(self, block: int) -> npt.NDArray[np.bool_]:
        """For each warp of a block and each place in it, whether a thread is there that has not returned."""
        warps = -(-self.warps.block // WARP)
        words = self.warps.alive[block * warps : (block + 1) * warps]
        found: npt.NDArray[np.bool_] = (words[:, None] >> np.arange(WARP, dtype=np.uint32) & 1).astype(np.bool_)
        return found

    def _counted(self, block: int, one: Numbered) -> Ids:
        """How often each warp has come: as often as each of its threads that have not returned.

        If all of them have returned, those count that came before.
        """
        places, asked = self._places(one), self._alive_places(block)
        asked |= ~asked.any(axis=1, keepdims=True) & (places > 0)
        most = np.iinfo(np.int64).max
        least = np.where(asked, places, most).min(axis=1)
        found: Ids = np.where(least == most, 0, least)
        return found

    def leave(self, group: Group) -> list[tuple[int, list[tuple[Exit, Ids]]]]:
        """Threads returned: barriers of their blocks may be complete without them."""
        if not self.open:
            return []
        blocks = set(np.unique(ids_of(group) // self.warps.block).tolist())
        released = []
        for key in [one for one in self.open if one[0] in blocks]:
            come, needed = self._standing(key[0], self.open[key])
            if come >= needed:
                released.append((key[1], self._release(key)))
        return released

    def _release(self, key: tuple[int, int]) -> list[tuple[Exit, Ids]]:
        """Who goes on from a complete barrier. Threads that came again wait for the next time."""
        one = self.open[key]
        if one.apart is not None:
            one.apart = np.maximum(one.apart - self._counted(key[0], one)[:, None], 0)
            again = one.apart.reshape(-1) > 0
            if again.any():
                one.whole = []
                stays = [(way_out, lanes, again[lanes % self.warps.block]) for way_out, lanes in one.waiting]
                one.waiting = [(way_out, lanes[late]) for way_out, lanes, late in stays if late.any()]
                return [(way_out, lanes[~late]) for way_out, lanes, late in stays if not late.all()]
        del self.open[key]
        return one.waiting

    def progress(self, key: tuple[int, int]) -> tuple[int, int]:
        """For a deadlock's report: how many threads have come to a barrier, and how many it needs."""
        one = self.open[key]
        threads = (self._places(one) > 0).sum(axis=1)
        if one.is_all:
            return int(threads.sum()), int(self.alive[key[0]])
        counted = self._counted(key[0], one)
        return int(np.where(counted > 0, WARP * counted, threads).sum()), one.expected
