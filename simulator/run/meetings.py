"""Where some lanes wait for some others: instructions that the lanes of a warp carry out together, and numbered
barriers of a block with any number of threads. Barriers of all lanes are in barriers.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.memory.space import LaneFault
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
    """Who waits for the rest of its mask, by instruction. alive: a word a warp, of lanes that have not returned."""

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

    def arrive(self, key: str, way_out: Exit, group: Group, masks: Ids) -> list[tuple[Exit, Ids]]:
        """Lanes come; returns those whose sets are complete, ascending, by their way out. Raises LaneFault."""
        lanes = ids_of(group)
        own = masks >> self.places_of(lanes) & 1
        if not own.all():
            first = int(np.argmin(own))
            raise LaneFault(first, f"a thread that is not in its own mask {int(masks[first]):#x}")
        self.waiting.setdefault(key, []).append(Arrived(way_out, lanes, masks))
        return self._complete(key)

    def leave(self, group: Group) -> list[tuple[Exit, Ids]]:
        """Lanes return for good: nothing waits for them any longer."""
        self.alive &= ~self._bits(ids_of(group))
        return [one for key in list(self.waiting) for one in self._complete(key)]

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
            for one in entries:
                sets = self.warps_of(one.lanes) << 32 | one.masks
                for number in np.unique(sets).tolist():
                    lanes = one.lanes[sets == number]
                    come = int(np.bitwise_or.reduce(np.left_shift(np.int64(1), self.places_of(lanes))))
                    missing = number & 0xFFFFFFFF & int(self.alive[number >> 32]) & ~come
                    found.append((one.way_out, lanes, missing))
        return found


@dataclass(slots=True)
class Numbered:
    """One numbered barrier of one block. expected: threads that it needs, 0 for all of the block that are alive."""

    expected: int
    come: int = 0
    waiting: list[tuple[Exit, Ids]] = field(default_factory=list)


@dataclass(slots=True)
class NumberedBarriers:
    """The numbered barriers of a launch's blocks, those that threads have come to, by block and number."""

    block: int
    alive: Ids  # threads by block that have not returned; shared with the barriers of whole blocks
    open: dict[tuple[int, int], Numbered] = field(default_factory=dict)

    def arrive(
        self, way_out: Exit, group: Group, numbers: Ids, counts: Ids, waits: bool
    ) -> list[list[tuple[Exit, Ids]]]:
        """Lanes come; counts: of threads that the barrier needs, 0 for all. Returns who goes on, a list a barrier.

        Raises LaneFault.
        """
        lanes = ids_of(group)
        wrong = (numbers < 0) | (numbers >= BARRIERS)
        if wrong.any():
            lane = int(np.argmax(wrong))
            raise LaneFault(lane, f"barrier {int(numbers[lane])}; a block has barriers 0 to {BARRIERS - 1}")
        wrong = counts % WARP != 0
        if wrong.any():
            lane = int(np.argmax(wrong))
            raise LaneFault(lane, f"a barrier of {int(counts[lane])} threads; it takes a multiple of {WARP}")
        keys = lanes // self.block * BARRIERS + numbers
        released = []
        for key in np.unique(keys).tolist():
            mine = keys == key
            first = int(np.argmax(mine))
            one = self.open.setdefault(divmod(key, BARRIERS), Numbered(int(counts[first])))
            different = mine & (counts != one.expected)
            if different.any():
                lane = int(np.argmax(different))
                text = f"barrier {key % BARRIERS} for {int(counts[lane]) or 'all'} threads, which others use for "
                raise LaneFault(lane, text + f"{one.expected or 'all'}")
            one.come += int(np.count_nonzero(mine))
            if waits:
                one.waiting.append((way_out, lanes[mine]))
            needed = one.expected or int(self.alive[key // BARRIERS])
            if one.come > needed:
                raise LaneFault(first, f"{one.come} threads came to barrier {key % BARRIERS}, which is for {needed}")
            released += self._complete(divmod(key, BARRIERS))
        return released

    def leave(self) -> list[list[tuple[Exit, Ids]]]:
        """Some threads returned: barriers of all threads may be complete without them."""
        return [done for key in list(self.open) if not self.open[key].expected for done in self._complete(key)]

    def _complete(self, key: tuple[int, int]) -> list[list[tuple[Exit, Ids]]]:
        one = self.open[key]
        if one.come < (one.expected or int(self.alive[key[0]])):
            return []
        del self.open[key]
        return [one.waiting]
