"""Our kernels with weak memory: right by every seed. tests/mutants weakens each of their orders, scopes and fences."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernels.catalogue import SPECS, collective
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable
from tests.kernels.launching import Launches

Compiled = Callable[[KernelSpec, Case, str], Executable]
FitCase = Callable[..., Case]

NAMES = [spec.name for spec in SPECS]
FAST = ["all_reduce/multimem_two_shot", "all_gather/bulk", "broadcast/push", "barrier/multimem"]
LAUNCHES = 3


def outcomes(name: str, fit_case: FitCase, compiled: Compiled, seeds: range) -> set[str]:
    """What launches in a row came to, by seeds."""
    spec = next(one for one in SPECS if one.name == name)
    how = {"root": 1} if collective(spec.op).rooted else {}
    case = fit_case(spec, **(how if spec.op == "barrier" else {**how, "size_bytes": 1536}))
    kernel = compiled(spec, case, "sm_90a")
    found = set()
    for seed in seeds:
        work = Launches(spec, case, kernel, count=LAUNCHES)
        work.run(schedule="random", seed=seed, memory="weak")
        found.add(work.seen())
    return found


@pytest.mark.parametrize("name", FAST)
def test_kernels_are_right_with_weak_memory(fit_case: FitCase, compiled: Compiled, name: str) -> None:
    assert outcomes(name, fit_case, compiled, range(1)) == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_kernels_are_right_with_weak_memory_by_every_seed(fit_case: FitCase, compiled: Compiled, name: str) -> None:
    assert outcomes(name, fit_case, compiled, range(1, 4)) == {"right"}
