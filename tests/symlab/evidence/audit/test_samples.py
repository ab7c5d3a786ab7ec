"""Items "samples" and "timing": samples that no clock gives are found, and honest ones are not; what was asked for."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from symlab.evidence import published
from symlab.evidence.audit.material import Material
from symlab.evidence.audit.samples import _edited, traces
from tests.symlab.evidence.audit.honest_samples import STEP_US, honest_samples

ROOT = Path(__file__).parents[4]

HONEST = 6000


def said(rows, calls):
    return list(traces(SimpleNamespace(samples_us=rows, calls_per_sample=calls), STEP_US))


def test_of_simulated_honest_records_fewer_than_one_in_a_thousand_is_flagged():
    source = np.random.default_rng(20261127)
    found = [text for text in (said(*honest_samples(source)) for _ in range(HONEST)) if text]
    assert len(found) < HONEST / 1000, found


def test_no_published_record_is_flagged():
    for members in published.machines(ROOT).values():
        for world in Material(tuple(members)).worlds.values():
            assert list(_edited(world)) == []


def copied(rows):
    half = rows.shape[1] // 2
    return np.concatenate([rows[:, :half], rows[:, :half]], axis=1)


def shuffled(rows):
    return np.random.default_rng(0).permuted(copied(rows), axis=1)


def block(rows):
    rows = rows.copy()
    rows[-1, 3:15] = rows[0, 8:20]
    return rows


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: np.sort(rows, axis=1), "are sorted"),
        (lambda rows: -np.sort(-rows, axis=1), "are sorted"),
        (copied, ""),
        (shuffled, "pairs of equal samples"),
        (block, "are there twice"),
        (lambda rows: np.minimum(rows, np.percentile(rows, 85)), "are the largest: they are cut off there"),
        (lambda rows: np.maximum(rows, np.percentile(rows, 15)), "are the smallest: they are cut off there"),
        (lambda rows: np.minimum(rows, np.percentile(rows, 95)), "are the largest: they are cut off there"),
    ],
)
def test_what_was_edited_is_found(change, says):
    """On noise of one per cent around 100 us, in samples of 10 calls: about 300 steps of the clock."""
    source = np.random.default_rng(5)
    whole = 1000 * (1 + source.normal(0, 0.01, (4, 50)))
    rows = np.rint(whole / STEP_US) * STEP_US / 10
    assert said(rows, 10) == []
    found = said(change(rows), 10)
    assert found
    assert says in " ".join(found)


@pytest.mark.parametrize("level_us", [0.32, 3.2])
def test_a_clock_that_is_too_coarse_says_nothing(level_us):
    """Values repeat because there are few: nothing follows from it."""
    source = np.random.default_rng(6)
    rows = tuple(tuple((level_us + STEP_US * source.integers(0, 3, 50)).tolist()) for _ in range(4))
    assert said(rows, 1) == []
    assert said(copied(np.array(rows)), 1) == []
