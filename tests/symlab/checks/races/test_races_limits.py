"""What the page says that the checker does not know, and what an mbarrier hands on."""

from pathlib import Path

import pytest

from tests.symlab.checks.races.race_programs import found

PAGE = Path(__file__).parents[4] / "symlab" / "checks" / "races" / "README.md"


SHARED = ".shared .align 16 .b8 buffer[256];\n.shared .align 8 .b64 barrier;"
LOADED = """mov.u32 %r6, buffer; mov.u32 %r7, barrier; mov.u32 %r1, 1;
    st.global.v4.b32 [%data], {{%r1, %r1, %r1, %r1}}; {fence} mbarrier.init.shared.b64 [%r7], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r7], 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%data], 16, [%r7];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r7], 0; @!%p3 bra WAIT;"""


@pytest.mark.parametrize(
    ("fence", "is_clean"),
    [("fence.proxy.async;", True), ("fence.proxy.async.global;", True), ("fence.proxy.async.shared::cta;", True), ("", False)],
)  # fmt: skip
def test_the_space_of_an_async_proxy_fence_is_not_looked_at(fence, is_clean):
    """The third fence is for shared memory alone and the data is global: a limit that the page names."""
    assert bool(found([LOADED.format(fence=fence)], before=SHARED)) != is_clean
    assert "- The state space of `fence.proxy.async`" in PAGE.read_text()


REMOTE = """mov.u32 %r6, buffer; mov.u32 %r7, barrier; mov.u32 %r8, %cluster_ctarank; xor.b32 %r8, %r8, 1;
    mov.u32 %r9, %tid.x; setp.ne.u32 %p1, %r9, 0; @%p1 bra JOIN; mbarrier.init.shared.b64 [%r7], 32;
    JOIN: barrier.cluster.arrive; barrier.cluster.wait;
    mapa.shared::cluster.u32 %r10, %r6, %r8; mapa.shared::cluster.u32 %r11, %r7, %r8;
    shl.b32 %r1, %r9, 2; add.u32 %r2, %r10, %r1; st.shared::cluster.b32 [%r2], %r9;
    mbarrier.arrive.{arrive}.shared::cluster.b64 _, [%r11];
    WAIT: mbarrier.try_wait.parity.{wait}.shared::cta.b64 %p3, [%r7], 0; @!%p3 bra WAIT;
    add.u32 %r2, %r6, %r1; ld.shared.b32 %r3, [%r2]; barrier.cluster.arrive; barrier.cluster.wait;"""


@pytest.mark.parametrize(
    ("arrive", "wait", "is_clean"),
    [
        ("release.cluster", "acquire.cluster", True),
        ("release.cluster", "acquire.cta", False),
        ("release.cta", "acquire.cluster", False),
        ("relaxed.cluster", "acquire.cluster", False),
        ("release.cluster", "relaxed.cluster", False),
    ],
)
def test_a_wait_at_an_mbarrier_and_an_arrival_there_have_to_cover_each_other(arrive, wait, is_clean):
    """A wait of scope cta does not acquire what another block released."""
    code = REMOTE.format(arrive=arrive, wait=wait)
    assert bool(found([code], grid=2, block=32, before=SHARED, cluster=2)) != is_clean


WAITERS = """mov.u32 %r7, barrier; setp.ne.u32 %p1, %r0, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r7], 1;
    READY: bar.sync 0;
    and.b32 %r8, %r0, 31; setp.ne.u32 %p1, %r8, 0; @%p1 ret; shr.u32 %r8, %r0, 5; mov.u32 %r2, 1;
    setp.eq.u32 %p1, %r8, 0; @%p1 bra WRITER; setp.eq.u32 %p1, %r8, 1; @%p1 bra FIRST;
    SECOND: ld.relaxed.gpu.global.b32 %r1, [%data+64]; setp.eq.u32 %p2, %r1, 0; @%p2 bra SECOND;
    LAST: mbarrier.try_wait.parity.shared.b64 %p3, [%r7], 0; @!%p3 bra LAST;
    ld.global.b32 %r3, [%data]; ret;
    WRITER: st.global.b32 [%data], %r2; st.release.gpu.global.b32 [%data+32], %r2;
    mbarrier.arrive.relaxed.cta.shared.b64 _, [%r7]; ret;
    FIRST: ld.acquire.gpu.global.b32 %r1, [%data+32]; setp.eq.u32 %p2, %r1, 0; @%p2 bra FIRST;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r7], 0; @!%p3 bra WAIT;
    st.relaxed.gpu.global.b32 [%data+64], %r2;"""


def test_a_wait_hands_on_nothing_to_later_waits():
    """Where no arrival released anything, a later wait acquires nothing, not even what the first one's thread knew."""
    (one,) = found([WAITERS], block=96, before=SHARED)
    assert one.severity == "race"
    assert {one.first.thread // 32, one.second.thread // 32} == {0, 2}
