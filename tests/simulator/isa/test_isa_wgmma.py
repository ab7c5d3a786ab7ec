"""What is wrong with wgmma, setmaxnreg and matrices in registers, in one line each; and what is told of wgmma."""

import pytest

from memory.fabric import DeviceFault
from simulator.isa import wgmma
from simulator.run import warpgroups
from tests.simulator.harness import failed, ran, stored
from tests.simulator.isa import wgmma_programs as programs
from tests.simulator.isa.wgmma_programs import (
    COMMIT,
    DESCRIBE,
    HELD,
    MULTIPLY,
    ORDER,
    PLAIN,
    REGISTERS,
    STORES,
    USE,
    WAIT,
    ZEROS,
    copied,
    findings_of,
    program,
)


def fault(body, block=128, **how):
    text = failed(body, block=block, registers=REGISTERS, **how)
    assert "\n" not in text or "Deadlock" in text
    return text


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}, {"memory": "weak", "seed": 1}], ids=str)
def test_ones_times_ones(options):
    assert stored(program(), 2, 128, registers=REGISTERS, **options) == [16] * 256
    assert stored(program((MULTIPLY, HELD)), 2, 256, registers=REGISTERS, **options) == [16] * 512


HELD_OVER = MULTIPLY.replace("%f", "%g")
OVER_HELD = HELD.replace("%g", "%h").replace("%f", "%g").replace("%h", "%f")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (program((WAIT, "")), "%f0 before wgmma.wait_group: wgmma.mma_async"),
        (program((WAIT, "wgmma.wait_group.sync.aligned 1;")), "%f0 before wgmma.wait_group"),
        (program((WAIT, f"stmatrix.sync.aligned.m8n8.x1.shared.b16 [stage], {{%f0}}; {WAIT}")), "%f0 before wgmma.wait_group"),
        (program((WAIT, f"{ZEROS} {WAIT}")), "still writes it; PTX line"),
        (program((MULTIPLY, HELD), (WAIT, f"mov.b32 %g1, 0; {WAIT}")), "%g1 before wgmma.wait_group: wgmma.mma_async"),
        (program((MULTIPLY, HELD), (WAIT, f"{HELD_OVER} {WAIT}")), "%g0 before wgmma.wait_group: wgmma.mma_async"),
        (program((WAIT, f"{OVER_HELD} {WAIT}")), "%f0 before wgmma.wait_group: wgmma.mma_async"),
        (program((DESCRIBE, f"{DESCRIBE} add.u64 %b, %b, 512;")), "the descriptor of B, 0x"),
        (program((DESCRIBE, f"{DESCRIBE} add.u64 %a, %a, {0x3000 << 32};")), "outside the block's 8200 bytes"),
        (program((DESCRIBE, f"{DESCRIBE} @%p0 add.u64 %a, %a, 1;".replace("@%p0", "setp.eq.u32 %p0, %r0, 5; @%p0"))), "the descriptor of A of wgmma differs between threads of a warpgroup"),
        (program((DESCRIBE, DESCRIBE.replace("setp.ne.u32 %t, %r0, %r0", "setp.eq.u32 %t, %r0, 40"))), "scale-d of wgmma differs"),
        (program((STORES, "")), "A of wgmma in shared memory that was never written (poison)"),
        (program((ORDER, "setp.lt.u32 %p0, %r0, 32; @%p0 exit;" + ORDER)), "by a part of a warpgroup: some of its threads have returned"),
        (program((ORDER, ORDER + "setp.lt.u32 %p0, %r0, 32; @%p0 bra OVER;"), (USE, USE + "OVER:")), "wgmma by a part of a warpgroup: 96 of 128 threads came, and some of the others have returned"),
        ("setmaxnreg.inc.sync.aligned.u32 100;", "setmaxnreg of 100 registers; it takes a multiple of 8 from 24 to 256"),
        ("setp.lt.u32 %p0, %r0, 64; @%p0 setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg by a part of a warpgroup: 64 of 128 threads came"),
        (program((MULTIPLY, MULTIPLY.replace(", 1, 1, 0, 0", ", 2, 1, 0, 0"))), "with 2 where it takes 1 or -1"),
        (program((MULTIPLY, MULTIPLY.replace("n8k16", "n8k32"))), "the simulator has no such shape of wgmma.mma_async.sync.aligned.m64n8k32"),
        ("mov.u32 %r1, stage; setp.eq.u32 %p0, %r0, 7; @%p0 exit; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", "ldmatrix by a part of a warp: all 32 lanes carry it out, and 31 came"),
        ("mov.u32 %r1, stage; add.u32 %r1, %r1, 8; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};", "16 bytes at 0x8 are outside or misaligned"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r2}, [%r1];", "1 registers for ldmatrix.sync.aligned.m8n8.x2.shared.b16, which takes 2"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%g0,%g1,%g2,%g3}, {%g0,%g1}, {%f0,%f1,%f2,%f3};", "the simulator has no such shape of mma"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0,%f1,%f2,%f3}, {%g0,%g1,%g2,%g3}, {%f4,%f5}, {%f0,%f1,%f2,%f3};", "no such operands of mma.f32"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%g0,%g1,%g2,%g3}, {%d4,%f5}, {%f0,%f1,%f2,%f3};", "no such operands of mma.f32"),
        ("mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%g0,%g1,%g2,%g3}, {%f4,%f5}, {%f0,%f1,%f2,%f3};", "no such shape of mma"),
        ("mma.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%g0,%g1,%g2,%g3}, {%f4,%f5}, {%f0,%f1,%f2,%f3};", "does not assemble: mma.aligned.m16n8k16.row.col.f32.f16.f16.f32 lacks .sync.aligned"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d2}, [%r1];", "no such operands of ldmatrix.b16"),
        ("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %d2;", "no such operands of movmatrix"),
        (program((MULTIPLY, MULTIPLY.replace("%f0", "%d0"))), "no such operands of wgmma"),
        (program((MULTIPLY, HELD.replace("%g0", "%d0"))), "no such operands of wgmma"),
        (program((MULTIPLY, MULTIPLY.replace("%a", "%r1"))), "no such operands of wgmma"),
        (program((MULTIPLY, MULTIPLY.replace("%t", "%r1"))), "no such operands of wgmma"),
        (program((ORDER, "wgmma.fence.aligned;")), "does not assemble: wgmma.fence.aligned lacks .sync.aligned"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(body, said):
    assert said in fault(body)


def test_the_last_warpgroup_of_a_block_is_whole():
    text = "wgmma by a part of a warpgroup: the last one of a block of 160 threads has 32 of 128"
    assert text in fault(program(), block=160)
    found = fault("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", block=48)
    assert "thread 32: movmatrix by a part of a warp: all 32 lanes carry it out, and 16 came" in found


def test_two_parts_of_a_warpgroup_do_not_meet_at_two_instructions():
    twice = f"setp.lt.u32 %p0, %r0, 32; @%p0 bra OTHER; {ORDER} bra.uni OVER; OTHER: {ORDER} OVER:"
    assert "a part of a warpgroup, of which another part is at PTX line" in fault(program((ORDER, twice)))


def test_a_deadlock_names_the_part_of_a_warpgroup_that_waits():
    text = fault(program((ORDER, f"setp.lt.u32 %p0, %r0, 32; @%p0 bar.sync 1; {ORDER}")))
    assert "Deadlock" in text
    assert "96 of 128 threads of its warpgroup wait at PTX line" in text


def test_a_descriptor_reads_up_to_the_end():
    for units, fits in ((368, True), (369, False)):
        body = program((DESCRIBE, f"{DESCRIBE} add.u64 %b, %b, {units};"))
        if fits:
            assert stored(body, 1, 128, registers=REGISTERS) == [16] * 128
        else:
            assert "reads bytes 0x1f10 to 0x2010 of shared memory (start 0x1f10, leading 128, stride 256" in fault(body)


def test_one_warpgroup_adds_and_another_does_not():
    fives = " ".join(f"mov.f32 %f{at}, 0f40A00000;" for at in range(4))
    some = DESCRIBE.replace("setp.ne.u32 %t, %r0, %r0", "setp.ge.u32 %t, %r0, 128")
    assert stored(program((ZEROS, fives), (DESCRIBE, some)), 1, 256, registers=REGISTERS) == [16] * 128 + [21] * 128


def test_a_wgmma_that_follows_waits_for_no_register_of_the_same_shape():
    again = MULTIPLY.replace("%t", "%p2")
    body = program((MULTIPLY, f"setp.eq.u32 %p2, %r0, %r0; {MULTIPLY} {COMMIT} {again}"), (WAIT, WAIT))
    assert stored(body, 1, 128, registers=REGISTERS) == [32] * 128
    assert findings_of(body) == []


def test_a_swizzle_is_that_of_the_copy():
    assert copied(128, 1).right
    text = str(copied(128, 0).error())
    assert "the descriptor of A, 0x" in text
    assert "has a swizzle of 0 bytes, and what it reads was copied with one of 128 at PTX line" in text
    overwritten = "shl.b32 %r3, %r0, 6; add.u32 %r3, %r3, %r1; mov.b32 %r5, 1; st.shared.b32 [%r3], %r5; fence.proxy.async; bar.sync 0;"
    assert copied(128, 0, overwritten).right


def test_programs_without_a_part_are_what_they_say():
    assert program(*((one, "") for one in PLAIN if one is not USE)).strip() == USE
    assert ran(program(), {}, 1, 128, 1, "", REGISTERS).right
    assert programs.BYTES == 8192


def test_no_event_is_made_without_a_listener(monkeypatch):
    def forbidden(*args, **named):
        raise AssertionError("an event was made")

    for module in (warpgroups, wgmma):
        monkeypatch.setattr(module, "ProductMoment", forbidden)
    assert ran(program((ORDER, "")), {}, 1, 128, 1, "", REGISTERS).right
    with pytest.raises(DeviceFault, match="an event was made"):
        findings_of(program((ORDER, "")))
