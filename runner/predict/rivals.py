"""What the model is held against: each learns from the same cases, and predicts the same ones that were left out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from runner.predict.evidence import Measured
from runner.predict.fitting import fitted
from runner.predict.model import Floats, columns, times_us

Learner = Callable[[Sequence[Measured], Sequence[Measured]], Floats]
"""From the cases to learn from and those to predict to the latter's times in microseconds."""

START = (0.5, 0.5)
"""Where the model's fit begins: begin_us, cold_us."""

BARRIER_FREE = frozenset({"lamport", "ll", "ll128", "two_shot_lamport"})
"""Algorithms whose data are their own flags: NCCL's LL kernels have a constant of their own."""


def model(known: Sequence[Measured], unknown: Sequence[Measured]) -> Floats:
    """The model of model.py, its two constants fitted."""
    return times_us(columns([one.terms for one in unknown]), fit_model(known))


def fit_model(known: Sequence[Measured]) -> tuple[float, ...]:
    """Return the model's constants fitted to cases, in the order of model.Fitted."""
    terms = columns([one.terms for one in known])
    found = fitted(lambda constants: times_us(terms, tuple(constants)), START, _times(known))
    return tuple(map(float, found))


def queried(known: Sequence[Measured], unknown: Sequence[Measured]) -> Floats:
    """NCCL's model of its symmetric kernels (src/sym_kernels.cc, queryModel_lsa), with its constants fitted here.

    time = base + softplus(bus bytes / bandwidth - 1), bandwidth = softmin(blocks * bandwidth of a block, peak). It has
    a base of its own for LL kernels; here for those without barriers. NCCL counts LL's bytes nine times.
    """
    start = (8.0, 4.5, 45e3, 320e3)
    found = fitted(lambda constants: _queried(known, constants), start, _times(known))
    return _queried(unknown, found)


def _queried(cases: Sequence[Measured], constants: Floats) -> Floats:
    """constants: the base with barriers and without, in us; bandwidth of a block, and the peak, in bytes a us."""
    base, free, block, peak = constants
    bus = np.array([one.bus_bytes for one in cases])
    blocks = np.array([one.blocks for one in cases], np.float64)
    is_free = np.array([one.algorithm in BARRIER_FREE for one in cases])
    ratio = blocks * block / peak
    bandwidth = peak * (ratio - np.logaddexp(0.0, 8 * (ratio - 1)) / 8)  # smooth minimum of ratio and 1
    softplus = np.logaddexp(0.0, bus / np.maximum(bandwidth, 1e-9) - 1)
    times: Floats = np.where(is_free, free, base) + softplus
    return times


def boosted(known: Sequence[Measured], unknown: Sequence[Measured]) -> Floats:
    """Gradient boosting of the time's logarithm over what a record says without a simulator.

    The features are the size, ranks, blocks, threads and bus bytes, their products, and op, algorithm and dtype one by
    one. ImportError without scikit-learn.
    """
    ensemble: Any = importlib.import_module("sklearn.ensemble")
    words = sorted({word for one in known for word in _words(one)})
    learner = ensemble.GradientBoostingRegressor(n_estimators=200, max_depth=4, learning_rate=0.1, random_state=0)
    learner.fit(_features(known, words), np.log(_times(known)))
    times: Floats = np.exp(learner.predict(_features(unknown, words)))
    return times


def line(cases: Sequence[Measured]) -> Mapping[str, float]:
    """Return the times of a series' cases between its smallest and its largest, on the line through these two, by id.

    It learns from the very series that it predicts, which no other does: what is left out there is unknown to them.
    """
    found: dict[str, float] = {}
    by_series: dict[tuple[str, str, str, int], list[Measured]] = {}
    for one in cases:
        by_series.setdefault(one.series, []).append(one)
    for members in by_series.values():
        members.sort(key=lambda one: one.size_bytes)
        first, last = members[0], members[-1]
        if len(members) < 3:
            continue
        slope = (last.time_us - first.time_us) / (last.size_bytes - first.size_bytes)
        for one in members[1:-1]:
            found[one.id] = first.time_us + slope * (one.size_bytes - first.size_bytes)
    return found


LEARNERS: Mapping[str, Learner] = {"model": model, "NCCL's formula": queried, "gradient boosting": boosted}


def _times(cases: Sequence[Measured]) -> Floats:
    return np.array([one.time_us for one in cases], np.float64)


def _words(one: Measured) -> tuple[str, ...]:
    return f"op {one.op}", f"algorithm {one.algorithm}", f"dtype {one.dtype}"


def _features(cases: Sequence[Measured], words: Sequence[str]) -> Floats:
    """Features, a row for each case: float64."""
    rows = []
    for one in cases:
        own = set(_words(one))
        numbers = (one.size_bytes, one.world_size, one.blocks, one.threads, one.bus_bytes, one.footprint_bytes)
        logs = [float(np.log2(max(number, 1.0))) for number in numbers]
        rows.append([*logs, logs[4] - logs[2], *(float(word in own) for word in words)])
    return np.array(rows, np.float64)
