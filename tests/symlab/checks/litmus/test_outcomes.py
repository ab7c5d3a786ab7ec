"""The judge on programs drawn from seeds: it allows what interleaving gives, strength only forbids, both ways agree."""

from dataclasses import replace

import pytest

import symlab.checks.litmus.outcomes as outcomes
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import parsed
from symlab.checks.litmus.program import Access, Compare, Condition, Fence, Seen
from tests.golden import refused
from tests.symlab.checks.litmus.generated import interleaved, program, stronger

SEEDS = range(30)
TWO_READS = (
    "memory x\nthread T0 on rank 0 block 0\nst.relaxed.sys{first} [x], {value}\nthread T1 on rank 1 block 0\n{second}\n"
)


def with_memory(one):
    """The program with a condition that makes both locations part of final states."""
    conditions = tuple(Condition("exists", Compare("==", Seen("", name), 0), name) for name in "xy")
    return replace(one, conditions=conditions)


def states(found):
    return {one.values for one in found.allowed}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_an_interleaving_gives_is_allowed(seed):
    """PTX is weaker than any order of all accesses: an axiom that forbids one of these is too strong."""
    one = with_memory(program(seed))
    allowed = states(judged(one, is_explained=False))
    assert {(*registers, *memory) for registers, memory in interleaved(one)} <= allowed


@pytest.mark.parametrize("seed", SEEDS)
def test_more_strength_allows_no_more(seed):
    one = with_memory(program(seed))
    assert states(judged(stronger(one), is_explained=False)) <= states(judged(one, is_explained=False))


@pytest.mark.parametrize("seed", range(12))
def test_fences_everywhere_leave_interleavings_alone(seed):
    """With morally strong accesses and fence.sc between all of them, only interleavings are left."""
    one = stronger(with_memory(program(seed)))
    threads = tuple(replace(thread, instructions=with_fences(thread.instructions)) for thread in one.threads)
    one = replace(one, threads=threads)
    assert states(judged(one, is_explained=False)) == {(*registers, *memory) for registers, memory in interleaved(one)}


def with_fences(code):
    """The instructions with a fence.sc between each two accesses."""
    accesses = [one for one in code if isinstance(one, Access)]
    return tuple(part for one in accesses for part in (one, Fence("sc", "sys")))[:-1]


@pytest.mark.parametrize("seed", range(8, 24))
def test_pruning_loses_nothing(seed):
    one = with_memory(program(seed, threads=3, length=2))
    whole, pruned = judged(one), judged(one, is_explained=False)
    assert whole.is_explained
    assert not pruned.is_explained
    assert states(whole) == states(pruned)
    assert whole.executions == pruned.executions


def test_weak_programs_do_more_than_interleave():
    more = [seed for seed in SEEDS if states(judged(with_memory(program(seed)), is_explained=False)) > {
        (*registers, *memory) for registers, memory in interleaved(program(seed))
    }]  # fmt: skip
    assert len(more) > len(SEEDS) // 3


def judged_text(text):
    return judged(parsed(text, "test"))


def test_accesses_of_different_sizes_that_race_are_undefined():
    text = TWO_READS.format(first=".b64", value="0x200000001", second="ld.relaxed.sys r0, [x]\nexists T1.r0 == 1")
    found = judged_text(text)
    assert found.mixed_race is not None
    assert not found.holds(found.program.conditions[0])


def test_accesses_of_different_sizes_that_do_not_race_are_fine():
    text = (
        "memory x, flag\nthread T0 on rank 0 block 0\nst.weak.b64 [x], 0x200000001\nst.release.sys [flag], 1\n"
        "thread T1 on rank 1 block 0\nagain:\nld.acquire.sys r0, [flag]\nbra again if r0 == 0\n"
        "ld.weak r1, [x]\nld.weak r2, [x+4]\nalways T1.r1 == 1 and T1.r2 == 2\n"
    )
    found = judged_text(text)
    assert found.mixed_race is None
    assert found.holds(found.program.conditions[0])
    assert not found.allowed[0].has_race


@pytest.mark.parametrize(("order", "has_race"), [("weak", True), ("relaxed.sys", False)])
def test_a_race_is_told(order, has_race):
    found = judged_text(
        f"memory x\nthread T0 on rank 0 block 0\nst.{order} [x], 1\nthread T1 on rank 1 block 0\nld.{order} r0, [x]\n"
        "exists T1.r0 == 1"
    )
    assert [one.has_race for one in found.allowed] == [has_race] * 2


def test_a_program_with_too_many_executions_to_explain_is_judged(monkeypatch):
    one = with_memory(program(3))
    expected = states(judged(one))
    monkeypatch.setattr(outcomes, "_STEPS", 0)
    found = judged(one)
    assert not found.is_explained
    assert all(outcome.is_allowed for outcome in found.outcomes)
    assert states(found) == expected


def test_a_program_with_too_many_executions_is_refused(monkeypatch):
    monkeypatch.setattr(outcomes, "MAXIMUM_EXECUTIONS", 10)
    with refused():
        judged(program(3, threads=3), is_explained=False)


def test_a_loop_without_an_end_is_refused():
    text = "memory x\nthread T0 on rank 0 block 0\nagain:\nld.weak r0, [x]\nbra again\nexists x == 0"
    with refused():
        judged_text(text)


def test_a_thread_that_waits_for_ever_has_no_value_behind_the_barrier():
    found = judged_text(
        "memory x\nthread T0 on rank 0 block 0\nbar.sync 0, 3\nld.weak r0, [x]\n"
        "thread T1 on rank 0 block 0\nst.weak [x], 1\nalways T0.r0 == 7\nexists T0.r0 == 0"
    )
    assert [(one.values, one.blocked) for one in found.allowed] == [((None,), ("T0",))]
    assert [found.holds(one) for one in found.program.conditions] == [True, False]


def test_conditions_are_not_about_deadlocks():
    found = judged_text(
        "memory x\nthread T0 on rank 0 block 0\nst.weak [x], 1\nbar.sync 0\nbar.sync 1\n"
        "thread T1 on rank 0 block 0\nbar.sync 1\nbar.sync 0\nexists x == 1"
    )
    assert found.has_deadlock
    assert not found.holds(found.program.conditions[0])
