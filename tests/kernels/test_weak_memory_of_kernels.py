"""Our kernels with weak memory: right by every seed. Where a kernel reads what its peers stored in the same launch, it
goes wrong without a release, an acquire, a wide scope or a proxy fence."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from kernels_launching import Launches

from kernels.catalogue import SPECS, collective
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable

Compiled = Callable[[KernelSpec, Case, str], Executable]
FitCase = Callable[..., Case]

NAMES = [spec.name for spec in SPECS]
FAST = ["all_reduce/multimem_two_shot", "all_gather/bulk", "broadcast/push", "barrier/multimem"]
LAUNCHES = 3
WEAKENED_SEEDS = 20
"""The number of seeds within which a weakened kernel goes wrong."""


def outcomes(
    name: str, fit_case: FitCase, compiled: Compiled, seeds: range, change: tuple[str, str] = ("", "")
) -> set[str]:
    """What launches in a row came to, by seeds, of a kernel whose PTX is changed by a pattern and what replaces it."""
    spec = next(one for one in SPECS if one.name == name)
    how = {"root": 1} if collective(spec.op).rooted else {}
    case = fit_case(spec, **(how if spec.op == "barrier" else {**how, "size_bytes": 1536}))
    kernel = compiled(spec, case, "sm_90a")
    if change[0]:
        ptx, count = re.subn(change[0], change[1], kernel.ptx)
        assert count
        kernel = replace(kernel, ptx=ptx, digest="sha256:" + hashlib.sha256(ptx.encode()).hexdigest())
    found = set()
    for seed in seeds:
        work = Launches(spec, case, kernel, count=LAUNCHES)
        work.run(schedule="random", seed=seed, memory="weak")
        found.add(work.seen())
        if change[0] and found != {"right"}:
            break
    return found


@pytest.mark.parametrize("name", FAST)
def test_kernels_are_right_with_weak_memory(fit_case: FitCase, compiled: Compiled, name: str) -> None:
    assert outcomes(name, fit_case, compiled, range(1)) == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_kernels_are_right_with_weak_memory_by_every_seed(fit_case: FitCase, compiled: Compiled, name: str) -> None:
    assert outcomes(name, fit_case, compiled, range(1, 4)) == {"right"}


WEAKENED = {
    "a signal without release": ("reduce_scatter/push", (r"\.release\.sys", ".relaxed.sys")),
    "a poll without acquire": ("reduce_scatter/push", (r"ld\.acquire\.sys", "ld.relaxed.sys")),
    "a signal that releases to its GPU only": ("reduce_scatter/push", (r"\.release\.sys", ".release.gpu")),
    "no alias fence": ("barrier/multimem", (r"fence\.proxy\.alias;", "")),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", list(WEAKENED)[:1])
def test_a_weakened_kernel_goes_wrong(fit_case: FitCase, compiled: Compiled, defect: str) -> None:
    name, change = WEAKENED[defect]
    assert outcomes(name, fit_case, compiled, range(WEAKENED_SEEDS), change) != {"right"}


@pytest.mark.slow
@pytest.mark.parametrize("defect", list(WEAKENED)[1:])
def test_more_weakened_kernels_go_wrong(fit_case: FitCase, compiled: Compiled, defect: str) -> None:
    name, change = WEAKENED[defect]
    assert outcomes(name, fit_case, compiled, range(WEAKENED_SEEDS), change) != {"right"}
