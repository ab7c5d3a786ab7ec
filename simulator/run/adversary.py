"""The adversarial order: of what can run next, rather what is likely to break a kernel.

Each seed draws its habits, and draws them anew now and then. A pick leaves out lanes that they hold back, if others can
run. What is held back runs at the latest when nothing else can; and every OLDEST_EVERY turns those run that have waited
longest at their place, whatever the habits say: no lanes are held back for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.observe.lanes import Group, Ids, ids_of
from simulator.run.machine import Batch
from simulator.run.orders import Accesses, Step, kept, oldest, tears_of

OLDEST_EVERY = 48
"""Number of turns after which those run that have waited longest."""
PHASES = (32, 128, 512)
"""Turns for which habits last: one of these."""
DELAYS = (8, 32, 128)
"""Turns for which lanes are held back that have stored something: one of these in each phase."""
TRIES = 4
"""Places that are looked at for lanes that are not held back."""
OVERTAKES = 0.9
"""How often the host of a rank goes on at once whose kernel is done."""
STORES_DELAYED = 0.5
"""How often lanes are held back that have stored something."""


@dataclass(slots=True)
class Habits:
    """What an adversary does for a while.

    behind: the rank that waits, -1 for none. delay: turns for which lanes wait that have stored something, 0: none.
    places: which lanes of each warp may run, as bits, 0: all. starves: lanes that poll wait; hurries: they look after
    every store instead. newest: later launches go first. burst: how often lanes run on to the end of their basic block.
    """

    behind: int
    delay: int
    places: int
    starves: bool
    hurries: bool
    newest: bool
    burst: float


class Adversarial(Accesses):
    """Holds lanes back by its habits, and chooses at random among the others."""

    def __init__(self, seed: int, is_by_block: bool) -> None:
        super().__init__(seed)
        self.is_by_block = is_by_block
        self.turns = 0
        self.phase_ends = 0
        self.habits = Habits(-1, 0, 0, False, False, False, 1.0)

    def turn(self, batches: list[Batch]) -> Step:
        self.turns += 1
        if self.turns > self.phase_ends:
            self._change_habits(batches)
        chance = 1.0 if self.habits.hurries else 0.05 if self.habits.starves else 0.25
        wakes = self.random.random() < chance
        if wakes:
            for batch in batches:
                batch.wake()
        if self.turns % OLDEST_EVERY == 0:
            number, index = oldest(batches, self.turns // OLDEST_EVERY)
            lanes = batches[number].take(index)
        else:
            number, index, lanes = self._pick(batches)
        made = self.run_on(Step(number, index, lanes, wakes=wakes), self.random.random() < self.habits.burst)
        self._delay(batches[number], made)
        return made

    def returns(self) -> bool:
        return self.random.random() < OVERTAKES

    def _change_habits(self, batches: list[Batch]) -> None:
        random = self.random
        self.phase_ends = self.turns + int(self._any(PHASES))
        ranks = sorted({rank for batch in batches for rank in batch.ranks})
        polls = random.randrange(3)
        self.habits = Habits(
            behind=int(self._any(ranks)) if len(ranks) > 1 and random.random() < 0.5 else -1,
            delay=int(self._any(DELAYS)) if random.random() < 0.7 else 0,
            places=random.getrandbits(32) if random.random() < 0.3 else 0,
            starves=polls == 0,
            hurries=polls == 1,
            newest=random.random() < 0.5,
            burst=float(self._any((0.8, 0.3, 0.0))),
        )

    def _pick(self, batches: list[Batch]) -> tuple[int, int, Group]:
        """Lanes at one of the places, without those that are held back, if there are others."""
        places = [(number, index) for number, batch in enumerate(batches) for index in sorted(batch.ready)]
        if self.habits.newest:
            newest = max(max(batches[number].launched.numbers) for number, _ in places)
            places = [one for one in places if max(batches[one[0]].launched.numbers) == newest] or places
        for _ in range(TRIES):
            number, index = self._any(places)
            batch = batches[number]
            polls = index in batch.program.spin_headers
            if polls and self.habits.starves and self.random.random() < 0.9:
                continue
            group = batch.take(index)
            free = self._free(batch, ids_of(group))
            if free.any():
                return number, index, self.some(batch, index, kept(batch, index, group, free))
            batch.ready.setdefault(index, []).append(group)
        number, index = self._any(places)
        return number, index, self.some(batches[number], index, batches[number].take(index))

    def _free(self, batch: Batch, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which lanes are not held back."""
        free = np.ones(len(ids), np.bool_)
        if len(batch.held_until):
            free &= batch.held_until[ids] <= self.turns
        if self.habits.behind >= 0:
            free &= batch.launched.ranks_of(ids) != self.habits.behind
        if self.habits.places:
            free &= (self.habits.places >> (ids % batch.block % 32) & 1).astype(np.bool_)
        return free

    def _delay(self, batch: Batch, turn: Step) -> None:
        """Hold lanes back that store something in this turn: what they store next comes late."""
        step = batch.program.reach(turn.index, turn.accesses, tears_of(batch, turn))
        if not self.habits.delay or not step.stores or self.random.random() >= STORES_DELAYED:
            return
        if not len(batch.held_until):
            batch.held_until = np.zeros(batch.lanes, np.int64)
        batch.held_until[ids_of(turn.lanes)] = self.turns + self.habits.delay
