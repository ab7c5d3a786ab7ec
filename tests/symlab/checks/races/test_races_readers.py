"""Many threads of a block read one place: what has to be ordered before a later write is all of them, and no more."""

import numpy as np
import pytest

from simulator.happens_before.clocks import COPY_CODE, HOST_CODE, SPAN_CODE, WARP_CODE, span_code, warps_of_codes
from tests.symlab.checks.races import race_programs

SHARED = ".shared .align 16 .b8 buffer[64];\n.shared .align 8 .b64 barrier;"
BEGIN = """mov.u32 %r6, buffer; mov.u32 %r7, barrier; mov.u32 %r4, 7; setp.ne.u32 %p1, %r0, 0; @%p1 bra BEGUN;
    mbarrier.init.shared.b64 [%r7], {arrivals}; st.shared.v4.b32 [%r6], {{%r4, %r4, %r4, %r4}};
    BEGUN: bar.sync 0;"""
SPACES = {"global": "%data", "shared": "%r6"}


def found(body, block=288, arrivals=1):
    """What is found when one block runs the body, but what is only formally missing."""
    findings = race_programs.found([BEGIN.format(arrivals=arrivals) + body], block=block, before=SHARED)
    return [one for one in findings if one.severity != "formal"]


def sentences(findings):
    return [one.sentence() for one in findings]


class TestPartsOfABlock:
    """Of 288 threads 256 read a word, and something orders these before a write."""

    MEET = """setp.ge.u32 %p1, %r0, 256; @%p1 bra {others}; ld.{space}.b32 %r3, [{place}]; bar.sync 1, 256;
        bra WRITE; OTHERS: ld.{space}.b32 %r3, [{place}]; bra OUT;
        WRITE: setp.ne.u32 %p2, %r0, {writer}; @%p2 bra OUT; st.{space}.b32 [{place}], %r4; OUT:"""

    @pytest.mark.parametrize("space", SPACES)
    @pytest.mark.parametrize("writer", [0, 40, 255])
    def test_those_that_have_read_meet_at_a_numbered_barrier(self, space, writer):
        how = {"space": space, "place": SPACES[space], "writer": writer}
        assert not sentences(found(self.MEET.format(others="OUT", **how)))
        assert found(self.MEET.format(others="OTHERS", **how))

    def test_they_arrive_where_the_writer_waits(self):
        body = """setp.ge.u32 %p1, %r0, 256; @%p1 bra LAST; ld.global.b32 %r3, [%data]; bar.arrive 1, 288; bra OUT;
            LAST: bar.sync 1, 288; setp.ne.u32 %p1, %r0, 256; @%p1 bra OUT; st.global.b32 [%data], %r4; OUT:"""
        assert not sentences(found(body))

    RELEASES = """setp.ge.u32 %p1, %r0, {threads}; @%p1 bra LAST; ld.global.b32 %r3, [%data];
        red.release.gpu.global.add.u32 [%data+64], 1; bra OUT;
        LAST: setp.ne.u32 %p1, %r0, 256; @%p1 bra OUT;
        SPIN: ld.acquire.gpu.global.b32 %r3, [%data+64]; setp.lt.u32 %p2, %r3, {wanted}; @%p2 bra SPIN;
        st.global.b32 [%data], %r4; OUT:"""

    @pytest.mark.parametrize(("threads", "wanted", "is_clean"), [(64, 64, True), (32, 32, True), (20, 20, False)])
    def test_each_lane_releases_on_its_own(self, threads, wanted, is_clean):
        """Of 20 lanes of a warp the checker knows that some of the warp have read: the page says so."""
        assert bool(found(self.RELEASES.format(threads=threads, wanted=wanted))) != is_clean

    def test_one_lane_too_few_releases(self):
        late = "setp.eq.u32 %p3, %r0, 37; @%p3 bra OUT; red"
        assert found(self.RELEASES.format(threads=64, wanted=63).replace("red", late, 1))

    def test_lanes_of_a_short_warp_release(self):
        body = self.RELEASES.format(threads=40, wanted=40).replace("256", "64")
        two_writers = body.replace("LAST: setp.ne.u32 %p1, %r0, 64; @%p1 bra OUT;", "LAST:")
        body = two_writers.replace("st.global.b32 [%data], %r4;", "")
        assert not sentences(found(body, block=41))
        pair = """ld.global.b32 %r3, [%data]; red.release.gpu.global.add.u32 [%data+64], 1;
            setp.ne.u32 %p1, %r0, 1; @%p1 bra OUT;
            SPIN: ld.acquire.gpu.global.b32 %r3, [%data+64]; setp.lt.u32 %p2, %r3, 2; @%p2 bra SPIN;
            st.global.b32 [%data], %r4; OUT:"""
        assert not sentences(found(pair, block=2))

    ARRIVE = """setp.ge.u32 %p1, %r0, 256; @%p1 bra LAST; {late}
        LATE: setp.eq.u32 %p4, %r9, 0; @%p4 bra READ; sub.u32 %r9, %r9, 1; bra LATE;
        READ: ld.shared.b32 %r3, [%r6]; {arrive}
        LAST: mbarrier.try_wait.parity.shared.b64 %p3, [%r7], 0; @!%p3 bra LAST;
        setp.ne.u32 %p2, %r0, {writer}; @%p2 bra OUT; st.shared.b32 [%r6], %r0; OUT:"""
    EACH = "mbarrier.arrive.shared.b64 _, [%r7];"
    LEADER = """bar.warp.sync -1; and.b32 %r5, %r0, 31; setp.ne.u32 %p3, %r5, 0; @%p3 bra LAST;
        mbarrier.arrive.shared.b64 _, [%r7];"""

    @pytest.mark.parametrize("writer", [0, 256])
    @pytest.mark.parametrize(
        "late", ["mov.u32 %r9, 0;", "shr.u32 %r9, %r0, 5;", "shr.u32 %r9, %r0, 5; sub.u32 %r9, 12, %r9;"]
    )
    @pytest.mark.parametrize(("arrive", "arrivals"), [(EACH, 256), (LEADER, 8)])
    def test_warps_arrive_at_an_mbarrier_one_after_another(self, late, writer, arrive, arrivals):
        """A warp that reads after another one has arrived is no reason to ask more of that one."""
        body = self.ARRIVE.format(late=late, arrive=arrive, writer=writer)
        assert not sentences(found(body, arrivals=arrivals))
        some = arrive.replace("mbarrier", "setp.lt.u32 %p5, %r0, 64; @%p5 bra LAST; mbarrier", 1)
        body = self.ARRIVE.format(late=late, arrive=some, writer=256)
        assert found(body, arrivals=arrivals * 6 // 8)  # two warps have read and do not arrive


@pytest.mark.parametrize(
    "read",
    [
        "ld.global.b32 %r3, [%data];",
        "ld.global.v4.b32 {%r3, %r8, %r9, %r10}, [%data];",
        "shr.u32 %r5, %r0, 5; not.b32 %r5, %r5; and.b32 %r5, %r5, 1; mul.wide.u32 %d1, %r5, 4; add.u64 %d1, %data, %d1;"
        "ld.global.b32 %r3, [%d1];",
        "and.b32 %r5, %r0, 7; mul.wide.u32 %d1, %r5, 4; add.u64 %d1, %data, %d1; ld.global.b32 %r3, [%d1];",
    ],
)
def test_readers_that_are_no_neighbours(read):
    """Eight warps read words in turns, and the last of them alone is ordered before the write."""
    body = """setp.ne.u32 %p1, %r0, 0; @%p1 bra READ; st.global.b32 [%data], %r4; READ: bar.sync 0;
        setp.ge.u32 %p1, %r0, 256; @%p1 bra LAST; {read} setp.lt.u32 %p1, %r0, {first}; @%p1 bra OUT;
        bar.sync 2, {count}; bra OUT;
        LAST: bar.sync 2, {count}; setp.ne.u32 %p1, %r0, 256; @%p1 bra OUT; st.global.b32 [%data], %r4; OUT:"""
    assert found(body.format(read=read, first=224, count=64))
    assert not sentences(found(body.format(read=read, first=0, count=288)))


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("turns", [0, 100])
@pytest.mark.parametrize("read", ["", "ld.shared.b32 %r3, [%r6];", "ld.shared.v4.b32 {%r3, %r8, %r9, %r10}, [%r6];"])
def test_threads_read_what_a_copy_reads(read, turns, waits):
    """Before the copy does, or after it: the threads' reads are over at the barrier, the copy's at the wait for it."""
    wait = "cp.async.bulk.wait_group.read 0;" if waits else ""
    body = f"""setp.ne.u32 %p1, %r0, 0; @%p1 bra READ; fence.proxy.async;
        cp.async.bulk.global.shared::cta.bulk_group [%data], [%r6], 16; cp.async.bulk.commit_group;
        READ: mov.u32 %r11, 0;
        LOOP: bar.sync 0; add.u32 %r11, %r11, 1; setp.lt.u32 %p3, %r11, {turns}; @%p3 bra LOOP;
        {read} bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra OUT; {wait} st.shared.b32 [%r6], %r0;
        cp.async.bulk.wait_group 0; OUT:"""
    findings = found(body, block=64)
    assert bool(findings) != waits, sentences(findings)


def test_codes_of_warps():
    pairs = [(first, last) for last in range(32) for first in range(last + 1)]
    first, last = np.array(pairs).T
    codes = span_code(first, last)
    assert len(set(codes.tolist())) == len(pairs)
    assert codes.max() < COPY_CODE
    assert ((codes < SPAN_CODE) == (first == last)).all()
    assert [one.tolist() for one in warps_of_codes(codes)] == [first.tolist(), last.tolist()]
    others = warps_of_codes(np.array([0, 31, 32, 1023, WARP_CODE + 5, COPY_CODE, HOST_CODE]))
    assert [one.tolist() for one in others] == [[0, 0, 1, 31, 5, -1, -1]] * 2


ADDED = """mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @%p1 bra STORE; mov.u32 %r4, words; mov.u32 %r5, 1;
    st.shared.v4.b32 [%r4], {{%r5, %r5, %r5, %r5}}; fence.proxy.async.shared::cta;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%data], [%r4], 16; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0; red.relaxed.gpu.global.add.u32 [%flag+4], 1;
    MEET: ld.relaxed.gpu.global.b32 %r2, [%flag+4]; setp.lt.u32 %p2, %r2, 2; @%p2 bra MEET;
    {wait} red.release.gpu.global.add.u32 [%flag], 1; ret;
    STORE: ld.acquire.gpu.global.b32 %r2, [%flag]; setp.lt.u32 %p2, %r2, 2; @%p2 bra STORE; st.global.b32 [%data], %r2;"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wait", ["cp.async.bulk.wait_group 0;", ""])
def test_two_blocks_add_to_one_place_by_copies_and_each_waits_for_its_own(wait, seed):
    """Both copies have read their words before either is waited for: one takes the other's place in memory."""
    how = {"grid": 3, "before": ".shared .align 16 .b8 words[16];", "schedule": "random", "seed": seed}
    findings = race_programs.found([ADDED.format(wait=wait)], **how)
    assert race_programs.missing(findings) == (set() if wait else {("race", "cp.async.bulk.wait_group without .read")})
