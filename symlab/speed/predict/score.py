"""The model's constants, fitted to measured times (positive, by relative errors, outliers count less); and its score:
its errors on cases that the constants were not fitted to, and the regret of its choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from symlab.speed.predict.evidence import Measured, grouped
from symlab.speed.predict.model import REGIMES, Fitted, Floats, columns, times_us
from symlab.speed.predict.splits import (
    APART,
    FITTED_TO,
    SPLITS,
    UNSEEN_ALGORITHM,
    UNSEEN_DEPENDENT,
    UNSEEN_SERIES,
    Split,
    known_cases,
)

TIE = 0.02
"""A choice is right if it is at most so much slower than the best: two worlds of one run differ by as much."""

INTERVAL = (0.05, 0.95)
"""Quantiles of measured over predicted time that an interval reaches from and to."""

Pair = tuple[Measured, float]
"""A measured case and its predicted time, in microseconds."""


START = Fitted(begin_us=0.5, cold_us=0.5, dependent_path=1.0, dependent_cold_us=0.5)
"""Where the fit begins."""

_OUTLIER = 0.05
"""Relative error from which on a case counts less and less (Huber's rule), so that one odd kernel bends nothing."""


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
    """What the model reached on one split; errors are None without records, regret where nothing is chosen."""

    split: str
    errors: Errors | None
    regret: Regret | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """All rows, the constants fitted to all cases of the sets fitted_to, and how far measured times are from
    predictions that were left out: (from, to) of measured / predicted by regime. gpu and cases are of these sets;
    apart: the other sets that have cases, which nothing is fitted to, and what share of their cases is within these
    intervals."""

    gpu: str
    cases: int
    fitted_to: tuple[str, ...]
    apart: dict[str, float]
    constants: Fitted
    intervals: dict[str, tuple[float, float]]
    rows: tuple[Row, ...]

    def document(self) -> dict[str, Any]:
        """Return it as plain values, rounded to six digits behind the point."""
        document: dict[str, Any] = _rounded(asdict(self))
        return document


def scored(cases: Sequence[Measured]) -> Score:
    """Return the score on the cases of all published sets. ValueError if one of FITTED_TO has none.

    Nothing is fitted to a set that is not in FITTED_TO, neither constants nor intervals.
    """
    known = known_cases(cases)
    found = {one.published for one in cases}
    if missing := sorted(set(FITTED_TO) - found):
        raise ValueError(f"no timed case of {' and '.join(missing)}, which the model's constants are fitted to")
    rows = tuple(_row(split, cases if split in APART else known) for split in SPLITS)
    constants, within = fitted(known), intervals(known)
    apart = {
        name: share_within([one for one in cases if one.published == name], constants, within)
        for name in sorted(found - set(FITTED_TO))
    }
    return Score(known[0].gpu, len(known), tuple(FITTED_TO), apart, constants, within, rows)


def share_within(cases: Sequence[Measured], constants: Fitted, within: Mapping[str, tuple[float, float]]) -> float:
    """Return the share of cases whose measured time is in its interval: (from, to) of measured / predicted by
    regime."""
    times = times_us(columns([one.terms for one in cases]), astuple(constants))
    bounds = [within.get(one.terms.regime(constants), (math.inf, 0.0)) for one in cases]
    ratios: list[float] = [one.time_us / us for one, us in zip(cases, times.tolist(), strict=True)]
    inside = [low <= ratio <= high for ratio, (low, high) in zip(ratios, bounds, strict=True)]
    return sum(inside) / len(inside)


def fitted(cases: Sequence[Measured]) -> Fitted:
    """Return the positive constants for which predicted times are nearest to measured ones: those with the least sum of
    Huber's loss of log(predicted / measured)."""
    from scipy import optimize

    terms = columns([one.terms for one in cases])
    measured = np.log([one.time_us for one in cases])

    def errors(logs: Floats) -> Floats:
        found: Floats = np.log(times_us(terms, tuple(np.exp(logs)))) - measured
        return found

    found = optimize.least_squares(errors, np.log(astuple(START)), loss="huber", f_scale=_OUTLIER, xtol=1e-12)
    return Fitted(*map(float, np.exp(found.x)))


def left_out(cases: Sequence[Measured], split: Split) -> list[Pair]:
    """Return each case that a split leaves out with the time by constants that did not see its group, in
    microseconds."""
    found: list[Pair] = []
    for known, unknown in split.folds(cases):
        times = times_us(columns([one.terms for one in unknown]), astuple(fitted(known)))
        found += zip(unknown, times.tolist(), strict=True)
    return found


def intervals(cases: Sequence[Measured]) -> dict[str, tuple[float, float]]:
    """Return by regime between which quantiles of measured / predicted 90 % of the cases lie, their op and algorithm
    left out. A regime with fewer than ten cases has the widest of all."""
    constants = fitted(cases)
    ratios: dict[str, list[float]] = {name: [] for name in REGIMES}
    for one, predicted_us in (*left_out(cases, UNSEEN_ALGORITHM), *left_out(cases, UNSEEN_DEPENDENT)):
        ratios[one.terms.regime(constants)].append(one.time_us / predicted_us)
    every = [ratio for members in ratios.values() for ratio in members]
    return {
        name: _quantiles(members if len(members) >= 10 else [min(every), max(every)])
        for name, members in ratios.items()
        if every
    }


def errors_of(pairs: Sequence[Pair]) -> Errors | None:
    """Return the errors of cases; None without any."""
    if not pairs:
        return None
    values: Floats = np.array([abs(predicted_us / one.time_us - 1) for one, predicted_us in pairs])
    return Errors(len(pairs), float(np.median(values)), float(np.quantile(values, 0.95)), float(values.max()))


def regret_of(pairs: Sequence[Pair]) -> Regret | None:
    """Return the regret of choosing the shortest predicted time wherever there are two algorithms or more; None where
    nothing is chosen."""
    shares = [
        min(members, key=lambda pair: pair[1])[0].time_us / min(one.time_us for one, _ in members) - 1
        for members in grouped(pairs, lambda pair: pair[0].choice)
        if len(members) > 1
    ]
    if not shares:
        return None
    values: Floats = np.array(shares)
    right = float((values <= TIE).mean())
    return Regret(len(shares), float(values.mean()), float(np.quantile(values, 0.95)), right)


def _row(split: Split, cases: Sequence[Measured]) -> Row:
    predicted = left_out(cases, split)
    is_choice = split in (UNSEEN_SERIES, UNSEEN_ALGORITHM, UNSEEN_DEPENDENT)
    return Row(split.title, errors_of(predicted), regret_of(predicted) if is_choice else None)


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    low, high = (float(np.quantile(np.array(values), share)) for share in INTERVAL)
    return low, high


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
