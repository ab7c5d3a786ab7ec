"""wgmma, mma.sync and copies of matrices: against an oracle of single elements, and against what an H100 left."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.ptx.assembler import assembled, find_ptxas
from simulator.run.decode import decode
from tests.simulator.harness import launching, make_world, module, run
from tests.simulator.isa.products import digest, forms, hardware_digests, inputs_of, ptx_of
from tests.simulator.isa.products_oracle import Operands, result_in

CHECKED = 6
"""Elements of a tile that the oracle computes, of 64 and more."""


def simulated(form, images, words, **options):
    """The words (tiles, lanes, out) that a launch leaves."""
    images, out = images if images.size else np.zeros(16, "u1"), np.full((len(words), form.lanes, form.out), 99, "u4")
    program = launching(ptx_of(form), len(words), form.lanes, [images, words, out])
    found = run(make_world(1, **{"heap_bytes": 16 << 20, **options}), program).right[0]
    return np.array(found, "u4").reshape(out.shape)


def size_of(form):
    """Rows and columns of D."""
    shape = next(word for word in form.name.split()[0].split(".") if word[:2] in ("m6", "m1", "m8"))
    rows, _, rest = shape[1:].partition("n")
    return int(rows), int(rest.partition("k")[0])


def test_the_file_of_hardware_has_every_form():
    kept = hardware_digests()
    assert {name: list(each) for name, each in kept.items()} == {one.name: list(one.categories) for one in forms()}
    assert (len(kept), sum(map(len, kept.values()))) == (246, 846)
    assert sum(one.tiles * len(one.categories) for one in forms()) == 6473


@pytest.mark.parametrize("part", [pytest.param(one, marks=pytest.mark.slow if one else ()) for one in range(8)])
def test_the_simulator_gives_the_bits_of_an_h100(part):
    wrong = []
    for form in forms()[part::8]:
        for category in form.categories:
            images, words = inputs_of(form, category)
            found = [digest(images, words), digest(simulated(form, images, words))]
            wrong += [f"{form.name}, {category}"] if found != hardware_digests()[form.name][category] else []
    assert wrong == []


PRODUCTS = [one for one in forms() if one.kinds and not one.setting]
OTHERS = [one for one in forms() if not one.kinds]
QUICK = {}
for _form in PRODUCTS:
    QUICK.setdefault((_form.lanes, _form.kinds), _form.name)


@pytest.mark.parametrize(
    "form",
    [pytest.param(one, marks=() if one.name in QUICK.values() else pytest.mark.slow, id=one.name) for one in PRODUCTS],
)
def test_elements_are_what_the_oracle_computes(form):
    made = np.random.default_rng(1)
    wrong = []
    for category in form.categories:
        images, words = inputs_of(form, category, 2)
        out = simulated(form, images, words)
        for tile in range(2):
            operands = Operands(form, images[tile], words[tile])
            for _ in range(CHECKED):
                at = tuple(int(made.integers(extent)) for extent in size_of(form))
                expected, found = operands.result(*at), result_in(out[tile], form, *at)
                if expected != found:
                    wrong.append(f"{category}, tile {tile}, {at}: {found:#x}, not {expected:#x}")
    assert wrong == []


def rows_of(form, image, words):
    """Each matrix of a copy, as 8 rows of 8 numbers of 16 bits: in shared memory where lanes say, or in registers."""
    count = next((int(word[1]) for word in form.name.split(".") if word in ("x1", "x2", "x4")), 1)
    if form.given[0][0] == "b":
        memory = [int.from_bytes(bytes(image[at : at + 2]), "little") for at in range(0, len(image), 2)]
        starts = [int(one) // 2 for one in words[: 8 * count, 0]]
        in_memory = [[memory[at : at + 8] for at in starts[8 * one : 8 * one + 8]] for one in range(count)]
    else:
        in_memory, starts = None, []
    held = words[:, len(form.given) - 1 :]
    in_lanes = [
        [
            [int(held[4 * row + column // 2, one]) >> 16 * (column % 2) & 0xFFFF for column in range(8)]
            for row in range(8)
        ]
        for one in range(held.shape[1])
    ]
    return in_memory, in_lanes, starts


def turned(matrix):
    return [list(one) for one in zip(*matrix, strict=True)]


SPACES = ("shared", "shared::cta", "generic")


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("form", OTHERS, ids=lambda one: one.name)
def test_matrices_are_copied(form, space):
    if space == "shared::cta":
        form = replace(form, text=form.text.replace(".shared.", ".shared::cta."))
    if space == "generic":
        text = form.text.replace("[%b0]", "[%d9]").replace(
            "; ldm", "; cvt.u64.u32 %d9, %b0; cvta.shared.u64 %d9, %d9; ldm"
        )
        form = replace(
            form,
            text=text.replace("; stm", "; cvt.u64.u32 %d9, %b0; cvta.shared.u64 %d9, %d9; stm").replace(
                ".shared.b16", ".b16"
            ),
        )
    images, words = inputs_of(form, "bits")
    out = simulated(form, images, words)
    for image, given, found in zip(images, words, out, strict=True):
        in_memory, in_lanes, starts = rows_of(form, image, given)
        is_turned = "trans" in form.name
        if form.name.startswith("stmatrix"):
            after = image.view("u2").copy()
            for one, matrix in enumerate(in_lanes):
                for row, numbers in enumerate(turned(matrix) if is_turned else matrix):
                    after[starts[8 * one + row] :][:8] = numbers
            assert np.array_equal(after, found.reshape(-1).view("u2"))
            continue
        expected = in_lanes if form.name.startswith("mov") else in_memory
        given = [turned(one) if is_turned else one for one in expected]
        words = [
            [
                given[one][lane // 4][lane % 4 * 2] | given[one][lane // 4][lane % 4 * 2 + 1] << 16
                for one in range(form.out)
            ]
            for lane in range(32)
        ]
        assert found.tolist() == words


LEGAL = {
    "mma": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0,%c1,%c2,%c3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%c0,%c1,%c2,%c3};",
    "of float8": "mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16 {%c0,%c1}, {%a0,%a1}, {%b0}, {%c0,%c1};",
    "of float8, too deep": "mma.sync.aligned.m16n8k64.row.col.f16.e4m3.e5m2.f16 {%c0,%c1}, {%a0,%a1}, {%b0}, {%c0,%c1};",
    "two types of D": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16 {%c0,%c1,%c2,%c3}, {%a0,%a1}, {%b0}, {%c0,%c1};",
    "few registers": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0,%c1}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%c0,%c1};",
    "no layout": "mma.sync.aligned.m16n8k8.f16.f16.f16.f16 {%c0,%c1}, {%a0,%a1}, {%b0}, {%c0,%c1};",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%a0, %a1}, [image];",
    "ldmatrix of global memory": "ldmatrix.sync.aligned.m8n8.x2.global.b16 {%a0, %a1}, [%image];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [image], {%a0};",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %a0, %a1;",
    "setmaxnreg": "setmaxnreg.inc.sync.aligned.u32 40;",
    "setmaxnreg of many": "setmaxnreg.inc.sync.aligned.u32 264;",
    "setmaxnreg of an odd number": "setmaxnreg.dec.sync.aligned.u32 42;",
    "wgmma": "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0,%c1,%c2,%c3}, %d0, %d1, %p0, 1, -1, 0, 1;",
    "wgmma of 12 columns": "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%c0,%c1,%c2,%c3,%c4,%c5}, %d0, %d1, %p0, 1, 1, 0, 0;",
    "wgmma of 40 columns of integers": "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.u8 {%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7,%c8,%c9,%c10,%c11,%c12,%c13,%c14,%c15,%c16,%c17,%c18,%c19}, %d0, %d1, %p0;",
    "wgmma with a third sign": "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0,%c1,%c2,%c3}, %d0, %d1, %p0, 2, 1, 0, 0;",
    "wgmma of tf32, transposed": "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%c0,%c1,%c2,%c3}, %d0, %d1, %p0, 1, 1, 0, 1;",
    "wgmma of bf16 to f16": "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {%c0,%c1}, %d0, %d1, %p0, 1, 1, 0, 0;",
    "wgmma with A in registers": "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%c0,%c1,%c2,%c3}, {%a0,%a1,%a2,%a3}, %d1, %p0, 1, 1, 1;",
    "wait for a register": "wgmma.wait_group.sync.aligned %a0;",
    "wait for 20": "wgmma.wait_group.sync.aligned 20;",
    "wait for less than none": "wgmma.wait_group.sync.aligned -1;",
}
REGISTERS = ".reg .b32 %a<4>, %b<2>, %c<20>; .shared .align 16 .b8 image[64];"


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", LEGAL)
def test_what_ptxas_takes_is_taken(name, target):
    ptx = module(LEGAL[name], ["u64 image"], registers=REGISTERS, target=target)
    problems = [one.text for one in assembled(find_ptxas(), ptx, target).problems]
    assert bool(decode(ptx, "kernel").unsupported) == bool(problems), problems
