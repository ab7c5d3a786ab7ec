"""The kernels and tunings that a search tries for a case: each different code or launch once.

A first grid is coarse; near(..) are the steps beside one that did well. What would compile to the same code and launch
the same grid as another candidate is left out, so small sizes have few candidates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kernels.catalogue import collective, find, takes_push, tuning_of
from kernels.spec import Case, KernelSpec, refuses
from kernels.tuned_name import base_of, step_of, with_step
from kernels.tuning import MAX_BLOCKS, MAX_THREADS, MIN_THREADS, Step
from memory.fabric import Traits

THREADS = (256, 512, 128)
BLOCKS = (16, 64, 4, 128, 32, 1)
LOADS = (8, 16)
"""In the order in which they are tried: where time ends a search, the last ones are left out."""

_NEAR = ((2, 1, 1), (0.5, 1, 1), (1, 2, 1), (1, 0.5, 1), (1, 1, 2), (1, 1, 0.5), (0.5, 2, 1), (2, 0.5, 1))
"""Factors of threads, blocks and loads in flight that lead to the steps beside one."""

MOST_LOADS = 8192
"""Loads in flight of all threads of a block: each takes four of 65,536 registers, half of which are for the rest."""


class Candidates:
    """What a search tries for one case: base is the case, whose algorithm does not matter."""

    def __init__(self, base: Case, algorithms: Sequence[str], traits: Traits) -> None:
        self._base = base
        self._traits = traits
        self._algorithms = algorithms
        self._seen: set[tuple[object, ...]] = set()
        self.refusal = ""
        """Why the first one that can't run the case can't; "" if all can."""

    def first(self, earlier: Iterable[str] = ()) -> list[Case]:
        """Return the first ones: the catalogue's own tunings, then earlier ones (of a size beside this), then a grid.

        Each call returns only what no call returned before, here and in near().
        """
        names = [*self._own(), *earlier, *self._grid()]
        return self._new(names)

    def near(self, names: Iterable[str]) -> list[Case]:
        """Return those one step beside the named ones."""
        return self._new(one for name in names for one in self._beside(name))

    def _own(self) -> Iterator[str]:
        for algorithm in self._algorithms:
            spec = find(f"{self._base.op}/{algorithm}")
            yield with_step(algorithm, replace(tuning_of(spec.name).step(self.case(algorithm))))

    def _grid(self) -> Iterator[str]:
        for loads, threads, blocks, algorithm in itertools.product(LOADS, THREADS, BLOCKS, self._algorithms):
            for push in (False, True) if takes_push(f"{self._base.op}/{algorithm}") else (False,):
                yield with_step(algorithm, Step(threads, blocks, loads, "on trial", push=push))

    def _beside(self, name: str) -> Iterator[str]:
        """Twice and half of each number, and the other way to bring data, as far as kernels have them."""
        base, step = base_of(name), step_of(name)
        for of_threads, of_blocks, of_loads in _NEAR:
            threads = max(int(step.threads * of_threads) // 32 * 32, MIN_THREADS)
            blocks = min(int(step.blocks * of_blocks), MAX_BLOCKS)
            loads = int(step.loads_in_flight * of_loads)
            if threads <= MAX_THREADS and blocks and loads and threads * loads <= MOST_LOADS:
                yield with_step(
                    base, Step(threads, blocks, loads, "on trial", push=step.push, dependent=step.dependent)
                )
        if takes_push(f"{self._base.op}/{base}"):
            yield with_step(base, replace(step, push=not step.push))

    def _new(self, names: Iterable[str]) -> list[Case]:
        found = []
        for name in names:
            case = self.case(name)
            spec = find(case.name)
            refusal = refuses(spec, collective(case.op), case, self._traits)
            if refusal is not None:
                self.refusal = self.refusal or str(refusal)
                continue
            key = _key(spec, case)
            if key not in self._seen:
                self._seen.add(key)
                found.append(case)
        return found

    def case(self, algorithm: str) -> Case:
        """Return the case with an algorithm."""
        return replace(self._base, algorithm=algorithm)


def _key(spec: KernelSpec, case: Case) -> tuple[object, ...]:
    """What tells candidates apart: the algorithm, what its code depends on, and the launch.

    A kernel without barriers has its tuning's blocks in its code, too, beyond those that are launched: they are only
    room, so that candidates that differ in nothing else count once.
    """
    choices = {name: value for name, value in spec.choices(case).items() if name != "max_blocks"}
    launch = spec.launch(case)
    return base_of(spec.name), repr(sorted(choices.items())), launch.grid, launch.block
