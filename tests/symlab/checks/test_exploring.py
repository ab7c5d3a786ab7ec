"""symlab.explore: what it finds, to how few switches it shrinks it, and that the same run can be repeated."""

from pathlib import Path

import pytest

import symlab
from tests.golden import refused, same_text
from tests.symlab.messages_ptx import COUNT, HAND_OVER, INDEX, INDEXED, LOCKS, TURNS, counted, handed_over, produced

README = Path(symlab.__file__).parent / "checks" / "README.md"
MISTAKES = {
    "a flag before its data": (handed_over("flag", "data"), HAND_OVER, "wrong output", 3),
    "a lost update": (counted(is_atomic=False), COUNT, "wrong output", 0),
    "two locks in two orders": (TURNS, LOCKS, "deadlock", 0),
    "an index that is not there yet": (INDEXED, INDEX, "fault", 2),
}
"""A kernel, how it is launched, how it fails, and the number of switches that it is shrunk to."""


def explored(ptx, how, **more):
    return symlab.explore(ptx, **{"processes": 1, "seeds": 60, **how, **more})


def failing(ptx, how, **more):
    """What a search has found."""
    return explored(ptx, how, **more).found


@pytest.mark.parametrize("schedule", ["random", "adversarial"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_and_shrunk(name, schedule):
    ptx, how, kind, switches = MISTAKES[name]
    found = failing(ptx, how, schedule=schedule)
    assert found.failure.kind == kind
    assert found.switches <= switches
    assert found.order.schedule == schedule
    assert sum(row.is_switch for row in found.rows) <= found.switches


def producer_and_consumer(ptx):
    """The two kernels of messages_ptx.produced, which differ in their blocks."""
    to = [("peer", "flag"), ("peer", "data")]
    return [
        {
            "kernel": ptx,
            "entry": "produce",
            "block": 64,
            "stream": 1,
            "arguments": lambda rank: [(*one, 1 - rank) for one in to],
        },
        {"kernel": ptx, "entry": "consume", "block": 32, "stream": 2, "arguments": ["flag", "data", "out"]},
    ]


PRODUCED = {
    "ranks": 2,
    "grid": 1,
    "buffers": {"flag": (1, "int32", 0), "data": (64, "int32", 0), "out": (32, "int32", 0)},
    "expected": {"out": [[7] * 32] * 2},
}


@pytest.mark.parametrize("schedule", ["random", "adversarial"])
def test_a_mistake_between_kernels_on_two_streams_is_shrunk_and_told(schedule):
    kernels = producer_and_consumer(produced("flag", "data"))
    found = symlab.explore(kernels, **PRODUCED, schedule=schedule, seeds=60, processes=1).found
    assert found.switches <= 4
    marks = {row.mark.partition(":")[0]: row.kernel.rpartition("/")[2] for row in found.rows if row.mark}
    assert marks == {"comes too late": "produce", "reads the old value": "consume", "stores the wrong value": "consume"}
    assert "reads data[" in found.cause
    told = [line for line in found.text().splitlines() if " launch " in line]
    assert any("launch 0, produce, rank " in line for line in told)
    assert any("launch 1, consume, rank " in line for line in told)
    assert "a vector access comes apart" not in found.text(), "none is there"


def test_a_right_producer_and_its_consumer_are_not_accused():
    """One thread stores its own data before the flag, so that no other has to be waited for."""
    kernels = producer_and_consumer(produced("data", "flag"))
    for one in kernels:
        one["block"] = 1
    given = {**PRODUCED, "expected": {"out": [[7, *[0] * 31]] * 2}}
    assert symlab.explore(kernels, **given, seeds=60, processes=1).found is None


WAIT = """
.visible .entry wait(.param .u64 counter, .param .u64 out) {
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [out];
AGAIN:
  ld.relaxed.sys.global.u32 %r1, [%rd1]; setp.lt.u32 %p1, %r1, 3;
  @%p1 bra AGAIN;
  st.global.u32 [%rd2], %r1;
  ret;
}
"""


def test_a_failure_is_kept_where_fewer_launches_fail_in_every_order():
    """Two launches count to 4, where one may see 3; one launch alone counts to 2, and whoever waits for 3 never ends."""
    count = counted(is_atomic=True)
    kernels = [
        {"kernel": count, "stream": 1, "grid": 2, "arguments": ["counter"]},
        {"kernel": count.partition(".visible")[0] + WAIT, "stream": 2, "grid": 1, "arguments": ["counter", "out"]},
    ]
    buffers = {"counter": (1, "int32", 0), "out": (1, "int32", 0)}
    found = symlab.explore(kernels, ranks=1, block=1, buffers=buffers, launches=2, seeds=60, processes=1).found
    assert (found.failure.kind, found.launches) == ("wrong output", 2)


def test_the_access_that_went_wrong_is_named():
    found = failing(handed_over("flag", "data"), HAND_OVER)
    same_text(found.cause)
    marks = {row.mark: (row.ranks, row.kind, row.tensor, row.owner, row.value) for row in found.rows if row.mark}
    assert marks == {
        "reads the old value": ((1,), "load", "mail", 1, "0"),
        "stores the wrong value: 0": ((1,), "store", "out", 1, "0"),
        "comes too late": ((0,), "store", "mail", 1, "42"),
    }
    text = found.text()
    assert f"```\n{text}\n```" in README.read_text(encoding="utf-8")
    same_text(text)


FLAG = "sys.global.u32 [%rd2+4]"
RELEASED = handed_over("data", "flag").replace(f"st.relaxed.{FLAG}", f"st.release.{FLAG}")


@pytest.mark.slow
def test_weak_memory_shows_what_lacks_a_release_and_the_trace_what_was_newer():
    ptx = handed_over("data", "flag")
    assert explored(ptx, HAND_OVER, seeds=20).found is None
    assert explored(RELEASED, HAND_OVER, seeds=20, memory="weak").found is None
    found = failing(ptx, HAND_OVER, memory="weak")
    assert (found.switches, found.late) == (1, 1)
    same_text(found.cause)
    (late,) = [row for row in found.rows if row.late]
    assert (late.kind, late.ranks, late.tensor, late.element, late.value) == ("load", (1,), "mail", 0, "0")
    assert (late.late, late.mark) == ("an older value, the newest is 42", "reads the old value")
    same_text(found.text())


def test_a_race_is_a_failure_though_the_output_is_right():
    ptx = counted(is_atomic=False)
    assert explored(ptx, COUNT, schedule="random", seeds=1).found is None
    found = failing(ptx, COUNT, schedule="random", seeds=1, races=True)
    assert (found.failure.kind, found.failure.lines) == ("race", (8,))
    same_text(found.failure.message)
    assert [row.kind for row in found.rows if row.mark == "not ordered with PTX line 8"] == ["store", "store"]


def test_a_wrong_output_says_its_races():
    ptx = counted(is_atomic=False)
    wrong = failing(ptx, COUNT, schedule="random")
    found = failing(ptx, COUNT, schedule="random", first_seed=wrong.order.seed, races=True)
    assert found.failure.kind == "wrong output"
    assert "the race checker says of this run: race: a barrier is missing between" in found.text()


def test_a_kernel_without_a_race_is_not_accused_of_one():
    assert explored(counted(is_atomic=True), COUNT, seeds=10, races=True).found is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ptx", "how"),
    [(handed_over("data", "flag"), HAND_OVER), (counted(is_atomic=True), COUNT)],
    ids=["a flag after its data", "an atomic update"],
)
def test_a_right_kernel_is_never_accused(ptx, how):
    done = explored(ptx, how, seeds=60)
    assert (done.found, done.runs, done.undecided) == (None, 120, ())


def test_the_lowest_failing_seed_is_reported_by_any_number_of_processes():
    how = {"seeds": 60, "schedule": "random", "shrink_s": 0.0}
    seeds = set()
    for processes in (1, 2):
        found = failing(handed_over("flag", "data"), HAND_OVER, processes=processes, **how)
        seeds.add(found.order.seed)
    assert len(seeds) == 1


def test_a_search_of_which_no_run_was_decided_is_no_success():
    with refused():
        explored(handed_over("data", "flag"), HAND_OVER, seeds=1, step_budget=2)


EXPECTED = [{"in": [[0], [0]]}, {"out": [[0]]}, {"out": [[0, 1], [0, 1]]}]
WRONG = {
    **{"seeds": [0], "seconds": [-1.0], "schedule": ["fair"], "clusters": [2]},
    **{"processes": [0], "expected": EXPECTED},
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_a_wrong_request_is_one_line(key, value):
    with refused():
        explored(handed_over("data", "flag"), HAND_OVER, **{key: value})


def test_a_kernel_that_fails_in_the_fair_order_is_no_reference():
    broken = handed_over("data")  # without its flag
    with refused():
        explored(broken, {**HAND_OVER, "expected": None})
