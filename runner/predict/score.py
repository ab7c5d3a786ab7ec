"""The model's score: errors on exact splits, the regret of its choice, and the same of its rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from runner.predict import rivals
from runner.predict.evidence import Measured
from runner.predict.model import REGIMES, Fitted, Floats
from runner.predict.splits import APART, FITTED_TO, SPLITS, UNSEEN_ALGORITHM, UNSEEN_SERIES, Split, known_cases

TIE = 0.02
"""A choice is right if it is at most so much slower than the best: two worlds of one run differ by as much."""

MIDDLE_BYTES = (64 << 10, 1 << 20)
"""Sizes at which the line through a series' ends is held against the model: it has no end there."""

INTERVAL = (0.05, 0.95)
"""Quantiles of measured over predicted time that an interval reaches from and to."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors |predicted / measured - 1| of cases: their number, the median, the 95th percentile (linear
    between ranks) and the largest."""

    cases: int
    median: float
    p95: float
    largest: float


@dataclass(frozen=True, slots=True)
class Regret:
    """How much slower the choice is than the best of the same op, dtype, ranks and size. choices: number of them;
    right: the share that is at most TIE slower."""

    choices: int
    mean: float
    p95: float
    right: float


@dataclass(frozen=True, slots=True)
class Row:
    """What one predictor reached on one split; errors are None without records, regret where nothing is chosen."""

    split: str
    predictor: str
    errors: Errors | None
    regret: Regret | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """All rows, the constants fitted to all cases of the sets fitted_to, and how far measured times are from
    predictions that were left out: (from, to) of measured / predicted by regime. gpu and cases are of these sets;
    apart: the other sets that have cases, which nothing is fitted to."""

    gpu: str
    cases: int
    fitted_to: tuple[str, ...]
    apart: tuple[str, ...]
    constants: Fitted
    intervals: Mapping[str, tuple[float, float]]
    rows: tuple[Row, ...]

    def document(self) -> dict[str, Any]:
        """Return it as plain values, rounded to six digits behind the point."""
        document: dict[str, Any] = _rounded(asdict(self))
        return document


def scored(cases: Sequence[Measured], learners: Mapping[str, rivals.Learner] = rivals.LEARNERS) -> Score:
    """Return the score of learners on the cases of all published sets. ValueError if one of FITTED_TO has none.

    Nothing is fitted to a set that is not in FITTED_TO, neither constants nor intervals nor what learners know.
    """
    known = known_cases(cases)
    found = {one.published for one in cases}
    if missing := sorted(set(FITTED_TO) - found):
        raise ValueError(f"no timed case of {' and '.join(missing)}, which the model's constants are fitted to")
    rows = [
        _row(split, name, learner, cases if split in APART else known)
        for split in SPLITS
        for name, learner in learners.items()
    ]
    rows += _line_rows(known)
    constants = Fitted(*rivals.fit_model(known))
    apart = tuple(sorted(found - set(FITTED_TO)))
    return Score(known[0].gpu, len(known), tuple(FITTED_TO), apart, constants, intervals(known), tuple(rows))


def left_out(cases: Sequence[Measured], split: Split, learner: rivals.Learner) -> dict[str, float]:
    """Return the predicted time of each case by constants that did not see its group, in microseconds,
    by its id and its set."""
    found: dict[str, float] = {}
    for known, unknown in split.folds(cases):
        found |= dict(zip([_key(one) for one in unknown], map(float, learner(known, unknown)), strict=True))
    return found


def intervals(cases: Sequence[Measured]) -> dict[str, tuple[float, float]]:
    """Return by regime between which quantiles of measured / predicted 90 % of the cases lie, their op and algorithm
    left out. A regime with fewer than ten cases has the widest of all."""
    predicted = left_out(cases, UNSEEN_ALGORITHM, rivals.model)
    fitted = Fitted(*rivals.fit_model(cases))
    ratios: dict[str, list[float]] = {name: [] for name in REGIMES}
    for one in cases:
        if _key(one) in predicted:
            ratios[one.terms.regime(fitted)].append(one.time_us / predicted[_key(one)])
    every = [ratio for members in ratios.values() for ratio in members]
    return {
        name: _quantiles(members if len(members) >= 10 else [min(every), max(every)])
        for name, members in ratios.items()
        if every
    }


def errors_of(cases: Sequence[Measured], predicted: Mapping[str, float]) -> Errors | None:
    """Return the errors of the cases that were predicted; None without any."""
    found = [abs(predicted[_key(one)] / one.time_us - 1) for one in cases if _key(one) in predicted]
    if not found:
        return None
    values: Floats = np.array(found)
    return Errors(len(found), float(np.median(values)), float(np.quantile(values, 0.95)), float(values.max()))


def regret_of(cases: Sequence[Measured], predicted: Mapping[str, float]) -> Regret | None:
    """Return the regret of choosing the algorithm with the shortest predicted time; None where nothing is chosen.

    A choice needs two algorithms of one op, dtype, number of ranks and size at least, all of them predicted.
    """
    groups: dict[tuple[object, ...], list[Measured]] = {}
    for one in cases:
        groups.setdefault((one.published, one.op, one.dtype, one.world_size, one.size_bytes), []).append(one)
    shares = []
    for members in groups.values():
        if len(members) > 1 and all(_key(one) in predicted for one in members):
            chosen = min(members, key=lambda one: predicted[_key(one)])
            shares.append(chosen.time_us / min(one.time_us for one in members) - 1)
    if not shares:
        return None
    values: Floats = np.array(shares)
    right = float((values <= TIE).mean())
    return Regret(len(shares), float(values.mean()), float(np.quantile(values, 0.95)), right)


def _row(split: Split, name: str, learner: rivals.Learner, cases: Sequence[Measured]) -> Row:
    predicted = left_out(cases, split, learner)
    is_choice = split in (UNSEEN_SERIES, UNSEEN_ALGORITHM)
    return Row(split.title, name, errors_of(cases, predicted), regret_of(cases, predicted) if is_choice else None)


def _line_rows(cases: Sequence[Measured]) -> list[Row]:
    """The model, its op and algorithm left out, against the line through a series' own ends, which sees both."""
    low, high = MIDDLE_BYTES
    middle = [one for one in cases if low <= one.size_bytes <= high]
    on_line = rivals.line(cases)
    lines = {_key(one): on_line[one.id] for one in cases if one.id in on_line}
    both = [one for one in middle if _key(one) in lines]
    title = "64 KiB to 1 MiB, unseen op x algorithm"
    return [
        Row(title, "model", errors_of(both, left_out(cases, UNSEEN_ALGORITHM, rivals.model))),
        Row(title, "the line through a series' own ends", errors_of(both, lines)),
    ]


def _key(one: Measured) -> str:
    return f"{one.id} {one.published}"


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    low, high = (float(np.quantile(np.array(values), share)) for share in INTERVAL)
    return low, high


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
