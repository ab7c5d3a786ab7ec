"""Small programs with wgmma of one warpgroup, and changes that make each of them wrong."""

from tests.simulator.harness import ran

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
