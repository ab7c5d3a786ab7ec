"""Constants fitted to measured times: few, positive, by relative errors, and with outliers that count less."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from runner.predict.model import Floats

Predict = Callable[[Floats], Floats]
"""Times of all cases by the constants."""

ROUNDS = 60
_OUTLIER = 0.05
"""Relative error from which on a case counts less and less (Huber's rule), so that one odd kernel bends nothing."""
_STEP = 1e-6
_WEAKEST, _STRONGEST = 1e-12, 1e12


def fitted(predict: Predict, start: Sequence[float], times_us: Floats) -> Floats:
    """Return the positive constants for which predicted times are nearest to measured ones.

    What is small is the sum of Huber's loss of log(predicted / measured), found by Levenberg and Marquardt's method
    over the constants' logarithms, which are shape (number of constants,). Deterministic.
    """
    logs = np.log(np.asarray(start, np.float64))
    target = np.log(times_us)
    damping = 1e-3

    def errors(at: Floats) -> Floats:
        found: Floats = np.log(predict(np.exp(at))) - target
        return found

    now = errors(logs)
    for _ in range(ROUNDS):
        slopes = np.stack([(errors(logs + _STEP * unit) - now) / _STEP for unit in np.eye(len(logs))], axis=1)
        weights = np.minimum(1.0, _OUTLIER / np.maximum(np.abs(now), 1e-12))
        normal = slopes.T @ (slopes * weights[:, None])
        change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -slopes.T @ (weights * now))
        tried = logs + np.clip(change, -1.0, 1.0)
        then = errors(tried)
        if _loss(then) < _loss(now):
            is_done = bool(np.abs(tried - logs).max() < 1e-9)
            logs, now, damping = tried, then, max(damping / 5, _WEAKEST)
            if is_done:
                break
        else:
            damping *= 5
            if damping > _STRONGEST:
                break
    constants: Floats = np.exp(logs)
    return constants


def _loss(errors: Floats) -> float:
    """Huber's loss: squared up to _OUTLIER, then growing in proportion."""
    size = np.abs(errors)
    return float(np.where(size <= _OUTLIER, 0.5 * size**2, _OUTLIER * (size - 0.5 * _OUTLIER)).sum())
