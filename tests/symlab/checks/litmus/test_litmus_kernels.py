"""Litmus programs as kernels: the assembler takes them, and what they do on the simulator is what the judge allows."""

from pathlib import Path

import pytest

import symlab.checks.litmus
from simulator.ptx.assembler import assembled, find_ptxas
from simulator.world import SimulatorOptions
from symlab.checks.litmus.compile import NotCompiled, kernel_of
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import WORDS_OF_A_LOCATION, parsed, read
from symlab.checks.litmus.program import Seen
from symlab.checks.trials.races import checked_kernel, run
from symlab.checks.trials.trial import tried
from tests.golden import refused
from tests.symlab.checks.litmus.messages import message

FOLDER = Path(symlab.checks.litmus.__file__).parent / "programs"
PROGRAMS = {path.stem: read(path) for path in sorted(FOLDER.glob("*.litmus"))}
ALIASES = [name for name in PROGRAMS if name.startswith("alias_")]
RUN = [name for name in PROGRAMS if name not in ALIASES]
SAMPLE = RUN[::6]
SMALL = {"heap_bytes": 1 << 16, "step_budget": 20_000}
ORDERS = ({}, *({"schedule": "random", "seed": seed} for seed in range(3)))


def test_a_checked_world_has_no_second_address_of_a_location():
    assert len(ALIASES) == 12
    for name in ALIASES:
        assert kernel_of(PROGRAMS[name]).pointers
        with pytest.raises(NotCompiled):
            checked_kernel(PROGRAMS[name])


def _unexpected(program, orders):
    """The runs whose final state the judge forbids."""
    judgement = judged(program, is_explained=False)
    allowed = {one.values for one in judgement.allowed if not one.blocked}
    may_block = any(one.blocked for one in judgement.allowed)
    found = []
    for options in orders:
        result = run(program, SimulatorOptions(**SMALL, **options))
        state = "deadlock" if result.is_deadlock else tuple(result.values[one] for one in judgement.seen)
        if state not in allowed and not (result.is_deadlock and may_block):
            found.append((options, state))
    return found


@pytest.mark.parametrize("name", SAMPLE)
def test_a_run_has_a_final_state_that_the_judge_allows(name):
    assert _unexpected(PROGRAMS[name], ORDERS) == []


@pytest.mark.slow
def test_all_runs_have_final_states_that_the_judge_allows():
    orders = tuple({"schedule": "random", "seed": seed} for seed in range(12))
    assert {name: bad for name in RUN if (bad := _unexpected(PROGRAMS[name], orders))} == {}


def test_an_order_can_show_another_state():
    """Otherwise the comparison with the judge would say little."""
    seen = (Seen("T0", "r0"), Seen("T1", "r0"))
    states = set()
    for seed in range(12):
        values = run(PROGRAMS["sb_relaxed"], SimulatorOptions(**SMALL, schedule="random", seed=seed)).values
        states.add(tuple(values[one] for one in seen))
    assert len(states) > 1


@pytest.mark.slow
def test_the_assembler_takes_the_kernels():
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    programs = [PROGRAMS[name] for name in ("mp_polls", "bulk_copy", "multicast_load", "bar_named", "ll_vector")]
    programs += [parsed(message(seed), str(seed)) for seed in range(6)]
    texts = [one.ptx for program in programs for one in (kernel_of(program), checked_kernel(program))]
    for text in texts:
        assert assembled(ptxas, text, "sm_90a").problems == (), text


def test_threads_run_where_the_program_says():
    text = """memory x, y
    thread A on rank 0 block 0
        st.relaxed.sys [x], 1
    thread B on rank 2 block 3
        ld.relaxed.sys r0, [y]
    thread C on rank 2 block 3
        ld.relaxed.sys r0, [y]
    exists x == 1"""
    made = kernel_of(parsed(text, "places"))
    assert (made.world_size, made.grid, made.block) == (3, 1, 2)
    assert checked_kernel(parsed(text, "places")).block == 64
    assert made.locations == {"x": (0, 0), "y": (1, 0)}
    assert {made.slots[name, "r0"][0] for name in ("B", "C")} == {2}
    assert made.slots["A", ""][0] == 0


def test_replicas_lie_at_one_place_of_all_ranks():
    made = kernel_of(PROGRAMS["multicast_load"])
    (first, rank), (second, other) = made.locations["x0"], made.locations["x1"]
    assert first == second
    assert (rank, other) == (0, 1)


def test_a_location_that_is_copied_from_begins_as_the_program_says():
    text = """memory tile = 5, x
    thread T0 on rank 0 block 0
        cp.async.bulk [x], [tile], 4
        cp.async.bulk.commit_group
        cp.async.bulk.wait_group 0
    thread T1 on rank 0 block 0
        ld.weak r0, [tile]
    exists x == 5 and T1.r0 == 5"""
    result = run(parsed(text, "tile"), SimulatorOptions(**SMALL))
    assert (result.values[Seen("", "x")], result.values[Seen("T1", "r0")]) == (5, 5)
    assert tried(parsed(text, "tile"), range(10)).counts == {((5, 5), ()): 10}


def test_what_a_run_leaves_in_every_word_of_a_location_is_read():
    """For a program may ask for any word of it."""
    stores = "\n".join(f"st.weak [x+{4 * word}], {word + 1}" for word in range(WORDS_OF_A_LOCATION))
    program = parsed(f"memory x\nthread T0 on rank 0 block 0\n{stores}\nexists x+28 == 8", "words")
    values = run(program, SimulatorOptions(**SMALL)).values
    assert [values[Seen("", "x", word)] for word in range(WORDS_OF_A_LOCATION)] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_thread_begins_at_its_time():
    """The order of threads decides what they see."""
    program = PROGRAMS["mp_weak"]
    seen = (Seen("T1", "r0"), Seen("T1", "r1"))
    found = {}
    for order in ((0, 1), (1, 0)):
        values = run(program, SimulatorOptions(**SMALL), [order]).values
        found[order] = tuple(values[one] for one in seen)
    assert found == {(0, 1): (1, 1), (1, 0): (0, 0)}


WAITS = """memory x
    thread T0 on rank 0 block 0
        st.weak [x], 1
    thread T1 on rank 0 block 0
        {lines}
        bar.sync {name}, 2
        ld.weak r0, [x]
    exists T1.r0 == 1"""


@pytest.mark.parametrize("name", [*range(16), "r1"])
def test_the_kernels_own_barriers_are_none_of_the_programs(name):
    """T1 waits for ever, whatever the number of its barrier is."""
    program = parsed(WAITS.format(lines="mov r1, 15" if name == "r1" else "", name=name), "waits")
    (only,) = judged(program, is_explained=False).allowed
    assert only.blocked
    counts = tried(program, range(5)).counts
    assert [blocked for _, blocked in counts] == [("T1",)]


def test_all_numbers_of_barriers_but_two_are_free_to_use():
    for count, is_free in ((14, True), (15, False)):
        lines = "\n".join(f"bar.arrive {name}, 2" for name in range(count - 1))
        program = parsed(WAITS.format(lines=lines, name=count - 1), "many")
        if is_free:
            assert "barrier.sync 14;" in kernel_of(program).ptx
        else:
            with refused(NotCompiled):
                kernel_of(program)


@pytest.mark.parametrize(
    "lines",
    [
        "memory x, y|cp.async.bulk [x], [x], 16",
        "memory x, y|cp.async.bulk [x+4], [y], 4",
        "memory x, y|cp.async.bulk [x], [y], 4|ld.weak r0, [x+4]",
        "memory x, y|alias z of x|cp.async.bulk [z], [y], 4|ld.weak r0, [x+4]",
        "memory x, y|alias z of y|cp.async.bulk [x], [y], 4",
        "memory x, y|multicast m of x, y|st.weak [x], 1|thread T1 on rank 2 block 0|multimem.st [m], 1"
        "|multimem.ld_reduce.add r0, [m]",
    ],
)
def test_what_cannot_run_is_refused(lines):
    head, *body = lines.split("|")
    names = [body.pop(0)] if body[0].startswith(("alias", "multicast")) else []
    text = "\n".join([head, *names, "thread T0 on rank 0 block 0", *body, "exists x == 0"])
    with refused(NotCompiled):
        kernel_of(parsed(text, "refused"))
