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
from tests.simulator.harness import executable, launching, make_world, module, run
from tests.simulator.isa.products import BITS, codes, packed
from tests.simulator.isa.products_oracle import element_of_image, summed, summed_integers, summed_scaled

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


def kernel_with_image(one, size, body, parameters, registers):
    """A kernel whose blocks copy images of a size into shared memory, at %r1, and then run a body. %r30: an mbarrier;
    %u: the warp's own row of tensor memory; %p1: in the first thread."""
    head = f"""{ALLOCATE}
mov.u32 %r30, bar; mov.u32 %r1, image; setp.eq.u32 %p1, %r0, 0; and.b32 %r1, %r1, 0xFFFFFF;
@%p1 mbarrier.init.shared::cta.b64 [%r30], 1; fence.mbarrier_init.release.cluster;
mul.lo.u32 %r2, %block, {size}; cvt.u64.u32 %d1, %r2; add.u64 %d1, %d1, %in; shl.b32 %r3, %r0, 2;
COPY: cvt.u64.u32 %d2, %r3; add.u64 %d2, %d2, %d1; ld.global.b32 %r4, [%d2]; add.u32 %r5, %r1, %r3;
st.shared.b32 [%r5], %r4; add.u32 %r3, %r3, 512; setp.lt.u32 %p0, %r3, {size}; @%p0 bra COPY;
fence.proxy.async; shl.b32 %u, %r0, 16; and.b32 %u, %u, 0x600000; add.u32 %u, %u, %t;"""
    shared = f".shared .align 4 .b32 place; .shared .align 8 .b64 bar; .shared .align 1024 .b8 image[{size}];"
    text = "\n".join([head, *body, TOGETHER if one.pair else "", FREE])
    text = text.replace("cta_group::G", f"cta_group::{1 + one.pair}")
    declared = f"{shared} .reg .b32 %t, %u; {registers}"
    return module(text, ["u64 in", *parameters, "u64 out"], registers=declared, target=TARGET)


WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r30], 0; @!%p3 bra WAIT;"


def outcome_of(ptx, inputs, width, blocks=1, **options):
    """What comes of a launch that has some inputs, and leaves some words of each thread."""
    values = [*inputs, np.zeros((128 * blocks, width), "u4")]
    program = launching(executable(ptx, arch=TARGET), blocks, 128, values, cluster=blocks)
    return run(make_world(1, arch=TARGET, **options), program)


def left(outcome, blocks=1):
    """The words of each block's threads."""
    return np.array(outcome.right[0], "u4").reshape(blocks, 128, -1)


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
    (found,) = left(outcome_of(transfer_ptx(one), (), 256))
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
NARROW = (("e4m3", 0), ("e5m2", 1), ("e2m3", 3), ("e3m2", 4), ("e2m1", 5))
KINDS = {
    "f16": (("f16", 0), ("bf16", 1)),
    "tf32": (("tf32", 2),),
    "f8f6f4": NARROW,
    "i8": (("u8", 0), ("s8", 1)),
    "mxf8f6f4": NARROW,
    "mxf4": (("e2m1", 1),),
    "mxf4nvf4": (("e2m1", 1),),
}
WIDTHS = {**BITS, "e2m3": 6, "e3m2": 6, "e2m1": 4}
SIZES = {
    "mxf8f6f4": {"": 1, ".scale_vec::1X": 1, ".block32": 1},
    "mxf4": {"": 2, ".scale_vec::2X": 2, ".block32": 2},
    "mxf4nvf4": {".scale_vec::2X": 2, ".block32": 2, ".scale_vec::4X": 4, ".block16": 4},
}
"""Scale factors of a row."""
WORDS, AT_A, AT_SCALES = 80, 64, 72
"""Words of a lane: D, A, and four columns of scale factors of A and of B."""
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
    size: str = ""
    scale: str = "ue8m0"
    firsts: tuple = (0, 0)

    @property
    def blocks(self):
        return SIZES.get(self.kind, {}).get(self.size, 0)

    @property
    def is_packed(self):
        return self.kind.startswith("mxf4")

    @property
    def depth(self):
        return 64 if self.is_packed else DEPTH_BYTES * 8 // max(8, WIDTHS[self.a])

    @property
    def strides(self):
        """Leading and stride of both matrices: units of 8 rows, and of 16 bytes along the depth or, turned, of rows."""
        return [(128, 128 * (self.depth // 8) if turned else 256) for turned in self.turned]

    @property
    def described(self):
        numbers = dict(KINDS[self.kind])
        bits = numbers[self.a] << 7 | numbers[self.b] << 10 | self.saturates << 3
        if self.blocks:
            bits |= self.firsts[1] << 4 | self.firsts[0] << 29 | (self.scale == "ue8m0") << 23
        else:
            bits |= RESULTS[self.d] << 4
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
        if kind not in BITS:
            each, width = 32 if self.is_packed else 16, WIDTHS[kind]
            at = start + row // 8 * stride + depth // each * leading + row % 8 * 16
            return (
                int.from_bytes(bytes(images[block][at : at + 16]), "little") >> depth % each * width & (1 << width) - 1
            )
        if not self.turned[side]:
            return element_of_image(images[block], kind, start, row, depth)
        size, many = BITS[kind] // 8, 128 // BITS[kind]
        at = start + row // many * stride + depth // 8 * leading + depth % 8 * 16 + row % many * size
        return int.from_bytes(bytes(images[block][at : at + size]), "little")

    def held_element(self, words, depth):
        """An element of A in a lane's words of tensor memory, where 4 and 6 bits lie in a byte as tcgen05.cp leaves
        them, unless they are packed."""
        width = WIDTHS[self.a]
        of = 4 if self.is_packed else max(8, width)
        below = 0 if self.is_packed else {6: 1, 4: 2}.get(width, 0)
        return int(words[AT_A + depth * of // 32]) >> depth * of % 32 + below & (1 << width) - 1

    def scale_cells(self, side, row):
        """Lanes and column of a row's scale factors in one block: a copy in each quarter, or of each half of B's rows
        in two quarters. From the strides of CuTe's layout, of lanes and then of bytes of columns."""
        count = self.columns if side else self.rows >> self.pair
        is_split = side == 1 and self.pair and self.rows == 128
        half = count // 2 if is_split else count
        at = along(row, [(min(32, half), 1), (-(-half // 32), 512), (2, 64)])
        return [at % 128 + 32 * copy for copy in range(2 if is_split else 4)], at // 512

    def scales(self, words, row, column):
        """Codes of the scale factors of a row of A and of a column of B."""
        block, row = divmod(row, self.rows >> self.pair)
        found = []
        for side, one in enumerate((row, column)):
            lanes, at = self.scale_cells(side, one)
            word = int(words[block, lanes[0], AT_SCALES + 4 * side + at])
            found.append([word >> 8 * (self.firsts[side] + number) & 255 for number in range(self.blocks)])
        return list(zip(*found, strict=True))


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


def scaled_multiplications():
    for a, _ in NARROW:
        yield Multiplication("f8f6f4", a, "e3m2", rows=64, columns=8, signs=(1, 0))
        yield Multiplication("f8f6f4", "e2m1", a, held=a == "e2m1", d="f16", signs=(0, 1))
    for kind, sizes in SIZES.items():
        for size, blocks in sizes.items():
            for pair, rows in ((False, 128), (True, 128), (True, 256)):
                name, columns = "e2m1" if kind != "mxf8f6f4" else "e4m3", 64 if pair else 40
                firsts = {1: (3, 1), 2: (0, 2), 4: (0, 0)}[blocks]
                how = {"rows": rows, "pair": pair, "columns": columns, "size": size, "firsts": firsts}
                yield Multiplication(kind, name, name, **how)
                if blocks == 4:
                    yield Multiplication(kind, name, name, scale="ue4m3", signs=(1, 0), **how)
    for (a, _), (b, _) in product(NARROW, NARROW):
        firsts = (len(a + b) % 4, ord(b[1]) % 4)
        yield Multiplication("mxf8f6f4", a, b, size=".block32", firsts=firsts, held=a[-1] == "1", keeps=b != "e4m3")
    yield Multiplication("mxf8f6f4", "e3m2", "e5m2", held=True, rows=256, pair=True, signs=(1, 1))
    yield Multiplication("mxf8f6f4", "e5m2", "e4m3", turned=(1, 1), columns=64)
    yield Multiplication("mxf4", "e2m1", "e2m1", held=True, keeps=False)


def multiply_text(one):
    group = 2 if one.pair else 1
    hidden = f"{listed('m', len(one.hidden))}, " if one.hidden else ""
    divides = f", {one.divides}" if one.divides else ""
    left = "[%t+256]" if one.held else "%da"
    scaled = f".block_scale{one.size}" if one.blocks else ""
    scales = "[%s0], [%s1], " if one.blocks else ""
    text = (
        f"tcgen05.mma.cta_group::{group}.kind::{one.kind}{scaled} [%t], {left}, %db, %e, {scales}{hidden}%k{divides};"
    )
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
    body = ["mad.lo.u64 %d3, %lane64, 320, %words; mad.lo.u64 %d4, %lane64, 256, %out;"]
    body += [f"ld.global.b32 %f{at}, [%d3+{4 * at}];" for at in range(WORDS)]
    body += [f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%u], {listed('f', 64)}; add.u32 %u, %u, 256;"]
    many = "{" + ", ".join(f"%f{at}" for at in range(64, 80)) + "}"
    body += [f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%u], {many}; tcgen05.wait::st.sync.aligned;"]
    body += ["tcgen05.fence::before_thread_sync; bar.sync 0;", TOGETHER if one.pair else ""]
    body += [
        f"tcgen05.fence::after_thread_sync; add.u32 %u, %u, -256; mov.b16 %h0, {1 + 2 * one.pair}; cvt.u64.u32 %d5, %r30; shr.u32 %r6, %r1, 4;"
    ]
    body += ["cvt.u64.u32 %da, %r6; add.u64 %db, %da, 512;"]
    body += [f"or.b64 %da, %da, {described[0]}; or.b64 %db, %db, {described[1]};"]
    body += [f"mov.b32 %e, {one.described}; setp.{'eq' if one.keeps else 'ne'}.u32 %k, %r0, %r0;"]
    body += ["mov.u32 %r7, %cluster_ctarank; or.b32 %r7, %r7, %r0; setp.ne.u32 %p2, %r7, 0; @%p2 bra ISSUED;"]
    body += [f"add.u32 %s{side}, %t, {264 + 4 * side | first << 30};" for side, first in enumerate(one.firsts)]
    body += [f"mov.b32 %m{at}, {bits};" for at, bits in enumerate(one.hidden)]
    body += [text, commit, "ISSUED:"]
    body += [WAIT, "tcgen05.fence::after_thread_sync;"]
    body += [f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {listed('f', 64)}, [%u]; tcgen05.wait::ld.sync.aligned;"]
    body += [f"st.global.b32 [%d4+{4 * at}], %f{at};" for at in range(64)]
    registers = ".reg .b32 %e, %s<2>, %f<80>, %m<8>; .reg .b64 %da, %db; .reg .pred %k;"
    made = kernel_with_image(one, 12288, body, ["u64 words"], registers)
    if one.arrivals == "generic":
        place = "mov.u32 %r31, place;"
        made = made.replace(place, f"{place} cvt.u64.u32 %d9, %r31; cvta.shared.u64 %d9, %d9;")
        made = made.replace(".shared::cta.b32 [%r31]", ".b32 [%d9]")
    return made


def elements_of(kind, category, made, size_bytes):
    """Of small elements any bits are numbers."""
    if kind not in BITS:
        return made.integers(0, 256, size_bytes, np.uint8)
    return packed(kind, codes(kind, category, made, size_bytes * 8 // BITS[kind])).view("u1")


def scales_of(one, category, made, count, largest):
    """Words of four scale factors: "opposite" are all 2^127 of A and 2^-127 of B."""
    if category == "opposite":
        return np.full(count, largest * 0x01010101, "u4")
    few, spread = [0, 1, 254, 255], {"normal": 8, "wide": 100, "special": 8, "exact": 2}[category]
    found = made.integers(127 - spread, 128 + spread, 4 * count)
    if one.scale == "ue4m3":
        few, found = [0, 1, 0x7E, 0x7F], made.integers(0x30, 0x48, 4 * count) if category == "exact" else found % 0x7F
    if category == "special":
        found = np.where(made.integers(0, 30, 4 * count) == 0, made.choice(np.array(few), 4 * count), found)
    return found.astype("u1").view("u4")


def inputs_of(one, category):
    """Images (blocks, 12288) and words (blocks, 128, 80): of D, of A, and scale factors of A and B."""
    made = np.random.default_rng([35, zlib.crc32(repr(one).encode()), zlib.crc32(category.encode())])
    images, words = [], []
    of_b = scales_of(one, category, made, one.columns, 0) if one.blocks else ()
    plain = "exact" if category == "opposite" else category
    for _ in range(1 + one.pair):
        parts = [elements_of(kind, plain, made, size) for kind, size in ((one.a, B_AT), (one.b, 12288 - B_AT))]
        images.append(np.concatenate(parts))
        d = codes(one.d, plain, made, 128 * 64).reshape(128, 64)
        a = elements_of(one.a, plain, made, 128 * DEPTH_BYTES).view("u4").reshape(128, 8)
        scales = np.zeros((128, 8), "u4")
        of_a = scales_of(one, category, made, one.rows >> one.pair, 254) if one.blocks else ()
        for side, some in enumerate((of_a, of_b)):
            for row, word in enumerate(some):
                lanes, column = one.scale_cells(side, row)
                scales[lanes, 4 * side + column] = word
        words.append(np.concatenate([d, a, scales], axis=1))
    return np.stack(images), np.stack(words).astype("u4")


def multiplied(one, images, words, **options):
    """What D's memory holds, as (blocks, 128, 64), and the outcome."""
    blocks = 1 + one.pair
    outcome = outcome_of(multiply_ptx(one), (images, words), 64, blocks, **options)
    return left(outcome, blocks), outcome


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
            pair[0] = one.held_element(words[block, row % 128], depth)
        for side, kind in enumerate((one.a, one.b)):
            pair[side] ^= one.signs[side] << WIDTHS[kind] - 1
        pairs.append(tuple(pair))
    code = former if one.keeps else 0
    kinds = (one.d, one.a, one.b)
    if one.d == "s32":
        return summed_integers(pairs, code, kinds, one.saturates)
    if one.blocks:
        return summed_scaled(pairs, one.scales(words, row, column), code, kinds, one.scale)
    return summed(pairs, code, kinds, 25, 23, one.divides)


def every_multiplication():
    return [*multiplications(), *scaled_multiplications()]


# Copies from shared memory


@dataclass(frozen=True)
class Copy:
    """One form of tcgen05.cp. swizzle: of the descriptor, in bytes; lane: of the address."""

    shape: str
    narrow: str = ""
    pair: bool = False
    swizzle: int = 0
    lane: int = 0

    @property
    def modes(self):
        """Rows, bytes of a row, and of each copy the lanes of its rows: extents and strides that CuTe's traits state."""
        by_name = {
            "128x256b": (128, 32, [[(128, 1)]]),
            "4x256b": (4, 32, [[(4, 32)]]),
            "128x128b": (128, 16, [[(128, 1)]]),
            "64x128b.warpx2::02_13": (64, 16, [[(64, 1)], [(64, 1)]]),
            "64x128b.warpx2::01_23": (64, 16, [[(32, 1), (2, 64)], [(32, 1), (2, 64)]]),
            "32x128b.warpx4": (32, 16, [[(32, 1)]] * 4),
        }
        return by_name[self.shape]

    @property
    def apart(self):
        """Lanes from one copy to the next one."""
        return 64 if "02_13" in self.shape else 32

    def places(self, row, unit):
        """Where 16 bytes of a row are in the image: rows of the swizzle's bytes, or units of 8 rows of 16 bytes."""
        if not self.swizzle:
            return row // 8 * 256 + row % 8 * 16 + unit * 128
        at = row // 8 * 8 * self.swizzle + row % 8 * self.swizzle + unit * 16
        return at ^ at >> 3 & self.swizzle - 16


def copies():
    names = ("128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23", "32x128b.warpx4")
    for name, pair, narrow in product(names, (False, True), ("", "b4x16_p64", "b6x16_p32")):
        yield Copy(name, narrow, pair)
    for swizzle in (32, 64, 128):
        yield Copy("128x256b", swizzle=swizzle)
    yield Copy("4x256b", lane=31)


def copy_ptx(one):
    """An image of 16 KiB into tensor memory of zeros, of which 8 columns are told."""
    body = ["mov.u32 %r6, 0;"]
    body += ["tcgen05.st.sync.aligned.32x32b.x8.b32 [%u], {" + ", ".join(["%r6"] * 8) + "};"]
    body += [
        "tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0;",
        TOGETHER if one.pair else "",
    ]
    leading, stride = (1, one.swizzle // 2) if one.swizzle else (8, 16)
    layout = {0: 0, 128: 2, 64: 4, 32: 6}[one.swizzle]
    bits = 1 << 46 | leading << 16 | stride << 32 | layout << 61
    body += [f"shr.u32 %r6, %r1, 4; cvt.u64.u32 %d3, %r6; or.b64 %d3, %d3, {bits};"]
    body += [f"add.u32 %r7, %t, {one.lane << 16}; mov.u32 %r8, %cluster_ctarank; or.b32 %r8, %r8, %r0;"]
    body += ["setp.ne.u32 %p2, %r8, 0; @%p2 bra ISSUED; tcgen05.fence::after_thread_sync;"]
    narrow = f".b8x16.{one.narrow}" if one.narrow else ""
    body += [f"tcgen05.cp.cta_group::G.{one.shape}{narrow} [%r7], %d3; mov.b16 %h0, {1 + 2 * one.pair};"]
    commit = "tcgen05.commit.cta_group::G.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
    body += [f"{commit} [%r30], %h0;", "ISSUED:", WAIT]
    body += [f"tcgen05.fence::after_thread_sync; tcgen05.ld.sync.aligned.32x32b.x8.b32 {listed('f', 8)}, [%u];"]
    body += ["tcgen05.wait::ld.sync.aligned; mad.lo.u64 %d4, %lane64, 32, %out;"]
    body += [f"st.global.b32 [%d4+{4 * at}], %f{at};" for at in range(8)]
    return kernel_with_image(one, 16384, body, [], ".reg .b32 %f<8>;")


def images_of(blocks):
    return np.random.default_rng(9).integers(0, 256, (blocks, 16384), np.uint8)


def copied(one):
    """What a form leaves, and what it should."""
    blocks = 1 + one.pair
    images = images_of(blocks)
    found = left(outcome_of(copy_ptx(one), [images], 8, blocks), blocks).view("u1")
    expected = np.zeros_like(found)
    rows, size, every = one.modes
    for block, row, unit, (number, modes) in product(range(blocks), range(rows), range(size // 16), enumerate(every)):
        at = one.places(row, unit)
        whole = images[block, at : at + 16]
        if one.narrow:
            bits, below = {"b4x16_p64": (4, 2), "b6x16_p32": (6, 1)}[one.narrow]
            number_of = int.from_bytes(bytes(whole), "little")
            whole = [(number_of >> bits * element & (1 << bits) - 1) << below for element in range(16)]
        lane = one.lane + along(row, modes) + number * one.apart
        expected[block, lane, 16 * unit : 16 * unit + 16] = whole
    return found, expected


@cache
def keys():
    """Keys of the table that the forms run."""
    texts = [*map(transfer_ptx, transfers()), *map(multiply_ptx, every_multiplication()), *map(copy_ptx, copies())]
    kernels = [parse_kernel(text, "kernel") for text in texts]
    return frozenset(key_of(one) for kernel in kernels for block in kernel.blocks for one in block.instructions)
