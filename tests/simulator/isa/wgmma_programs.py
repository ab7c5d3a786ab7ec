"""Small programs with wgmma of one warpgroup, and changes that make each of them wrong."""

import numpy as np

from tests.simulator.harness import executable, make_world, module, put, ran, run, start
from tests.simulator.isa.tensor_maps import Map, encoded

NONE = 128 // 16 << 16 | 256 // 16 << 32
"""A descriptor without a swizzle, of units of 8 rows that follow each other."""
BYTES = 8192
REGISTERS = (
    f".shared .align 1024 .b8 stage[{BYTES}]; .shared .align 8 .b64 bar; .reg .b64 %a, %b; "
    ".reg .b32 %f<8>, %g<4>; .reg .pred %t;"
)
STORES = """
setp.ge.u32 %p1, %r0, 128; @%p1 bra FULL;
shl.b32 %r1, %r0, 6; mov.u32 %r2, stage; add.u32 %r2, %r2, %r1; mov.b32 %r3, 0x3c003c00; mov.b32 %r5, 0;
AGAIN: st.shared.b32 [%r2], %r3; add.u32 %r2, %r2, 4; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 16; @%p1 bra AGAIN;
FULL:
"""
FENCE = "fence.proxy.async; bar.sync 0;"
DESCRIBE = f"""
mov.u32 %r1, stage; shr.u32 %r1, %r1, 4; cvt.u64.u32 %a, %r1; add.u64 %a, %a, {NONE}; add.u64 %b, %a, 128;
setp.ne.u32 %t, %r0, %r0; mov.b32 %g0, 0x3c003c00; mov.b32 %g1, %g0; mov.b32 %g2, %g0; mov.b32 %g3, %g0;
"""
ZEROS = "mov.b32 %f0, 0; mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0;"
ORDER = "wgmma.fence.sync.aligned;"
FORM = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
MULTIPLY = f"{FORM} {{%f0, %f1, %f2, %f3}}, %a, %b, %t, 1, 1, 0, 0;"
HELD = f"{FORM} {{%f0, %f1, %f2, %f3}}, {{%g0, %g1, %g2, %g3}}, %b, %t, 1, 1, 0;"
COMMIT, WAIT = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"
USE = "mov.b32 %r2, %f0; cvt.rzi.u32.f32 %r2, %r2;"
PLAIN = (STORES, FENCE, DESCRIBE, ZEROS, ORDER, MULTIPLY, COMMIT, WAIT, USE)
"""64 x 8 ones times ones: all elements of D are 16."""


def program(*changes, parts=PLAIN):
    """The program with some of its parts replaced: pairs of a part and what stands there."""
    made = dict(changes)
    assert made.keys() <= set(parts)
    return "\n".join(made.get(one, one) for one in parts)


def findings_of(body, grid=1, block=128, cluster=1, **options):
    """What the race checker finds: severity, what is missing, and both instructions' opcodes."""
    outcome = ran(body, {}, grid, block, 1, "", REGISTERS, cluster=cluster, races=True, **options)
    assert outcome.right
    return [
        (one.severity, one.missing, *(side.text.removeprefix("@%p0 ").split()[0] for side in (one.first, one.second)))
        for one in outcome.world.findings
    ]


COPIED = """
setp.eq.u32 %p0, %r0, 0; mov.b64 %d1, kernel_map; cvta.param.u64 %d1, %d1; mov.u32 %r1, stage; mov.u32 %r2, bar; mov.b32 %r4, 0;
@%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 8192;
@%p0 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r4}], [%r2];
POLL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra POLL;
"""


def copied(swizzle, mode, after="", **options):
    """64 x 64 ones come by a tensor copy with a swizzle; the descriptors have the swizzle of a mode. after: the copy."""
    described = DESCRIBE.replace(str(NONE), str(mode << 62 | 1 << 16 | 1024 // 16 << 32)).replace("%a, 128", "%a, 0")
    parts = (COPIED, after, described, ZEROS, ORDER, MULTIPLY, COMMIT, WAIT)
    ptx = module("\n".join(parts), ["struct128 map"], registers=REGISTERS)

    def work(fabric):
        ones = put(fabric, "ones", np.full(4096, 0x3C00, "u2"))
        made = Map("f16", (64, 64), (128,), (128 // 2 if swizzle != 64 else 32, 64), (1, 1), swizzle)
        start(fabric, executable(ptx), 1, 128, [encoded(made, ones.address)])
        fabric.synchronize()

    return run(make_world(1, **options), work)
