"""The ways by which a bug may be found: how the simulated world is made, and how many seeds are tried."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.museum.exhibit import Exhibit, OwnKernel, Seen

Shown = Exhibit | OwnKernel


@dataclass(frozen=True, slots=True)
class Way:
    """Options of the simulator, and the number of seeds within which it must find what is said to be found by it."""

    options: Mapping[str, Any]
    seeds: int


WAYS = {
    "fair": Way({"schedule": "fair"}, 1),
    "random": Way({"schedule": "random", "granularity": "access"}, 100),
    "adversarial": Way({"schedule": "adversarial"}, 100),
    "weak": Way({"schedule": "random", "memory": "weak"}, 100),
    "races": Way({"schedule": "fair", "races": True}, 1),
    "priority": Way({"schedule": "priority", "races": True}, 2),
}


@dataclass(frozen=True, slots=True)
class Search:
    """How a way went on one kernel: what the first run that was not clean came to, and after how many seeds.

    tried is the number of runs; seen is clean if all of them were.
    """

    way: str
    tried: int
    seen: Seen

    @property
    def is_found(self):
        return self.seen.outcome in ("wrong", "deadlock", "finding", "changed", "DeviceFault")


def search(shown, way, is_mended=False, seeds=None):
    """Run a kernel by a way, seed after seed, until a run is not clean."""
    chosen = WAYS[way]
    count = chosen.seeds if seeds is None else min(seeds, chosen.seeds)
    seen = Seen("clean")
    for seed in range(count):
        seen = shown.run(is_mended, seed=seed, **chosen.options)
        if seen.outcome != "clean":
            return Search(way, seed + 1, seen)
    return Search(way, count, seen)
