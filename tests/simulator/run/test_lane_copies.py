"""cp.async takes its time: kernels that don't wait as they should come out wrong, and those that do never."""

import re

import numpy as np
import pytest

from memory.fabric import Deadlock, DeviceFault
from simulator.observe.events import Listener
from tests.golden import refused, same_text
from tests.simulator.harness import executable, get, make_world, module, put, run, start
from tests.simulator.run.test_copies import SCHEDULES, rights

SHARED = "  .shared .align 16 .b8 stage[4096];\n  .shared .align 8 .b8 bar[16];\n  .reg .pred %q;\n"
BLOCK = 64
ROWS = 8
DATA = np.random.default_rng(5).integers(1, 1 << 31, (ROWS, BLOCK), np.int64).astype(np.uint32)
PLACES = (
    "mov.u32 %r1, %tid.x; mov.u32 %r2, stage; mad.lo.u32 %r3, %r1, 4, %r2; mad.lo.u64 %d1, %lane64, 4, %src; "
    "mad.lo.u64 %d2, %lane64, 4, %dst; "
)
COPY = "cp.async.ca.shared.global [%r3], [%d1], 4; "
OUT = "ld.shared.b32 %r5, [%r3]; st.global.b32 [%d2], %r5; "
COMMIT, WAIT = "cp.async.commit_group; ", "cp.async.wait_group 0; "
FILL = "st.shared.b32 [%r3], 1; "


def outcome_of(body, schedule, ranks=1, listener=None):
    """Run the body in one block on each rank. %src: DATA plus the rank; %dst: as many 7s; %peer: the next rank's src."""
    ptx = module(PLACES + body, ["u64 src", "u64 dst", "u64 peer", "u64 all"], registers=SHARED)
    world = make_world(ranks, **schedule)
    if listener is not None:
        world.space.events.add(listener)

    def program(fabric):
        src = put(fabric, "src", DATA + np.uint32(fabric.rank))
        dst = put(fabric, "dst", np.full(DATA.shape, 7, np.uint32))
        fabric.barrier()
        peer = fabric.peer_address(src, (fabric.rank + 1) % ranks)
        arguments = [src.address, dst.address, peer, fabric.multicast_address(src)]
        start(fabric, executable(ptx), 1, BLOCK, arguments)
        fabric.synchronize()
        fabric.barrier()
        return get(fabric, dst, "u4").reshape(DATA.shape).copy()

    return run(world, program)


def right_under(body, expected, ranks=1):
    return rights((outcome_of(body, schedule, ranks) for schedule in SCHEDULES), expected)


def rows(*first):
    """What dst holds: these rows at its beginning."""
    out = np.full(DATA.shape, 7, np.uint32)
    for number, one in enumerate(first):
        out[number] = one
    return out


def reversed_out(barrier):
    """Each thread hands out what the last but it has copied."""
    return f"{COPY}{COMMIT}{WAIT}{barrier} sub.u32 %r4, 63, %r1; mad.lo.u32 %r3, %r4, 4, %r2; {OUT}"


class TestWaits:
    def test_a_thread_that_waits_finds_what_it_copied(self):
        for body in (f"{COPY}{COMMIT}{WAIT}{OUT}", f"{COPY}cp.async.wait_all; {OUT}"):
            assert all(right_under(body, lambda rank: rows(DATA[0])))

    def test_a_thread_that_reads_before_it_waits_finds_what_was_there(self):
        assert right_under(f"{FILL}{COPY}{COMMIT}{OUT}{WAIT}", lambda rank: rows(1))[0]
        found = right_under(f"{FILL}{COPY}{COMMIT}{OUT}{WAIT}", lambda rank: rows(DATA[0]))
        assert not any(found)
        same_text(str(outcome_of(f"{COPY}{COMMIT}{OUT}{WAIT}", {}).error()))

    def test_some_threads_may_be_served_before_others(self):
        """Under some seed a part of the warps finds new data without a wait, and another part old data."""
        body = f"{FILL}{COPY}{COMMIT}" + "add.u32 %r9, %r9, 1; bar.sync 0; " * 6 + OUT
        mixed = []
        for seed in range(30):
            result = outcome_of(body, {"schedule": "random", "seed": seed}).results[0][0]
            mixed.append(0 < int((result == 1).sum()) < BLOCK)
        assert any(mixed)

    def test_copies_without_a_group_are_for_wait_all_only(self):
        assert not all(right_under(f"{FILL}{COPY}{WAIT}{OUT}", lambda rank: rows(DATA[0])))
        assert all(right_under(f"{FILL}{COPY}cp.async.wait_all; {OUT}", lambda rank: rows(DATA[0])))

    def test_a_wait_is_for_the_own_copies_only(self):
        """What other threads copied is there behind a barrier, and not before."""
        assert all(right_under(reversed_out("bar.sync 0;"), lambda rank: rows(DATA[0][::-1])))
        assert not all(right_under(reversed_out(""), lambda rank: rows(DATA[0][::-1])))

    def test_a_source_may_not_change_before_the_copy_is_over(self):
        change, again = "st.global.b32 [%d1], 9; ", "ld.shared.b32 %r5, [%r3]; st.global.b32 [%d2], %r5; "
        assert all(right_under(f"{COPY}{COMMIT}{WAIT}{change}{again}", lambda rank: rows(DATA[0])))
        found = right_under(f"{COPY}{COMMIT}{change}{WAIT}{again}", lambda rank: rows(DATA[0]))
        assert not found[0]

    def test_a_kernel_may_end_before_its_copies_do(self):
        assert all(right_under(f"{COPY}{COMMIT}", lambda rank: rows()))

    def test_a_peers_memory_is_a_source(self):
        body = f"mad.lo.u64 %d1, %lane64, 4, %peer; {COPY}{COMMIT}{WAIT}{OUT}"
        assert all(right_under(body, lambda rank: rows(DATA[0] + (rank + 1) % 3), ranks=3))


def pipeline(allowed):
    """Rows pass through two slots of the stage: one is copied while the other is handed out."""
    step = (
        "and.b32 %r7, {row}, 1; mad.lo.u32 %r8, %r7, 256, %r3; mul.wide.u32 %d3, {row}, 256; add.u64 %d4, %d1, %d3; "
        "cp.async.ca.shared.global [%r8], [%d4], 4; cp.async.commit_group; "
    )
    return (
        f"mov.u32 %r6, 0; {step.replace('{row}', '%r6')} "
        f"NEXT: add.u32 %r10, %r6, 1; setp.ge.u32 %q, %r10, {ROWS}; @%q bra LAST; {step.replace('{row}', '%r10')} "
        f"cp.async.wait_group {allowed}; bra.uni GIVE; LAST: cp.async.wait_group 0; "
        "GIVE: and.b32 %r7, %r6, 1; mad.lo.u32 %r8, %r7, 256, %r3; ld.shared.b32 %r5, [%r8]; "
        "mul.wide.u32 %d3, %r6, 256; add.u64 %d4, %d2, %d3; st.global.b32 [%d4], %r5; "
        f"mov.u32 %r6, %r10; setp.lt.u32 %q, %r6, {ROWS}; @%q bra NEXT; "
    )


class TestPipelines:
    def test_two_stages_are_right_with_the_right_count(self):
        assert all(right_under(pipeline(1), lambda rank: DATA))

    def test_one_group_too_many_is_noticed(self):
        assert not all(right_under(pipeline(2), lambda rank: DATA))


ARRIVAL = "cp.async.mbarrier.arrive{noinc}.shared.b64 [bar]; "
SPIN = "SPIN: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0; @!%q bra SPIN; "


def meeting(count, noinc, own=""):
    """One thread makes the mbarrier; all copy and arrive; each hands out another one's word."""
    return (
        f"setp.ne.u32 %q, %r1, 0; @%q bra READY; mbarrier.init.shared.b64 [bar], {count}; READY: bar.sync 0; "
        f"{COPY}{ARRIVAL.replace('{noinc}', noinc)}{own}{SPIN} "
        f"sub.u32 %r4, 63, %r1; mad.lo.u32 %r3, %r4, 4, %r2; {OUT}"
    )


class TestArrivals:
    def test_a_phase_ends_when_all_copies_are_done(self):
        """An mbarrier orders all threads' copies: no barrier of the block is needed."""
        own = "mbarrier.arrive.shared.b64 _, [bar]; "
        for body in (meeting(BLOCK, ".noinc"), meeting(BLOCK, "", own)):
            assert all(right_under(body, lambda rank: rows(DATA[0][::-1])))

    def test_an_arrival_of_its_own_does_not_wait_for_the_copies(self):
        body = meeting(BLOCK, ".noinc").replace(
            ARRIVAL.replace("{noinc}", ".noinc"), "mbarrier.arrive.shared.b64 _, [bar]; "
        )
        assert not all(right_under(FILL + body, lambda rank: rows(DATA[0][::-1])))

    @pytest.mark.parametrize("schedule", SCHEDULES[:3], ids=["fair", "random_0", "random_1"])
    def test_without_noinc_the_expected_arrivals_are_still_to_come(self, schedule):
        error = outcome_of(meeting(BLOCK, ""), schedule).error()
        assert isinstance(error, Deadlock)
        assert re.search(
            r"thread 0 spins: waits for an mbarrier in phase 0 \(64 of 64 arrivals and 0 bytes to come\) at byte 0x1000",
            str(error),
        ), error

    def test_an_arrival_without_copies_comes_by_itself(self):
        body = meeting(BLOCK, ".noinc").replace(
            COPY, "ld.global.b32 %r5, [%d1]; st.shared.b32 [%r3], %r5; bar.sync 0; "
        )
        assert all(right_under(body, lambda rank: rows(DATA[0][::-1])))


class TestRefusals:
    @pytest.mark.parametrize(
        "text",
        [
            "cp.async.ca.shared.global [%r3], [%d1+2], 4;",
            "cp.async.cg.shared.global [%r2+8], [%src], 16;",
            "cp.async.cg.shared.global [%r2+8192], [%src], 16;",
            "cp.async.ca.shared.global [%r3], [%src+4096], 4;",
            "cp.async.ca.shared.global [%r3], [0], 4;",
            "cp.async.ca.shared.global [%r3], [%all], 4;",
            "mov.u32 %r9, 5; cp.async.ca.shared.global [%r3], [%d1], 4, %r9;",
            "cp.async.mbarrier.arrive.noinc.shared.b64 [bar+8];",
            "cp.async.mbarrier.arrive.b64 [%src];",
        ],
    )
    def test_what_ptx_leaves_undefined_stops_with_its_line(self, text):
        error = outcome_of(text, {}).error()
        assert isinstance(error, DeviceFault)
        same_text(str(error))

    def test_the_thread_that_did_wrong_is_named(self):
        body = f"setp.eq.u32 %q, %r1, 37; @%q add.u64 %d1, %d1, 65536; {COPY}{COMMIT}{WAIT}"
        with refused(DeviceFault):
            raise outcome_of(body, {}).error()

    def test_a_source_that_was_never_written_is_poison(self):
        with refused(DeviceFault):
            raise outcome_of(f"discard.global.L2 [%src], 128; {COPY}{COMMIT}{WAIT}", {}).error()

    def test_what_is_not_read_may_lie_anywhere(self):
        """As kernels do at the edges of a tensor: src-size 0, or ignore-src, where the address is beyond it."""
        beyond = "add.u64 %d1, %d1, 0x100000; "
        for tail in ("mov.u32 %r9, 0; cp.async.ca.shared.global [%r3], [%d1], 4, %r9; ",
                     "setp.eq.u32 %q, 0, 0; cp.async.ca.shared.global [%r3], [%d1], 4, %q; "):  # fmt: skip
            assert all(right_under(f"{FILL}{beyond}{tail}{COMMIT}{WAIT}{OUT}", lambda rank: rows(0)))


class Log(Listener):
    """Keeps what concerns these copies."""

    def __init__(self):
        self.moments = []
        self.arrivals = []
        self.order = []

    def lane_copy(self, event):
        self.moments.append(event)
        self.order.append(event.moment)

    def mbarrier(self, event):
        if event.operation == "arrive":
            self.arrivals.append(event)
            self.order.append("arrive")


class TestObserved:
    def test_each_copy_is_issued_read_and_written(self):
        log = Log()
        second = COPY.replace("%r3", "%r3+256").replace("%d1", "%d1+256")
        outcome = outcome_of(f"{COPY}{COMMIT}{second}{COMMIT}{WAIT}", {}, listener=log)
        assert not any(outcome.errors)
        assert [(one.number, one.moment) for one in log.moments if one.number == 1] == [
            (1, moment) for moment in ("issued", "read", "written")
        ]
        issued = [one for one in log.moments if one.moment == "issued"]
        assert [one.groups.tolist() for one in issued] == [[0] * BLOCK, [1] * BLOCK]
        assert issued[0].shared_addresses.tolist() == [4 * lane for lane in range(BLOCK)]
        assert np.diff(issued[1].global_addresses).tolist() == [4] * (BLOCK - 1)
        assert (issued[0].size_bytes, issued[0].taken.tolist()) == (4, [4] * BLOCK)
        assert issued[0].targets.tolist() == [0] * BLOCK

    @pytest.mark.parametrize("seed", range(5))
    def test_in_random_order_each_lane_has_its_moments_in_order(self, seed):
        log = Log()
        outcome = outcome_of(f"{COPY}{COMMIT}{WAIT}{OUT}", {"schedule": "random", "seed": seed}, listener=log)
        assert not any(outcome.errors)
        for lane in range(BLOCK):
            assert [one.moment for one in log.moments if lane in one.lanes] == ["issued", "read", "written"]

    def test_an_arrival_takes_place_after_its_copies(self):
        log = Log()
        assert not any(outcome_of(meeting(BLOCK, ".noinc"), {}, listener=log).errors)
        assert log.order == ["issued", "read", "written", "arrive"]
        (arrival,) = log.arrivals
        assert arrival.threads.tolist() == list(range(BLOCK))
        assert (arrival.addresses == 4096).all()
        assert (arrival.counts == 1).all()

    def test_bytes_that_are_read_are_counted_by_link(self):
        body = (
            f"mad.lo.u64 %d1, %lane64, 4, %peer; {COPY} setp.lt.u32 %q, %r1, 60; "
            f"mad.lo.u64 %d1, %lane64, 4, %src; cp.async.ca.shared.global [%r3+256], [%d1], 4, %q; {COMMIT}{WAIT}"
        )
        outcome = outcome_of(body, {}, ranks=2)
        assert not any(outcome.errors)
        assert outcome.counters["accesses"]["peer_read"] == {"count": 2 * BLOCK, "bytes": 8 * BLOCK}
        assert outcome.counters["accesses"]["own_read"] == {"count": 2 * 4, "bytes": 2 * 16}
        assert outcome.counters["links"] == {"0->1": 4 * BLOCK, "1->0": 4 * BLOCK}
