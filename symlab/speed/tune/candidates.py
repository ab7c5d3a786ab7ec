"""The kernels and tunings that a search tries for a case: each different code or launch once.

A first grid is coarse; near(..) are the steps beside one that did well. What would compile to the same code and launch
the same grid as another candidate is left out, so small sizes have few candidates. Of a kernel that the request brings
all that it names are tried: of an entry in YAML each combination of its parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cases.case import Case
from cases.gathered import gathered
from cases.ops import collective
from kernels.catalogue import is_known, takes_push, tuning_of
from kernels.spec import KernelSpec, refuses
from kernels.tuned_name import base_of, has_tuning, is_dependent_alone, step_of, with_step
from kernels.tuning import MAX_BLOCKS, MAX_THREADS, MIN_THREADS, Step
from memory.fabric import Traits
from runner.case.bringing import Brought
from symlab.speed.predict.profiles import kernel_of
from symlab.speed.tune import matmul_tunings

THREADS = (256, 512, 128)
BLOCKS = (16, 64, 4, 128, 32, 1)
LOADS = (8, 16)
"""In the order in which they are tried: where time ends a search, the last ones are left out."""

_NEAR = ((2, 1, 1), (0.5, 1, 1), (1, 2, 1), (1, 0.5, 1), (1, 1, 2), (1, 1, 0.5), (0.5, 2, 1), (2, 0.5, 1))
"""Factors of threads, blocks and loads in flight that lead to the steps beside one."""

MOST_LOADS = 8192
"""Loads in flight of all threads of a block: each takes four of 65,536 registers, half of which are for the rest."""


class Candidates:
    """What a search tries for one case: base is the case, whose algorithm does not matter.

    brought: kernels of the user's own, which algorithms names, too. Those of one entry stand together, and its first
    one stands for all of them, as the catalogue's own tuning does for others.
    """

    def __init__(self, base: Case, algorithms: Sequence[str], traits: Traits, brought: Sequence[Brought] = ()) -> None:
        self.op = base.op
        self.brought = {one.spec.algorithm: one for one in brought}
        entries = gathered((one.entry, one.spec.algorithm) for one in brought)
        self.of_entry = {names[0]: names for names in entries.values()}
        self.algorithms = tuple(name for name in algorithms if name not in self.brought or name in self.of_entry)
        self.specs = tuple(one.spec for one in brought)
        self._names = {one.place: name for name, one in self.brought.items()}
        self._base = base
        self._traits = traits
        self._seen: set[tuple[object, ...]] = set()
        self.refusal = ""
        """Why the first one that can't run the case can't; "" if all can."""

    def own(self) -> list[Case]:
        """Return the catalogue's kernels with their own tunings and the first of each entry, those that take the case.
        Like every call, only what no call returned before."""
        return self.named(self.algorithms)

    def first(self, earlier: Iterable[str] = ()) -> list[Case]:
        """Return the first ones: the catalogue's own, then earlier ones (of a size beside this), then a grid."""
        return [*self.own(), *self.named(earlier), *self.grid(self.algorithms)]

    def grid(self, algorithms: Iterable[str]) -> list[Case]:
        """Return the coarse grid of some of the algorithms, and all of an entry among them."""
        asked = tuple(algorithms)
        own = [name for first in asked for name in self.of_entry.get(first, ())]
        return self.named([*own, *self._grid([name for name in asked if name not in self.brought])])

    def near(self, names: Iterable[str]) -> list[Case]:
        """Return those one step beside the named ones."""
        ours = [name for name in names if self.case(name).algorithm not in self.brought]
        return self.named(one for name in ours for one in self._beside(name))

    def _grid(self, algorithms: Sequence[str]) -> Iterator[str]:
        if self._base.gemm is not None:
            yield from (name for algorithm in algorithms for name in matmul_tunings.grid(self.case(algorithm)))
            return
        for loads, threads, blocks, algorithm in itertools.product(LOADS, THREADS, BLOCKS, algorithms):
            for push in (False, True) if takes_push(f"{self.op}/{algorithm}") else (False,):
                yield tuned(algorithm, threads, blocks, loads, push)

    def _beside(self, name: str) -> Iterator[str]:
        """Twice and half of each number, and the other way to bring data, as far as kernels have them."""
        if self._base.gemm is not None:
            yield from matmul_tunings.beside(self.case(name))
            return
        base = base_of(name)
        step = self._step(name)
        for of_threads, of_blocks, of_loads in _NEAR:
            threads = max(int(step.threads * of_threads) // 32 * 32, MIN_THREADS)
            blocks = min(int(step.blocks * of_blocks), MAX_BLOCKS)
            loads = int(step.loads_in_flight * of_loads)
            if threads <= MAX_THREADS and blocks and loads and threads * loads <= MOST_LOADS:
                yield with_step(
                    base, Step(threads, blocks, loads, "on trial", push=step.push, dependent=step.dependent)
                )
        if takes_push(f"{self.op}/{base}"):
            yield with_step(base, replace(step, push=not step.push))

    def _step(self, name: str) -> Step:
        """The step that a name says, or that the catalogue has for the case."""
        if has_tuning(name) and not is_dependent_alone(name):
            return step_of(name)
        found = tuning_of(f"{self.op}/{name}").step(self.case(name))
        return replace(found, dependent=is_dependent_alone(name))

    def named(self, names: Iterable[str]) -> list[Case]:
        """Return the candidates of these names that the case's kernels do not refuse."""
        found = []
        for name in names:
            case = self.case(name)
            spec = self.spec(case)
            refusal = refuses(spec, collective(case.op), case, self._traits)
            if refusal is not None:
                self.refusal = self.refusal or str(refusal)
                continue
            key = _key(spec, case, self._traits.arch)
            if key not in self._seen:
                self._seen.add(key)
                found.append(case)
        return found

    def case(self, algorithm: str) -> Case:
        """Return the case with an algorithm, or with the brought kernel of a place."""
        return replace(self._base, algorithm=self._names.get(algorithm, algorithm))

    def spec(self, case: Case) -> KernelSpec:
        """Return the kernel of a candidate."""
        return kernel_of(case, self.specs)

    def said(self, algorithm: str) -> str:
        """Return what a table and command lines call a candidate: a brought kernel by its place."""
        return self.brought[algorithm].place if algorithm in self.brought else algorithm


def tuned(algorithm: str, threads: int, blocks: int, loads: int, push: bool) -> str:
    """Return the name of an algorithm with a tuning on trial; its launches are dependent if the algorithm's are."""
    step = Step(threads, blocks, loads, "on trial", push=push, dependent=is_dependent_alone(algorithm))
    return with_step(base_of(algorithm), step)


def _key(spec: KernelSpec, case: Case, arch: str) -> tuple[object, ...]:
    """What tells candidates apart: the algorithm, what its code depends on, and the launch.

    A kernel without barriers has its tuning's blocks in its code, too, beyond those that are launched: they are only
    room, so that candidates that differ in nothing else count once. A brought kernel's code is known once it is made.
    """
    launch = spec.launch(case)
    if spec.made is not None and spec.arguments is not None and not is_known(spec.name):
        code = spec.made(case, arch)
        given = [spec.arguments(case, launch, rank) for rank in range(case.world_size)]
        return spec.files, code.digest, code.entry, launch, repr(given), repr(spec.workspaces(case))
    choices = {name: value for name, value in spec.choices(case).items() if name != "max_blocks"}
    return base_of(spec.name), repr(sorted(choices.items())), launch.grid, launch.block
