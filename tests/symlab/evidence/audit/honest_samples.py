"""Simulated honest samples: noise of several kinds around a level that drifts, in steps of a clock."""

import numpy as np

STEP_US = 0.032
"""The resolution of CUDA events on the published GPUs."""


def honest_samples(source, step_us=STEP_US):
    """Samples of all ranks in microseconds a call, and the calls of a sample. What a machine may do is drawn: ranks,
    number of samples, level, spread, correlation, drift, warm-up, two states, stragglers."""
    ranks, count = int(source.choice([2, 4, 8])), int(source.choice([20, 50, 100]))
    calls = int(source.choice([1, 4, 8, 30, 50]))
    level_us = float(np.exp(source.uniform(np.log(2.0), np.log(2000.0))))
    spread = float(source.choice([0.002, 0.005, 0.01, 0.03]))
    rows = level_us * np.exp(_trend(source, count, spread) + _noise(source, (ranks, count), spread))
    whole = np.rint(rows * calls / step_us) * step_us
    return tuple(tuple((np.maximum(row, step_us) / calls).tolist()) for row in whole), calls


def _noise(source, shape, spread):
    """White or correlated noise, part of it common to all ranks, with a tail towards longer times at times."""
    noise = source.normal(0, spread, shape) + source.normal(0, spread / 2, shape[1])
    correlation = float(source.choice([0.0, 0.0, 0.5, 0.9]))
    for at in range(1, shape[1]):
        noise[:, at] = correlation * noise[:, at - 1] + np.sqrt(1 - correlation**2) * noise[:, at]
    if source.random() < 0.3:
        noise += source.exponential(2 * spread, shape)
    if source.random() < 0.2:
        noise += (source.random(shape) < 0.02) * source.exponential(0.5, shape)
    return noise


def _trend(source, count, spread):
    """Drift, the end of a warm-up, or two states in which the machine stays for a while; or nothing of these."""
    place = np.arange(count)
    match int(source.integers(5)):
        case 0:
            return source.uniform(-0.2, 0.2) * place / count
        case 1:
            return source.uniform(0, 0.1) * np.exp(-place / source.uniform(2, 20))
        case 2:
            stays = source.random(count) < 0.1
            return source.uniform(2, 10) * spread * (np.cumsum(stays) % 2)
        case _:
            return np.zeros(count)
