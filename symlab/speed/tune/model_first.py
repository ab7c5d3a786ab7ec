"""The model asked first: it ranks a size's candidates on the CPU, so that GPUs measure only those that it ranks best.

The model is that of symlab predict. Its times of tunings that do the same work are equal, or nearly so; among those
that are within TIE of each other the launch of fewer blocks is taken, which leaves multiprocessors to others.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cases.case import Case
from kernels.spec import KernelSpec
from kernels.tuned_name import base_of, has_tuning, is_dependent_alone, step_of
from runner.gpu.names import gpu_names
from runner.gpu.reading import gpu_type, type_of_device
from runner.request.validate import Request
from runner.request_error import RequestError
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.predictable import check_predictable, check_type
from symlab.speed.predict.predicting import terms_for
from symlab.speed.predict.profiles import Found, Unprofiled, kernel_of
from symlab.speed.predict.rates import Known, rates_of
from symlab.speed.predict.score import Score
from symlab.speed.predict.stored_score import stored
from symlab.speed.tune.candidates import Candidates
from symlab.speed.tune.search import BEST_OF_A_RUNG
from symlab.speed.tuned.table import Guess

MEASURED = 6
"""How many of the candidates that the model ranks best are measured, beside the catalogue's own."""

TIE = 0.005
"""Predicted times that differ by no more than this share of them count as equal."""

FAR = 1.6
"""An algorithm whose own tuning is predicted to take longer than the best own one's by more than this factor has no
grid at that size: on 2 and 4 H100 (27 November 2026, 7 ops, 1K to 256M) the quickest tuning's algorithm had an own one
within 1.06 and 1.23 times of the best."""

LINES = 10
"""Number of lines that tell how far the model is."""


class Profiler(Protocol):
    """What makes candidates' profiles (profiles.Profiles; tests put their own in)."""

    def of(self, cases: Sequence[Case], limit_s: float = math.inf) -> Iterable[Found]:
        """Yield the profiles of cases; what was not begun after limit_s seconds is left out."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


@dataclass(frozen=True, slots=True)
class Model:
    """The model for a type of GPU."""

    known: Known
    score: Score

    @property
    def name(self) -> str:
        """The type of GPU and the digest of all numbers that predictions rest on."""
        parts = [dataclasses.asdict(self.known), dataclasses.asdict(self.score.constants), self.score.intervals]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=dict).encode()).hexdigest()
        return f"{self.known.name}, sha256:{digest}"

    def us(self, case: Case, work: CaseWork) -> float:
        """Return the predicted time of a candidate, in microseconds, among as many as are measured in turns."""
        return terms_for(case, work, self.known.rates, MEASURED).time_us(self.score.constants)


def model_for(requests: Iterable[Request], device: str, folders: Sequence[Path]) -> Model:
    """Return the model for a device ("NVIDIA H200") and what was asked to be tuned on it.

    folders: of configurations.
    RequestError where the model can't rank: no type, no floors of it, or settings that the model is not of; matmuls, of
    which it knows the columns of tiles alone.
    """
    name = type_of_device(device, folders)
    if not name:
        raise RequestError(
            f"no type of GPU has {device} among its devices ({', '.join(gpu_names(folders))}), so there is no model of "
            "it (--config-dir), measure one: symlab calibrate -o DIR/gpu/NAME.yaml"
        )
    found = gpu_type(name, folders)
    if found.floors is None:
        raise RequestError(
            f"{found.name} has no floors, so the model can't rank candidates (floors), measure them: symlab calibrate"
        )
    for one in requests:
        if one.gemm is not None:
            raise RequestError(f"the model does not rank tunings of {one.op} (op)")
        fabric = dataclasses.replace(one.fabric, gpu=found.limits)
        check_predictable(dataclasses.replace(one, fabric=fabric, algorithms="auto"))
        check_type(found, one)
    return Model(rates_of(found), stored())


@dataclass(slots=True)
class Ranking:
    """What the model says of one case's candidates. failed: why some can't be compiled. unpredicted: those that only
    the simulator failed with. asked: number of candidates that there are. brought: those beside the catalogue's."""

    us: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unpredicted: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    brought: tuple[KernelSpec, ...] = ()

    @property
    def left_out(self) -> int:
        """Number of candidates that there was no time for."""
        return self.asked - len(self.us) - len(self.failed) - len(self.unpredicted)

    def best(self, case: Case, count: int = MEASURED) -> list[Guess]:
        """Return those that the model ranks best, the best first; among equal ones those of fewer blocks.

        Kernels that differ in threads and loads in flight alone come after those of other blocks and algorithms: the
        model tells them apart least, and measuring them tells little more.
        """
        ranked = self._ranked(case)
        kinds = {(base_of(name), is_pushed(name), self.blocks_of(case, name)): name for name in reversed(ranked)}
        first = [name for name in ranked if name in kinds.values()]
        rest = [name for name in ranked if name not in kinds.values()]
        found = [Guess(name, self.us[name]) for name in (*first, *rest)[:count]]
        return sorted(found, key=lambda one: one.us)

    def _ranked(self, case: Case) -> list[str]:
        """All names by predicted time, those within TIE of a level by their blocks."""
        left = sorted(self.us, key=self.us.__getitem__)
        found: list[str] = []
        while left:
            level = self.us[left[0]] * (1 + TIE)
            tied = [name for name in left if self.us[name] <= level]
            found += sorted(tied, key=lambda one: (self.blocks_of(case, one), self.us[one]))
            left = left[len(tied) :]
        return found

    def blocks_of(self, case: Case, name: str) -> int:
        """Return the number of blocks that a kernel is launched with for a case, whose algorithm does not matter."""
        mine = dataclasses.replace(case, algorithm=name)
        return math.prod(kernel_of(mine, self.brought).launch(mine).grid)


def is_pushed(name: str) -> bool:
    """Return whether a kernel's name says that it pushes."""
    return has_tuning(name) and not is_dependent_alone(name) and step_of(name).push


def rankings(
    asked: Sequence[Candidates],
    model: Model,
    profiler: Profiler,
    left_s: Callable[[], float] = lambda: math.inf,
    say: Callable[[str], None] = lambda line: None,
) -> list[Ranking]:
    """Return what the model says of each case's candidates: the catalogue's own, a grid of the algorithms that are not
    far behind with these, all of each entry, whose usual values are the same at all sizes, then tunings beside the best
    two.

    left_s: seconds that are left for it; what there is no time for is left out, the catalogue's own tunings last.
    """
    found = [Ranking(brought=one.specs) for one in asked]
    _ask([(ranking, one.own()) for ranking, one in zip(found, asked, strict=True)], model, profiler, left_s, say)
    grids = []
    for one, ranking in zip(asked, found, strict=True):
        limit_us = FAR * min(ranking.us.values(), default=math.inf)
        near = [name for name in one.algorithms if name in one.of_entry or ranking.us.get(name, 0.0) <= limit_us]
        grids.append((ranking, one.grid(near)))
    _ask(grids, model, profiler, left_s, say)
    beside = []
    for one, ranking in zip(asked, found, strict=True):
        names = sorted(ranking.us, key=ranking.us.__getitem__)[:BEST_OF_A_RUNG]
        beside.append((ranking, one.near(names)))
    _ask(beside, model, profiler, left_s, say)
    return found


def _ask(
    asked: Sequence[tuple[Ranking, Sequence[Case]]],
    model: Model,
    profiler: Profiler,
    left_s: Callable[[], float],
    say: Callable[[str], None],
) -> None:
    """Put the model's times of cases into their rankings: the first of every size, then the second of every size .."""
    of: dict[Case, Ranking] = {}
    for row in itertools.zip_longest(*([(ranking, case) for case in cases] for ranking, cases in asked)):
        of |= {pair[1]: pair[0] for pair in row if pair is not None}
    for ranking, cases in asked:
        ranking.asked += len(cases)
    step = max(len(of) // LINES, 1)
    for number, (case, work) in enumerate(profiler.of(list(of), left_s()), start=1):
        ranking = of[case]
        if not isinstance(work, Unprofiled):
            ranking.us[case.algorithm] = model.us(case, work)
        elif work.can_run:
            ranking.unpredicted[case.algorithm] = work.reason
        else:
            ranking.failed[case.algorithm] = work.reason
        if number % step == 0 or number == len(of):
            say(f"model: {number} of {len(of)} candidates")
