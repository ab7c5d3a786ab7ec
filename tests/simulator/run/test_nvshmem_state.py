"""The state of NVSHMEM's device code: filled for each rank, of known versions only, and null where networks begin."""

import pytest
import torch

import tests.simulator.harness as harness
from memory.fabric import DeviceFault
from simulator.run.nvshmem import KNOWN, version_of
from tests.golden import same_text

VERSION = ".visible .const .align 4 .b8 nvshmemi_device_lib_version_d[12] = {3, 0, 0, 0, 8, 0, 0, 0, 1};"
STATE = ".visible .const .align 8 .b8 nvshmemi_device_state_d[848];"
READ = (
    "ld.const.b32 %r1, [nvshmemi_device_state_d]; ld.const.b32 %r2, [nvshmemi_device_state_d+4];"
    "ld.const.b32 %r3, [nvshmemi_device_state_d+8]; ld.const.b64 %d3, [nvshmemi_device_state_d+48];"
    "ld.const.u8 %r4, [nvshmemi_device_state_d+769];"
    "st.global.b32 [%out], %r1; st.global.b32 [%out+4], %r2; st.global.b32 [%out+8], %r3; st.global.b32 [%out+12], %r4;"
    "st.global.b64 [%out+16], %d3;"
)
GIVE = (
    "ld.const.b64 %d1, [nvshmemi_device_state_d+40]; ld.const.b64 %d2, [nvshmemi_device_state_d+56];"
    "mul.wide.u32 %d4, %pe, 8; add.s64 %d2, %d2, %d4; ld.global.nc.b64 %d5, [%d2];"
    "sub.s64 %d6, %out, %d1; add.s64 %d5, %d5, %d6; ld.const.b32 %r1, [nvshmemi_device_state_d+4]; add.u32 %r1, %r1, 100;"
    "st.b32 [%d5], %r1;"
)


def program(body, before, others=lambda rank: []):
    """Run a kernel that has the address of `out` and `others`, and return what `out` holds afterwards."""
    parameters = ["u64 out", *(["u32 pe"] if "%pe" in body else [])]
    kernel = harness.executable(harness.module(body, parameters, before))

    def run(fabric):
        out = fabric.allocate(64, 8, "out")
        fabric.write(out, 0, torch.zeros(64, dtype=torch.uint8))
        fabric.barrier()
        harness.start(fabric, kernel, 1, 1, [out.address, *others(fabric.rank)])
        fabric.synchronize()
        fabric.barrier()
        return [int(one) for one in fabric.read(out, 0, 64).view(torch.int32)]

    return run


def test_each_rank_is_a_pe_with_its_heap():
    world = harness.make_world(3)
    outcome = harness.run(world, program(READ, f"{VERSION}\n{STATE}"))
    assert outcome.errors == [None] * 3
    for rank, found in enumerate(outcome.results):
        assert found[:6] == [(1 << 16) + 848, rank, 3, 1, harness.HEAP_BYTES, 0]


def test_a_pes_heap_is_reached_through_the_table():
    give = program(GIVE, f"{VERSION}\n{STATE}", lambda rank: [(rank + 1) % 3])
    outcome = harness.run(harness.make_world(3), give)
    assert outcome.errors == [None] * 3
    assert [found[0] for found in outcome.results] == [102, 100, 101]


def test_all_modules_of_a_rank_share_one_table():
    world = harness.make_world(2)
    first, second = (
        program(GIVE + extra, f"{VERSION}\n{STATE}", lambda rank: [1 - rank]) for extra in ("", " mov.u32 %r5, 5;")
    )
    assert harness.run(world, lambda fabric: (first(fabric), second(fabric))).errors == [None] * 2
    tables = [one for one in world.space.allocations if one is not None and "heaps" in one.name]
    assert [one.rank for one in tables] == [0, 1]


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (f"{VERSION.replace('8, 0', '9, 0')}\n{STATE}", "NVSHMEM 3.9.1 with a state of 848 bytes"),
        (STATE, "NVSHMEM an unknown version with a state of 848 bytes"),
        (f"{VERSION}\n{STATE.replace('848', '856')}", "NVSHMEM 3.8.1 with a state of 856 bytes"),
    ],
)
def test_another_layout_is_refused_with_both_versions(before, found):
    error = harness.run(harness.make_world(), program(READ, before)).error()
    assert isinstance(error, ValueError)
    same_text(str(error))


TEAM = (
    "ld.const.b64 %d1, [nvshmemi_device_state_d+96]; ld.b64 %d2, [%d1];"
    "ld.b32 %r1, [%d2+4]; ld.b32 %r2, [%d2+16]; ld.b64 %d3, [%d2+784]; ld.b32 %r3, [%d3+8];"
    "ld.const.b64 %d4, [nvshmemi_device_state_d+112]; ld.b64 %d5, [%d4];"
    "st.global.b32 [%out], %r1; st.global.b32 [%out+4], %r2; st.global.b32 [%out+8], %r3; st.global.b64 [%out+16], %d5;"
)
MEET = (
    "ld.const.b64 %d1, [nvshmemi_device_state_d+104]; st.global.b64 [%out], %d1; setp.eq.b64 %p1, %d1, 0; @%p1 ret;"
    "mul.wide.u32 %d2, %pe, 8; ld.const.b64 %d3, [nvshmemi_device_state_d+56]; add.s64 %d3, %d3, %d2;"
    "ld.global.nc.b64 %d3, [%d3]; ld.const.b64 %d4, [nvshmemi_device_state_d+40]; sub.s64 %d3, %d3, %d4;"
    "add.s64 %d3, %d3, %d1; ld.const.b32 %r1, [nvshmemi_device_state_d+4]; add.u32 %r1, %r1, 7; st.b32 [%d3+442368], %r1;"
    "WAIT: ld.volatile.b32 %r2, [%d1+442368]; setp.eq.u32 %p1, %r2, 0; @%p1 bra WAIT; st.global.b32 [%out+8], %r2;"
)


def test_the_team_of_all_pes_is_there():
    outcome = harness.run(harness.make_world(3), program(TEAM, f"{VERSION}\n{STATE}"))
    assert outcome.errors == [None] * 3
    assert [found[:6] for found in outcome.results] == [[rank, 3, 2, 0, 1, 0] for rank in range(3)]


def test_the_words_of_barriers_are_symmetric_and_zero_at_first():
    meet = program(MEET, f"{VERSION}\n{STATE}", lambda rank: [(rank + 1) % 3])
    outcome = harness.run(harness.make_world(3), meet)
    assert outcome.errors == [None] * 3
    assert [found[2] for found in outcome.results] == [9, 7, 8]


def test_heaps_that_leave_no_room_for_the_words_have_none():
    world = harness.make_world(2, heap_bytes=(1 << 20) - 4096)
    outcome = harness.run(world, program(MEET, f"{VERSION}\n{STATE}", lambda rank: [1 - rank]))
    assert outcome.errors == [None] * 2
    assert [found[:2] for found in outcome.results] == [[0, 0]] * 2


def test_what_the_device_code_of_networks_and_other_teams_would_need_is_null():
    """peer_heap_base_remote, proxy_channels_buf."""
    for offset in (64, 632):
        body = f"ld.const.b64 %d1, [nvshmemi_device_state_d+{offset}]; ld.b64 %d2, [%d1]; st.global.b64 [%out], %d2;"
        error = harness.run(harness.make_world(), program(body, f"{VERSION}\n{STATE}")).error()
        assert isinstance(error, DeviceFault)
        assert "null pointer" in str(error)


def test_the_version_is_read_from_the_module():
    assert KNOWN == ((3, 8),)
    assert version_of(VERSION) == (3, 8, 1)
    assert version_of(".const .b8 nvshmemi_device_lib_version_d[12] = {3, 0, 0, 0, 8};") == (3, 8, 0)
    assert version_of(".const .b8 another_version[12] = {3};") is None


ALONE = (
    "mov.u64 %d1, 7; WAIT: ld.volatile.b64 %d2, [%out]; setp.ne.u64 %p1, %d2, %d1; @%p1 bra WAIT;"
    "ld.const.b32 %r1, [nvshmemi_device_state_d+4];"
)


def test_a_signal_that_never_comes_is_told_with_what_is_expected_and_what_is_seen():
    same_text(str(harness.run(harness.make_world(2), program(ALONE, f"{VERSION}\n{STATE}")).error()))


def test_what_a_spin_compares_with_is_told_of_a_literal_too():
    literal = ALONE.replace("%d2, %d1;", "%d2, 5;")
    error = harness.run(harness.make_world(1), program(literal, f"{VERSION}\n{STATE}")).error()
    assert "compared with 5 (setp.ne.u64)" in str(error)
