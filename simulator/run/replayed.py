"""The order that follows recorded choices, all of them or a part, and then lets who ran last run on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from simulator.observe.lanes import Group
from simulator.run.choices import Began, Choice, Moved, Returned, Turn, Until
from simulator.run.decode import WHOLE
from simulator.run.machine import Batch
from simulator.run.orders import CopyStep, Fair, Step, oldest, taken
from simulator.run.recorded_choices import copy_step_of, rest_of, step_of

RUNS_ON = 256
"""Number of turns in a row, after the last choice, before those run that have waited longest: no lanes starve."""

RankLaunch = tuple[int, int]
"""A rank, and the number of a launch of it."""


class Replayed:
    """Follows choices. Those that are not possible are left out: lanes that are elsewhere, copies that are not there.

    After the last one, the lanes of the last turn run on, each time to the end of their basic block, until they wait or
    are done; then all lanes of the first place where any are ready. Copies then move on when nothing else can, and
    launches begin as in fair order: when nothing else can happen, all together.
    """

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = choices
        self.next = 0
        self.current: tuple[int, Group] | None = None
        self.rest: tuple[Turn, Group] | None = None
        self.is_overdue = False
        self.turns_since = 0
        self.fair = Fair()

    @property
    def is_used_up(self) -> bool:
        """Whether all choices were followed or left out."""
        return self.next >= len(self.choices)

    # Launches

    def begins(self, able: Collection[RankLaunch], forced: bool) -> list[list[RankLaunch]]:
        """Return which of the launches that could begin do so, in groups. forced: nothing else can happen."""
        self.is_overdue = False
        found: list[list[RankLaunch]] = []
        left = set(able)
        while not self.is_used_up and isinstance(one := self.choices[self.next], Began):
            chosen = [pair for pair in one.launches if pair in left]
            if not chosen:
                break
            self.next += 1
            left.difference_update(chosen)
            found.append(chosen)
        is_fair = self.is_used_up or isinstance(self.choices[self.next], Until)
        return [sorted(able)] if able and not found and (forced or is_fair) else found

    def is_due(self, able: Collection[RankLaunch]) -> bool:
        """Return whether one of the launches that could begin is to do so before another turn."""
        if self.is_used_up or not isinstance(one := self.choices[self.next], Began):
            return False
        return (one.due or self.is_overdue) and any(pair in one.launches for pair in able)

    # Turns

    def turn(self, batches: list[Batch]) -> Step:
        if self.rest is not None:
            turn, lanes = self.rest
            if (found := self._taken(turn, lanes, batches)) is not None:
                return found
        while not self.is_used_up:
            one = self.choices[self.next]
            if isinstance(one, Until) and max(max(batch.launched.numbers) for batch in batches) < one.launch:
                return self.fair.turn(batches)
            if isinstance(one, Began) and not self.is_overdue:
                self.is_overdue = True  # it was to begin when nothing else could happen, or could not begin until now
                return self._run_on(batches)
            self.is_overdue = False
            self.next += 1
            if isinstance(one, Turn):
                if one.wakes:
                    for batch in batches:
                        batch.wake()
                if (found := self._taken(one, one.lanes, batches)) is not None:
                    return found
        return self._run_on(batches)

    def _taken(self, turn: Turn, lanes: Group, batches: list[Batch]) -> Step | None:
        """Take those of a turn's lanes that are ready in the first batch that has any; others of them come next."""
        self.rest = None
        left: Group | None = lanes
        while left is not None:
            step, now = step_of(turn, left, batches), left
            left = rest_of(turn, now, batches)
            if step is None or not len(step.lanes):
                continue
            ready = taken(batches[step.batch], step.index, step.lanes)
            if ready is not None:
                self.rest = (turn, left) if left is not None else None
                self.current = (step.batch, ready)
                return replace(step, lanes=ready)
        return None

    def _run_on(self, batches: list[Batch]) -> Step:
        self.turns_since += 1
        if self.turns_since % RUNS_ON and self.current is not None and self.current[0] < len(batches):
            number, wanted = self.current
            for index in sorted(batches[number].ready):
                lanes = taken(batches[number], index, wanted)
                if lanes is not None:
                    return Step(number, index, lanes, WHOLE)
        number, index = oldest(batches, self.turns_since // RUNS_ON)
        lanes = batches[number].take(index)
        self.current = (number, lanes)
        return Step(number, index, lanes, WHOLE)

    # Copies and hosts

    def moves(self, batches: list[Batch]) -> Iterator[CopyStep]:
        """Each by what is under way once the one before it has moved on."""
        while not self.is_used_up and isinstance(one := self.choices[self.next], Moved) and not one.idle:
            self.next += 1
            if (step := copy_step_of(one, batches)) is not None:
                yield step

    def idle_move(self, batches: list[Batch]) -> CopyStep:
        while not self.is_used_up and isinstance(one := self.choices[self.next], Moved):
            self.next += 1
            if (step := copy_step_of(one, batches)) is not None:
                return step
        number, batch = next((number, one) for number, one in enumerate(batches) if one.copies.under_way)
        return CopyStep(number, tuple(range(len(batch.copies.under_way))))

    def returns(self) -> bool:
        if self.is_used_up or not isinstance(self.choices[self.next], Returned):
            return False
        self.next += 1
        return True
