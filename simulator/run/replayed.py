"""The order that follows recorded choices, all of them or a part, and then lets who ran last run on."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.observe.lanes import Group
from simulator.run.choices import WHOLE, Choice, Moved, Returned, Turn, Until
from simulator.run.machine import Batch
from simulator.run.orders import Fair, taken

RUNS_ON = 256
"""Number of turns in a row, after the last choice, before those run that have waited longest: no lanes starve."""


class Replayed:
    """Follows choices. Those that are not possible are left out: lanes that are elsewhere, copies that are not there.

    After the last one, the lanes of the last turn run on, each time to the end of their basic block, until they wait or
    are done; then all lanes of the first place where any are ready. Copies then move on when nothing else can.
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = choices
        self.next = 0
        self.current: tuple[int, Group] | None = None
        self.turns_since = 0
        self.fair = Fair()

    @property
    def is_used_up(self) -> bool:
        """Whether all choices were followed or left out."""
        return self.next >= len(self.choices)

    def turn(self, batches: list[Batch]) -> Turn:
        while not self.is_used_up:
            one = self.choices[self.next]
            if isinstance(one, Until) and max(max(batch.launched.numbers) for batch in batches) < one.launch:
                return self.fair.turn(batches)
            self.next += 1
            if isinstance(one, Turn) and one.batch < len(batches):
                if one.wakes:
                    for batch in batches:
                        batch.wake()
                lanes = taken(batches[one.batch], one.index, one.lanes)
                if lanes is not None:
                    self.current = (one.batch, lanes)
                    return Turn(one.batch, one.index, lanes, one.accesses, one.tear, one.shuffle, one.wakes)
        return self._run_on(batches)

    def _run_on(self, batches: list[Batch]) -> Turn:
        self.turns_since += 1
        if self.turns_since % RUNS_ON and self.current is not None and self.current[0] < len(batches):
            number, wanted = self.current
            for index in sorted(batches[number].ready):
                lanes = taken(batches[number], index, wanted)
                if lanes is not None:
                    return Turn(number, index, lanes, WHOLE)
        able = [number for number, batch in enumerate(batches) if batch.ready]
        number = able[self.turns_since // RUNS_ON % len(able)]
        batch = batches[number]
        index = min(batch.ready, key=lambda one: (batch.last_run.get(one, 0), one))
        lanes = batch.take(index)
        self.current = (number, lanes)
        return Turn(number, index, lanes, WHOLE)

    def moves(self, batches: list[Batch]) -> list[Moved]:
        found = []
        while not self.is_used_up and isinstance(one := self.choices[self.next], Moved) and not one.idle:
            self.next += 1
            if _is_possible(one, batches):
                found.append(one)
        return found

    def idle_move(self, batches: list[Batch]) -> Moved:
        while not self.is_used_up and isinstance(one := self.choices[self.next], Moved):
            self.next += 1
            if _is_possible(one, batches):
                return one
        number, batch = next((number, one) for number, one in enumerate(batches) if one.copies.under_way)
        return Moved(number, tuple(range(len(batch.copies.under_way))))

    def returns(self) -> bool:
        if self.is_used_up or not isinstance(self.choices[self.next], Returned):
            return False
        self.next += 1
        return True


def _is_possible(one: Moved, batches: list[Batch]) -> bool:
    return one.batch < len(batches) and all(place < len(batches[one.batch].copies.under_way) for place in one.copies)
