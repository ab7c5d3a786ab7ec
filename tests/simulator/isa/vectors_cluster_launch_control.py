"""clusterlaunchcontrol: every block of a cluster of two hears that there is no other cluster's work for it."""

from itertools import product

import numpy as np

from simulator.isa import key_of
from simulator.ptx.parse import parse_kernel
from tests.simulator.harness import executable, launching, make_world, module, succeed

TARGET = "sm_100a"
TOGETHER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
FORMS = tuple(product(("", ".shared::cta"), ("", ".multicast::cluster::all")))


def ptx_of(space, cast):
    """Of each block the answer's words, the predicate, and the first block's numbers."""
    asks = "setp.eq.u32 %p0, %r0, 0;" if not cast else "mov.u32 %r8, %cluster_ctarank; setp.eq.u32 %p0, %r8, 0;"
    form = f"clusterlaunchcontrol.try_cancel.async{space}.mbarrier::complete_tx::bytes{cast}.b128"
    body = f"""
    mov.u32 %r1, answer; mov.u32 %r2, bar; setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16; {TOGETHER}
    {asks} @%p0 {form} [%r1], [%r2];
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra WAIT;
    ld.shared.v2.b64 {{%d1, %d2}}, [%r1]; mov.b128 %wide, {{%d1, %d2}};
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %wide; selp.u32 %r3, 1, 0, %p3;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r4, %wide;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r5, %wide;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r6, %wide;
    mad.lo.u64 %d3, %lane64, 16, %out; st.global.v4.b32 [%d3], {{%r3, %r4, %r5, %r6}}; {TOGETHER}
    """
    registers = ".shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar; .reg .b128 %wide;"
    return module(body, ["u64 out"], registers=registers, target=TARGET)


def answers(space, cast, **options):
    """What each of four blocks of a thread hears, and the world."""
    code = executable(ptx_of(space, cast), arch=TARGET)
    outcome = succeed(make_world(1, arch=TARGET, **options), launching(code, 4, 1, [np.zeros((4, 4), "u4")], cluster=2))
    return np.reshape(outcome.results[0], (4, 4)).tolist(), outcome.world


def keys():
    kernels = [parse_kernel(ptx_of(*one), "kernel") for one in FORMS]
    return frozenset(key_of(one) for kernel in kernels for block in kernel.blocks for one in block.instructions)
