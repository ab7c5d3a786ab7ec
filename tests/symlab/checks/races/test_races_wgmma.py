"""wgmma: it reads shared memory by the async proxy until its group was waited for, and registers want a fence."""

import numpy as np
import pytest

from tests.simulator.harness import ran
from tests.simulator.isa.wgmma_programs import (
    COMMIT,
    DESCRIBE,
    FENCE,
    FORM,
    HELD,
    MULTIPLY,
    ORDER,
    REGISTERS,
    USE,
    WAIT,
    ZEROS,
    findings_of,
    program,
)

FENCED = ("formal", "wgmma.fence")
FENCED_BY_SOME = "@%p0 fence.proxy.async; bar.sync 0;"
OVERWRITE = "setp.eq.u32 %p0, %r0, 100; @%p0 st.shared.b32 [stage+256], %r3;"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (program(), None),
        (program((FENCE, "bar.sync 0;")), ("proxy", "fence.proxy.async", "st.shared.b32", FORM)),
        (program((FENCE, "bar.sync 0; fence.proxy.async;")), ("formal", "fence.proxy.async", "st.shared.b32", FORM)),
        (program((FENCE, f"and.b32 %r6, %r0, 31; setp.eq.u32 %p0, %r6, 0; {FENCED_BY_SOME}")), ("proxy", "fence.proxy.async", "st.shared.b32", FORM)),
        (program((FENCE, "fence.proxy.async;")), ("race", "a barrier", "st.shared.b32", FORM)),
        (program((ORDER, "")), (*FENCED, "mov.b32", FORM)),
        (program((ZEROS, f"{ORDER} {ZEROS}"), (ORDER, "")), (*FENCED, "mov.b32", FORM)),
        (program((MULTIPLY, f"mov.b32 %g2, 0; {HELD}")), (*FENCED, "mov.b32", FORM)),
        (program((USE, f"{USE} {MULTIPLY} {COMMIT} {WAIT}")), (*FENCED, "mov.b32", FORM)),
        (program((USE, f"{USE} {ORDER} {MULTIPLY} {COMMIT} {WAIT}")), None),
        (program((WAIT, f"{OVERWRITE} {WAIT}")), ("race", "wgmma.wait_group", FORM, "st.shared.b32")),
        (program((WAIT, f"bar.sync 0; {OVERWRITE} {WAIT}")), ("race", "wgmma.wait_group", FORM, "st.shared.b32")),
        (program((USE, f"bar.sync 0; {OVERWRITE} {USE}")), None),
    ],
)  # fmt: skip
def test_what_the_race_checker_finds(body, expected):
    found = findings_of(body)
    assert set(found) == (set() if expected is None else {expected})


def test_what_one_wgmma_gives_another_takes_as_a_behind_a_fence_alone():
    taken = HELD.replace("%g", "%h").replace("%f", "%g").replace("%h", "%f")
    fill = "mov.b32 %g0, 0; mov.b32 %g1, 0; mov.b32 %g2, 0; mov.b32 %g3, 0;"
    for order, expected in (("", [(*FENCED, FORM, FORM)]), (ORDER, [])):
        parts = (ZEROS, f"{ZEROS} {fill}"), (USE, f"{order} {taken} {COMMIT} {WAIT}")
        assert findings_of(program(*parts)) == expected


def test_a_register_is_told_once():
    body = program((ZEROS, ""), (ORDER, f"{ORDER} {ZEROS}"), (MULTIPLY, f"{MULTIPLY}\n{MULTIPLY}\n{MULTIPLY}"))
    assert findings_of(body) == [(*FENCED, "mov.b32", FORM)]


def test_another_shape_needs_a_fence():
    wide = FORM.replace("n8k", "n16k")
    other = f"{wide} {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, %a, %b, %t, 1, 1, 0, 0;"
    body = program((MULTIPLY, f"{other} {MULTIPLY}"))
    assert findings_of(body) == [(*FENCED, wide, FORM)]
    assert findings_of(program((MULTIPLY, f"{other} {ORDER} {MULTIPLY}"))) == []


def test_the_wait_of_one_thread_is_known_to_those_that_it_tells():
    """A thread that has waited arrives at an mbarrier for all of its warpgroup, as CUTLASS does; who waits there may
    overwrite what the wgmma read."""
    arrive = "setp.eq.u32 %p0, %r0, 97; @%p0 mbarrier.arrive.shared.b64 _, [bar];"
    begin = "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;"
    other = "POLL: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra POLL; setp.eq.u32 %p0, %r0, 200; @%p0 st.shared.b32 [stage+256], %r3;"
    split = f"{begin} setp.ge.u32 %p0, %r0, 128; @%p0 bra OTHER;"
    tail = f"{{wait}} {arrive} bra.uni OVER; OTHER: {other} OVER:"
    for wait, expected in ((WAIT, set()), ("", {("race", "wgmma.wait_group", FORM, "st.shared.b32")})):
        body = program((ORDER, split + ORDER), (WAIT, tail.format(wait=wait)), (USE, ""))
        assert set(findings_of(body, block=256)) == expected


MULTICAST = """
setp.eq.u32 %p0, %r0, 0; mov.u32 %r1, stage; mov.u32 %r2, bar; mov.u32 %r3, %cluster_ctarank; mov.u16 %h1, 3;
@%p0 mbarrier.init.shared::cta.b64 [bar], 1; @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
setp.eq.u32 %p1, %r3, 0; and.pred %p1, %p1, %p0;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%data], 64, [%r2], %h1;
POLL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra POLL;
ld.shared.b32 %r4, [stage]; barrier.cluster.arrive; barrier.cluster.wait;
"""


def test_a_copy_to_two_blocks_is_known_to_who_waits_in_either():
    registers = ".shared .align 128 .b8 stage[64]; .shared .align 8 .b64 bar;"
    outcome = ran(MULTICAST, {"data": np.zeros(16, "u4")}, 2, 32, 1, "", registers, cluster=2, races=True)
    assert outcome.right
    assert outcome.world.findings == ()


def test_a_wgmma_after_a_copy_by_the_other_block_has_no_proxy_fence_between():
    """The wgmma of the block that copied is ordered with the copy by being of the same proxy and block."""
    copied = MULTICAST.replace(" 64", " 4096").removesuffix("barrier.cluster.arrive; barrier.cluster.wait;\n")
    parts = (copied, DESCRIBE, ZEROS, ORDER, MULTIPLY, COMMIT, WAIT, "barrier.cluster.arrive; barrier.cluster.wait;")
    given = {"data": np.full(2048, 0x3C00, "u2")}
    outcome = ran("\n".join(parts), given, 2, 128, 1, "", REGISTERS, cluster=2, races=True)
    assert outcome.right
    (found,) = outcome.world.findings
    assert (found.severity, found.missing, found.first.block, found.second.block) == (
        "formal",
        "fence.proxy.async",
        0,
        1,
    )
    assert found.first.text.startswith("@%p1 cp.async.bulk.shared::cluster")
    assert found.second.text.startswith(FORM)
