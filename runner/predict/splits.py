"""What is left out when the model is scored: each case is predicted by constants that never saw its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.predict.evidence import Measured

Fold = tuple[tuple[Measured, ...], tuple[Measured, ...]]
"""Cases to learn from, and cases to predict."""


@dataclass(frozen=True, slots=True)
class Split:
    """A way to leave cases out. title: as the table has it. folds(cases): what is learned from and what is predicted;
    () where the cases have nothing to leave out."""

    title: str
    folds: Callable[[Sequence[Measured]], tuple[Fold, ...]]


def leaving_out(group: Callable[[Measured], object]) -> Callable[[Sequence[Measured]], tuple[Fold, ...]]:
    """Return folds that leave out one group after another."""

    def folds(cases: Sequence[Measured]) -> tuple[Fold, ...]:
        groups = list(dict.fromkeys(group(one) for one in cases))
        if len(groups) < 2:
            return ()
        return tuple(
            (
                tuple(one for one in cases if group(one) != left_out),
                tuple(one for one in cases if group(one) == left_out),
            )
            for left_out in groups
        )

    return folds


def _to_more_ranks(cases: Sequence[Measured]) -> tuple[Fold, ...]:
    fewer = tuple(one for one in cases if one.world_size == 2)
    more = tuple(one for one in cases if one.world_size == 4)
    return ((fewer, more),) if fewer and more else ()


def _other(group: Callable[[Measured], str]) -> Callable[[Sequence[Measured]], tuple[Fold, ...]]:
    """Return the fold that learns from the group with the most cases and predicts all others."""

    def folds(cases: Sequence[Measured]) -> tuple[Fold, ...]:
        most = usual(cases, group)
        known = tuple(one for one in cases if group(one) == most)
        unknown = tuple(one for one in cases if group(one) != most)
        return ((known, unknown),) if unknown else ()

    return folds


def usual(cases: Sequence[Measured], group: Callable[[Measured], str]) -> str:
    """Return the group with the most cases; the first by name of several."""
    counts = Counter(group(one) for one in cases)
    return min(counts, key=lambda name: (-counts[name], name))


def gpu(one: Measured) -> str:
    """Return a case's type of GPU."""
    return one.gpu


def day(one: Measured) -> str:
    """Return the day on which a case was measured."""
    return one.day


UNSEEN_SERIES = Split("unseen algorithm x ranks", leaving_out(lambda one: (one.op, one.algorithm, one.world_size)))
UNSEEN_ALGORITHM = Split("unseen op x algorithm", leaving_out(lambda one: (one.op, one.algorithm)))

SPLITS = (
    UNSEEN_SERIES,
    UNSEEN_ALGORITHM,
    Split("unseen op", leaving_out(lambda one: one.op)),
    Split("2 to 4 GPUs", _to_more_ranks),
    Split("another day", _other(day)),
    Split("another GPU type, floors only", _other(gpu)),
)
"""All splits, in the table's order. All but the last two are of one day of one type of GPU each (score.py)."""
