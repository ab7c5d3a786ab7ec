"""The two halves of a measurement's turns: one chooses among contestants, the other judges the choice.

Who is quickest of many by the samples that choose is partly so by their noise, and would then look quicker than it is.
A turn has one sample of every contestant, so the halves are whole turns, every second one: what drifts is in both.
"""

from __future__ import annotations

from collections.abc import Sequence


def choosing(samples: Sequence[float]) -> Sequence[float]:
    """Return the samples, in the order in which they were taken, of the turns that choose: the first, the third .."""
    return samples[::2]


def judging(samples: Sequence[float]) -> Sequence[float]:
    """Return the samples of the turns that judge: the second, the fourth ..; of a single sample that one."""
    return samples[1::2] or samples
