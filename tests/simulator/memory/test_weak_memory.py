"""fabric.memory=weak on kernels: what is not ordered is seen out of order, by some seed; what is ordered, by none."""

import numpy as np
import pytest
import torch

from simulator.memory.weak import WeakSpace
from tests.simulator.harness import executable, make_world, module, ran, run, start

SEEDS = 60
"""The number of seeds within which each kernel here shows what it may."""


def message(store, signal, poll, load):
    """A kernel that hands 5 from thread 0 of rank 0 to thread 0 of rank 1, which waits for it in a loop."""
    return module(
        f"""
        setp.ne.u32 %p0, %rank, 0;
        @%p0 bra TAKE;
        {store}
        SIGNAL:
        {signal}
        bra END;
        TAKE:
        {poll}
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra TAKE;
        {load}
        LAST:
        st.global.u32 [%out], %r2;
        END:""",
        ["u32 rank", "u64 data", "u64 flag", "u64 out", "u64 all"],
    )


STORE = "st.global.u32 [%data], 5;"
LOAD = "ld.global.u32 %r2, [%data];"
RELEASE, ACQUIRE = "st.release.sys.global.u32 [%flag], 1;", "ld.acquire.sys.global.u32 %r1, [%flag];"
RELAXED, POLL = "st.relaxed.sys.global.u32 [%flag], 1;", "ld.relaxed.sys.global.u32 %r1, [%flag];"
FENCE, ALIAS = "fence.acq_rel.sys;", "fence.proxy.alias;"
TO_ALL = "mov.u32 %r3, 5; multimem.st.weak.global.u32 [%all], %r3;"

ORDERED = {
    "release, acquire": (STORE, RELEASE, ACQUIRE, LOAD),
    "fences": (STORE, FENCE + RELAXED, POLL, FENCE + LOAD),
    "an atomic that acquires": (STORE, RELEASE, "atom.acquire.sys.global.add.u32 %r1, [%flag], 0;", LOAD),
    "a reduction that releases": (STORE, "red.release.sys.global.add.u32 [%flag], 1;", ACQUIRE, LOAD),
    "multicast with the alias fence": (TO_ALL + ALIAS, RELEASE, ACQUIRE, LOAD),
    "multicast with the reader's alias fence": (TO_ALL, RELEASE, ACQUIRE, ALIAS + LOAD),
}
UNORDERED = {
    "a relaxed flag": (STORE, RELAXED, ACQUIRE, LOAD),
    "a relaxed poll": (STORE, RELEASE, POLL, LOAD),
    "a release of a GPU": (STORE, RELEASE.replace("sys", "gpu"), ACQUIRE, LOAD),
    "an acquire of a GPU": (STORE, RELEASE, ACQUIRE.replace("sys", "gpu"), LOAD),
    "a fence of a block": (STORE, FENCE.replace("sys", "cta") + RELAXED, POLL, FENCE + LOAD),
    "volatile accesses": (STORE, "st.volatile.global.u32 [%flag], 1;", "ld.volatile.global.u32 %r1, [%flag];", LOAD),
    "multicast without the alias fence": (TO_ALL, RELEASE, ACQUIRE, LOAD),
    "the async proxy's fence": (TO_ALL + "fence.proxy.async;", RELEASE, ACQUIRE, LOAD),
}


def received(ptx, seed, **options):
    """What rank 1 found."""
    kernel = executable(ptx)

    def program(fabric):
        regions = [fabric.allocate(64, 64, name) for name in ("data", "flag", "out")]
        for one in regions:
            fabric.write(one, 0, torch.zeros(64, dtype=torch.uint8))
        fabric.barrier()
        data, flag = (fabric.peer_address(one, 1) for one in regions[:2])
        values = [fabric.rank, data, flag, regions[2].address, fabric.multicast_address(regions[0])]
        start(fabric, kernel, 1, 1, values)
        fabric.synchronize()
        return int(fabric.read(regions[2], 0, 4).view(torch.int32)[0])

    world = make_world(2, schedule="random", seed=seed, **{"memory": "weak", **options})
    outcome = run(world, program)
    assert outcome.errors == [None, None]
    world.close()
    return int(outcome.results[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", UNORDERED)
def test_what_is_not_ordered_is_seen(name):
    ptx = message(*UNORDERED[name])
    found = [received(ptx, seed) for seed in range(SEEDS)]
    assert 0 in found
    assert 5 in found
    assert set(found) <= {0, 5}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_never_seen_out_of_order(name):
    ptx = message(*ORDERED[name])
    assert {received(ptx, seed) for seed in range(SEEDS)} == {5}


@pytest.mark.slow
def test_strong_memory_shows_none_of_it():
    ptx = message(*UNORDERED["a relaxed flag"])
    assert {received(ptx, seed, memory="strong") for seed in range(SEEDS)} == {5}


def test_a_kernel_that_waits_for_ever_still_deadlocks():
    """A spin that saw an old value is no reason to wait on; one that saw the last value is."""
    ptx = message(STORE, "st.relaxed.sys.global.u32 [%flag], 0;", POLL, LOAD)
    with pytest.raises(AssertionError, match="Deadlock"):
        received(ptx, 1)


BLOCK = """
    mul.wide.u32 %d1, %r0, 4;
    cvt.u32.u64 %r4, %d1;
    add.u32 %r5, %r0, 1;
    st.shared.u32 [%r4], %r5;
    {barrier}
    xor.b32 %r4, %r4, 4;
    ld.shared.u32 %r6, [%r4];
    add.s64 %d1, %d1, %out;
    st.global.u32 [%d1], %r6;"""


@pytest.mark.parametrize(("barrier", "orders"), [("bar.sync 0;", True), ("NEXT:", False)])
def test_threads_of_a_block_see_each_others_shared_memory_after_a_barrier(barrier, orders):
    start_values = "st.shared.u32 [%r4], 99;\nbar.sync 0;\n"
    body = BLOCK.format(barrier=barrier).replace("add.u32 %r5", start_values + "add.u32 %r5")
    how = {"registers": "  .shared .align 4 .b8 tile[256];", "schedule": "random", "memory": "weak"}
    found = [ran(body, {"out": np.zeros(8, np.uint32)}, 1, 8, seed=seed, **how).right for seed in range(10)]
    assert all(one == [[2, 1, 4, 3, 6, 5, 8, 7]] for one in found) is orders


@pytest.mark.slow
def test_vectors_arrive_in_parts_and_elements_whole():
    """One store of two elements of 64 bits: a load may have one old and one new, never half of one."""
    body = """
        setp.ne.u32 %p0, %block, 0;
        @%p0 bra TAKE;
        mov.u64 %d1, 0x500000005;
        st.relaxed.sys.global.v2.u64 [%data], {%d1, %d1};
        bra END;
        TAKE:
        ld.relaxed.sys.global.v2.u64 {%d2, %d3}, [%data];
        st.global.v2.u64 [%out], {%d2, %d3};
        END:"""
    values = {name: np.zeros(2, np.uint64) for name in ("data", "out")}
    runs = [ran(body, values, 2, 1, schedule="random", seed=seed, memory="weak").right for seed in range(SEEDS)]
    assert {tuple(words) for (words,) in runs} == {(0, 0, 0, 0), (5, 5, 0, 0), (0, 0, 5, 5), (5, 5, 5, 5)}


def test_the_next_launch_and_hosts_see_everything():
    """Weak stores of one launch, read by the next one on the same rank, by the host, and by all after a barrier."""
    put = executable(module("st.global.u32 [%data], %value;", ["u64 data", "u32 value"]))
    take = executable(module("ld.global.u32 %r1, [%data];\nst.global.u32 [%out], %r1;", ["u64 data", "u64 out"]))

    def program(fabric):
        data, out = (fabric.allocate(64, 64, name) for name in ("data", "out"))
        found = []
        for value in range(1, 4):
            fabric.barrier()
            start(fabric, put, 1, 1, [data.address, value])
            start(fabric, take, 1, 1, [data.address, out.address])
            fabric.synchronize()
            found += [int(fabric.read(one, 0, 4).view(torch.int32)[0]) for one in (out, data)]
            fabric.barrier()
            peer = fabric.peer_address(data, 1 - fabric.rank)
            start(fabric, take, 1, 1, [peer, out.address])
            fabric.synchronize()
            found.append(int(fabric.read(out, 0, 4).view(torch.int32)[0]))
        return found

    for seed in range(10):
        outcome = run(make_world(2, schedule="random", seed=seed, memory="weak"), program)
        assert outcome.errors == [None, None]
        assert outcome.results == [[1, 1, 1, 2, 2, 2, 3, 3, 3]] * 2


def test_all_that_was_kept_goes_when_hosts_meet():
    kernel = executable(module("st.global.u32 [%data], %lane;", ["u64 data"]))
    world = make_world(2, memory="weak")

    def program(fabric):
        data = fabric.allocate(64, 64, "data")
        start(fabric, kernel, 2, 4, [data.address])
        fabric.synchronize()
        fabric.barrier()
        space = world.space
        assert isinstance(space, WeakSpace)
        return len(space.stored) + len(space.units), int(np.count_nonzero(space.latest[: space.end // 4]))

    outcome = run(world, program)
    assert outcome.errors == [None, None]
    assert outcome.results == [(0, 0)] * 2
