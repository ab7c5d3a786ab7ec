"""mbarrier objects: phases of arrivals and bytes, and what a deadlock says of them."""

import re

import numpy as np
import pytest

from memory.fabric import Deadlock
from simulator.memory.space import LaneFault
from simulator.run.mbarriers import MAX_COUNT, MBarrier, Mbarriers
from tests.golden import refused, same_text
from tests.simulator.harness import failed, ran

MISUSES = {
    "more dropped than expected": lambda one: one.arrive(3, drops=True),
    "a phase that was long ago": lambda one: (one.arrive(2), one.arrive(2), one.is_over(MBarrier("here", 2).state())),
    "a phase to come": lambda one: one.is_over(2199023255 << 20),
    "noComplete that would complete": lambda one: one.arrive(2, partial=True),
    "more arrivals than are waited for": lambda one: one.arrive(3),
    "more arrivals than any object takes": lambda one: one.add_pending(MAX_COUNT),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(name):
    """What right use does, drawn programs of the vectors have."""
    with refused(LaneFault):
        MISUSES[name](MBarrier("here", 2))


def test_arrivals_may_be_added_to_a_phase():
    barrier = MBarrier("here", 1)
    barrier.add_pending(1)
    barrier.arrive(1)
    assert (barrier.phase, barrier.pending) == (0, 1)
    barrier.arrive(1)
    assert (barrier.phase, barrier.pending) == (1, 1)


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
@pytest.mark.parametrize("waiters", [1, 5])
def test_a_deadlock_names_the_mbarrier_and_what_it_lacks(options, waiters):
    """4096 bytes are announced, and only 1024 are copied."""
    body = f"""
      .shared .align 16 .b8 stage[4096];  .shared .align 8 .b8 bar[8];
      mov.u32 %r1, %tid.x; setp.ne.u32 %p2, %r1, 0; @%p2 bra READY;
      mbarrier.init.shared::cta.b64 [bar], 1;
      mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
      cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [stage], [%src], 1024, [bar];
      READY: bar.sync 0; setp.ge.u32 %p2, %r1, {waiters}; @%p2 ret;
      SPIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra SPIN;
    """
    error = ran(body, {"src": np.zeros(1024, np.uint32)}, 1, 8, **options).error()
    assert isinstance(error, Deadlock)
    for thread in range(waiters):
        assert re.search(
            rf"rank 0, block 0, thread {thread} spins: waits for an mbarrier in phase 0 "
            r"\(0 of 1 arrivals and 3072 bytes to come\) at byte 0x1000 of shared memory; "
            r"PTX line \d+: mbarrier.try_wait.parity.shared::cta.b64",
            str(error),
        ), error


WAITS = {
    "state": "mbarrier.arrive.noComplete.shared.b64 %s, [bar], 1; SPIN: mbarrier.test_wait.shared.b64 %p1, [bar], %s; @!%p1 bra SPIN;",
    "time_limit": "SPIN: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p1, [bar], 0, 1000; @!%p1 bra SPIN;",
    "generic": "cvt.u64.u32 %d1, %r2; cvta.shared.u64 %d1, %d1; SPIN: mbarrier.try_wait.parity.b64 %p1, [%d1], 0; @!%p1 bra SPIN;",
}


@pytest.mark.parametrize("form", WAITS)
def test_a_deadlock_of_any_form_of_wait_names_the_mbarrier(form):
    body = f"""
      .shared .align 8 .b8 bar[8]; .reg .b64 %s; mov.u32 %r2, bar;
      mbarrier.init.shared.b64 [bar], 3; mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 96;
      mbarrier.complete_tx.shared.b64 [bar], 32; {WAITS[form]}
    """
    said = failed(body, block=1)
    arrivals = "2 of 3" if form == "state" else "3 of 3"
    wanted = f"waits for an mbarrier in phase 0 ({arrivals} arrivals and 64 bytes to come) at byte 0x0 of shared memory"
    assert said.startswith("Deadlock")
    assert wanted in said


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.arrive.noComplete.shared.b64 _, [bar], 2;",
        "mbarrier.arrive.shared.b64 %s, [bar], 2; mbarrier.arrive.shared.b64 _, [bar], 2;\nmbarrier.test_wait.shared.b64 %p1, [bar], %s;",
        "mbarrier.complete_tx.shared.b64 [bar], 1048576;",
        "mbarrier.expect_tx.shared.b64 [bar+8], 16;",
        "mbarrier.arrive_drop.shared.b64 _, [bar], 3;",
        "mov.u64 %s, 4096;\nmbarrier.inval.b64 [%s];",
    ],
)
def test_what_the_isa_leaves_undefined_is_a_fault(text):
    body = f".shared .align 8 .b8 bar[16]; .reg .b64 %s;\nmbarrier.init.shared.b64 [bar], 2;\n{text}"
    same_text(str(ran(body).error()))


OVERWRITES = {
    "a store": "st.shared.u64 [bar], 0;",
    "a vector that begins before it": "st.shared.v4.u32 [room], {%r1, %r1, %r1, %r1};",
    "a byte": "st.shared.u8 [bar+7], %r1;",
    "a generic store": "mov.u64 %d1, bar; cvta.shared.u64 %d1, %d1; st.u32 [%d1+4], %r1;",
    "a cluster's store": "st.shared::cluster.u32 [bar], %r1;",
    "an atomic": "mov.u32 %r1, 0; atom.shared.add.u32 %r1, [bar], 1;",
    "a reduction": "red.shared.add.u32 [bar], 1;",
    "a copy of a lane": "cp.async.ca.shared.global [bar], [%src], 8; cp.async.wait_all;",
    "a bulk copy": "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [room], [%src], 16, [other]; WAIT",
    "a counted store": "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [room], {%r1, %r1, %r1, %r1}, [other]; WAIT",
    "a counted reduction": "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [bar], 1, [other]; WAIT",
}


def _overwrite(text):
    count = 8 if "red.async" in text else 16
    wait = f"mbarrier.arrive.expect_tx.shared.b64 _, [other], {count}; W: mbarrier.try_wait.parity.shared.b64 %p1, [other], 0; @!%p1 bra W;"
    body = f"""
      .shared .align 16 .b8 room[8]; .shared .align 8 .b8 bar[8]; .shared .align 8 .b8 other[8]; .shared .b8 free[16];
      mbarrier.init.shared.b64 [bar], 1; mbarrier.init.shared.b64 [other], 1; mov.u32 %r1, 1;
      {text.replace("[room]", "[bar+-8]").replace("WAIT", wait)}
    """
    return ran(body, {"src": np.zeros(16, np.uint32)}).errors[0]


@pytest.mark.parametrize("how", OVERWRITES)
def test_what_overwrites_an_object_is_a_fault(how):
    said = str(_overwrite(f"{OVERWRITES[how]}"))
    assert re.search(
        r"rank 0, block 0, thread 0: .*a write of \d+ bytes over an mbarrier in phase 0 .* at byte 0x8 of shared", said
    ), said


@pytest.mark.parametrize("how", OVERWRITES)
def test_where_an_object_is_no_more_anything_may_write(how):
    known = "st.shared.u64 [bar], 0;"  # for what reads before it writes
    assert _overwrite(f"mbarrier.inval.shared.b64 [bar]; {known} {OVERWRITES[how]}") is None


def test_beside_an_object_anything_may_write():
    assert _overwrite("st.shared.u64 [bar+-8], 0; st.shared.u8 [free], %r1; st.shared.u64 [bar+16], 0;") is None


def test_an_object_of_another_block_is_not_overwritten_either():
    body = """
      .shared .align 8 .b8 bar[8]; mov.u32 %r1, %cluster_ctarank; mbarrier.init.shared.b64 [bar], 1;
      barrier.cluster.arrive; barrier.cluster.wait; setp.ne.u32 %p1, %r1, 0; @%p1 bra OVER;
      mov.u32 %r2, bar; mapa.shared::cluster.u32 %r2, %r2, 1; st.shared::cluster.u32 [%r2], %r1;
      OVER: barrier.cluster.arrive; barrier.cluster.wait;
    """
    same_text(str(ran(body, {}, 2, cluster=(2, 1, 1)).error()))


@pytest.mark.parametrize(("count", "is_taken"), [(0, False), (1, True), (MAX_COUNT, True), (MAX_COUNT + 1, False)])
def test_an_object_takes_as_many_arrivals_as_the_isa_says(count, is_taken):
    objects = Mbarriers(row_bytes=64, rows=1)
    if is_taken:
        objects.init(8, count)
        assert objects.objects[8].pending == count
    else:
        with pytest.raises(LaneFault) as caught:
            objects.init(8, count)
        assert caught.value.lane == 0
        assert objects.objects == {}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_count_of_bytes_may_be_as_large_as_the_isa_says(sign):
    barrier = MBarrier("here", 1)
    count = barrier.expect if sign > 0 else barrier.complete
    count(MAX_COUNT)
    assert (barrier.bytes_due, barrier.phase) == (sign * MAX_COUNT, 0)
    with pytest.raises(LaneFault):
        count(1)


def test_arrivals_waited_for_may_be_as_many_as_the_isa_says():
    barrier = MBarrier("here", 1)
    barrier.add_pending(MAX_COUNT - 1)
    assert barrier.pending == MAX_COUNT
    with pytest.raises(LaneFault):
        barrier.add_pending(1)
