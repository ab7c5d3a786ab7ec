"""Among candidates that are as quick a table prefers the neighbouring size's choice, then fewer blocks."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence

import pytest

from symlab.speed.tune.ties import MEDIAN_TIE, TIE, Option, chosen


def names(series: Sequence[Sequence[Option]], tie: float = TIE) -> str:
    return "".join(one.name for one in chosen(series, tie))


def test_the_neighbours_choice_is_taken_where_it_is_as_quick() -> None:
    series = [
        [Option("a", 2.0, 8), Option("b", 3.0, 8)],
        [Option("b", 4.0, 8), Option("a", 4.03, 8)],
        [Option("a", 8.0, 8), Option("b", 9.0, 8)],
    ]
    assert names(series) == "aaa"
    assert names(series, 0.0) == "aba"
    series[1][1] = Option("a", 4.1, 8)
    assert names(series) == "aba", "2.5 % is no tie"


def test_fewer_blocks_are_taken_where_ranges_are_as_few() -> None:
    assert names([[Option("a", 2.0, 64), Option("b", 2.01, 8), Option("c", 2.1, 1)]]) == "b"
    assert names([[Option("a", 2.0, 8), Option("b", 2.01, 8)]]) == "a"


def test_the_median_of_a_series_bounds_ties_further() -> None:
    """Each choice of b alone is within 2 %, but at most sizes it is 1.5 % slower."""
    series = [[Option("a", 2.0, 64), Option("b", 2.03, 8)]] * 3
    assert names(series) == "aaa"
    level = [[Option("a", 2.0, 64), Option("b", 2.0, 8)]] * 2
    assert names([*series[:1], *level]) == "bbb", "one of three"


@pytest.mark.parametrize("seed", range(30))
def test_no_other_choices_within_the_tie_have_fewer_ranges(seed: int) -> None:
    """Held against all choices that there are."""
    draw = random.Random(seed)
    series = [
        [Option(name, 10 * (1 + draw.choice([0, 0.004, 0.008, 0.03])), draw.choice([1, 8])) for name in "abc"]
        for _ in range(5)
    ]
    best = [min(one.value for one in options) for options in series]

    def slower(way: Sequence[Option]) -> list[float]:
        return [one.value / level - 1 for one, level in zip(way, best, strict=True)]

    def cost(way: Sequence[Option]) -> tuple[int, int]:
        changes = sum(one.name != other.name for one, other in itertools.pairwise(way))
        return changes, sum(one.blocks for one in way)

    allowed = [way for way in itertools.product(*series) if max(slower(way)) <= TIE]
    found = chosen(series)
    assert max(slower(found)) <= TIE
    assert statistics.median(slower(found)) <= MEDIAN_TIE
    assert cost(found) == min(map(cost, allowed))
