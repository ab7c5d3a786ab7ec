"""Kernels without one of their barriers must be caught, whole ones never accused: launches in a row, by many seeds,
with weak memory, too.

There is no host barrier between launches, and each has inputs of its own. That is legal, because kernels keep their
ranks apart themselves; it is what shows when they don't.
"""

import pytest

from cases.ops import collective
from kernels.catalogue import SPECS, find
from tests.kernels.launching import SAMPLE, Launches, some_slow
from tests.kernels.sabotaged import KERNELS, POLLED, barriers_of

BY_NAME = {spec.name: spec for spec in KERNELS}
SEEDS = range(20)
LAUNCHES = 3


def seen(spec, fit_case, compiled, seed, schedule="random", **more):
    """Launches.seen by a seed; None: in the fair order."""
    size = {"size_bytes": 1536} if more and spec.op != "barrier" else {}
    case = fit_case(spec, **({"root": 1} if collective(spec.op).rooted else {}), **size)
    work = Launches(spec, case, compiled(spec, case, "sm_90a"), count=LAUNCHES)
    work.run(**({} if seed is None else {"schedule": schedule, "seed": seed, **more}))
    return work.seen()


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(BY_NAME, quick=lambda name: name in ("all_reduce/two_shot", "reduce/pull")))
def test_whole_kernels_are_right_by_every_seed(fit_case, compiled, name):
    seeds = SEEDS if name.startswith("all_reduce/") and name not in POLLED else SEEDS[:3]
    assert {seen(BY_NAME[name], fit_case, compiled, seed) for seed in (None, *seeds)} == {"right"}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_whole_kernels_are_right_under_the_adversary(fit_case, compiled, name):
    found = {seen(BY_NAME[name], fit_case, compiled, seed, schedule="adversarial") for seed in range(3)}
    assert found == {"right"}


@pytest.mark.parametrize(
    "defect",
    some_slow(
        [f"{spec.name}_no_{barrier}_barrier" for spec in KERNELS for barrier in barriers_of(spec)],
        quick=lambda defect: defect.partition("_no_")[0] in SAMPLE,
    ),
)
def test_a_missing_barrier_is_caught_by_some_seed(fit_case, compiled, sabotaged, defect):
    spec = sabotaged[defect]
    assert any(seen(spec, fit_case, compiled, seed) != "right" for seed in SEEDS), "passed with every seed"


FAST = ("all_reduce/multimem_two_shot", "all_gather/bulk", "broadcast/push", "barrier/multimem")


@pytest.mark.parametrize("name", FAST)
def test_kernels_are_right_with_weak_memory(fit_case, compiled, name):
    """As the catalogue has them. tests/mutants weakens each of their orders, scopes and fences."""
    assert seen(find(name), fit_case, compiled, 0, memory="weak") == "right"


@pytest.mark.slow
@pytest.mark.parametrize("name", [spec.name for spec in SPECS])
def test_all_kernels_are_right_with_weak_memory_by_every_seed(fit_case, compiled, name):
    assert {seen(find(name), fit_case, compiled, seed, memory="weak") for seed in range(1, 4)} == {"right"}
