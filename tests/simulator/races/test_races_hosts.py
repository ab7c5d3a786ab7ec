"""What hosts order under the race checker: their barriers order kernels that they have waited for, no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from simulator_harness import executable, make_world, module, put, start, succeed

from simulator.fabric import SimulatorFabric
from simulator.races.finding import Finding

STORE = "mov.u32 %r1, 5; st.global.b32 [%peer], %r1;"
LOAD = "ld.global.b32 %r1, [%data];"


def found(waits: bool, second: str) -> tuple[Finding, ...]:
    """What is found when each rank's kernel stores to its peer, the hosts meet, and each then has its own data read.
    waits: the hosts wait for the store's kernel before. second: "kernel", "read" or "write"."""
    store, load = (executable(module(code, ["u64 data", "u64 peer"])) for code in (STORE, LOAD))
    world = make_world(2, races=True)

    def program(fabric: SimulatorFabric) -> None:
        data = put(fabric, "data", np.zeros(4, np.uint32))
        addresses = [data.address, fabric.peer_address(data, 1 - fabric.rank)]
        fabric.barrier()
        start(fabric, store, 1, 1, addresses)
        if waits:
            fabric.synchronize()
        fabric.barrier()
        if second == "kernel":
            start(fabric, load, 1, 1, addresses)
        elif second == "read":
            fabric.read(data, 0, 4)
        else:
            fabric.write(data, 0, torch.ones(4, dtype=torch.uint8))
        fabric.synchronize()
        fabric.barrier()

    succeed(world, program)
    return world.findings


@pytest.mark.parametrize("second", ["kernel", "read", "write"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_barrier_of_hosts_orders_only_what_they_waited_for(waits: bool, second: str) -> None:
    findings = found(waits, second)
    assert bool(findings) != waits
    assert {(one.severity, one.first.tensor) for one in findings} <= {("race", "data")}


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
def test_what_a_peers_host_did_is_generic(action: str, fence: str, expected: set[tuple[str, str]]) -> None:
    """Its kernel then signals, and a bulk copy overwrites what the host wrote or read."""
    parameters, before = ["u64 peer", "u64 flag", "u64 peerflag"], ".shared .align 16 .b8 buffer[16];"
    codes = (SIGNAL, FILL + COPY.format(fence=fence))
    kernels = [executable(module(code, parameters, before)) for code in codes]
    world = make_world(2, races=True)

    def program(fabric: SimulatorFabric) -> None:
        data, flag = (put(fabric, name, np.zeros(4, np.uint32)) for name in ("data", "flag"))
        peer = 1 - fabric.rank
        addresses = [fabric.peer_address(data, peer), flag.address, fabric.peer_address(flag, peer)]
        fabric.barrier()
        if fabric.rank == 0 and action == "write":
            fabric.write(data, 0, torch.ones(16, dtype=torch.uint8))
        elif fabric.rank == 0:
            fabric.read(data, 0, 16)
        start(fabric, kernels[fabric.rank], 1, 1, addresses)
        fabric.synchronize()
        fabric.barrier()

    succeed(world, program)
    assert {(one.severity, one.missing) for one in world.findings} == expected
