"""What hosts do under the race checker is generic: a bulk copy of a kernel needs a fence after it."""

import numpy as np
import pytest
import torch

from tests.simulator.harness import executable, make_world, module, put, start, succeed

BUFFER = ".shared .align 16 .b8 buffer[16];"


class Host:
    """A rank's host, its data and the addresses that kernels take."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.data, flag = (put(fabric, name, np.zeros(4, np.uint32)) for name in ("data", "flag"))
        own = [self.data.address, flag.address]
        self.values = [*own, *(fabric.peer_address(one, 1 - fabric.rank) for one in (self.data, flag))]
        fabric.barrier()

    def does(self, what):
        """Read or write the data, or launch a kernel on them."""
        if what == "read":
            self.fabric.read(self.data, 0, 16)
        elif what == "write":
            self.fabric.write(self.data, 0, torch.ones(16, dtype=torch.uint8))
        else:
            kernel = executable(module(what, ["u64 data", "u64 flag", "u64 peer", "u64 peerflag"], BUFFER))
            start(self.fabric, kernel, 1, 1, self.values)


def found(host):
    """What is found when two hosts do this, and wait for all: severity, what is missing, and the tensor."""
    world = make_world(2, races=True)

    def program(fabric):
        host(Host(fabric))
        fabric.synchronize()
        fabric.barrier()

    succeed(world, program)
    return {(one.severity, one.missing, one.first.tensor) for one in world.findings}


SIGNAL = "mov.u32 %r1, 1; st.release.sys.global.b32 [%peerflag], %r1;"
COPY = """SPIN: ld.acquire.sys.global.b32 %r2, [%flag]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPIN; {fence}
    cp.async.bulk.global.shared::cta.bulk_group [%peer], [%r6], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
FILL = "mov.u32 %r6, buffer; st.shared.v4.b32 [%r6], {%r6, %r6, %r6, %r6}; fence.proxy.async;"


@pytest.mark.parametrize(
    ("action", "fence", "expected"),
    [
        ("write", "fence.proxy.async;", set()),
        ("write", "", {("proxy", "fence.proxy.async")}),
        ("read", "fence.proxy.async;", set()),
        ("read", "", {("formal", "fence.proxy.async")}),
    ],
)
def test_what_a_peers_host_did_is_generic(action, fence, expected):
    """Its kernel then signals, and a bulk copy overwrites what the host wrote or read."""

    def host(one):
        if one.fabric.rank == 0:
            one.does(action)
        one.does(FILL + COPY.format(fence=fence) if one.fabric.rank else SIGNAL)

    assert {one[:2] for one in found(host)} == expected
