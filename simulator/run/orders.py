"""The orders that a schedule may have: who runs next, how far, and which copies move on.

Each is a function of its seed and of what happened before. random and adversarial choose by access or by block
(Interleaving.is_by_block); fair chooses by block alone. schedule.py has what orders do not decide: wake-ups when
nothing else can run, the step budget, the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from simulator.observe.lanes import Group, Ids, ids_of
from simulator.run.decode import WHOLE
from simulator.run.groups import compact, merge
from simulator.run.machine import SPIN_PATIENCE, Batch

if TYPE_CHECKING:
    from simulator.run.copies import UnderWay

OLDEST_EVERY = 16
"""Number of steps after which the block that has waited longest runs, instead of the first: no group starves."""
STARVED_STEPS = 256
"""Number of steps of others after which, in fair order, the copies of a launch move on all of whose lanes wait. Their
own steps would never make them due while a peer polls with a time limit, and so never sleeps."""
EARLY_RETURN = 0.5
"""How often, in random order, the host of a rank goes on as soon as its kernel is done."""
COPY_HASTE = (0.02, 0.3, 0.0)
"""How often, in random order, a bulk copy moves on between two steps: by seed, for each finds other mistakes. 0: only
when nothing else can happen."""
BURSTS = (0.3, 0.7, 0.0)
"""How often, by access in random order, lanes run on to the end of their basic block: by seed. Few switches find some
mistakes, many find others."""
STICKS = (0.0, 0.9, 0.0)
"""How often, by access in random order, those who ran last run on: by seed. Some then get far ahead of others."""
WAKES = 0.5
"""How often, by access in random order, those are woken first that poll memory which has changed."""
TEARS, SHUFFLES = 0.3, 0.5
"""How often lanes tear a vector access where they may, and reach one address in another order than by number."""
PART = 0.15
"""How often, by access in random order, only some lanes of one warp run."""
TEAMS, TEAMS_OF_MORE = 4, 2
"""Number of teams by priority, and of more blocks than TEAMS: each takes steps of its own, which cost time."""
TEAMS_IN = [tuple(1 << one for one in range(TEAMS) if bits >> one & 1) for bits in range(1 << TEAMS)]
MOST_LOOKS, MANY_BLOCKS = 4, 16
"""Number of signals of more than MANY_BLOCKS blocks after which threads that poll look again only when nothing else can
run."""
_SIGNALS = frozenset({"release", "relaxed", "volatile", "acq_rel", "sc", "red", "atom"})
"""What is in the instructions that store what others poll: others run with what they store after them."""
NUMBERS = 1 << 16
"""Of tears and shuffles."""
WARP = 32


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A turn of lanes of a batch, by its place among those under way. The rest is as in choices.Turn."""

    batch: int
    index: int
    lanes: Group
    accesses: int = WHOLE
    tear: int = 0
    shuffle: int = 0
    wakes: bool = False


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copies of a batch move on: their places among those under way. The rest is as in choices.Moved."""

    batch: int
    copies: tuple[int, ...]
    lane: int = -1
    tear: int = 0
    idle: bool = False


class Order(Protocol):
    """Who decides. Batches are those under way; one at least has lanes that are ready when turn is called."""

    def turn(self, batches: list[Batch]) -> Step:
        """Take lanes from those that are ready, and say how far they run."""
        ...

    def moves(self, batches: list[Batch]) -> Iterable[CopyStep]:
        """Which copies move on after a step."""
        ...

    def idle_move(self, batches: list[Batch]) -> CopyStep:
        """Which copies move on while nothing else can happen; some are under way."""
        ...

    def returns(self) -> bool:
        """Whether the host of a rank goes on at once whose kernel is done."""
        ...


@dataclass(slots=True)
class Fair:
    """The first ready block in program order, so that lanes that went different ways meet again. Batches take turns.

    idle_since: by id of a batch none of whose lanes is ready, the step at which this was seen first.
    """

    steps: int = 0
    idle_since: dict[int, int] = field(default_factory=dict)

    def turn(self, batches: list[Batch]) -> Step:
        able = [number for number, batch in enumerate(batches) if batch.ready]
        number = able[self.steps % len(able)]
        self.steps += 1
        batch = batches[number]
        if batch.steps % OLDEST_EVERY == 0:  # its own steps: with the world's, batches that take turns could miss it
            index = min(batch.ready, key=lambda one: (batch.last_run.get(one, 0), one))
        else:
            index = min(batch.ready)
        return Step(number, index, batch.take(index))

    def moves(self, batches: list[Batch]) -> list[CopyStep]:
        """Those that are due, and those of a launch that has starved."""
        found = []
        for number, batch in enumerate(batches):
            copies = batch.copies.under_way
            if not copies:
                continue
            time = batch.steps
            if batch.ready:
                self.idle_since.pop(id(batch), None)
            elif self.steps - self.idle_since.setdefault(id(batch), self.steps) >= STARVED_STEPS:
                time = max(time, min(copy.due for copy in copies))
            due = tuple(place for place, copy in enumerate(copies) if copy.due <= time)
            if due:
                found.append(CopyStep(number, due))
        return found

    def idle_move(self, batches: list[Batch]) -> CopyStep:
        number, batch = next((number, one) for number, one in enumerate(batches) if one.copies.under_way)
        due = min(copy.due for copy in batch.copies.under_way)
        return CopyStep(number, tuple(place for place, copy in enumerate(batch.copies.under_way) if copy.due == due))

    def returns(self) -> bool:
        return False


class Drawn:
    """What random orders have in common. A subclass has the random numbers."""

    seed: int
    random: Any

    def moves(self, batches: list[Batch]) -> list[CopyStep]:
        haste = COPY_HASTE[self.seed % len(COPY_HASTE)]
        able = [(number, one) for number, one in enumerate(batches) if one.copies.under_way]
        return [self._some_copies(number, batch) for number, batch in able if self.random.random() < haste]

    def idle_move(self, batches: list[Batch]) -> CopyStep:
        return self._some_copies(*self._any([(n, one) for n, one in enumerate(batches) if one.copies.under_way]))

    def returns(self) -> bool:
        return bool(self.random.random() < EARLY_RETURN)

    def _some_copies(self, number: int, batch: Batch) -> CopyStep:
        """A copy at random; or all that go its way, load or store, of its block, its rank, or of all ranks."""
        copies = batch.copies.under_way
        place, unit = self._any(range(len(copies))), self._any((0, batch.block, batch.threads, batch.lanes))
        one, tear = copies[place], self._tear()
        if unit:
            return CopyStep(number, _likewise(copies, one, unit), tear=tear)
        from simulator.run.lane_copies import LaneCopy

        if isinstance(one, LaneCopy) and len(one.lanes) > 1:
            return CopyStep(number, (place,), int(self._any(one.lanes)))
        return CopyStep(number, (place,), tear=tear)

    def _tear(self) -> int:
        return 0

    def _any(self, among: Any) -> Any:
        raise NotImplementedError


class Blocks(Drawn):
    """random by block: any block, and of its lanes all, one rank's, one block's or one warp's."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random: np.random.Generator = np.random.default_rng(seed)

    def turn(self, batches: list[Batch]) -> Step:
        wakes = self.random.random() < 0.25
        if wakes:
            for batch in batches:
                batch.wake()
        choices = [(number, index) for number, batch in enumerate(batches) for index in sorted(batch.ready)]
        number, index = self._any(choices)
        batch = batches[number]
        group = batch.take(index)
        unit = (batch.lanes, batch.threads, batch.block, 32)[int(self.random.choice(4, p=(0.2, 0.3, 0.4, 0.1)))]
        lane = int(self._any(group))
        return Step(number, index, _within(batch, index, group, lane, unit), wakes=wakes)

    def _any(self, among: Any) -> Any:
        return among[int(self.random.integers(len(among)))]


class Accesses(Drawn):
    """random by access: lanes run for one access to memory or on to the end of their basic block; all lanes there, one
    rank's, one block's, one warp's or some of a warp."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random: Random = Random(seed)
        self.burst, self.stick = BURSTS[seed % len(BURSTS)], STICKS[seed // len(BURSTS) % len(STICKS)]
        self.last: tuple[Batch, Group] | None = None

    def turn(self, batches: list[Batch]) -> Step:
        random = self.random.random
        wakes = random() < WAKES
        if wakes:
            for batch in batches:
                batch.wake()
        number, index, lanes = self._on(batches) or self._pick(batches)
        self.last = (batches[number], lanes)
        return self.run_on(Step(number, index, lanes, wakes=wakes), random() < self.burst)

    def _on(self, batches: list[Batch]) -> tuple[int, int, Group] | None:
        """Those who ran last, sometimes, if any of them can."""
        if self.last is None or self.random.random() >= self.stick or self.last[0] not in batches:
            return None
        batch, wanted = self.last
        for index in sorted(batch.ready):
            lanes = taken(batch, index, wanted)
            if lanes is not None:
                return batches.index(batch), index, lanes
        return None

    def _pick(self, batches: list[Batch]) -> tuple[int, int, Group]:
        """Lanes at one of the places."""
        places = [(number, index) for number, batch in enumerate(batches) for index in sorted(batch.ready)]
        number, index = self._any(places)
        batch = batches[number]
        return number, index, self.some(batch, index, batch.take(index))

    def some(self, batch: Batch, index: int, group: Group) -> Group:
        """Choose among the lanes of a group, and put the others back."""
        drawn = self.random.random()
        if drawn < 0.2 or len(group) == 1:
            return group
        unit = batch.threads if drawn < 0.45 else batch.block if drawn < 0.8 else 32
        chosen = _within(batch, index, group, int(self._any(group)), unit)
        if drawn < 1 - PART or len(chosen) == 1:
            return chosen
        return kept(batch, index, chosen, self._parts(ids_of(chosen) % batch.block % 32))

    def _parts(self, places: Ids) -> npt.NDArray[np.bool_]:
        """Some places of a warp: one of them, those of one parity, those below or above one, or any."""
        kind, bound = self.random.randrange(5), int(self._any(places))
        mask: npt.NDArray[np.bool_] = places == bound
        if kind == 1:
            mask = places % 2 == bound % 2
        elif kind in (2, 3):
            mask = places >= bound if kind == 2 else places <= bound
        elif kind == 4:
            mask |= (self.random.getrandbits(32) >> places & 1).astype(np.bool_)
        return mask

    def run_on(self, turn: Step, is_burst: bool) -> Step:
        """Say how far lanes run and how they access memory."""
        random = self.random
        tear = random.randrange(1, NUMBERS) if not is_burst and random.random() < TEARS else 0
        shuffle = random.randrange(1, NUMBERS) if random.random() < SHUFFLES else 0
        return Step(turn.batch, turn.index, turn.lanes, WHOLE if is_burst else 1, tear, shuffle, turn.wakes)

    def _tear(self) -> int:
        return self.random.randrange(1, NUMBERS) if self.random.random() < TEARS else 0

    def _any(self, among: Any) -> Any:
        return among[self.random.randrange(len(among))]


class Priority(Blocks):
    """Teams of blocks, by priority: of those that can, the first team runs, until all its threads wait. Who polls looks
    again after each signal of others, once. Seed 0: the last rank and its last blocks first; others draw them. Launches
    begin together, and so move the copies of more blocks than TEAMS: with batches of single ranks, and copies that come
    one by one, runs would take several times as many steps.

    teams: by a launch's ranks and numbers, each block's team: 1 is the first, then 2, 4 and 8. looked: who has polled
    since the last signal. signals: by program and place, whether lanes signal there.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.teams: dict[tuple[tuple[int, ...], tuple[int, ...]], Ids] = {}
        self.looked: set[tuple[int, int, int]] = set()
        self.signals: dict[tuple[int, int], bool] = {}
        self.is_idle = False
        self.looks = MOST_LOOKS

    def turn(self, batches: list[Batch]) -> Step:
        for batch in batches:
            batch.wake()
        places = self._places(batches)
        waiting = [one for one in places if (one[1], one[2], one[0]) not in self.looked]
        self.is_idle = not waiting
        if self.is_idle:
            self.looked.clear()
            waiting = places
            for spin in (one for batch in batches for one in batch.spins.values()):
                spin.visits = SPIN_PATIENCE  # who looks in vain twice more sleeps
        team, number, index = min(waiting)
        batch = batches[number]
        group = batch.take(index)
        ids = ids_of(group)
        lanes = kept(batch, index, group, self._teams_of(batch)[ids // batch.block] == team)
        if index in batch.program.spin_headers:
            self.looked.add((number, index, team))
        if self.looked and self._signals(batch, index) and (self.looks or _blocks_of(batch) <= MANY_BLOCKS):
            self.looked.clear()
            self.looks -= self.looks > 0
        return Step(number, index, lanes, wakes=True)

    def moves(self, batches: list[Batch]) -> list[CopyStep]:
        """Some now and then, and of each launch when all threads have polled in vain."""
        if not self.is_idle:
            return super().moves(batches)
        return [self._some_copies(number, one) for number, one in enumerate(batches) if one.copies.under_way]

    def _some_copies(self, number: int, batch: Batch) -> CopyStep:
        if _blocks_of(batch) <= TEAMS:
            return super()._some_copies(number, batch)
        return CopyStep(number, tuple(range(len(batch.copies.under_way))))

    def _signals(self, batch: Batch, index: int) -> bool:
        """Whether a step stores what another thread may poll."""
        key = (id(batch.program), index)
        if key not in self.signals:
            step = batch.program.steps[index]
            self.signals[key] = step.stores and any(
                not _SIGNALS.isdisjoint((one.opcode, *one.qualifiers)) for one in step.instructions
            )
        return self.signals[key]

    def _places(self, batches: list[Batch]) -> list[tuple[int, int, int]]:
        """Where lanes are ready: team, batch and place."""
        return [
            (team, number, index)
            for number, batch in enumerate(batches)
            for index, groups in batch.ready.items()
            for team in {one for group in groups for one in self._teams_in(batch, group)}
        ]

    def _teams_in(self, batch: Batch, group: Group) -> tuple[int, ...]:
        of, block = self._teams_of(batch), batch.block
        if isinstance(group, range):
            return TEAMS_IN[np.bitwise_or.reduce(of[group.start // block : (group.stop - 1) // block + 1])]
        return TEAMS_IN[np.bitwise_or.reduce(of[ids_of(group) // block])]

    def _teams_of(self, batch: Batch) -> Ids:
        key = (batch.launched.ranks, batch.launched.numbers)
        if key not in self.teams:
            self.teams[key] = self._drawn(batch)
        return self.teams[key]

    def _drawn(self, batch: Batch) -> Ids:
        """Give blocks of all ranks, some at a time, to teams: those of a rank together, or those of a number, or
        any."""
        blocks, most = batch.lanes // batch.block, TEAMS if _blocks_of(batch) <= TEAMS else TEAMS_OF_MORE
        numbers = np.arange(blocks)
        if not self.seed:
            order = numbers[::-1]
        else:
            keys = self._any((numbers // batch.grid, numbers % batch.grid, numbers))
            order = np.argsort(self.random.permutation(blocks)[keys], kind="stable")
        return (1 << numbers * min(most, blocks) // blocks)[np.argsort(order)]


def oldest(batches: list[Batch], turn: int) -> tuple[int, int]:
    """Return the place where lanes have waited longest, of the batch in turn."""
    able = [number for number, batch in enumerate(batches) if batch.ready]
    number = able[turn % len(able)]
    last_run = batches[number].last_run
    return number, min(batches[number].ready, key=lambda one: (last_run.get(one, 0), one))


def _blocks_of(batch: Batch) -> int:
    """Return the number of blocks of such launches of all ranks, however many ranks began together."""
    return batch.grid * batch.space.world_size


def _likewise(copies: list[UnderWay], one: UnderWay, unit: int) -> tuple[int, ...]:
    """The places of copies that go the same way as one, from lanes of the same unit."""
    return tuple(
        place
        for place, copy in enumerate(copies)
        if copy.lane // unit == one.lane // unit and copy.is_load == one.is_load
    )


def _within(batch: Batch, index: int, group: Group, lane: int, unit: int) -> Group:
    """The lanes of a group in the same unit of lanes as one of them; the others are put back. 32: its warp."""
    low = lane // unit * unit
    if unit == 32:
        low = max(lane // batch.block * batch.block, lane - lane % batch.block % 32)
    high = low + unit
    if int(group[0]) >= low and int(group[-1]) < high:
        return group
    ids = ids_of(group)
    return kept(batch, index, group, (ids >= low) & (ids < high))


def kept(batch: Batch, index: int, group: Group, mask: npt.NDArray[np.bool_]) -> Group:
    """Return the lanes of a group where the mask holds, some of them; the others are put back."""
    if mask.all():
        return group
    ids = ids_of(group)
    batch.ready.setdefault(index, []).append(compact(ids[~mask]))
    return compact(ids[mask])


def tears_of(batch: Batch, step: Step) -> int:
    """Return the fewest bytes of a vector that a step may tear; 0: it tears none."""
    return batch.launched.whole_bytes + 1 if step.tear else 0


def whole_warps(batch: Batch, step: Step) -> Step:
    """Return a step of the same lanes and of all others of their warps that are ready at the same place; none of their
    vectors is torn. For kernels that rely on lines which a warp accesses at once."""
    ids = ids_of(step.lanes)
    firsts = np.unique(ids - ids % batch.block % WARP)
    wanted = (firsts[:, None] + np.arange(WARP)).ravel()
    # The last warp of a block may have fewer lanes: then what follows belongs to another block.
    wanted = wanted[wanted // batch.block == np.repeat(firsts, WARP) // batch.block]
    others = taken(batch, step.index, compact(wanted)) if step.index in batch.ready else None
    lanes = step.lanes if others is None else merge([step.lanes, others])
    return replace(step, lanes=lanes, tear=0)


def taken(batch: Batch, index: int, wanted: Group) -> Group | None:
    """Take of some lanes those that are ready at a place; None if there are none."""
    groups = batch.ready.get(index)
    if groups is None or int(wanted[0]) > max(int(one[-1]) for one in groups):
        return None
    group = batch.take(index)
    if isinstance(group, range) and isinstance(wanted, range) and group == wanted:
        return group
    ids = ids_of(group)
    mask = np.isin(ids, ids_of(wanted))
    if not mask.any():
        batch.ready.setdefault(index, []).append(group)
        return None
    return kept(batch, index, group, mask)
