"""Dependent launches: a kernel waits for the launches before it, and touches memory after that alone."""

import re
from dataclasses import replace

import pytest

from kernels.catalogue import SPECS, find
from kernels.tuned_name import step_of, values_of, with_dependent, with_step
from memory.fabric import AWAITS_LAUNCHES, Launch
from tests.golden import refused, same_text
from tests.kernels.launching import Launches, some_slow
from tests.rooms import needs

NAMES = [spec.name for spec in SPECS]
FAST = ("all_reduce/lamport", "barrier/multimem", "all_gather/bulk")
MEMORY = re.compile(r"\s(ld|st|atom|red|multimem|cp|mbarrier)\.(?!param)")


@pytest.mark.parametrize("name", some_slow(NAMES, quick=lambda name: name in FAST))
def test_memory_is_touched_after_the_wait_alone(fit_case, compiled, name):
    spec = find(with_dependent(name))
    ptx = compiled(spec, fit_case(spec), "sm_90a").ptx
    assert ptx.count(AWAITS_LAUNCHES) == 1
    before, _, after = ptx.partition(AWAITS_LAUNCHES)
    assert "griddepcontrol.launch_dependents" in before
    assert not MEMORY.search(before)
    assert MEMORY.search(after)
    assert not re.search(r"\b(bra|ret)\b|@%p", before), "every thread waits"


@needs("checks")
@pytest.mark.parametrize("name", some_slow(NAMES, quick=lambda name: name in FAST))
def test_dependent_launches_in_a_row_are_right_and_race_free(fit_case, compiled, name):
    spec = find(with_dependent(name))
    case = fit_case(spec) if spec.op == "barrier" else fit_case(spec, size_bytes=1536)
    work = Launches(spec, case, compiled(spec, case, "sm_90a"), count=3)
    world = work.run(races=True)
    assert work.seen() == "right"
    assert [one for one in world.findings if one.assumption not in (spec.assumptions or ("",)) or one.fails] == []


def test_a_kernel_that_does_not_wait_is_not_launched_so(fit_case, compiled):
    spec = find("all_reduce/one_shot")
    case = fit_case(spec, size_bytes=1536)
    late = replace(spec, launch=lambda case: replace(spec.launch(case), dependent=True))
    work = Launches(late, case, compiled(spec, case, "sm_90a"))
    work.run()
    (said,) = {str(error) for error in work.errors.values() if isinstance(error, ValueError)}
    same_text(said)


def test_it_is_another_variant_of_the_same_tuning(fit_case):
    spec, late = find("all_reduce/two_shot"), find("all_reduce/two_shot@d")
    for size_bytes in (1 << 10, 1 << 20, 1 << 28):
        case = fit_case(spec, size_bytes=size_bytes)
        assert late.choices(case) == {**spec.choices(case), "dependent_launch": True}
        assert late.launch(case) == replace(spec.launch(case), dependent=True)
    assert isinstance(late.launch(case), Launch)
    assert late.variant(case) != spec.variant(case)


def test_names_say_it():
    assert with_dependent("lamport") == with_dependent("lamport@d") == "lamport@d"
    assert with_dependent("two_shot@t512b64l8p") == with_dependent("two_shot@t512b64l8pd") == "two_shot@t512b64l8pd"
    step = step_of("two_shot@t512b64l8pd")
    assert (step.push, step.dependent) == (True, True)
    assert with_step("two_shot", step) == "two_shot@t512b64l8pd"
    assert values_of("two_shot@d") == {"dependent": True}
    assert values_of("two_shot@t512b64l8d")["dependent"] is True
    assert "dependent" not in values_of("two_shot@t512b64l8")
    with refused():
        find("all_reduce/two_shot@dd")
