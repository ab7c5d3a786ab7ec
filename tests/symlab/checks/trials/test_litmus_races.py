"""The checker and the judge agree: a program has a data race by the model if and only if the checker finds one."""

from pathlib import Path

import pytest

import symlab.checks.litmus
from simulator.ptx.parse import parse_kernel
from simulator.world import SimulatorOptions
from symlab.checks.litmus.compile import ENTRY, NotCompiled
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import read
from symlab.checks.trials.races import checked_kernel, races_of

PROGRAMS = sorted((Path(symlab.checks.litmus.__file__).parent / "programs").glob("*.litmus"))
EVERY = 6
"""One program of so many is in the fast tests."""

HOWS = (
    {},
    {"schedule": "random", "memory": "weak", "seed": 3},
    {"schedule": "adversarial", "memory": "weak", "seed": 3},
)
"""The checker is for all orders and memories: pytest's plugin has it on under seeds, too."""


def compilable(path):
    try:
        checked_kernel(read(path))
    except NotCompiled:
        return False
    return True


COMPILABLE = [one for one in PROGRAMS if compilable(one)]


def check(program, **how):
    has_race = any(one.has_race for one in judged(program, is_explained=False).allowed)
    findings = races_of(program, SimulatorOptions(heap_bytes=1 << 20, races=True, **how))
    assert has_race == any(one.severity != "advisory" for one in findings), [one.sentence() for one in findings]


@pytest.mark.parametrize("path", COMPILABLE[::EVERY], ids=lambda one: one.stem)
def test_programs(path):
    check(read(path))


@pytest.mark.parametrize("how", HOWS[1:], ids=lambda how: f"{how['schedule']}-{how['memory']}")
@pytest.mark.parametrize("path", COMPILABLE[::40], ids=lambda one: one.stem)
def test_programs_in_other_orders(path, how):
    check(read(path), **how)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS, ids=lambda how: "-".join(map(str, how.values())) or "fair")
def test_all_programs(how):
    """157 of 169; the others have a second address of a location on one rank."""
    assert len(COMPILABLE) == 157
    for path in COMPILABLE:
        check(read(path), **how)


def test_a_kernel_has_each_thread_in_a_warp_of_its_own():
    kernel = checked_kernel(read(next(one for one in PROGRAMS if one.stem == "bar_named")))
    assert kernel.block % 32 == 0
    assert kernel.starts
    assert parse_kernel(kernel.ptx, ENTRY).parameters
