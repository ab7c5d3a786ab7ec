"""All families of vectors, each in one bench, and the keys that their kernels prove."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import simulator_vectors_convert as convert
import simulator_vectors_float as floats
import simulator_vectors_integer as integer
import simulator_vectors_move as move
from simulator_bench import Bench, Vector

FAMILIES: dict[str, Callable[[], list[Vector]]] = {
    "integer": integer.family,
    "float": floats.family,
    "convert": convert.family,
    "move": move.family,
}
SHARED: dict[str, str] = {"move": move.SHARED}


@lru_cache(maxsize=32)
def bench_of(family: str) -> Bench:
    return Bench(FAMILIES[family](), SHARED.get(family, ""))


@lru_cache(maxsize=1)
def proven() -> frozenset[str]:
    return frozenset(key for family in FAMILIES for key in bench_of(family).keys())
