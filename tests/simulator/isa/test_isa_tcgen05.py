"""tcgen05 against oracles of its layouts and sums, its faults in one line each, and its races."""

import gc
import subprocess

import numpy as np
import pytest

from simulator.happens_before.running import Held
from simulator.ptx.assembler import find_ptxas
from tests.simulator.harness import executable, launching, make_world, module, run
from tests.simulator.isa import tensor_memory_programs as programs
from tests.simulator.isa.tensor_memory_programs import (
    TARGET,
    WAIT,
    Multiplication,
    copied,
    copy_ptx,
    expected_of,
    images_of,
    inputs_of,
    multiplied,
    multiply_ptx,
    transfer_ptx,
    transferred,
)

CHECKED = 48


@pytest.mark.parametrize("shape", programs.BITS_OF)
def test_registers_hold_the_cells_that_cute_says(shape):
    for one in programs.transfers():
        if one.shape == shape:
            found, expected = transferred(one)
            assert np.array_equal(found, expected), one


def categories_of(one):
    if one.kind == "i8":
        return "normal", "huge"
    if one.blocks and one.scale == "ue8m0":
        return "normal", "wide", "special", "exact", "opposite"
    return "normal", "wide", "special", "exact"


@pytest.mark.parametrize("one", list(programs.copies()), ids=str)
def test_rows_of_shared_memory_come_to_the_lanes_that_cute_says(one):
    found, expected = copied(one)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("one", programs.every_multiplication(), ids=str)
def test_a_product_is_one_sum(one):
    for category in categories_of(one):
        images, words = inputs_of(one, category)
        found, _ = multiplied(one, images, words)
        made = np.random.default_rng(3)
        rows, columns = made.integers(0, one.rows, CHECKED), made.integers(0, one.columns, CHECKED)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            place = one.cell(row, column)
            code = int(found[place])
            expected = expected_of(one, images, words, row, column)
            assert code == expected, (category, row, column, hex(code), hex(expected))
        assert np.array_equal(found[:, :, one.columns :], words[:, :, one.columns : 64])


@pytest.mark.parametrize(
    "options",
    [{"schedule": "random", "seed": 2}, {"schedule": "adversarial", "seed": 1}, {"memory": "weak", "seed": 3}],
    ids=str,
)
@pytest.mark.parametrize("pair", [False, True])
def test_a_product_is_the_same_in_any_order(pair, options):
    one = Multiplication("f16", "f16", "f16", rows=256 if pair else 128, pair=pair)
    images, words = inputs_of(one, "exact")
    found, _ = multiplied(one, images, words, **options)
    fair, outcome = multiplied(one, images, words, races=True)
    assert np.array_equal(found, fair)
    assert outcome.world.findings == ()


PTXAS = find_ptxas()


@pytest.mark.skipif(PTXAS is None, reason="needs ptxas (PyPI: nvidia-cuda-nvcc)")
@pytest.mark.parametrize("which", ["transfers", "every_multiplication", "copies"])
def test_the_forms_assemble(which, tmp_path):
    """One module of each kind, of all its forms' kernels."""
    made = {"transfers": transfer_ptx, "every_multiplication": multiply_ptx, "copies": copy_ptx}[which]
    for at, one in enumerate(list(getattr(programs, which)())):
        if which == "transfers" and at % 9:
            continue
        (tmp_path / "one.ptx").write_text(made(one))
        command = [str(PTXAS), "-arch", TARGET, "-O0", str(tmp_path / "one.ptx"), "-o", str(tmp_path / "one.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (one, done.stderr)


# What is wrong, in one line


ONE = Multiplication("f16", "f16", "f16")
PAIR = Multiplication("f16", "f16", "f16", rows=256, pair=True)
DESCRIBED = f"mov.b32 %e, {ONE.described};"


def outcome_of(*changes, one=ONE, **options):
    """The program of a product with some of its text replaced."""
    text = multiply_ptx(one)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return programs.outcome_of(text, inputs_of(one, "exact"), 64, 1 + one.pair, **options)


LOAD = "tcgen05.ld.sync.aligned.32x32b.x64"
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r31], 512;"
DEALLOC = "@%p15 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 512;"
GIVEN_UP = "@%p15 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([(ALLOC, ALLOC.replace("512", "48"))], "48 columns of tensor memory; an allocation has 32, 64, 128, 256 or 512"),
        ([(ALLOC, ALLOC.replace("512", "%r0"))], "the number of columns of tcgen05 differs between lanes of a warp"),
        ([(DEALLOC, "")], "block 0 ended with 512 columns of tensor memory: tcgen05.dealloc is missing"),
        ([(DEALLOC, DEALLOC.replace("512", "64"))], "tcgen05.dealloc of 64 columns at 0x0: the block has allocated 512 columns from 0 on"),
        ([(DEALLOC, f"{DEALLOC} {DEALLOC}")], "tcgen05.dealloc of 512 columns at 0x0: the block has allocated none"),
        ([(GIVEN_UP, f"{GIVEN_UP} @%p15 {ALLOC}")], "tcgen05.alloc after the block's tcgen05.relinquish_alloc_permit"),
        ([(LOAD, f"add.u32 %u, %u, 449; {LOAD}")], "tcgen05.ld of tensor memory at columns 449 to 512: the block has allocated 512 columns from 0 on"),
        ([(LOAD, f"add.u32 %u, %u, 64; {LOAD}")], "tcgen05.ld of tensor memory that was never written (poison): lane 0, column 64"),
        ([(LOAD, f"add.u32 %u, %u, 0x200000; {LOAD}")], "tensor memory at lane 32: the warp's own are 0 to 31, and .32x32b begins at 0"),
        ([(LOAD, f"setp.eq.u32 %p0, %r0, 7; @%p0 exit; {LOAD}")], "tcgen05 by a part of a warp: all 32 lanes carry it out, and 31 came"),
        ([("tcgen05.mma", "add.u64 %da, %da, 900; tcgen05.mma")], "of shared memory: outside the block's"),
        ([("tcgen05.mma", f"xor.b64 %da, %da, {1 << 46}; tcgen05.mma")], "is of version 0 (bits 46 and 47), and that of tcgen05 is 1"),
        ([("tcgen05.mma", f"or.b64 %db, %db, {1 << 61}; tcgen05.mma")], "the descriptor of B, 0x"),
        ([(DESCRIBED, f"mov.b32 %e, {ONE.described | 2 << 7};")], "has types that the simulator does not have; it has f16, bf16 into f16, f32"),
        ([(DESCRIBED, f"mov.b32 %e, {ONE.described | 4};")], "is of a sparse or shifted matrix"),
        ([(DESCRIBED, f"mov.b32 %e, {ONE.described & ~(31 << 24) | 6 << 24};")], "says 96 rows and 16 columns; cta_group::1 has 64 or 128 rows"),
        ([("mma.cta_group::1.kind::f16 [%t]", "mma.cta_group::1.kind::f16 [%r3]")], "D of tcgen05.mma of tensor memory at columns"),
        ([("cta_group::1.kind", "cta_group::2.kind")], "cta_group::2 in a cluster of 1 blocks: pairs of blocks carry it out"),
        ([("st.shared.b32 [%r5], %r4;", "")], "of tcgen05.mma in shared memory that was never written (poison)"),
        ([(WAIT, f"{DEALLOC} exit;")], "block 0 ended while tcgen05.mma"),
        ([("one.shared::cluster.multicast::cluster.b64 [%r30]", "one.shared::cluster.multicast::cluster.b64 [%r31]")], "holds no mbarrier"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(changes, said):
    error = str(outcome_of(*changes).error())
    assert said in error
    assert "\n" not in error


SCALED = Multiplication("mxf4nvf4", "e2m1", "e2m1", size=".block16", scale="ue4m3")
TWICE = Multiplication("mxf4", "e2m1", "e2m1")
MMA, STORE_SCALES = "tcgen05.mma.cta", "tcgen05.st.sync.aligned.32x32b.x16"
AT_40 = "setp.eq.u32 %p9, %r0, 40;"


def described(one, change):
    """The program's text of a descriptor, and another one."""
    return f"mov.b32 %e, {one.described};", f"mov.b32 %e, {change(one.described)};"


@pytest.mark.parametrize(
    ("one", "changes", "said"),
    [
        (SCALED, [(MMA, f"add.u32 %s0, %s0, 246; {MMA}")], "scale factors of A of tcgen05.mma of tensor memory at columns 510 to 513"),
        (SCALED, [(MMA, f"add.u32 %s1, %s1, 0x200000; {MMA}")], "scale factors of B of tcgen05.mma of tensor memory at lane 143"),
        (SCALED, [(STORE_SCALES, f"{AT_40} @%p9 xor.b32 %f72, %f72, 1; {STORE_SCALES}")], "scale factors of A of tcgen05.mma differ from their copy at lane 8: lane 40, column 264"),
        (SCALED, [(STORE_SCALES, f"or.b32 %f76, %f76, 128; {STORE_SCALES}")], "scale factors of B of tcgen05.mma of ue4m3 have bit 7, which is 0"),
        (SCALED, [(MMA, f"add.u32 %s0, %s0, 8; {MMA}")], "scale factors of A of tcgen05.mma of tensor memory that was never written (poison): lane 0, column 272"),
        (SCALED, [described(SCALED, lambda bits: bits | 1 << 29)], "has scale factors from byte 1 on, and a row has 4 of 4"),
        (TWICE, [described(TWICE, lambda bits: bits | 1 << 29)], "has scale factors from byte 1 on, and a row has 2 of 4"),
        (TWICE, [described(TWICE, lambda bits: bits ^ 1 << 23)], "has scale factors of ue4m3; 2 a row have ue8m0 (bit 23)"),
        (TWICE, [described(TWICE, lambda bits: bits | 1 << 31)], "is of a sparse matrix or one of 96 elements along the depth"),
        (TWICE, [described(TWICE, lambda bits: bits | 1 << 15)], "is of transposed matrices of e2m1"),
        (TWICE, [described(TWICE, lambda bits: bits & ~(31 << 24) | 4 << 24)], "says 64 rows and 16 columns; cta_group::1 has 128 rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_scale_factors(one, changes, said):
    error = str(outcome_of(*changes, one=one).error())
    assert said in error
    assert "\n" not in error


CP = "tcgen05.cp.cta"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((CP, f"add.u64 %d3, %d3, 900; {CP}"), "the descriptor of tcgen05.cp, 0x"),
        ((CP, f"xor.b64 %d3, %d3, {1 << 46}; {CP}"), "is of version 0 (bits 46 and 47), and that of tcgen05 is 1"),
        ((CP, f"add.u32 %r7, %r7, 508; {CP}"), "what tcgen05.cp writes of tensor memory at columns 508 to 515"),
        ((CP, f"add.u32 %r7, %r7, 0x10000; {CP}"), "what tcgen05.cp writes of tensor memory at lane 128"),
        (("st.shared.b32 [%r5], %r4;", ""), "what tcgen05.cp reads in shared memory that was never written (poison)"),
    ],
)
def test_what_is_wrong_with_a_copy(change, said):
    one = programs.Copy("128x256b")
    assert change[0] in copy_ptx(one)
    error = str(programs.outcome_of(copy_ptx(one).replace(*change), [images_of(1)], 8).error())
    assert said in error
    assert "\n" not in error


def test_a_warp_waits_for_columns_that_others_have():
    """Until these give them back; a deadlock tells who waits for how many."""
    other = "setp.ge.u32 %p9, %r0, 96; @%p9 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r31], 32;"
    back = "@%p9 tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 32;"
    assert outcome_of((DEALLOC, f"{DEALLOC} {other} {back}"), (GIVEN_UP, "")).right
    error = str(outcome_of((GIVEN_UP, other), (DEALLOC, f"bar.sync 0; {DEALLOC} {back}")).error())
    assert "rank 0, block 0, thread 96 waits for 32 columns of tensor memory at PTX line" in error


def test_both_blocks_of_a_pair_ask_for_as_many_columns():
    columns = "mov.u32 %r6, %cluster_ctarank; shr.u32 %r6, 512, %r6;"
    ask = "@%p15 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r31], "
    error = str(outcome_of((f"{ask}512;", f"{columns} {ask}%r6;"), one=PAIR).error())
    assert "columns, where the other block of the pair asks for" in error
    alone = "mov.u32 %r6, %cluster_ctarank; setp.ne.u32 %p9, %r6, 0; @%p9 exit;"
    error = str(outcome_of((f"{ask}512;", f"{alone} {ask}512;"), one=PAIR).error())
    assert "waits for 512 columns of tensor memory in both blocks of its pair" in error


def test_an_address_names_the_even_block_of_a_pair_without_the_lowest_bit_of_its_tag():
    """As CuTe clears it for the mbarrier that counts the bytes of both blocks."""
    body = """
    mov.u32 %r1, word; and.b32 %r1, %r1, 0xFEFFFFFF; getctarank.shared::cluster.u32 %r2, %r1;
    setp.gt.u32 %p0, %r2, 9; @%p0 tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
    mad.lo.u64 %d1, %lane64, 4, %out; st.global.b32 [%d1], %r2;
    """
    ptx = module(body, ["u64 out"], registers=".shared .align 8 .b32 word;", target=TARGET)
    program = launching(executable(ptx, arch=TARGET), 8, 1, [np.full(8, 99, "u4")], cluster=4)
    assert run(make_world(1, arch=TARGET), program).right == [[0, 0, 2, 2] * 2]


# What the race checker tells


def found(*changes, one=ONE):
    """Severity, what is missing, and words of the two instructions."""
    outcome = outcome_of(*changes, one=one, races=True)
    assert outcome.right
    return {
        (finding.severity, finding.missing, *(words_of(side.text) for side in (finding.first, finding.second)))
        for finding in outcome.world.findings
    }


def words_of(text):
    return next(word for word in text.split() if "." in word).split(".")[1]


UNTIL_DONE = "a wait for the mbarrier of tcgen05.commit"


@pytest.mark.parametrize("one", [ONE, PAIR], ids=["one", "pair"])
def test_who_reads_a_result_waits_for_its_mbarrier(one):
    late = "LATE: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r30], 0; @!%p3 bra LATE; bar.sync 0; @%p15"
    assert found(one=one) == set()
    assert found((WAIT, ""), ("bar.sync 0; @%p15", late), one=one) == {("race", UNTIL_DONE, "ld", "mma")}


def test_who_fills_shared_memory_again_waits_for_the_product():
    again = "@%p1 st.shared.b32 [%r1], %r4;"
    assert found((WAIT, f"{WAIT} {again}")) == set()
    assert ("race", UNTIL_DONE, "shared", "mma") in found((WAIT, f"{again} {WAIT}"))


def test_shared_memory_is_fenced_before_a_product():
    assert ("proxy", "fence.proxy.async", "shared", "mma") in found(("fence.proxy.async;", ""))


def test_a_store_to_tensor_memory_and_a_product_are_ordered():
    assert ("race", "a barrier", "st", "mma") in found(("tcgen05.fence::before_thread_sync; bar.sync 0;", ""))


FENCE, AWAIT = "tcgen05.fence::after_thread_sync;", "tcgen05.wait::ld.sync.aligned;"
PACKED = "mov.b64 %d6, {%f0, %f1};"


@pytest.mark.parametrize("one", [ONE, PAIR], ids=["one", "pair"])
def test_fences_and_waits_of_tcgen05_stand_where_ptx_wants_them(one):
    """A mov that a compiler put before the wait hands the value on, and what uses it then is told."""
    early, text = ("formal", "tcgen05.wait::ld", "ld"), programs.multiply_text(one)[0]
    assert found((text, f"{text} {text}"), one=one) == set(), "products of one thread follow each other"
    assert found((AWAIT, ""), one=one) == {(*early, "global")}
    assert found((AWAIT, f"{PACKED} {AWAIT} add.u64 %d6, %d6, 1;"), one=one) == set()
    assert found((AWAIT, f"{PACKED} add.u64 %d6, %d6, 1; {AWAIT}"), one=one) == {(*early, "u64")}
    assert found((f"{FENCE}\ntcgen05.ld", "tcgen05.ld"), one=one) == {("formal", FENCE[:-1], "mma", "ld")}
    assert found((f"{FENCE} add.u32 %u", "add.u32 %u"), one=one) == {("formal", FENCE[:-1], "st", "mma")}
    assert found(("tcgen05.wait::st.sync.aligned;", ""), one=one) == {("race", "tcgen05.wait::st", "st", "mma")}


def test_a_fence_between_a_product_and_its_execution_comes_too_late():
    late = [(f"{FENCE} add.u32 %u", "add.u32 %u"), ("ISSUED:\n", f"{FENCE} ISSUED:\n")]
    assert found(*late) == {("formal", FENCE[:-1], "st", "mma")}


def test_a_wait_on_one_path_alone_is_no_wait():
    around = f"setp.eq.u32 %p9, %r7, 9; @%p9 bra PAST; {AWAIT} PAST:"
    assert ("formal", "tcgen05.wait::ld", "ld", "global") in found((AWAIT, around))


def test_of_a_launch_that_is_over_nothing_is_kept_of_what_its_threads_knew():
    body = f"""mov.u32 %r30, bar; setp.eq.u32 %p1, %r0, 0; @!%p1 bra END; mbarrier.init.shared::cta.b64 [%r30], 1; {FENCE}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r30]; {WAIT} {FENCE} END:"""
    kernel = executable(module(body, registers=".shared .align 8 .b64 bar;", target=TARGET), arch=TARGET)
    world, counts = make_world(1, arch=TARGET, races=True), []
    gc.collect()
    for _ in range(2):
        assert run(world, launching(kernel, 1, 32)).right
        counts.append(sum(type(one) is Held for one in gc.get_objects()))
    assert counts[0] == counts[1]
