"""What a Tracer notes of kernels whose accesses are known: tensors, elements, values, switches, and who is to blame."""

import numpy as np
import pytest

from simulator.run.choices import Turn, Until, choices_of, text_of
from symlab.checks.explore.blame import Wrong, blame
from symlab.checks.explore.reading import lines_of, switches_of
from symlab.checks.explore.trace import Layout, Row, Tracer
from tests.golden import same_text
from tests.simulator.harness import executable, make_world, module, put, start, succeed

PASSED_ON = module(
    """
    setp.ne.u32 %p1, %rank, 0; @%p1 bra OTHER;
    ld.global.v2.f32 {%f1, %f2}, [%mine]; st.relaxed.sys.global.f32 [%peer+8], %f2; bra END;
    OTHER: ld.global.f32 %f1, [%mine+8]; st.global.f32 [%mine+12], %f1;
    END:
    """,
    ["u64 mine", "u64 peer", "u32 rank"],
    registers="  .reg .f32 %f<4>;",
)


def traced(ptx, block=1, layouts=None, launches=1, **options):
    """A run of a kernel with a tensor of 16 floats, 0, 1, 2 and so on, on each of two ranks."""
    world = make_world(2, **options)
    tracer = Tracer(world.space, layouts or {}, lambda: world.batches)
    world.space.events.add(tracer)

    def program(fabric):
        mine = put(fabric, "mine", np.arange(16, dtype=np.float32))
        fabric.barrier()
        peer = fabric.peer_address(mine, 1 - fabric.rank)
        for _ in range(launches):
            start(fabric, executable(ptx), 1, block, [mine.address, peer, fabric.rank])
        fabric.synchronize()
        fabric.barrier()

    succeed(world, program)
    return tracer


def test_rows_have_tensor_element_and_value():
    rows = traced(PASSED_ON).rows()
    facts = [(one.kind, one.ranks, one.tensor, one.owner, one.element, one.elements, one.value) for one in rows]
    assert sorted(facts) == [
        ("load", (0,), "mine", 0, 0, 2, "{0, 1}"),
        ("load", (1,), "mine", 1, 2, 1, "1"),
        ("store", (0,), "mine", 1, 2, 1, "1"),
        ("store", (1,), "mine", 1, 3, 1, "1"),
    ]
    assert [one.is_shared for one in rows if one.element == 2] == [True, True]
    assert not any(one.is_shared for one in rows if one.element != 2)


def test_a_layout_moves_the_first_element():
    rows = traced(PASSED_ON, layouts={"mine": Layout(8, 2, "bfloat16")}).rows()
    assert {(one.element, one.value) for one in rows if one.kind == "store"} == {(0, "{0, 1}"), (2, "{0, 1}")}


def test_the_load_that_came_before_its_store_is_blamed():
    tracer = traced(PASSED_ON, schedule="random", seed=_seed_with("reads the old value"))
    same_text(blame(tracer, Wrong("mine", 1, 12)))
    marks = {one.mark for one in tracer.rows() if one.mark}
    assert marks == {"reads the old value", "comes too late", "stores the wrong value: 2"}


def _seed_with(mark):
    """A seed under which rank 1 reads first."""
    for seed in range(40):
        tracer = traced(PASSED_ON, schedule="random", seed=seed)
        blame(tracer, Wrong("mine", 1, 12))
        if any(mark in one.mark for one in tracer.rows()):
            return seed
    raise AssertionError("no seed lets rank 1 read first")


@pytest.mark.parametrize("launch", [0, 1])
def test_a_store_is_blamed_only_if_it_came_after_its_load_or_from_a_later_launch(launch):
    """Rank 1 loads what rank 0 stores in each of two launches: under some seeds in turn, which is no fault of either."""
    found = set()
    for seed in range(12):
        tracer = traced(PASSED_ON, launches=2, schedule="random", seed=seed)
        blame(tracer, Wrong("mine", 1, 12, launch))
        rows = list(tracer.rows())
        accesses = [(one.ranks, one.launch) for one in rows if one.element == 2]
        before = [number for ranks, number in accesses[: accesses.index(((1,), launch))] if ranks == (0,)]
        expected = "comes too late" if launch not in before else "comes too early" if max(before) > launch else ""
        marks = {one.mark for one in rows if one.mark.startswith("comes")}
        assert marks == ({expected} if expected else set()), seed
        found.add(expected)
    assert found == {"comes too late", "", *(["comes too early"] if launch == 0 else [])}


def test_what_can_not_be_told_is_not_told():
    for wrong in (Wrong("mine", 0, 0), Wrong("other", 0, 0), Wrong("mine", 1, 8)):
        same_text(blame(traced(PASSED_ON), wrong))


def test_switches_are_turns_of_other_warps():
    """Two ranks of one warp each: whoever runs second comes after a switch, and there is one at least."""
    tracer = traced(PASSED_ON, schedule="random", seed=3)
    rows = tracer.rows()
    assert 1 <= sum(one.is_switch for one in rows) <= tracer.switches
    assert traced(PASSED_ON).switches == 1  # fair: both together as far as they go the same way


def test_launches_before_the_choices_run_in_the_fair_order():
    """Until(1): the first launch is that of the fair order, event by event, and the second one follows the choices."""

    def rows(**options):
        return list(traced(PASSED_ON, launches=2, **options).rows())

    fair = [one for one in rows() if one.launch == 0]
    assert choices_of(text_of((Until(1),))) == (Until(1),)
    held = (Until(1), *(Turn(1, 1, index, range(1, 2)) for index in range(6)))
    found = rows(schedule="random", seed=1, follows=held)
    assert [one for one in found if one.launch == 0] == fair
    assert [one.ranks for one in found if one.launch == 1] == [(1,), (1,), (0,), (0,)]


def test_shared_memory_and_barriers_are_noted():
    ptx = module(
        """
        .shared .align 4 .b32 kept[64];
        mul.lo.u32 %r1, %lane, 4; mov.u32 %r2, kept; add.u32 %r2, %r2, %r1;
        st.shared.u32 [%r2], %lane; bar.sync 0; ld.shared.u32 %r3, [%r2];
        """,
        ["u64 mine", "u64 peer", "u32 rank"],
    )
    rows = traced(ptx, block=64).rows()
    assert [one.kind for one in rows] == ["store", "barrier", "barrier", "load"]
    assert (rows[0].tensor, rows[0].elements, rows[0].lanes) == ("shared memory", 64, 128)
    assert (rows[0].value, rows[3].value) == ("0", "0")


def row(step, rank=0, **more):
    usual = {"kind": "load", "tensor": "mine", "element": step, "elements": 1, "owner": rank}
    fixed = {"is_switch": False, "launch": 0, "ranks": (rank,), "blocks": (0,), "threads": (0, 0)}
    return Row(step=step, **{**usual, **fixed, "lanes": 1, "line": step, "source": "", "text": "ld", **more})


class TestReading:
    def test_steps_that_no_other_sees_are_one_line(self):
        lines = lines_of([row(1), row(2), row(3, is_shared=True), row(4, rank=1, is_switch=True), row(5, rank=1)])
        same_text("\n".join(lines))

    def test_a_poll_is_one_line_however_often(self):
        poll = [row(number, line=7, element=0, is_shared=True, value="0") for number in range(50)]
        same_text("\n".join(lines_of([*poll, row(60, line=7, element=0, is_shared=True, value="1")])))

    def test_two_loops_that_read_another_value_are_not_folded(self):
        rows = [row(number, line=7, element=0, is_shared=True, value=str(number % 2)) for number in range(2)]
        assert len(lines_of(rows)) == 2

    def test_long_traces_keep_what_went_wrong(self):
        rows = [row(number, is_shared=True, mark="here" if number == 500 else "") for number in range(1000)]
        lines = lines_of(rows, 40)
        assert len(lines) <= 43
        assert any("here" in line and line[1] == "!" for line in lines)
        assert any("499 more events" in line for line in lines)

    @pytest.mark.parametrize(("marks", "count"), [((), 3), ((2,), 1)])
    def test_switches_count_up_to_what_went_wrong(self, marks, count):
        rows = [row(number, is_switch=number in (1, 4, 5), mark="x" if number in marks else "") for number in range(6)]
        assert switches_of(rows) == count
