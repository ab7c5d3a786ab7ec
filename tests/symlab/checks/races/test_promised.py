"""What the race checker takes from NVSHMEM's device code on trust, and what it finds all the same: the forms that its
calls compile to, by hand."""

import pytest

from tests.symlab.checks.races.race_programs import found, missing

DEVICE_CODE = (
    ".visible .const .align 4 .b8 nvshmemi_device_lib_version_d[12] = {3, 0, 0, 0, 8};\n"
    ".visible .const .align 8 .b8 nvshmemi_device_state_d[848];\n"
)
NAMED = "ld.const.b32 %r8, [nvshmemi_device_state_d+4];"
"""What makes a launch one with NVSHMEM's device code."""

PUT = "st.b32 [%peer], %r1;"
SIGNAL = "mov.b64 %d2, 1; st.volatile.b64 [%peerflag], %d2;"
FENCE = "membar.sys;"
WAIT = "WAIT: ld.volatile.b64 %d3, [%flag]; setp.eq.u64 %p3, %d3, 0; @%p3 bra WAIT; membar.gl; ld.b64 %d3, [%flag];"
READ = "ld.global.b32 %r3, [%data];"


def of(writer, reader, block=1, device_code=True):
    """What is found of a put by rank 0 and a read by rank 1."""
    before = DEVICE_CODE if device_code else ""
    named = NAMED if device_code else ""
    return found([named + writer, named + reader], block=block, before=before)


def test_a_put_with_a_signal_and_a_wait_is_clean():
    assert of(PUT + FENCE + SIGNAL, WAIT + READ) == ()


def test_without_nvshmem_the_same_instructions_are_what_ptx_makes_of_them():
    findings = of(PUT + FENCE + SIGNAL, WAIT + READ, device_code=False)
    assert missing(findings) == {("race", "a wider scope")}
    assert any(one.first.tensor == "flag" for one in findings), "the plain read of the signal"


def test_data_read_before_its_signal_is_found():
    assert missing(of(PUT + FENCE + SIGNAL, READ + WAIT)) == {("race", "a barrier")}


def test_a_wait_whose_fence_is_left_out_is_found():
    assert missing(of(PUT + FENCE + SIGNAL, WAIT.replace("membar.gl;", "") + READ)) == {("race", "an acquire")}


@pytest.mark.parametrize("fence", ["", "membar.cta;"])
def test_a_signal_that_overtakes_a_put_without_a_fence_is_found(fence):
    (expected,) = missing(of(PUT + fence + SIGNAL, WAIT + READ))
    assert expected[0] == "race"


def test_a_fence_of_a_thread_that_had_not_put_is_found():
    """A block puts, and its thread 0 fences and signals with no barrier of the block between."""
    put = "mul.wide.u32 %d4, %r9, 4; add.s64 %d5, %peer, %d4; st.b32 [%d5], %r1;"
    signal = f"setp.ne.u32 %p4, %r9, 0; @%p4 bra DONE; {FENCE}{SIGNAL} DONE:"
    read = "bar.sync 0; mul.wide.u32 %d4, %r9, 4; add.s64 %d5, %data, %d4; ld.b32 %r3, [%d5];"
    wait = f"setp.ne.u32 %p4, %r9, 0; @%p4 bra THERE; {WAIT} THERE:"
    assert missing(of(put + "bar.sync 0;" + signal, wait + read, block=64)) == set()
    assert {severity for severity, _ in missing(of(put + signal, wait + read, block=64))} == {"race"}


def test_a_buffer_that_is_put_again_before_it_was_read_is_found():
    """The second put needs word that the first one was read."""
    twice = PUT + FENCE + SIGNAL
    allowed = "mov.b64 %d6, 1; membar.sys; st.volatile.b64 [%peerflag+8], %d6;"
    await_word = "WORD: ld.volatile.b64 %d7, [%flag+8]; setp.eq.u64 %p5, %d7, 0; @%p5 bra WORD; membar.gl;"
    assert of(twice + await_word + PUT, WAIT + READ + allowed) == ()
    assert missing(of(twice + PUT, WAIT + READ)) != set()
    unfenced = allowed.replace("membar.sys;", "")
    assert missing(of(twice + await_word + PUT, WAIT + READ + unfenced)) == {("race", "a release")}


MEET = """
ld.const.b64 %d1, [nvshmemi_device_state_d+40]; ld.const.b64 %d2, [nvshmemi_device_state_d+56];
ld.const.b64 %d3, [nvshmemi_device_state_d+104]; xor.b32 %r4, %rank, 1;
setp.ne.u32 %p4, %r9, 1; @%p4 bra MET;
mul.wide.u32 %d4, %r4, 8; add.s64 %d2, %d2, %d4; ld.global.nc.b64 %d2, [%d2];
sub.s64 %d5, %d3, %d1; add.s64 %d5, %d5, %d2; mul.wide.u32 %d6, %rank, 8; add.s64 %d5, %d5, %d6;
mov.b64 %d7, 1; st.volatile.b64 [%d5], %d7;
add.s64 %d3, %d3, %d4;
TURN: ld.volatile.global.b64 %d7, [%d3]; setp.lt.s64 %p5, %d7, 1; @%p5 bra TURN;
MET: bar.sync 0;
"""
"""sync_all by a block: its thread 1 tells the other rank, and waits for it, through the words of NVSHMEM's barriers."""


def test_barrier_all_orders_puts_and_sync_all_does_not():
    put = "setp.ne.u32 %p6, %r9, 3; @%p6 bra PUT; st.b32 [%peer], %r1; PUT: bar.sync 0;"
    quiet = "setp.ne.u32 %p7, %r9, 0; @%p7 bra QUIET; membar.sys; QUIET: bar.sync 0;"
    read = "ld.global.b32 %r3, [%data];"

    def programs(fence):
        given = [NAMED + put + fence + MEET, NAMED + MEET + read]
        numbered = [one.replace("TURN", f"TURN{rank}").replace("MET", f"MET{rank}") for rank, one in enumerate(given)]
        return found(numbered, block=32, before=DEVICE_CODE)

    assert programs(quiet) == ()
    assert {severity for severity, _ in missing(programs(""))} == {"race"}
