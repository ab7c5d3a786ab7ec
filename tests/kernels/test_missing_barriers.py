"""Kernels without one of their barriers must be caught, whole ones never accused: launches in a row, by many seeds.

There is no host barrier between launches, and each has inputs of its own. That is legal, because kernels keep their
ranks apart themselves; it is what shows when they don't.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch
from kernels_launching import Launches
from kernels_sabotaged import PUSHED, barriers_of

from kernels.catalogue import SPECS, collective, find
from kernels.dtypes import DTYPES
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable

Compiled = Callable[[KernelSpec, Case, str], Executable]
FitCase = Callable[..., Case]

NAMES = [spec.name for spec in SPECS]
SEEDS = range(20)
LAUNCHES = 3
LARGEST = 80
"""Sums of three integers up to it are exact in bfloat16 on the way, too."""


def inputs_of(case: Case, launch: int, rank: int) -> torch.Tensor:
    """Integers from 1 to LARGEST in the case's dtype, others for every launch and rank."""
    count = collective(case.op).counts(case.numel, case.world_size)[0]
    drawn = np.random.default_rng([launch, rank]).integers(1, LARGEST, count, endpoint=True)
    return torch.from_numpy(drawn).to(DTYPES[case.dtype])


def expected(case: Case, launch: int, rank: int) -> torch.Tensor | None:
    """What must come out, in bytes; None for a rank that gets nothing."""
    inputs = [inputs_of(case, launch, one) for one in range(case.world_size)]
    parts = collective(case.op).outputs(inputs, rank, case.root)
    return None if parts is None else functools.reduce(operator.add, parts).view(torch.uint8)


def seen(spec: KernelSpec, case: Case, executable: Executable, seed: int | None) -> str:
    """ "right", or what was seen: "wrong", "changed", or an error's name."""
    work = Launches(spec, case, executable, functools.partial(inputs_of, case), count=LAUNCHES)
    work.run(**({} if seed is None else {"schedule": "random", "seed": seed}))
    if work.errors:
        return type(next(iter(work.errors.values()))).__name__
    for rank, found in work.found.items():
        if found.changed:
            return "changed"
        for launch, output in enumerate(found.outputs):
            wanted = expected(case, launch, rank)
            if wanted is not None and not torch.equal(output, wanted):
                return "wrong"
    return "right"


@pytest.mark.parametrize("name", [*NAMES, "all_reduce/two_shot_pushed"])
def test_whole_kernels_are_right_by_every_seed(
    fit_case: FitCase, compiled: Compiled, sabotaged: dict[str, KernelSpec], name: str
) -> None:
    spec = sabotaged.get(name) or find(name)
    case = fit_case(spec, root=1) if collective(spec.op).rooted else fit_case(spec)
    executable = compiled(spec, case, "sm_90a")
    assert {seen(spec, case, executable, seed) for seed in (None, *SEEDS)} == {"right"}


@pytest.mark.parametrize(
    "defect", [f"{spec.name} {barrier}" for spec in (*SPECS, PUSHED) for barrier in barriers_of(spec)]
)
def test_a_missing_barrier_is_caught_by_some_seed(
    fit_case: FitCase, compiled: Compiled, sabotaged: dict[str, KernelSpec], defect: str
) -> None:
    name, barrier = defect.split()
    spec = sabotaged[f"{name}_no_{barrier}_barrier"]
    case = fit_case(spec, root=1) if collective(spec.op).rooted else fit_case(spec)
    executable = compiled(spec, case, "sm_90a")
    assert any(seen(spec, case, executable, seed) != "right" for seed in (None, *SEEDS)), "passed with every seed"
