"""Counters of small programs, counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memory.fabric import Executable
from simulator.fabric import SimulatorFabric
from simulator.world import SimulatedWorld
from tests.simulator.harness import executable, make_world, module, put, start, succeed

SCHEDULES: list[dict[str, Any]] = [{}, *({"schedule": "random", "seed": seed} for seed in range(4))]
SIGNAL = "st.release.sys.global.u32 [{flag}], %epoch;"
WAIT = "{at}: ld.acquire.sys.global.u32 %r1, [{flag}]; setp.ne.u32 %p2, %r1, %epoch; @%p2 bra {at};"

BARRIERS = module(
    f"""
    ld.global.u32 %r2, [%mine];
    setp.ne.u32 %p1, %r0, 0; @%p1 bra BODY;
    {SIGNAL.format(flag="%peer_flag")}
    {WAIT.format(at="ENTRY", flag="%flag")}
    BODY: bar.sync 0;
    mad.lo.u64 %d1, %lane64, 4, %peer; ld.global.u32 %r3, [%d1];
    mad.lo.u64 %d2, %lane64, 4, %mine; st.global.u32 [%d2], %r3;
    bar.sync 0;
    setp.ne.u32 %p1, %r0, 0; @%p1 ret;
    {SIGNAL.format(flag="%peer_flag+4")}
    {WAIT.format(at="EXIT", flag="%flag+4")}
    st.global.u16 [%flag+8], %h1;
    """,
    ["u64 mine", "u64 peer", "u64 flag", "u64 peer_flag", "u32 epoch"],
)
"""As one_shot: an entry barrier over ranks by thread 0 of the only block, a body, an exit barrier; and a last store."""


def launched(
    kernels: list[tuple[str, int]], world_size: int = 2, block: int = 64, alone: int = 0, **options: Any
) -> SimulatedWorld:
    """Launch kernels one after another on all ranks, each with an epoch; the first `alone` of them on rank 0 only."""
    codes: dict[str, Executable] = {ptx: executable(ptx) for ptx, _ in kernels}
    world = make_world(world_size, **options)

    def program(fabric: SimulatorFabric) -> None:
        own = [put(fabric, name, np.zeros(1024, np.uint32)) for name in ("mine", "flag")]
        fabric.barrier()
        far = [fabric.peer_address(one, (fabric.rank + 1) % world_size) for one in own]
        for number, (ptx, epoch) in enumerate(kernels):
            if number >= alone or fabric.rank == 0:
                arguments = [own[0].address, far[0], own[1].address, far[1], epoch]
                start(fabric, codes[ptx], 1, block, arguments)
                fabric.synchronize()
            if number < alone:
                fabric.barrier()
        fabric.barrier()

    succeed(world, program)
    return world


@pytest.mark.parametrize("options", SCHEDULES)
def test_sums_over_launches_and_ranks(options: dict[str, Any]) -> None:
    """Of reads, what polls is a signal; how often it looked depends on the order."""
    counters = launched([(BARRIERS, epoch) for epoch in (1, 2, 3)], **options).counters()
    times, lanes = 6, 64
    accesses = counters["accesses"]
    looks = accesses.pop("signal")["count"] - 2 * times
    assert accesses == {
        **{kind: {"count": times * lanes, "bytes": 4 * times * lanes} for kind in ("own_read", "peer_read")},
        "own_write": {"count": times * (lanes + 1), "bytes": times * (4 * lanes + 2)},
        **{key: {"count": 0, "bytes": 0} for key in ("peer_write", "multicast_reduce", "multicast_store")},
    }
    assert looks >= 2 * times
    assert counters["links"] == dict.fromkeys(("0->1", "1->0"), 3 * (4 * lanes + 8))
    assert counters["of"] == {"launches": 3, "ranks": 2}


@pytest.mark.parametrize("block", [64, 1024])
def test_ranks_whose_launches_have_other_numbers(block: int) -> None:
    """Rank 0 launches one more before."""
    alone = module("st.global.u8 [%mine], %r0;", ["u64 mine", "u64 peer", "u64 flag", "u64 peer_flag", "u32 epoch"])
    counters = launched([(alone, 1), (BARRIERS, 1), (BARRIERS, 2)], block=block, alone=1).counters()
    assert counters["accesses"]["own_write"]["count"] == block + 4 * (block + 1)
    assert counters["of"] == {"launches": 3, "ranks": 2}
