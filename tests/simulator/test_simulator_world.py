"""What a simulated world counts; runs that depend on nothing but their seed; big worlds, and worlds used again."""

import gc
import random
import time
import weakref

import numpy as np
import pytest

from memory.fabric import DeviceFault, Executable, PeerLost
from simulator import world as simulated
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.golden import refused, same_text
from tests.simulator.harness import executable, get, make_world, module, put, run, start, succeed

NOTHING = executable(module(""))


COPY = module(
    """
    setp.ge.u32 %p1, %lane, 10; @%p1 bra END;
    mad.lo.u64 %d1, %lane64, 16, %peer; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];      // 10 x 16, a peer's
    mad.lo.u64 %d2, %lane64, 16, %mine; st.global.v4.b32 [%d2], {%r1, %r2, %r3, %r4};      // 10 x 16, own
    ld.global.b64 %d3, [%mine];                                                            // 10 x 8, own
    setp.ne.u32 %p2, %lane, 3; @%p2 bra END;
    st.global.b16 [%peer], %h1;                                                            // 1 x 2, a peer's
    red.release.sys.global.add.u32 [%flag], 1;                                             // 1 x 4, signal to a peer
    ld.acquire.sys.global.b32 %r5, [%mine];                                                // 1 x 4, signal, own
    st.release.sys.global.b32 [%mine], %r5;                                                // 1 x 4, signal, own
    multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%r6, %r7, %r8, %r9}, [%all];         // 1 x 16
    multimem.st.relaxed.sys.global.v4.f32 [%all], {%r6, %r7, %r8, %r9};                    // 1 x 16
    multimem.red.release.sys.global.add.u32 [%all], 1;                                     // 1 x 4, signal
    END:
    """,
    ["u64 mine", "u64 peer", "u64 flag", "u64 all"],
)


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 2}])
def test_counters_by_hand(options):
    """Ranks 0 and 2 run it with a peer of their own; rank 1 runs nothing."""

    def program(fabric):
        own = [put(fabric, name, np.zeros(256, np.uint8)) for name in ("mine", "other", "flag", "all")]
        fabric.barrier()
        peer = {0: 2, 1: 1, 2: 1}[fabric.rank]
        if fabric.rank != 1:
            places = [fabric.peer_address(own[1], peer), fabric.peer_address(own[2], peer)]
            arguments = [own[0].address, *places, fabric.multicast_address(own[3])]
            start(fabric, executable(COPY), 2, 16, arguments)
        fabric.synchronize()
        fabric.barrier()

    counters = succeed(make_world(3, **options), program).counters
    assert counters["accesses"] == {
        "own_read": {"count": 20, "bytes": 160},
        "own_write": {"count": 20, "bytes": 320},
        "peer_read": {"count": 20, "bytes": 320},
        "peer_write": {"count": 2, "bytes": 4},
        "multicast_reduce": {"count": 2, "bytes": 32},
        "multicast_store": {"count": 2, "bytes": 32},
        "signal": {"count": 8, "bytes": 32},
    }
    assert counters["links"] == {"0->2": 160 + 2 + 4, "2->1": 160 + 2 + 4}
    by_all = 4 + 5 + 2 + 1  # loads of parameters, the harness's own, the first test and its branch, ret
    assert counters["instructions"] == 2 * (32 * by_all + 10 * 7 + 7)
    assert counters["steps"] > 0


SHORT = module(
    """
    multimem.ld_reduce.relaxed.sys.global.add.v4.e4m3x4 {%r1, %r2, %r3, %r4}, [%all];          // 32 x 16
    multimem.ld_reduce.relaxed.sys.global.min.v4.e5m2 {%b0, %b1, %b2, %b3}, [%all];            // 32 x 4
    multimem.st.relaxed.sys.global.v8.e4m3 [%all], {%b0, %b1, %b2, %b3, %b0, %b1, %b2, %b3};   // 32 x 8
    multimem.red.relaxed.sys.global.add.v8.f16 [%all], {%h0, %h0, %h0, %h0, %h0, %h0, %h0, %h0}; // 32 x 16, signal
    ld.volatile.global.v4.b32 {%r1, %r2, %r3, %r4}, [%peer];                                   // 32 x 16, of a peer
    st.relaxed.sys.global.L1::no_allocate.v4.b32 [%peer], {%r1, %r2, %r3, %r4};                // 32 x 16, of a peer
    ld.global.u8 %r1, [%mine+3];                                                               // 32 x 1, own
    st.global.v2.b64 [%mine], {%d1, %d2};                                                      // 32 x 16, own
    """,
    ["u64 mine", "u64 peer", "u64 all"],
    registers="  .reg .b8 %b<4>;",
    target="sm_100a",
)


def test_bytes_of_every_width_are_counted():
    def program(fabric):
        mine, all_of = (put(fabric, name, np.zeros(256, np.uint8)) for name in ("mine", "all"))
        fabric.barrier()
        places = [mine.address, fabric.peer_address(mine, 1), fabric.multicast_address(all_of)]
        if fabric.rank == 0:
            start(fabric, executable(SHORT, arch="sm_100a"), 1, 32, places)
        fabric.synchronize()
        fabric.barrier()

    counters = succeed(make_world(2, arch="sm_100a"), program).counters
    assert counters["accesses"] == {
        "own_read": {"count": 32, "bytes": 32},
        "own_write": {"count": 32, "bytes": 512},
        "peer_read": {"count": 32, "bytes": 512},
        "peer_write": {"count": 32, "bytes": 512},
        "multicast_reduce": {"count": 64, "bytes": 32 * 20},
        "multicast_store": {"count": 32, "bytes": 256},
        "signal": {"count": 32, "bytes": 512},
    }
    assert counters["links"] == {"0->1": 1024}


class TestDeterminism:
    """Threads may come and go as they like: what runs, and in which order, depends on the seed alone."""

    PTX = module(
        """red.global.add.u32 [%far], %lane; and.b32 %r1, %lane, 3;
        LOOP: sub.s32 %r1, %r1, 1; setp.ge.s32 %p1, %r1, 0; @%p1 bra LOOP;
        atom.global.exch.b32 %r2, [%far+4], %lane; mad.lo.u64 %d1, %lane64, 4, %out; st.global.b32 [%d1], %r2;""",
        ["u64 far", "u64 out"],
    )

    @pytest.mark.slow
    @pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 9}], ids=["fair", "random"])
    def test_whatever_the_threads_do(self, options):
        def once(turn):
            def program(fabric):
                rng = random.Random(100 * turn + fabric.rank)
                cell, out = put(fabric, "cell", np.zeros(2, np.uint32)), fabric.allocate(4 * 300, 256, "out")
                for _ in range(3):
                    time.sleep(rng.random() * 0.01)
                    fabric.barrier()
                    far = fabric.peer_address(cell, (fabric.rank + 1) % 4)
                    for _ in range(1 + fabric.rank % 2):
                        start(fabric, executable(self.PTX), 3, 100, [far, out.address])
                    time.sleep(rng.random() * 0.01)
                    fabric.synchronize()
                fabric.barrier()
                return get(fabric, out, "u1").tobytes() + get(fabric, cell, "u1").tobytes()

            outcome = succeed(make_world(4, **options), program)
            return outcome.counters["trace"], b"".join(outcome.results)

        assert len({once(turn) for turn in range(5)}) == 1


class TestWorlds:
    def test_72_ranks_reduce(self):
        """All of a big world in one kernel: peers' loads, the switch, and a store to everyone."""
        ptx = module(
            """mov.u32 %r1, 0; mov.u32 %r2, 0;
            LOOP: mul.wide.u32 %d1, %r2, 8; add.s64 %d1, %d1, %table; ld.global.b64 %d2, [%d1]; mad.lo.u64 %d2, %lane64, 4, %d2;
            ld.global.b32 %r3, [%d2]; add.u32 %r1, %r1, %r3; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 72; @%p1 bra LOOP;
            mad.lo.u64 %d3, %lane64, 4, %all; multimem.ld_reduce.relaxed.sys.global.add.u32 %r4, [%d3];
            mad.lo.u64 %d4, %lane64, 8, %out; st.global.v2.b32 [%d4], {%r1, %r4};""",
            ["u64 table", "u64 all", "u64 out"],
        )

        def program(fabric):
            data = put(fabric, "data", np.arange(50, dtype=np.uint32) * (fabric.rank + 1))
            table = put(fabric, "table", np.array([fabric.peer_address(data, peer) for peer in range(72)], np.uint64))
            out = fabric.allocate(400, 256, "out")
            fabric.barrier()
            start(fabric, executable(ptx), 2, 25, [table.address, fabric.multicast_address(data), out.address])
            found = get(fabric, out, "u4").reshape(50, 2)
            fabric.barrier()
            return found

        for found in succeed(make_world(72, heap_bytes=1 << 16), program).results:
            assert np.array_equal(found, np.arange(50)[:, None] * np.array([[2628, 2628]]))

    def test_a_launch_nobody_waited_for(self):
        """It would run in the next program's memory: the world is not to be used again."""
        world = make_world(2)

        def forgets(fabric):
            fabric.barrier()
            if fabric.rank == 1:
                start(fabric, NOTHING, 1, 1, [])

        def innocent(fabric):
            fabric.barrier()

        run(world, forgets)
        outcome = run(world, innocent)
        assert {type(one) for one in outcome.errors} == {PeerLost}
        same_text(str(outcome.errors[0]))

    def test_a_fault_is_its_ranks_own(self):
        ptx = module("ld.global.b32 %r1, [%a];", ["u64 a"])

        def program(fabric):
            data = put(fabric, "data", np.zeros(1, np.uint32))
            start(fabric, executable(ptx, f"kernel of {fabric.rank}"), 1, 1, [data.address if fabric.rank != 1 else 0])
            fabric.synchronize()

        outcome = run(make_world(3), program)
        assert [type(one) for one in outcome.errors] == [PeerLost, DeviceFault, PeerLost]
        assert "rank 1 failed: DeviceFault" in str(outcome.errors[0])

    def test_the_digest_is_what_ran(self):
        """Kernels are told apart by their digest and entry, not by their name."""
        one, other = (executable(module(f"st.global.b32 [%a], {value};", ["u64 a"]), "same/name") for value in (1, 2))
        assert isinstance(one, Executable)

        def program(fabric):
            data = fabric.allocate(4, 256, "data")
            start(fabric, one if fabric.rank == 0 else other, 1, 1, [data.address])
            return int(get(fabric, data, "u4")[0])

        assert succeed(make_world(2), program).results == [1, 2]


def test_a_finished_launch_gives_its_registers_back_at_once(monkeypatch):
    """Not at a later garbage collection: those of a large launch are gigabytes."""
    batches = []

    class Watched(simulated.Batch):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            batches.append(weakref.ref(self))

    monkeypatch.setattr(simulated, "Batch", Watched)

    def program(fabric):
        start(fabric, NOTHING, 1, 32)
        fabric.synchronize()

    gc.disable()
    try:
        succeed(make_world(2), program)
        assert [batch() for batch in batches] == [None]
    finally:
        gc.enable()


def test_a_closed_world_gives_its_memory_back_and_says_so():
    """Also while somebody holds one of its fabrics; what a host was lent stays readable."""
    world = SimulatedWorld(1, SimulatorOptions(heap_bytes=1 << 16))
    fabric = world.fabric(0)
    region = fabric.allocate(16, 16, "data")
    kept = fabric.allocate(16, 16, "kept")
    lent = fabric.view(kept)
    lent[:] = 7
    memory = weakref.ref(world.space.written)
    world.close()
    gc.collect()
    assert memory() is None
    assert lent.tolist() == [7] * 16
    for call in (fabric.barrier, lambda: fabric.read(region, 0, 16), fabric.synchronize):
        with refused(PeerLost):
            call()
    fabric.drop(region)
    world.close()
