"""Bulk copies take their time: kernels that don't wait as they should come out wrong, and those that do never."""

import numpy as np
import pytest

from memory.fabric import DeviceFault
from simulator.isa import UnknownInstruction
from tests.golden import refused, same_text
from tests.simulator.harness import executable, get, make_world, module, put, run, start

SHARED = "  .shared .align 16 .b8 stage[4096];\n  .shared .align 8 .b8 bar[16];\n"
REGISTERS = f"{SHARED}  .reg .b64 %state; .reg .pred %q;\n"
BYTES = 1024
DATA = np.arange(4 * BYTES, dtype=np.uint32)
INIT = "mbarrier.init.shared::cta.b64 [bar], 1;"
LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
SCHEDULES = [{}, *({"schedule": "random", "seed": seed} for seed in range(9))]


def expect(size_bytes=BYTES):
    return f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size_bytes};"


def wait(parity=0):
    return f"WAIT{parity}: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], {parity}; @!%q bra WAIT{parity};"


def fill(value, count=BYTES):
    """The first thread writes `count` bytes of the stage, four at a time."""
    return " ".join(f"st.shared.b32 [stage+{at}], {value};" for at in range(0, count, 4))


def outcome_of(body, schedule, *, world_size=1, grid=1, block=1, clusters=False):
    """Run the body on all ranks. %src: DATA plus the rank; %dst: 4 KiB of 7s; %peer_src, %peer_dst: the next rank's;
    %flag, %peer_flag: zeroed; %all: dst's multicast address; %rank. A rank's result is its dst, when all kernels are
    over."""
    names = ("src", "dst", "flag", "peer_src", "peer_dst", "peer_flag", "all")
    ptx = module(body, [*(f"u64 {name}" for name in names), "u32 rank"], registers=REGISTERS)
    if clusters:
        ptx = ptx.replace(")\n{", ")\n.reqnctapercluster 1, 1, 1\n{", 1)

    def program(fabric):
        own = [
            put(fabric, "src", DATA + np.uint32(fabric.rank)),
            put(fabric, "dst", np.full(BYTES, 7, np.uint32)),
            put(fabric, "flag", np.zeros(4, np.uint32)),
        ]
        fabric.barrier()
        peer = (fabric.rank + 1) % fabric.world_size
        far = [fabric.peer_address(region, peer) for region in own]
        everywhere = fabric.multicast_address(own[1])
        start(fabric, executable(ptx), grid, block, [*(one.address for one in own), *far, everywhere, fabric.rank])
        fabric.synchronize()
        fabric.barrier()
        return get(fabric, own[1], "u4").copy()

    return run(make_world(world_size, **schedule), program)


def right_under(body, expected, **how):
    return rights((outcome_of(body, schedule, **how) for schedule in SCHEDULES), expected)


def rights(outcomes, expected):
    """Whether the results are right, of each schedule's run; a fault counts as wrong."""
    found = []
    for outcome in outcomes:
        assert all(error is None or isinstance(error, DeviceFault) for error in outcome.errors[:1])
        good = not any(outcome.errors)
        found.append(
            good and all(np.array_equal(result, expected(rank)) for rank, result in enumerate(outcome.results))
        )
    return found


def copied(*words):
    """What dst holds: these words at its beginning."""
    out = np.full(BYTES, 7, np.uint32)
    flat = np.concatenate([np.asarray(one, np.uint32) for one in words])
    out[: len(flat)] = flat
    return out


class TestLoads:
    FIRST = f"{INIT} {expect()} {LOAD} [stage], [%src], {BYTES}, [bar];"
    USE = "ld.shared.b32 %r1, [stage+1020]; st.global.b32 [%dst], %r1;"

    def test_a_kernel_that_waits_is_right(self):
        assert all(right_under(f"{self.FIRST} {wait()} {self.USE}", lambda rank: copied([255])))

    def test_a_kernel_that_does_not_finds_poison(self):
        assert not any(right_under(f"{self.FIRST} {self.USE} {wait()}", lambda rank: copied([255])))
        same_text(str(outcome_of(f"{self.FIRST} {self.USE} {wait()}", {}).error()))

    def test_a_wait_for_the_wrong_phase_does_not_wait(self):
        assert not all(right_under(f"{self.FIRST} {wait(1)} {self.USE} {wait()}", lambda rank: copied([255])))

    def test_bytes_that_were_not_announced_are_not_waited_for(self):
        """The phase is over with the arrival: the copy comes later, if it comes at all before it is read."""
        body = f"{INIT} mbarrier.arrive.shared::cta.b64 _, [bar]; {LOAD} [stage], [%src], {BYTES}, [bar]; {wait()} {self.USE}"
        assert not all(right_under(body, lambda rank: copied([255])))

    def test_the_stage_keeps_its_old_bytes_until_the_copy_is_done(self):
        old = f"{fill('1')} {self.FIRST} {self.USE} {wait()}"
        found = right_under(old, lambda rank: copied([1]))
        assert found[0]
        assert sum(found) > 5

    def test_a_copy_may_be_announced_after_its_issue(self):
        body = f"{INIT} {LOAD} [stage], [%src], {BYTES}, [bar]; {expect()} {wait()} {self.USE}"
        assert all(right_under(body, lambda rank: copied([255])))

    def test_a_peers_memory_is_a_source(self):
        body = f"{INIT} {expect(16)} {LOAD} [stage], [%peer_src], 16, [bar]; {wait()} ld.shared.b32 %r1, [stage]; st.global.b32 [%dst], %r1;"
        assert all(right_under(body, lambda rank: copied([(rank + 1) % 3]), world_size=3))


class TestStores:
    TWICE = f"{STORE} [%dst], [stage], 1024; cp.async.bulk.commit_group;"
    AGAIN = f"{STORE} [%dst+1024], [stage], 1024; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"

    @staticmethod
    def expected(rank):
        return copied([1] * 256, [2] * 256)

    @pytest.mark.slow
    def test_a_stage_may_be_used_again_once_it_was_read(self):
        for word in (".read", ""):
            body = f"{fill('1')} {self.TWICE} cp.async.bulk.wait_group{word} 0; {fill('2')} {self.AGAIN}"
            assert all(right_under(body, self.expected))

    @pytest.mark.slow
    def test_and_not_before(self):
        for between in ("", "cp.async.bulk.wait_group.read 1;"):
            body = f"{fill('1')} {self.TWICE} {between} {fill('2')} {self.AGAIN}"
            found = right_under(body, self.expected)
            assert not found[0]
            assert found.count(False) > 5

    def test_a_copy_without_a_group_is_not_waited_for(self):
        body = f"{fill('1')} {STORE} [%dst], [stage], 1024; cp.async.bulk.wait_group 0; {fill('2')} cp.async.bulk.commit_group; {self.AGAIN}"
        assert not all(right_under(body, self.expected))

    @pytest.mark.slow
    def test_an_empty_group_counts(self):
        body = f"{fill('1')} {self.TWICE} cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1; {fill('2')} {self.AGAIN}"
        assert all(right_under(body, self.expected))

    @pytest.mark.slow
    def test_a_kernel_is_not_over_before_its_copies_are(self):
        body = f"{fill('1')} {self.TWICE} cp.async.bulk.wait_group.read 0;"
        assert all(right_under(body, lambda rank: copied([1] * 256)))

    def test_a_block_may_not_end_while_its_shared_memory_is_read(self):
        same_text(str(outcome_of(f"{fill('1')} {self.TWICE}", {}).error()))

    def test_nor_while_it_is_written(self):
        same_text(str(outcome_of(f"{INIT} {expect()} {LOAD} [stage], [%src], {BYTES}, [bar];", {}).error()))

    def test_shared_memory_that_was_never_written_is_poison_here_too(self):
        error = outcome_of(f"{STORE} [%dst], [stage], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", {})
        same_text(str(error.error()))


REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
DONE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


class TestReductions:
    @pytest.mark.slow
    def test_reductions_of_all_threads_and_ranks_meet_in_one_place(self):
        """Each of 8 threads of 2 blocks of 3 ranks adds 1 to 256 words of its own dst and of the next rank's."""
        body = f"setp.ne.u32 %q, %r0, 0; @%q bra READY; {fill('1')} READY: bar.sync 0; {REDUCE} [%dst], [stage], 1024; {REDUCE} [%peer_dst], [stage], 1024; {DONE}"
        assert all(right_under(body, lambda rank: copied([7 + 32] * 256), world_size=3, grid=2, block=8))

    def test_a_target_keeps_its_old_value_until_the_reduction_is_done(self):
        body = f"{fill('1', 16)} {REDUCE} [%dst], [stage], 16; ld.global.b32 %r1, [%dst]; st.global.b32 [%dst+1024], %r1; {DONE}"
        old, new = ([8] * 4 + [7] * 252 + [one] for one in (7, 8))
        found = right_under(body, lambda rank: copied(old))
        assert found[0]
        assert not any(right_under(body, lambda rank: copied(new))[:1])

    def test_a_stage_that_is_used_again_too_early_adds_the_new_words(self):
        first = f"{fill('1', 16)} {REDUCE} [%dst], [stage], 16; cp.async.bulk.commit_group;"
        again = f"{fill('5', 16)} cp.async.bulk.wait_group 0;"
        assert all(right_under(f"{first} cp.async.bulk.wait_group.read 0; {again}", lambda rank: copied([8] * 4)))
        assert not right_under(f"{first} {again}", lambda rank: copied([8] * 4))[0]

    def test_within_shared_memory_an_mbarrier_counts_the_bytes(self):
        within = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
        use = "ld.shared.b32 %r1, [stage+12]; st.global.b32 [%dst], %r1;"
        begin = f"{INIT} {fill('3', 32)} {expect(16)} {within} [stage], [stage+16], 16, [bar];"
        assert all(right_under(f"{begin} {wait()} {use}", lambda rank: copied([6]), clusters=True))
        assert right_under(f"{begin} {use} {wait()}", lambda rank: copied([3]), clusters=True)[0]

    def test_a_launch_without_clusters_has_no_copies_within_shared_memory(self):
        """As an H200 does, which stops with an illegal instruction."""
        within = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
        body = f"{INIT} {fill('3', 32)} {expect(16)} {within} [stage], [stage+16], 16, [bar]; {wait()}"
        same_text(str(outcome_of(body, {}).error()))

    def test_a_target_that_was_never_written_is_poison(self):
        within = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
        body = f"{INIT} {fill('3', 16)} {expect(16)} {within} [stage+16], [stage], 16, [bar]; {wait()}"
        same_text(str(outcome_of(body, {}, clusters=True).error()))


class TestMulticast:
    """All ranks' dst, through the switch: %all."""

    SEND = "multimem.cp.async.bulk.global.shared::cta.bulk_group"
    ADD = "multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"

    def test_every_replica_gets_the_copy(self):
        body = f"{fill('1', 16)} cvt.u64.u32 %d1, %rank; mad.lo.u64 %d1, %d1, 16, %all; {self.SEND} [%d1], [stage], 16; {DONE}"
        assert all(right_under(body, lambda rank: copied([1] * 12), world_size=3))

    def test_reductions_of_all_ranks_meet_in_every_replica(self):
        body = f"{fill('1', 32)} {self.ADD} [%all], [stage], 32; {DONE}"
        assert all(right_under(body, lambda rank: copied([11] * 8), world_size=4))

    @pytest.mark.parametrize(
        "text",
        [
            f"{SEND} [%dst], [stage], 16;",
            f"{ADD} [%dst], [stage], 16;",
            f"{STORE} [%all], [stage], 16;",
            f"{REDUCE} [%all], [stage], 16;",
            f"{SEND} [%all+4088], [stage], 16;",
            f"{SEND} [%all+4080], [stage], 32;",
            "cp.async.bulk.prefetch.L2.global [%src+8], 16;",
        ],
    )
    def test_addresses_of_the_other_kind_are_faults(self, text):
        error = outcome_of(f"{fill('1', 32)}\n{text}", {}, world_size=2).error()
        with refused(DeviceFault):
            raise error


class TestSignals:
    """A rank pushes into the next one's dst and tells it; that one reads what it was told about."""

    TELL = "st.release.sys.global.b32 [%peer_flag], 1;"
    HEAR = "HEAR: ld.acquire.sys.global.b32 %r2, [%flag]; setp.eq.u32 %p1, %r2, 0; @%p1 bra HEAR; ld.global.b32 %r3, [%dst]; st.global.b32 [%dst+1024], %r3;"

    @staticmethod
    def expected(rank):
        return copied([1] * 257)

    def found(self, before, after=""):
        push = f"{fill('1')} {STORE} [%peer_dst], [stage], 1024; cp.async.bulk.commit_group;"
        return right_under(f"{push} {before} {self.TELL} {self.HEAR} {after}", self.expected, world_size=3)

    @pytest.mark.slow
    def test_what_was_written_may_be_told_of(self):
        assert all(self.found("cp.async.bulk.wait_group 0;"))

    @pytest.mark.slow
    @pytest.mark.parametrize("before", ["", "cp.async.bulk.wait_group.read 0;"], ids=["no_wait", "read_only"])
    def test_and_nothing_else(self, before):
        found = self.found(before, "cp.async.bulk.wait_group 0;")
        assert found.count(False) > 3, found


class TestRefusals:
    @pytest.mark.parametrize(
        "text",
        [
            f"{LOAD} [stage], [%src], 24, [bar];",
            f"{LOAD} [stage], [%src], 0, [bar];",
            f"{LOAD} [stage], [%src+8], 16, [bar];",
            f"{LOAD} [stage+4], [%src], 16, [bar];",
            f"{LOAD} [stage+4000], [%src], 128, [bar];",
            f"{LOAD} [stage], [%src+16368], 32, [bar];",
            f"{LOAD} [stage], [0], 16, [bar];",
            f"{LOAD} [stage], [%src], 16, [bar+8];",
            f"{STORE} [%dst+4], [stage], 16;",
            f"{STORE} [%dst+4080], [stage], 32;",
            f"{STORE} [%dst], [stage], 20;",
            "mbarrier.init.shared::cta.b64 [bar], 1;",
            "mbarrier.init.shared::cta.b64 [bar+4], 1;",
            "mbarrier.init.shared::cta.b64 [bar+8], 0;",
            "mbarrier.inval.shared::cta.b64 [bar+8];",
            "mbarrier.arrive.shared::cta.b64 _, [bar], 2;",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1048576;",
            "mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 2;",
            "mbarrier.try_wait.parity.shared::cta.b64 %q, [bar+8], 0;",
        ],
    )
    def test_what_ptx_leaves_undefined_stops_with_its_line(self, text):
        error = outcome_of(f"{INIT}\n{text}", {}).error()
        with refused(DeviceFault):
            raise error

    @pytest.mark.parametrize(
        "text",
        [
            f"cp.async.bulk.shared::cta.global.bulk_group [stage], [%src], {BYTES};",
            f"cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%dst], [stage], {BYTES}, [bar];",
            f"{LOAD} [stage], [%src], {BYTES};",
            "mbarrier.arrive.shared::cluster.b64 %state, [bar];",
            "mbarrier.arrive.acquire.cta.shared::cta.b64 _, [bar];",
            "cp.async.bulk.wait_group %r1;",
            "cp.async.cg.shared.global [stage], [%src], 8;",
            f"{STORE}.cp_mask [%dst], [stage], 16, 5;",
            f"{STORE}.L2::128B [%dst], [stage], 16;",
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%dst], [stage], 16;",
            "multimem.cp.async.bulk.relaxed.global.shared::cta.bulk_group [%dst], [stage], 16;",
        ],
    )
    def test_forms_that_are_not_there_stop_with_their_line(self, text):
        with pytest.raises(UnknownInstruction, match="PTX line"):
            raise outcome_of(f"{INIT} {text}", {}).error()


def test_every_thread_of_every_block_has_its_own_copies():
    """Eight threads in each of four blocks copy their 16 bytes through a stage and a barrier of their own."""
    body = f"""
        .shared .align 8 .b8 own[64];
        mov.u32 %r1, %tid.x; mov.u32 %r2, own; mad.lo.u32 %r2, %r1, 8, %r2; mov.u32 %r3, stage; mad.lo.u32 %r3, %r1, 16, %r3;
        mad.lo.u64 %d1, %lane64, 16, %src; mad.lo.u64 %d2, %lane64, 16, %peer_dst;
        mbarrier.init.shared::cta.b64 [%r2], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
        {LOAD} [%r3], [%d1], 16, [%r2];
        W: mbarrier.try_wait.parity.shared::cta.b64 %q, [%r2], 0; @!%q bra W;
        {STORE} [%d2], [%r3], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; """
    found = right_under(
        body, lambda rank: copied(np.arange(128, dtype=np.uint32) + (rank + 1) % 2), world_size=2, grid=4, block=8
    )
    assert all(found)


def test_bytes_are_counted_by_kind_and_by_link():
    body = f"""{INIT} {expect(1024)} {LOAD} [stage], [%src], 512, [bar]; {LOAD} [stage+512], [%peer_src], 512, [bar]; {wait()}
        {STORE} [%peer_dst], [stage], 1024; {STORE} [%dst+1024], [stage], 256; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    outcome = outcome_of(body, {}, world_size=3)
    assert not any(outcome.errors)
    accesses = outcome.counters["accesses"]
    assert accesses["own_read"] == {"count": 3, "bytes": 3 * 512}
    assert accesses["peer_read"] == {"count": 3, "bytes": 3 * 512}
    assert accesses["peer_write"] == {"count": 3, "bytes": 3 * 1024}
    assert accesses["own_write"] == {"count": 3, "bytes": 3 * 256}
    assert outcome.counters["links"] == {"0->1": 1536, "1->2": 1536, "2->0": 1536}


def test_reductions_and_multicast_copies_are_counted_as_writes():
    body = f"""{fill("1", 32)} {REDUCE} [%dst], [stage], 16; {REDUCE} [%peer_dst], [stage], 32;
        {TestMulticast.SEND} [%all], [stage], 32; {TestMulticast.ADD} [%all], [stage], 16; {DONE}"""
    outcome = outcome_of(body, {}, world_size=3)
    assert not any(outcome.errors)
    accesses = outcome.counters["accesses"]
    assert accesses["own_write"] == {"count": 3, "bytes": 3 * 16}
    assert accesses["peer_write"] == {"count": 3, "bytes": 3 * 32}
    assert accesses["multicast_store"] == {"count": 6, "bytes": 3 * 48}
    assert outcome.counters["links"] == {"0->1": 32, "1->2": 32, "2->0": 32}


def test_a_peer_that_looks_at_the_clock_does_not_keep_copies_from_moving_on():
    """Two launches; the lanes of the second all wait for their copy, while the first polls and never sleeps."""
    polls = """LOOK: ld.acquire.sys.global.u32 %r1, [%flag]; mov.u64 %d1, %globaltimer;
      sub.u64 %d1, %d1, %begin; setp.lt.u64 %q, %d1, 4000000; setp.eq.and.u32 %q, %r1, 0, %q; @%q bra LOOK;
      st.global.b32 [%dst], %r1;"""
    polls = f"mov.u64 %begin, %globaltimer; {polls}"
    copies = f"{INIT} fence.proxy.async; {expect()} {LOAD} [stage], [%src], {BYTES}, [bar]; {wait()}"
    signals = "st.release.sys.global.u32 [%peer_flag], 1;"
    registers = f"{REGISTERS}  .reg .b64 %begin;\n"
    names = ("src", "dst", "flag", "peer_flag")
    kernels = [
        executable(module(body, [f"u64 {name}" for name in names], registers=registers))
        for body in (polls, f"{copies} {signals}")
    ]

    def program(fabric):
        own = [put(fabric, "src", DATA), put(fabric, "dst", np.full(1, 7, np.uint32))]
        own.append(put(fabric, "flag", np.zeros(4, np.uint32)))
        fabric.barrier()
        far = fabric.peer_address(own[2], 1 - fabric.rank)
        start(fabric, kernels[fabric.rank], 1, 1, [*(one.address for one in own), far])
        fabric.synchronize()
        fabric.barrier()
        return int(get(fabric, own[1], "u4")[0])

    outcome = run(make_world(2), program)
    assert not any(outcome.errors)
    assert outcome.results == [1, 7]
