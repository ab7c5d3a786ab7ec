"""Programs with tcgen05: copies between registers and tensor memory, and products, by one block or by a pair.

Expected values come from Python's integers and fractions, and of the layouts from the shapes and strides that CuTe's
copy traits state. No GPU has run them.
"""

import zlib
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from simulator.isa import key_of
from simulator.ptx.parse import parse_kernel
from tests.simulator.harness import executable, get, make_world, module, put, start, succeed
from tests.simulator.isa.products import BITS, codes, packed
from tests.simulator.isa.products_oracle import element_of_image, summed, summed_integers

TARGET = "sm_100a"
ALLOCATE = """
mov.u32 %r31, place; setp.lt.u32 %p15, %r0, 32;
@%p15 tcgen05.alloc.cta_group::G.sync.aligned.shared::cta.b32 [%r31], 512;
bar.sync 0; ld.shared.b32 %t, [%r31];
"""
FREE = """
bar.sync 0; @%p15 tcgen05.relinquish_alloc_permit.cta_group::G.sync.aligned;
@%p15 tcgen05.dealloc.cta_group::G.sync.aligned.b32 %t, 512;
"""
TOGETHER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def listed(register, count):
    return "{" + ", ".join(f"%{register}{at}" for at in range(count)) + "}"


# Copies to and from registers


BITS_OF = {
    "32x32b": lambda n: ([(32, 32 * n)], [(32 * n, 1)], 32 * n),
    "16x64b": lambda n: ([(2, 512 * n), (2, 32), (8, 64 * n)], [(32, 1), (n, 64)], 64 * n),
    "16x128b": lambda n: ([(4, 32), (8, 128 * n)], [(32, 1), (2, 1024 * n), (n, 128)], 128 * n),
    "16x256b": lambda n: ([(4, 64), (8, 256 * n)], [(64, 1), (2, 2048 * n), (n, 256)], 256 * n),
    "16x32bx2": lambda n: ([(16, 64 * n), (2, 32 * n)], [(32 * n, 1)], 64 * n),
}
"""Of xN: extents and strides, in bits, of threads and of their bits; and bits of a row of tensor memory."""
APART = 40
"""Columns between the halves of 16x32bx2."""


def along(number, modes):
    at = 0
    for extent, stride in modes:
        at += number % extent * stride
        number //= extent
    return at


def cell_of(shape, times, lane, register):
    """Lane and column that a register holds, from the address on."""
    threads, values, row = BITS_OF[shape](times)
    bit = along(lane, threads) + along(32 * register, values)
    column = bit % row // 32
    if shape == "16x32bx2" and column >= times:
        column += APART - times
    return bit // row, column


@dataclass(frozen=True)
class Transfer:
    word: str
    shape: str
    times: int
    halves: bool

    @property
    def registers(self):
        return self.times * {"16x128b": 2, "16x256b": 4}.get(self.shape, 1)

    @property
    def first(self):
        """The column of the address: not the first one, unless all are needed."""
        return 0 if self.shape != "32x32b" and self.registers == 128 and self.halves else 3

    @property
    def text(self):
        halves = {"ld": ".pack::16b", "st": ".unpack::16b"}[self.word] if self.halves else ""
        form = f"tcgen05.{self.word}.sync.aligned.{self.shape}.x{self.times}{halves}.b32"
        apart = f", {APART}" if self.shape == "16x32bx2" else ""
        many = listed("f", self.registers)
        return f"{form} {many}, [%u]{apart};" if self.word == "ld" else f"{form} [%u]{apart}, {many};"


def transfers():
    every = product(("ld", "st"), BITS_OF, (1 << power for power in range(8)), (False, True))
    made = [Transfer(*one) for one in every]
    return [one for one in made if one.registers <= 128]


def transfer_ptx(one):
    """All of tensor memory is filled by 32x32b, words of lanes by their columns; then the form, and what is told of it:
    registers of a load, and of a store 256 columns."""
    row = "shl.b32 %q, %r0, 16; and.b32 %q, %q, 0x600000; add.u32 %q, %q, %t;"
    body = [ALLOCATE, row, "shl.b32 %r1, %r0, 16; mov.u32 %r2, %q; mov.b32 %r3, 0;"]
    body += ["FILL: tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r1}; add.u32 %r1, %r1, 1; add.u32 %r2, %r2, 1;"]
    body += ["add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 512; @%p0 bra FILL; tcgen05.wait::st.sync.aligned;"]
    half = "add.u32 %u, %u, 0x100000;" if one.shape != "32x32b" and one.times % 2 else ""
    body += [f"add.u32 %u, %q, {one.first}; {half} mad.lo.u64 %d1, %lane64, 1024, %out;"]
    count = one.registers
    if one.word == "ld":
        body += [one.text, "tcgen05.wait::ld.sync.aligned;"]
        body += [f"st.global.b32 [%d1+{4 * at}], %f{at};" for at in range(count)]
    else:
        body += [f"mad.lo.u32 %f{at}, %r0, 0x10001, {at * 77 + 0x8000_0000};" for at in range(count)]
        body += [one.text, "tcgen05.wait::st.sync.aligned; bar.sync 0;"]
        for low in (0, 128):
            body += [f"add.u32 %u, %q, {low}; tcgen05.ld.sync.aligned.32x32b.x128.b32 {listed('f', 128)}, [%u];"]
            body += ["tcgen05.wait::ld.sync.aligned;"]
            body += [f"st.global.b32 [%d1+{4 * (low + at)}], %f{at};" for at in range(128)]
    registers = ".shared .align 4 .b32 place; .reg .b32 %t, %u, %q, %f<128>;"
    return module("\n".join([*body, FREE]).replace("::G", "::1"), ["u64 out"], registers=registers, target=TARGET)


def transferred(one):
    """What a form leaves, as (128, 256) words, and what it should."""
    ptx = transfer_ptx(one)

    def program(fabric):
        out = put(fabric, "out", np.zeros((128, 256), "u4"))
        start(fabric, executable(ptx, arch=TARGET), 1, 128, [out.address])
        return get(fabric, out, "u4").reshape(128, 256)

    found = succeed(make_world(1, arch=TARGET), program).results[0]
    expected = np.zeros((128, 256), np.int64)
    if one.word == "st":
        expected = (np.arange(128)[:, None] << 16) + np.arange(256)[None, :]
    for thread, register in product(range(128), range(one.registers)):
        lane, column = cell_of(one.shape, one.times, thread % 32, register)
        lane += thread // 32 * 32 + (16 if one.shape != "32x32b" and one.times % 2 else 0)
        columns = [one.first + at for at in ((2 * column, 2 * column + 1) if one.halves else (column,))]
        if one.word == "ld":
            words = [(lane << 16) + at for at in columns]
            expected[thread, register] = words[0] & 0xFFFF | (words[1] & 0xFFFF) << 16 if one.halves else words[0]
            continue
        word = thread * 0x10001 + register * 77 + 0x8000_0000
        parts = [word & 0xFFFF, word >> 16] if one.halves else [word]
        for at, part in zip(columns, parts, strict=True):
            if at < 256:
                expected[lane, at] = part
    return found, expected


# Products


DEPTH_BYTES = 32
KINDS = {
    "f16": (("f16", 0), ("bf16", 1)),
    "tf32": (("tf32", 2),),
    "f8f6f4": (("e4m3", 0), ("e5m2", 1)),
    "i8": (("u8", 0), ("s8", 1)),
}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}
B_AT = 8192


@dataclass(frozen=True)
class Multiplication:
    """One form: rows and columns are those of the instruction, which a pair of blocks shares. form: of the descriptor of
    a matrix without a swizzle; held: A is in tensor memory."""

    kind: str
    a: str
    b: str
    d: str = "f32"
    rows: int = 128
    columns: int = 16
    pair: bool = False
    keeps: bool = True
    divides: int = 0
    signs: tuple = (0, 0)
    turned: tuple = (0, 0)
    held: bool = False
    hidden: tuple = ()
    saturates: bool = False
    arrivals: str = "multicast"

    @property
    def depth(self):
        return DEPTH_BYTES * 8 // BITS[self.a]

    @property
    def strides(self):
        """Leading and stride of both matrices: units of 8 rows, and of 16 bytes along the depth or, turned, of rows."""
        return [(128, 128 * (self.depth // 8) if turned else 256) for turned in self.turned]

    @property
    def described(self):
        numbers = dict(KINDS[self.kind])
        bits = RESULTS[self.d] << 4 | numbers[self.a] << 7 | numbers[self.b] << 10 | self.saturates << 3
        bits |= self.signs[0] << 13 | self.signs[1] << 14 | self.turned[0] << 15 | self.turned[1] << 16
        return bits | self.columns // 8 << 17 | self.rows // 16 << 24

    def cell(self, row, column):
        """Block, lane and column of an element of D."""
        block, row = divmod(row, self.rows // 2) if self.pair else (0, row)
        if self.pair and self.rows == 128:
            return block, row + 64 * (column >= self.columns // 2), column % (self.columns // 2)
        if self.rows == 64:
            return block, row // 16 * 32 + row % 16, column
        return block, row, column

    def element(self, images, name, row, depth):
        """An element of A or B, of the images of the blocks."""
        side = name == "b"
        each = (self.columns if side else self.rows) >> self.pair
        block, row = divmod(row, each)
        kind, start, (leading, stride) = (self.b if side else self.a), B_AT * side, self.strides[side]
        if not self.turned[side]:
            return element_of_image(images[block], kind, start, row, depth)
        size, many = BITS[kind] // 8, 128 // BITS[kind]
        at = start + row // many * stride + depth // 8 * leading + depth % 8 * 16 + row % many * size
        return int.from_bytes(bytes(images[block][at : at + size]), "little")


def multiplications():
    yield Multiplication("f16", "f16", "f16")
    for pair, rows in product((False, True), (64, 128, 256)):
        if rows != (256, 64)[pair]:
            yield Multiplication("f16", "bf16", "bf16", rows=rows, columns=32, pair=pair)
    yield Multiplication("f16", "f16", "f16", d="f16", keeps=False)
    yield Multiplication("f16", "f16", "f16", d="f16", divides=3, rows=64, columns=8)
    yield Multiplication("f16", "bf16", "bf16", divides=15, signs=(1, 0))
    yield Multiplication("f16", "f16", "f16", turned=(1, 1), columns=64)
    yield Multiplication("f16", "bf16", "bf16", held=True, signs=(0, 1))
    yield Multiplication("f16", "f16", "f16", hidden=(0xFFFF, 0, 1 << 31, 5))
    yield Multiplication("f16", "f16", "f16", rows=256, pair=True, hidden=(1, 2, 4, 8, 16, 32, 64, 128), held=True)
    for pair, arrivals in product((False, True), ("multicast", "single", "generic")):
        rows = 256 if pair else 128
        yield Multiplication("f16", "bf16", "bf16", rows=rows, columns=64, pair=pair, arrivals=arrivals)
    for pair in (False, True):
        rows = 256 if pair else 128
        yield Multiplication("tf32", "tf32", "tf32", rows=rows, pair=pair)
        for a, b in product(("e4m3", "e5m2"), repeat=2):
            yield Multiplication("f8f6f4", a, b, rows=rows, pair=pair)
        for a, b in product(("u8", "s8"), repeat=2):
            yield Multiplication("i8", a, b, "s32", rows=rows, columns=32, pair=pair, saturates=a == b)
    yield Multiplication("f8f6f4", "e4m3", "e4m3", d="f16", turned=(1, 0), columns=16)
    yield Multiplication("i8", "s8", "u8", "s32", turned=(1, 1), columns=32, keeps=False)


def multiply_text(one):
    group = 2 if one.pair else 1
    hidden = f"{listed('m', len(one.hidden))}, " if one.hidden else ""
    divides = f", {one.divides}" if one.divides else ""
    left = "[%t+256]" if one.held else "%da"
    text = f"tcgen05.mma.cta_group::{group}.kind::{one.kind} [%t], {left}, %db, %e, {hidden}%k{divides};"
    commit = f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one"
    if one.arrivals == "multicast":
        return text, f"{commit}.shared::cluster.multicast::cluster.b64 [%r30], %h0;"
    own = f"{commit}.b64 [%d5];" if one.arrivals == "generic" else f"{commit}.shared::cluster.b64 [%r30];"
    peer = f"mapa.shared::cluster.u32 %r8, %r30, 1; {commit}.shared::cluster.b64 [%r8];"
    return text, f"cvta.shared.u64 %d5, %d5; {own} {peer if one.pair else ''}"


def multiply_ptx(one):
    """Images of A and B of each block, words of D (and of A), in; D out, as 512 columns would be of which 64 are told."""
    text, commit = multiply_text(one)
    leading, stride = zip(*one.strides, strict=True)
    described = [1 << 46 | low // 16 << 16 | high // 16 << 32 for low, high in zip(leading, stride, strict=True)]
    allocate = ALLOCATE
    if one.arrivals == "generic":
        allocate = allocate.replace(".shared::cta.b32 [%r31]", ".b32 [%d9]").replace(
            "mov.u32 %r31, place;", "mov.u32 %r31, place; cvt.u64.u32 %d9, %r31; cvta.shared.u64 %d9, %d9;"
        )
    body = [allocate, "mov.u32 %r30, bar; mov.u32 %r1, image; setp.eq.u32 %p1, %r0, 0; and.b32 %r1, %r1, 0xFFFFFF;"]
    body += ["@%p1 mbarrier.init.shared::cta.b64 [%r30], 1; fence.mbarrier_init.release.cluster;"]
    body += ["mad.lo.u32 %r2, %block, 12288, 0; cvt.u64.u32 %d1, %r2; add.u64 %d1, %d1, %in; shl.b32 %r3, %r0, 2;"]
    body += ["COPY: cvt.u64.u32 %d2, %r3; add.u64 %d2, %d2, %d1; ld.global.b32 %r4, [%d2]; add.u32 %r5, %r1, %r3;"]
    body += ["st.shared.b32 [%r5], %r4; add.u32 %r3, %r3, 512; setp.lt.u32 %p0, %r3, 12288; @%p0 bra COPY;"]
    body += ["fence.proxy.async; shl.b32 %u, %r0, 16; and.b32 %u, %u, 0x600000; add.u32 %u, %u, %t;"]
    body += ["mad.lo.u64 %d3, %lane64, 288, %words; mad.lo.u64 %d4, %lane64, 256, %out;"]
    body += [f"ld.global.b32 %f{at}, [%d3+{4 * at}];" for at in range(72)]
    body += [f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%u], {listed('f', 64)}; add.u32 %u, %u, 256;"]
    many = "{" + ", ".join(f"%f{at}" for at in range(64, 72)) + "}"
    body += [f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%u], {many}; tcgen05.wait::st.sync.aligned;"]
    body += ["tcgen05.fence::before_thread_sync; bar.sync 0;", TOGETHER if one.pair else ""]
    body += [
        f"tcgen05.fence::after_thread_sync; add.u32 %u, %u, -256; mov.b16 %h0, {1 + 2 * one.pair}; cvt.u64.u32 %d5, %r30; shr.u32 %r6, %r1, 4;"
    ]
    body += ["cvt.u64.u32 %da, %r6; add.u64 %db, %da, 512;"]
    body += [f"or.b64 %da, %da, {described[0]}; or.b64 %db, %db, {described[1]};"]
    body += [f"mov.b32 %e, {one.described}; setp.{'eq' if one.keeps else 'ne'}.u32 %k, %r0, %r0;"]
    body += ["mov.u32 %r7, %cluster_ctarank; or.b32 %r7, %r7, %r0; setp.ne.u32 %p2, %r7, 0; @%p2 bra ISSUED;"]
    body += [f"mov.b32 %m{at}, {bits};" for at, bits in enumerate(one.hidden)]
    body += [text, commit, "ISSUED:"]
    body += ["WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r30], 0; @!%p3 bra WAIT;"]
    body += ["tcgen05.fence::after_thread_sync;"]
    body += [f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {listed('f', 64)}, [%u]; tcgen05.wait::ld.sync.aligned;"]
    body += [f"st.global.b32 [%d4+{4 * at}], %f{at};" for at in range(64)]
    body += [TOGETHER if one.pair else "", FREE]
    registers = ".shared .align 4 .b32 place; .shared .align 8 .b64 bar; .shared .align 1024 .b8 image[12288]; "
    registers += ".reg .b32 %t, %u, %e, %f<72>, %m<8>; .reg .b64 %da, %db; .reg .pred %k;"
    text = "\n".join(body).replace("cta_group::G", f"cta_group::{1 + one.pair}")
    return module(text, ["u64 in", "u64 words", "u64 out"], registers=registers, target=TARGET)


def inputs_of(one, category):
    """Images (blocks, 12288) and words (blocks, 128, 72): 64 of D, 8 of A."""
    made = np.random.default_rng([35, zlib.crc32(repr(one).encode()), zlib.crc32(category.encode())])
    blocks = 1 + one.pair
    images, words = [], []
    for _ in range(blocks):
        parts = [
            packed(kind, codes(kind, category, made, size * 8 // BITS[kind])).view("u1")
            for kind, size in ((one.a, B_AT), (one.b, 12288 - B_AT))
        ]
        images.append(np.concatenate(parts))
        d = codes(one.d, category, made, 128 * 64).reshape(128, 64)
        a = packed(one.a, codes(one.a, category, made, 128 * one.depth)).reshape(128, 8)
        words.append(np.concatenate([d, a], axis=1))
    return np.stack(images), np.stack(words).astype("u4")


def multiplied(one, images, words, **options):
    """What D's memory holds, as (blocks, 128, 64), and the outcome."""
    ptx, blocks = multiply_ptx(one), 1 + one.pair

    def program(fabric):
        regions = [put(fabric, name, array) for name, array in (("in", images), ("words", words))]
        out = put(fabric, "out", np.zeros((blocks, 128, 64), "u4"))
        addresses = [region.address for region in (*regions, out)]
        start(fabric, executable(ptx, arch=TARGET), blocks, 128, addresses, cluster=blocks)
        return get(fabric, out, "u4").reshape(blocks, 128, 64)

    outcome = succeed(make_world(1, arch=TARGET, **options), program)
    return outcome.results[0], outcome


def expected_of(one, images, words, row, column):
    """The bits of an element of D."""
    block, lane, at = one.cell(row, column)
    former = int(words[block, lane, at])
    if one.hidden and one.hidden[4 * block + lane // 32] >> lane % 32 & 1:
        return former
    pairs = []
    for depth in range(one.depth):
        pair = [one.element(images, "a", row, depth), one.element(images, "b", column, depth)]
        if one.held:
            each = 32 // BITS[one.a]
            pair[0] = (
                int(words[block, row % 128, 64 + depth // each]) >> depth % each * BITS[one.a] & (1 << BITS[one.a]) - 1
            )
        for side, kind in enumerate((one.a, one.b)):
            pair[side] ^= one.signs[side] << BITS[kind] - 1
        pairs.append(tuple(pair))
    code = former if one.keeps else 0
    kinds = (one.d, one.a, one.b)
    if one.d == "s32":
        return summed_integers(pairs, code, kinds, one.saturates)
    return summed(pairs, code, kinds, 25, 23, one.divides)


@cache
def keys():
    """Keys of the table that the forms run."""
    texts = [*map(transfer_ptx, transfers()), *map(multiply_ptx, multiplications())]
    kernels = [parse_kernel(text, "kernel") for text in texts]
    return frozenset(key_of(one) for kernel in kernels for block in kernel.blocks for one in block.instructions)
