"""multimem instructions over several ranks, in both models of the switch, against exact sums and stated folds."""

from __future__ import annotations

import pytest
from simulator_vectors_multimem import bench_of, family

NAMES = [f"{vector.key}-{vector.name}" for vector in family(2)]


@pytest.mark.parametrize("model", ["exact", "stated"])
@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_vectors(number: int, ranks: int, model: str) -> None:
    bench_of(ranks).check(number, model)
