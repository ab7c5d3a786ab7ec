"""Counters by launch and by phase, on small programs whose phases are counted by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from simulator_harness import executable, make_world, module, put, start, succeed

from memory.fabric import Executable
from simulator.fabric import SimulatorFabric
from simulator.observe.counters import MAX_FORMS, MAX_PHASES, Counters, LaunchCounts, PhaseCounts, spans
from simulator.world import SimulatedWorld

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
def test_phases_end_with_the_waits_of_a_barrier_over_ranks(options: dict[str, Any]) -> None:
    world = launched([(BARRIERS, 1), (BARRIERS, 2), (BARRIERS, 3)], **options)
    assert sorted(world.tally.launches) == [0, 1, 2]
    for launch in world.tally.launches.values():
        assert [phase.accesses for phase in launch.phases] == [
            {"own_read": [128, 512], "signal": [2, 8]},
            {"peer_read": [128, 512], "own_write": [128, 512], "signal": [2, 8]},
            {"own_write": [2, 4]},
        ]
        for phase in launch.phases[:2]:
            assert set(phase.waits) == {"signal"}
            assert phase.waits["signal"][0] >= 2, "each rank looked"
        assert launch.phases[2].waits == {}
        assert launch.ranks == {0, 1}
    counters = world.counters()
    waits = sum(launch.waits for launch in world.tally.launches.values())
    assert counters["accesses"]["signal"]["count"] == 3 * 4 + waits
    assert counters["instructions"] == sum(launch.instructions for launch in world.tally.launches.values())
    assert counters["of"] == {"launches": 3, "ranks": 2}
    (entry,) = counters["launches"]
    assert (entry["launches"], entry["ranks"]) == ("0-2", "0-1")
    assert entry["phases"][1]["peer_read"] == {"count": 128, "bytes": 512}
    each = [launch.waits for launch in world.tally.launches.values()]
    assert entry["waits"] == {"min": min(each), "max": max(each)}
    assert entry["instructions"]["min"] <= entry["instructions"]["max"]


def phases_of(body: str, block: int = 1, **options: Any) -> list[PhaseCounts]:
    ptx = module(body, ["u64 mine", "u64 peer", "u64 flag", "u64 peer_flag", "u32 epoch"])
    world = launched([(ptx, 1)], 1, block, **options)
    return world.tally.launches[0].phases


def test_each_lane_has_phases_of_its_own_until_it_meets_others() -> None:
    """Lane 0 waits twice, lane 1 once, lane 2 never; then all meet."""
    body = """
    setp.eq.u32 %p1, %r0, 2; @%p1 bra STORE;
    ld.relaxed.sys.global.u32 %r1, [%flag];
    setp.eq.u32 %p1, %r0, 1; @%p1 bra STORE;
    st.global.u8 [%flag+64], %h1;
    ld.volatile.global.u32 %r1, [%flag];
    STORE: st.global.u32 [%mine], %r0;
    bar.sync 0;
    st.global.u16 [%mine], %h0;
    """
    body = body.replace("%h1", "%r0").replace("%h0", "%h2")
    phases = phases_of(body, block=3)
    assert [phase.accesses for phase in phases] == [
        {"own_write": [1, 4]},  # lane 2
        {"own_write": [2, 5]},  # lane 1; lane 0's byte
        {"own_write": [4, 10]},  # lane 0; then all
    ]
    assert [phase.waits for phase in phases] == [{"own_read": [2, 8]}, {"own_read": [1, 4]}, {}]


def test_lanes_that_meet_as_warps() -> None:
    """Lane 0 waits, and takes its warp along, not the other one."""
    body = """
    setp.ne.u32 %p1, %r0, 0; @%p1 bra MEET;
    ld.acquire.gpu.global.u32 %r1, [%flag];
    MEET: bar.warp.sync -1;
    st.global.u32 [%mine], %r0;
    """
    phases = phases_of(body, block=64)
    assert [phase.accesses for phase in phases] == [{"own_write": [32, 128]}, {"own_write": [32, 128]}]


@pytest.mark.parametrize(
    ("look", "waits"),
    [
        ("ld.acquire.gpu.global.u32 %r1, [%flag];", "signal"),
        ("ld.volatile.global.u32 %r1, [%flag];", "own_read"),
        ("ld.relaxed.cta.global.u32 %r1, [%flag];", "own_read"),
        ("atom.acquire.gpu.global.add.u32 %r1, [%flag], 0;", "signal"),
        ("atom.acq_rel.gpu.global.or.b32 %r1, [%flag], 0;", "signal"),
        ("ld.global.u32 %r1, [%flag];", ""),
        ("atom.relaxed.gpu.global.add.u32 %r1, [%flag], 0;", ""),
        ("atom.release.gpu.global.add.u32 %r1, [%flag], 0;", ""),
        ("red.release.gpu.global.add.u32 [%flag], 0;", ""),
        ("st.relaxed.gpu.global.u32 [%flag], 0;", ""),
    ],
)
def test_what_is_a_wait(look: str, waits: str) -> None:
    phases = phases_of(f"st.global.u32 [%mine], %r0; {look} {look} st.global.u32 [%mine], %r0;")
    assert [phase.waits for phase in phases] == ([{waits: [2, 8]}, {}] if waits else [{}])
    assert not waits or [phase.accesses for phase in phases] == [{"own_write": [1, 4]}] * 2


def test_many_phases_are_told_apart_up_to_a_number() -> None:
    rounds = MAX_PHASES + 3
    body = """
    mov.u32 %r2, 0;
    NEXT: ld.acquire.gpu.global.u32 %r1, [%flag]; st.global.u32 [%mine], %r2;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, ROUNDS; @%p1 bra NEXT;
    """
    phases = phases_of(body.replace("ROUNDS", str(rounds)))
    stores = [phase.accesses.get("own_write", [0, 0])[0] for phase in phases]
    assert stores == [0, *[1] * (MAX_PHASES - 2), rounds - (MAX_PHASES - 2)]


@pytest.mark.parametrize("block", [64, 1024])
def test_ranks_whose_launches_have_other_numbers(block: int) -> None:
    """Rank 0 launches one more before: what runs together belongs to two numbers."""
    alone = module("st.global.u8 [%mine], %r0;", ["u64 mine", "u64 peer", "u64 flag", "u64 peer_flag", "u32 epoch"])
    world = launched([(alone, 1), (BARRIERS, 1), (BARRIERS, 2)], block=block, alone=1)
    kinds = [[phase.accesses for phase in world.tally.launches[number].phases] for number in range(3)]
    one_rank = [
        {"own_read": [block, 4 * block], "signal": [1, 4]},
        {"peer_read": [block, 4 * block], "own_write": [block, 4 * block], "signal": [1, 4]},
        {"own_write": [1, 2]},
    ]
    first = [{**one_rank[0], "own_write": [block, block]}, *one_rank[1:]]
    both = [{kind: [2 * count, 2 * size] for kind, (count, size) in phase.items()} for phase in one_rank]
    assert kinds == [first, both, one_rank]
    assert [sorted(launch.ranks) for launch in world.tally.launches.values()] == [[0, 1], [0, 1], [0]]
    assert world.counters()["instructions"] == sum(one.instructions for one in world.tally.launches.values())
    assert not world.tally._running, "nothing is kept of launches that are over"


def test_launches_that_differ_are_told_apart_up_to_a_number() -> None:
    tally = Counters(4)
    for number, stores in enumerate([5, 6, 6, 5, 7, 8, 9, 5]):
        phases = [PhaseCounts({"own_write": [stores, 4 * stores]}, {"signal": [number, 0]})]
        tally.launches[number] = LaunchCounts({0, 1, 3}, 100 + number, phases)
    entries = tally.summary()["launches"]
    assert [(entry["launches"], entry.get("phases")) for entry in entries] == [
        ("0, 3, 7", [{"own_write": {"count": 5, "bytes": 20}}]),
        ("1-2", [{"own_write": {"count": 6, "bytes": 24}}]),
        ("4", [{"own_write": {"count": 7, "bytes": 28}}]),
        ("5-6", None),
    ]
    assert len(entries) == MAX_FORMS + 1
    assert (entries[0]["instructions"], entries[0]["waits"]) == ({"min": 100, "max": 107}, {"min": 0, "max": 7})
    assert entries[0]["ranks"] == "0-1, 3"
    assert spans([]) == ""


def test_launches_add_little_to_a_record_of_many_ranks() -> None:
    world = launched([(BARRIERS, epoch) for epoch in range(1, 6)], 72, 32)
    counters = world.counters()
    assert counters["of"] == {"launches": 5, "ranks": 72}
    added = json.dumps({key: counters[key] for key in ("of", "launches")}, indent=2)
    assert len(added) < 2000, added
