"""What decides for accesses of a weak memory: a seed, or choices that were kept.

An access is late if something else came of it than would if every store were visible at once: a load that returns what
a later store has overwritten, a store that takes effect before one that was made earlier. Of a late access all that was
drawn for it can be kept. Where such choices are followed, all other accesses take the newest store.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

FRESH = 0.4
"""How often an access takes the newest store without a look at what else it may take."""

One = TypeVar("One")
Place = tuple[int, int, int, int]
"""Launch, threads, lane and line, as in Late."""


@dataclass(frozen=True, slots=True)
class Late:
    """An access of weak memory that did not take the newest store, or whose store came before an earlier one.

    launch: its number on its rank. threads: how many the launch has on a rank; lanes of rank r are r * threads and so
    on. line: of the PTX; 0 of a bulk copy of the lane. nth: how
    many accesses with a choice the lane made there before. drawn: what was drawn for it, number by number. When it is
    made is decided by turns: in a list of choices it stands before them.
    """

    launch: int
    threads: int
    lane: int
    line: int
    nth: int
    drawn: tuple[int, ...]


class Chance:
    """records: keep what was drawn for late accesses. follows: late accesses; None: the seed draws for all."""

    def __init__(self, seed: int, records: bool = False, follows: Iterable[Late] | None = None) -> None:
        self.records = records
        self.follows = None if follows is None else {(*_place(one), one.nth): one.drawn for one in follows}
        self.has_places = records or follows is not None
        self.kept: list[Late] = []
        self.is_late = False
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Begin anew, with nothing kept."""
        self.random = random.Random(seed)
        self.kept = []
        self._counts: Counter[Place] = Counter()
        self._drawn: list[int] = []
        self._given: list[int] = []

    def begin(self, place: Place) -> None:
        """An access begins. Each access of a thread by a line counts; one that has no choice is none."""
        self._drawn, self.is_late = [], False
        if self.follows is not None:
            self._given = list(reversed(self.follows.get((*place, self._counts[place]), ())))

    def end(self, place: Place | None) -> None:
        """The access is over: keep it if it was late. None: of one that has not begun."""
        if place is None:
            return
        nth = self._counts[place]
        self._counts[place] += 1
        if self.records and self.is_late:
            launch, threads, lane, line = place
            self.kept.append(Late(launch, threads, lane, line, nth, tuple(self._drawn)))

    # What is drawn

    def is_fresh(self) -> bool:
        """Draw whether an access takes the newest store without further choice."""
        return bool(self._draw(2, 1, lambda: int(self.random.random() < FRESH)))

    def below(self, count: int) -> int:
        """Draw a number below a count; 0 where nothing is left to chance."""
        return self._draw(count, 0, lambda: self.random.randrange(count))

    def choice(self, among: Sequence[One], usual: int = 0) -> One:
        """Draw one of several; the one at the place `usual` where nothing is left to chance."""
        return among[self._draw(len(among), usual, lambda: self.random.randrange(len(among)))]

    def shuffle(self, found: MutableSequence[Any]) -> None:
        """Draw an order; what stands is kept where nothing is left to chance."""
        for last in reversed(range(1, len(found))):
            other = self._draw(last + 1, last, lambda: self.random.randrange(last + 1))  # noqa: B023
            found[last], found[other] = found[other], found[last]

    def _draw(self, count: int, usual: int, draw: Any) -> int:
        number = int(draw()) if self.follows is None else self._followed(count, usual)
        if self.records:
            self._drawn.append(number)
        return number

    def _followed(self, count: int, usual: int) -> int:
        return self._given.pop() % count if self._given else usual


def _place(one: Late) -> Place:
    return one.launch, one.threads, one.lane, one.line
