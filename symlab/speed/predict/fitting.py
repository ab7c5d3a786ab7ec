"""The model's constants, fitted to measured times: positive, by relative errors, and with outliers that count less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from symlab.speed.predict.evidence import Measured
from symlab.speed.predict.model import Fitted, Floats, columns, times_us

START = Fitted(begin_us=0.5, cold_us=0.5, dependent_path=1.0, dependent_cold_us=0.5)
"""Where the fit begins."""

_OUTLIER = 0.05
"""Relative error from which on a case counts less and less (Huber's rule), so that one odd kernel bends nothing."""


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
