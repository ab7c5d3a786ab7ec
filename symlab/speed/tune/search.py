"""Successive halving: many candidates with few samples, then fewer with more, compared only with what ran beside them.

A rung measures its candidates in groups, each interleaved, with one candidate (the anchor) in all groups: a score is
the candidate's time over the anchor's in the same round (the median of these ratios), times the anchor's. So clocks
that change between groups change no order. After a rung the better part goes on. After the first rung, tunings beside
the best join.

What hangs, faults or gives wrong results costs only itself: a group that fails is run again one by one, and what fails
alone is out. All that is measured is remembered in a dictionary of plain values, by rung: a search that was cut short
and begins again with it measures nothing twice.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cases.case import Case
from symlab.speed.tune.candidates import Candidates

SAMPLES = (3, 8, 16)
"""Samples of each rung, fewest first; the last rung repeats until FINALISTS are left."""

KEPT = (1 / 4, 1 / 3)
"""The share of candidates that goes on: from the first rung, from all others."""

FINALISTS = 3
BEST_OF_A_RUNG = 2
"""How many of the first rung's best have their neighbours tried."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a bench found of one candidate: a figure for each round, or why there is none."""

    samples: tuple[float, ...] = ()
    problem: str = ""


class Bench(Protocol):
    """Where candidates are measured."""

    def groups(self, cases: Sequence[Case], beside: Case | None) -> list[list[Case]]:
        """Divide candidates into groups that can be measured together, and together with beside (None: nothing)."""
        ...

    def measured(self, cases: Sequence[Case], samples: int) -> list[Measured]:
        """Check candidates of one size, measure them in turns, and check them again.

        Raises BenchFailure if one of them ended it for all; the next call finds a healthy world.
        """
        ...


class BenchFailure(Exception):
    """A measurement of several candidates that one of them ended: a hang, a fault, a lost rank."""


class NothingPassed(Exception):
    """No candidate could be compiled, ran and was right."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found for a case: names by score, the best first; the number that was measured; why each of the
    others failed; the number that there was no time for."""

    best: tuple[str, ...]
    timed: int
    failed: dict[str, str]
    left_out: int


@dataclass(slots=True)
class Search:
    """One case's search. kept is what earlier measurements left, changed in place, and save is called after each
    group. is_late says that the time for this case is used up. say takes a line about what failed."""

    bench: Bench
    candidates: Candidates
    kept: dict[str, Any]
    save: Callable[[], None] = lambda: None
    is_late: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda line: None
    _failed: dict[str, str] = field(default_factory=dict)
    _timed: set[str] = field(default_factory=set)
    _left_out: int = 0

    def run(self, earlier: Iterable[str] = ()) -> Found:
        """Return what is best; earlier are names that did well at another size. NothingPassed if nothing did."""
        scores = self._rung(0, self.candidates.first(earlier))
        if not scores:
            why = next(iter(self._failed.values()), self.candidates.refusal or "there are no kernels")
            raise NothingPassed(f"no candidate passed: {why}")
        beside = self.candidates.near(list(scores)[:BEST_OF_A_RUNG])
        if beside and not self.is_late():
            scores = _sorted(scores | self._rung(1, beside, self._case_of(scores)))
        rung = 2
        alive = list(scores)
        while len(alive) > FINALISTS and not self._is_over(rung):
            keep = max(FINALISTS, math.ceil(len(alive) * KEPT[min(rung - 2, len(KEPT) - 1)]))
            again = self._rung(rung, [self._named(name) for name in alive[:keep]])
            if not again:
                break
            scores = again
            alive = list(again) if len(again) < len(alive) else list(again)[:FINALISTS]
            rung += 1
        return self._found(scores)

    def among(self, names: Iterable[str]) -> Found:
        """Return what is best of some candidates, which are all measured with the samples of the last rung.
        NothingPassed if none did."""
        scores = self._rung(len(SAMPLES), [self._named(name) for name in names])
        if not scores:
            raise NothingPassed(f"no candidate passed: {next(iter(self._failed.values()), 'there are none')}")
        return self._found(scores)

    def _found(self, scores: dict[str, float]) -> Found:
        return Found(tuple(list(scores)[:FINALISTS]), len(self._timed), dict(self._failed), self._left_out)

    def _is_over(self, rung: int) -> bool:
        """Whether time ends it: what was measured in an earlier part of the search is still looked up."""
        return self.is_late() and str(rung) not in self.kept

    def _rung(self, rung: int, cases: Sequence[Case], anchor: Case | None = None) -> dict[str, float]:
        """Measure candidates; their scores by name, the best first. anchor: what was measured before (None: the first
        of them)."""
        samples = SAMPLES[min(max(rung - 1, 0), len(SAMPLES) - 1)]
        known: dict[str, Any] = self.kept.setdefault(str(rung), {})
        scores: dict[str, float] = {}
        todo = []
        for case in cases:
            if (there := known.get(case.algorithm)) is None:
                todo.append(case)
            elif isinstance(there, str):
                self._failed[case.algorithm] = there
            else:
                scores[case.algorithm] = float(there)
        anchored = scores or ({anchor.algorithm: self._score_of(anchor, rung)} if anchor is not None else {})
        first = min(anchored, key=anchored.__getitem__) if anchored else ""
        groups = self.bench.groups(todo, self._named(first) if first else None)
        for number, group in enumerate(groups):
            if self.is_late() and (scores or anchored):
                self._left_out += sum(map(len, groups[number:]))
                break
            found = self._group(group, self._named(first) if first else None, samples)
            base = anchored.get(first)
            for case, score in _scores(group, found, base, bool(first)):
                scores[case.algorithm] = known[case.algorithm] = score
            for case, one in zip(group, found[1 if first else 0 :], strict=True):
                if one.problem:
                    self._fail(case, one.problem, known)
            self.save()
            if not first and scores:
                first = min(scores, key=scores.__getitem__)
                anchored = {first: scores[first]}
        self._timed |= set(scores)
        return _sorted(scores)

    def _score_of(self, case: Case, rung: int) -> float:
        """The score that a candidate had in the last rung before this one that measured it."""
        for number in range(rung - 1, -1, -1):
            score = self.kept.get(str(number), {}).get(case.algorithm)
            if score is not None and not isinstance(score, str):
                return float(score)
        raise AssertionError(f"{case.algorithm} was not measured")

    def _case_of(self, scores: dict[str, float]) -> Case:
        return self._named(next(iter(scores)))

    def _named(self, name: str) -> Case:
        return self.candidates.case(name)

    def _fail(self, case: Case, problem: str, known: dict[str, Any]) -> None:
        self._failed[case.algorithm] = known[case.algorithm] = problem
        self.say(f"{case.algorithm} is out: {problem}")

    def _group(self, cases: Sequence[Case], anchor: Case | None, samples: int) -> list[Measured]:
        """Measure the anchor, if there is one, and a group beside it; where that fails, find out who did it."""
        every = [*([anchor] if anchor is not None else []), *cases]
        try:
            return self.bench.measured(every, samples)
        except BenchFailure:
            pass
        problems = {case.algorithm: self._alone(case) for case in every}
        well = [case for case in every if not problems[case.algorithm]]
        try:
            again = self.bench.measured(well, samples) if well else []
        except BenchFailure:  # only beside others: then each counts as it was alone
            again = [self._once(case, samples) for case in well]
        found = {case.algorithm: one for case, one in zip(well, again, strict=True)}
        return [found.get(case.algorithm) or Measured(problem=problems[case.algorithm]) for case in every]

    def _alone(self, case: Case) -> str:
        """What is wrong with a candidate by itself; "" for nothing."""
        return self._once(case, 1).problem

    def _once(self, case: Case, samples: int) -> Measured:
        try:
            return self.bench.measured([case], samples)[0]
        except BenchFailure as failure:
            return Measured(problem=str(failure))


def _scores(
    cases: Sequence[Case], found: Sequence[Measured], base: float | None, has_anchor: bool
) -> Iterable[tuple[Case, float]]:
    """The scores of a group: found has the anchor's samples first, if has_anchor, whose score is base.

    Without an anchor that was measured, the first that was is one, with the median of its samples.
    """
    mine = found[1:] if has_anchor else found
    anchor = found[0] if has_anchor else next((one for one in mine if one.samples), Measured())
    if not anchor.samples:  # the anchor failed beside these: their own medians are all there is
        for case, one in zip(cases, mine, strict=True):
            if one.samples:
                yield case, statistics.median(one.samples)
        return
    level = base if base is not None else statistics.median(anchor.samples)
    for case, one in zip(cases, mine, strict=True):
        if one.samples:
            ratios = [its / of for its, of in zip(one.samples, anchor.samples, strict=False)]
            yield case, level * statistics.median(ratios)


def _sorted(scores: dict[str, float]) -> dict[str, float]:
    return dict(sorted(scores.items(), key=lambda one: one[1]))
