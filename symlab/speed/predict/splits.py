"""What is left out when the model is scored: each case is predicted by constants that never saw its group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from symlab.speed.predict.evidence import Measured, grouped

FITTED_TO: Mapping[str, str] = {
    "h200-x2": "sha256:1f2dbeec469b609e5723bc8bf4d404420dcb34f149fb03e01da93cee00caabf3",
    "h200-x4": "sha256:c6822761b1a10c05f377568f95b17d37ba6311bd8b4679b4793a9b2d00701983",
    "h200-x2-2026-11-28": "sha256:d53abe6b11aff097872f71f43d070c8936321b6e6aa476aa2d96e1ed80223fdf",
}
"""The published sets that constants are fitted to, one type of GPU, with the digest of their records. They are named
here, and not found, so that a set published later is predicted by constants that never saw it."""

SCORED_RANKS = (2, 4)
"""Numbers of ranks of these sets."""

Fold = tuple[tuple[Measured, ...], tuple[Measured, ...]]
"""Cases to learn from, and cases to predict."""


@dataclass(frozen=True, slots=True)
class Split:
    """A way to leave cases out. title: as the table has it. folds(cases): what is learned from and what is predicted;
    () where the cases have nothing to leave out."""

    title: str
    folds: Callable[[Sequence[Measured]], tuple[Fold, ...]]


def leaving_out(*names: str, dependent: bool = False) -> Callable[[Sequence[Measured]], tuple[Fold, ...]]:
    """Return folds that leave out one group after another: cases with equal fields of these names. dependent: whether
    they are of dependent launches; others are no part of the folds, their constants being apart."""
    group = attrgetter(*(f"case.{name}" for name in names))

    def folds(cases: Sequence[Measured]) -> tuple[Fold, ...]:
        mine = [one for one in cases if one.terms.is_dependent == dependent]
        groups = grouped(mine, group)
        if len(groups) < 2:
            return ()
        return tuple((tuple(one for one in mine if one not in left_out), tuple(left_out)) for left_out in groups)

    return folds


def _to_more_ranks(cases: Sequence[Measured]) -> tuple[Fold, ...]:
    fewer, more = (
        tuple(one for one in cases if one.case.world_size == ranks and not one.terms.is_dependent) for ranks in (2, 4)
    )
    return ((fewer, more),) if fewer and more else ()


def _apart(is_wanted: Callable[[Measured, str], bool]) -> Callable[[Sequence[Measured]], tuple[Fold, ...]]:
    """Return the fold that learns from the sets of FITTED_TO, and predicts those cases of all other sets that are
    wanted; is_wanted gets a case and the type of GPU that is learned from."""

    def folds(cases: Sequence[Measured]) -> tuple[Fold, ...]:
        known = known_cases(cases)
        unknown = tuple(
            one for one in cases if known and one.published not in FITTED_TO and is_wanted(one, known[0].gpu)
        )
        return ((known, unknown),) if unknown else ()

    return folds


def known_cases(cases: Sequence[Measured]) -> tuple[Measured, ...]:
    """Return the cases of the sets that constants are fitted to."""
    return tuple(one for one in cases if one.published in FITTED_TO)


UNSEEN_SERIES = Split("unseen algorithm x ranks", leaving_out("op", "algorithm", "world_size"))
UNSEEN_ALGORITHM = Split("unseen op x algorithm", leaving_out("op", "algorithm"))
UNSEEN_DEPENDENT = Split("the same, dependent launches", leaving_out("op", "algorithm", dependent=True))

APART = (
    Split("another day", _apart(lambda one, gpu: one.gpu == gpu and one.case.world_size in SCORED_RANKS)),
    Split("other numbers of GPUs", _apart(lambda one, gpu: one.gpu == gpu and one.case.world_size not in SCORED_RANKS)),
    Split("another GPU type, floors only", _apart(lambda one, gpu: one.gpu != gpu)),
)
"""Splits of the sets that no constant is fitted to: all of a set is predicted by constants of FITTED_TO."""

SPLITS = (
    UNSEEN_SERIES,
    UNSEEN_ALGORITHM,
    UNSEEN_DEPENDENT,
    Split("unseen op", leaving_out("op")),
    Split("2 to 4 GPUs", _to_more_ranks),
    *APART,
)
"""All splits, in the table's order. All but APART are within FITTED_TO (score.py)."""
