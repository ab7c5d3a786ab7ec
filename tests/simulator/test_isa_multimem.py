"""multimem instructions over several ranks, in both models of the switch, against exact sums and stated folds."""

from __future__ import annotations

import pytest
from simulator_vectors_multimem import bench_of, family

NAMES = [f"{vector.key}-{vector.name}" for vector in family(2)]


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_vectors(number: int) -> None:
    for ranks in (1, 2, 5):
        for model in ("exact", "stated"):
            bench_of(ranks).check(number, model)
