"""The machine with weak memory against the judge: what it shows is allowed, and what is allowed it shows."""

from collections import Counter
from pathlib import Path

import pytest

from symlab.checks.litmus.compile import NotCompiled
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import parsed, read
from symlab.checks.trials.machine import State, machine_of
from symlab.checks.trials.trial import Trial, tried
from tests.golden import refused, same_text

PROGRAMS = Path(__file__).resolve().parents[4] / "symlab" / "checks" / "litmus" / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.litmus"))
SAMPLE = [
    "2_2w_relaxed", "alias_mp", "alias_mp_fence_reader", "alias_one_thread_wrong_fence", "alias_stores",
    "atomic_add_narrow", "bar_after_acquire", "bar_too_few", "bulk_copy_no_fence", "bulk_source_again", "chain_red",
    "corr_relaxed", "corr_weak", "iriw_fence_sc", "ll_one_store", "ll_vector", "lock_release_acquire", "mp_fences",
    "mp_no_acquire", "mp_no_release", "mp_release_acquire", "mp_scope_cluster_clusters", "mp_scope_gpu_ranks",
    "multicast_store", "multicast_store_fence", "sb_fence_sc", "sb_relaxed", "wrc_release_acquire",
]  # fmt: skip
MAXIMUM_SEEDS = 2000
"""The number of seeds within which the machine shows all that it can, for each program of the project."""
LATE = {"lb_fences_narrow": 1, "lb_relaxed": 1, "lb_weak": 1, "thin_air_control_one": 1}
"""How many allowed states of a program need a load that takes effect after a later store of its own thread."""


def program(name):
    return read(PROGRAMS / f"{name}.litmus")


def check(name):
    """By hundreds of seeds, up to the first by which all states were seen that can be."""
    found, machine, counts = judged(program(name)), machine_of(program(name)), Counter[State]()
    trial = Trial(found, counts)
    for start in range(0, MAXIMUM_SEEDS, 100):
        counts.update(machine.states(range(start, start + 100)))
        if not trial.unseen:
            break
    assert not trial.forbidden
    assert not trial.unseen, f"after {trial.runs} runs"


@pytest.mark.parametrize("name", SAMPLE)
def test_the_machine_shows_exactly_what_the_model_allows(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SAMPLE])
def test_the_machine_shows_exactly_what_the_model_allows_on_every_program(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_further_seed_shows_a_forbidden_state(name):
    assert not tried(program(name), range(MAXIMUM_SEEDS, MAXIMUM_SEEDS + 100)).forbidden


@pytest.mark.slow
def test_late_loads_are_those_of_load_buffering():
    """A program finds them; symlab/checks/litmus/README.md has the same numbers."""
    found = {name: sum(one.needs_late_load for one in judged(program(name)).allowed) for name in NAMES}
    assert {name: number for name, number in found.items() if number} == LATE


@pytest.mark.parametrize("name", LATE)
def test_the_machine_never_shows_a_late_load(name):
    trial = tried(program(name), range(100))
    late = {(one.values, one.blocked) for one in trial.judgement.allowed if one.needs_late_load}
    assert late
    assert not late & set(trial.counts)


def test_a_run_is_a_function_of_its_seed():
    one, other = machine_of(program("iriw_relaxed")), machine_of(program("iriw_relaxed"))
    states = [one.run(seed) for seed in range(20)]
    assert [other.run(seed) for seed in reversed(range(20))] == states[::-1]
    assert len(set(states)) > 5


@pytest.mark.parametrize("copy", ["[x+4], [y]", "[x], [x]"])
def test_what_no_kernel_can_be_is_refused(copy):
    text = f"memory x, y\nthread T0 on rank 0 block 0\n    cp.async.bulk {copy}, 4\nexists x == 0\n"
    with refused(NotCompiled):
        machine_of(parsed(text, "mine"))
    same_text(tried(parsed(text, "mine"), range(3)).remark())


def test_a_loop_without_an_end_is_told():
    text = (
        "memory x\nthread T0 on rank 0 block 0\nagain:\n    ld.relaxed.sys r0, [x]\n"
        "    bra again if r0 == 0\nexists T0.r0 == 1\n"
    )
    same_text(tried(parsed(text, "mine"), range(1)).remark())


def test_a_condition_is_about_what_is_left_after_the_blocks():
    """A bulk copy's source lies in shared memory, which is over with its block."""
    text = (PROGRAMS / "bulk_copy.litmus").read_text().partition("exists")[0]
    machine_of(parsed(f"{text}exists data == 1\n", "mine"))
    with refused(NotCompiled):
        machine_of(parsed(f"{text}exists tile == 1\n", "mine"))
