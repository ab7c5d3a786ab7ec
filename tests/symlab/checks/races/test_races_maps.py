"""Tensor maps in global memory: what a kernel wrote is another map to a copy, until a fence that the simulator lacks; and
a copy reads its map until it was waited for."""

import numpy as np
import pytest

from tests.simulator.harness import executable, make_world, module, put, start, succeed
from tests.simulator.isa.tensor_maps import Map, encoded

SHARED = ".shared .align 1024 .b8 stage[1024]; .shared .align 8 .b64 bar; .reg .pred %q; .reg .b64 %m;"
FORWARD = """setp.gt.u32 %p1, %r0, 7; mul.wide.u32 %d2, %r0, 16; mov.b64 %m, kernel_map; add.u64 %m, %m, %d2;
    @!%p1 ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [%m]; add.u64 %d3, %place, %d2;
    @!%p1 st.global.v4.u32 [%d3], {%r1, %r2, %r3, %r4}; bar.sync 0;"""
CHOICE = "mov.u32 %r9, %ctaid.x; setp.eq.u32 %p5, %r9, 0; selp.b64 %m, {}, {}, %p5;"
COPY = """setp.eq.u32 %p0, %r0, 0; mov.u32 %r4, stage; mov.u32 %r5, bar; @!%p0 bra END;
    mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [{map}, {{0}}], [%r5];
    AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra AGAIN; END:"""


def found(*bodies):
    """What is found where one rank runs these launches in a row, of two blocks where they take two maps of a host's."""
    world = make_world(1, races=True)

    def program(fabric):
        data = put(fabric, "data", np.arange(32, dtype=np.uint32))
        made = encoded(Map("u32", (32,), (), (32,), (1,)), data.address)
        place, other = (put(fabric, name, np.frombuffer(made, np.uint32)) for name in ("place", "other"))
        for body in bodies:
            ptx = module(body, ["struct128 map", "u64 place", "u64 other"], "", SHARED)
            start(fabric, executable(ptx), 1 + (CHOICE[:20] in body), 32, [made, place.address, other.address])
            fabric.synchronize()

    succeed(world, program)
    return {(one.severity, one.missing) for one in world.findings}


@pytest.mark.parametrize(
    ("bodies", "is_found"),
    [
        ([COPY.format(map="%place")], False),
        (["mov.b64 %m, kernel_map; cvta.param.u64 %m, %m;" + COPY.format(map="%m")], False),
        ([FORWARD + COPY.format(map="%place")], True),
        ([FORWARD, COPY.format(map="%place")], True),
        ([FORWARD, f"{CHOICE.format('%place', '%other')} {COPY.format(map='%m')}"], True),
        ([FORWARD, f"{CHOICE.format('%other', '%place')} {COPY.format(map='%m')}"], True),
        ([f"{CHOICE.format('%other', '%place')} {COPY.format(map='%m')}"], False),
    ],
    ids=["a host's", "a parameter", "the same kernel's", "an earlier's", "the first block's", "the last's", "two"],
)
def test_a_map_that_a_kernel_wrote_needs_a_fence_of_its_own(bodies, is_found):
    expected = {("proxy", "fence.proxy.tensormap::generic.acquire")} if is_found else set()
    assert found(*bodies) == expected


EDIT = "st.global.b32 [%place], %r1;"


@pytest.mark.parametrize("map_at", ["begin", "end"])
@pytest.mark.parametrize(
    ("before", "is_found"), [("AGAIN:", True), ("END:", False)], ids=["under way", "after the wait"]
)
def test_a_map_is_read_until_the_copy_was_waited_for(before, is_found, map_at):
    edit = EDIT if map_at == "begin" else EDIT.replace("%place", "%place+60")
    body = COPY.format(map="%place").replace(before, f"{edit} {before}")
    assert found(body) == ({("race", "a wait for the copy")} if is_found else set())
