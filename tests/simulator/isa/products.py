"""Forms of matrix products and of their copies between registers and shared memory, as kernels that know no layout.

A tile is one block of one warpgroup, or of one warp. It gets an image of shared memory, and words of each lane: for
wgmma two descriptors, then A if it is in registers, then C. It leaves the words of D. Inputs are made by NumPy from a
seed, so that what an H100 left (hardware/h100.json.xz) can be held against any implementation without a GPU.
"""

import hashlib
import json
import lzma
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from simulator.isa import key_of
from simulator.ptx.parse import parse_kernel
from tests.simulator.harness import module

HARDWARE = Path(__file__).parent / "hardware" / "h100.json.xz"
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "f32": (8, 23), "e4m3": (4, 3), "e5m2": (5, 2)}
"""Bits of the exponent and of the significand. tf32 is read from 32 bits, of which it takes the upper 19."""
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s32": 32}
OF_FLOATS = ("normal", "wide", "cancel", "subnormal", "special", "exact", "huge", "zero", "bits")
OF_INTEGERS = ("normal", "wide", "huge", "exact")
IMAGE_A, IMAGE_B = 2048, 32
"""Bytes of A in shared memory, and of each column of B: the same for all types."""
LEADING, STRIDE = 128, 256
NONE = LEADING // 16 << 16 | STRIDE // 16 << 32
"""A descriptor without a swizzle: units of 8 rows x 16 bytes, the two along K beside each other."""


@dataclass(frozen=True)
class Form:
    """One kernel. given: the words of a lane, as register, number and type; out: how many it leaves (dumps: shared
    memory). kinds: types of D, A and B; regions: type and bytes of the parts of the image. depth, signs, turned (A and
    B are transposed), keeps (D is added to), times and saturates say what the instruction computes."""

    name: str
    text: str
    lanes: int
    kinds: tuple
    given: tuple
    out: int
    regions: tuple = ()
    categories: tuple = ("normal",)
    tiles: int = 2
    descriptors: bool = False
    dumps: bool = False
    setting: tuple = field(default=())
    depth: int = 0
    signs: tuple = (1, 1)
    turned: tuple = (0, 0)
    keeps: bool = True
    times: int = 1
    saturates: bool = False

    @property
    def image_bytes(self):
        return sum(size for _, size in self.regions)

    @property
    def words(self):
        return 4 * self.descriptors + sum(count for _, count, _ in self.given)


def listed(register, count):
    return "{" + ", ".join(f"%{register}{at}" for at in range(count)) + "}"


@cache
def ptx_of(form):
    """The kernel: image and words in, the form, words out."""
    size, lines = form.image_bytes, []
    if size:
        lines += [f"mad.lo.u32 %r1, %block, {size}, 0; cvt.u64.u32 %d1, %r1; add.u64 %d1, %d1, %image;"]
        lines += ["mov.u32 %r2, image; shl.b32 %r3, %r0, 2; cvt.u64.u32 %d2, %r3; add.u64 %d1, %d1, %d2;"]
        lines += [f"NEXT: setp.ge.u32 %p0, %r3, {size}; @%p0 bra FULL; ld.global.b32 %r4, [%d1];"]
        lines += ["add.u32 %r5, %r2, %r3; st.shared.b32 [%r5], %r4;"]
        lines += [f"add.u32 %r3, %r3, {4 * form.lanes}; add.u64 %d1, %d1, {4 * form.lanes}; bra NEXT; FULL:"]
    lines += [f"mad.lo.u64 %d3, %lane64, {4 * form.words}, %words; mad.lo.u64 %d4, %lane64, {4 * form.out}, %out;"]
    at = 0
    if form.descriptors:
        lines += ["ld.global.b64 %d5, [%d3]; ld.global.b64 %d6, [%d3+8]; shr.u32 %r6, %r2, 4; cvt.u64.u32 %d7, %r6;"]
        lines += ["add.u64 %d5, %d5, %d7; add.u64 %d6, %d6, %d7;"]
        at = 16
    for register, count, _ in form.given:
        lines += [f"ld.global.b32 %{register}{one}, [%d3+{at + 4 * one}];" for one in range(count)]
        at += 4 * count
    lines += ["fence.proxy.async; bar.sync 0;" if size else "", form.text]
    if form.dumps:
        lines += [f"bar.sync 0; mul.lo.u32 %r3, %r0, {4 * form.out}; add.u32 %r3, %r3, %r2;"]
        lines += [f"ld.shared.b32 %c{one}, [%r3+{4 * one}];" for one in range(form.out)]
    lines += [f"st.global.b32 [%d4+{4 * one}], %c{one};" for one in range(form.out)]
    registers = f".reg .b32 %a<8>, %b<8>, %c<{max(form.out, 8)}>;"
    if size:
        registers += f" .shared .align 1024 .b8 image[{size}];"
    return module("\n".join(lines), ["u64 image", "u64 words", "u64 out"], registers=registers)


# Inputs


def codes(kind, category, made, count):
    """Bits of `count` elements of a type."""
    if kind in FLOATS:
        return _float_codes(kind, category, made, count)
    if kind == "s32":
        few = {"normal": 1 << 20, "exact": 1000}.get(category)
        if few:
            return made.integers(-few, few, count, np.int64) & 0xFFFFFFFF
        if category == "huge":
            return (
                np.where(made.integers(0, 2, count), 0x7FFFFFFF, 0x80000000) + made.integers(-900000, 900000, count)
                & 0xFFFFFFFF
            )
        return made.integers(0, 1 << 32, count, np.int64)
    if category == "huge":
        return made.choice(np.array([0x80, 0x7F, 0xFF, 0, 1]), count)
    return made.integers(0, 4 if category == "exact" else 256, count, np.int64)


def _float_codes(kind, category, made, count):
    exponents, bits = FLOATS[kind]
    width, bias, top = exponents + bits, (1 << exponents - 1) - 1, (1 << exponents) - 2
    whole = 1 << width + 1
    if category == "bits":
        return made.integers(0, whole, count, np.int64)
    sign = made.integers(0, 2, count, np.int64) << width
    fraction = made.integers(0, 1 << bits, count, np.int64)
    if category in ("normal", "special", "zero"):
        codes = _rounded(made.standard_normal(count), kind)
    elif category == "exact":
        return _rounded(made.integers(-1000, 1001, count) if kind == "f32" else made.integers(-8, 9, count), kind)
    elif category == "subnormal":
        high = made.integers(0, 4, count) == 0
        codes = sign | np.where(high, bias + made.integers(0, bias // 2 + 1, count), 0) << bits | fraction
    elif category == "huge":
        codes = sign | top - made.integers(0, 3, count) << bits | fraction
    elif category == "cancel":
        low = made.integers(0, 4, count) == 0
        exponent = np.clip(bias - np.where(low, made.integers(1, 16, count), 0), 0, top)
        codes = sign | exponent << bits | np.where(low, fraction, made.integers(0, 2, count))
    else:
        spread = int(made.choice([2, 4, 8, 12, 20, 40])) * (2 if kind == "f32" else 1)
        codes = sign | np.clip(bias + made.integers(-spread, spread + 1, count), 0, top) << bits | fraction
    if category in ("special", "zero"):
        most = (1 << width) - 1
        infinity = (top + 1) << bits
        few = [0, 1 << width, 0, 1 << width, 0, 1 << width]
        if category == "special":
            few = [
                infinity,
                infinity | 1 << width,
                most,
                most | 1 << width,
                infinity + 1,
                1,
                infinity - 1,
                1 << width,
                0,
            ]
        drawn = made.choice(np.array(few), count)
        share = made.integers(0, 50, count) == 0 if category == "special" else made.integers(0, 12, count) > 0
        codes = np.where(share, drawn, codes)
    return codes


def _rounded(values, kind):
    """Numbers of float32 in a type, toward zero."""
    exponents, bits = FLOATS[kind]
    raw = np.asarray(values, np.float32).view(np.uint32).astype(np.int64)
    sign, exponent, fraction = raw >> 31, (raw >> 23 & 255) - 127, (raw & 0x7FFFFF) >> 23 - bits
    bias = (1 << exponents - 1) - 1
    magnitude = np.where(exponent + bias > 0, (exponent + bias << bits) | fraction, 0)
    return sign << exponents + bits | np.minimum(magnitude, (((1 << exponents) - 2) << bits) | ((1 << bits) - 1))


def packed(kind, elements):
    """Elements as 32-bit words, the first in the low bits."""
    return np.asarray(elements).astype(f"<u{BITS[kind] // 8}").view("<u4")


def inputs_of(form, category, tiles=None):
    """Images (tiles, bytes) uint8 and words (tiles, lanes, words) uint32."""
    made = np.random.default_rng([34, zlib.crc32(form.name.encode()), zlib.crc32(category.encode())])
    images, words = [], []
    for tile in range(tiles or form.tiles):
        image = [
            packed(kind, codes(kind, category, made, size * 8 // BITS[kind])).view("u1") for kind, size in form.regions
        ]
        parts = []
        for _, count, kind in form.given:
            drawn = codes(kind, category, made, form.lanes * count * 32 // BITS[kind])
            parts.append(packed(kind, drawn).reshape(form.lanes, count))
        if form.setting:
            image, parts, pair = SETTINGS[form.setting[0]](form, tile, made, image, parts)
        elif form.descriptors:
            pair = (NONE, NONE | IMAGE_A // 16)
        if form.descriptors:
            head = np.tile(np.array(pair, "<u8").view("<u4"), (form.lanes, 1))
            parts.insert(0, head)
        images.append(np.concatenate(image) if image else np.zeros(0, np.uint8))
        words.append(np.concatenate(parts, axis=1))
    return np.stack(images), np.stack(words).astype("<u4")


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)).hexdigest()[:16]


@cache
def hardware_digests():
    """By form and category the digests of the inputs and of what an H100 left (products_on_gpu.py, 2026-11-27)."""
    return json.loads(lzma.decompress(HARDWARE.read_bytes()))["digests"]


# Settings of probes: where a descriptor reads, shown by elements that are all different


def _distinct(count):
    return packed("f16", 0x0400 + np.arange(count) % 30000).view("u1")


def _descriptor(form, tile, made):
    """The swizzle of the form; one in four is as compilers make it, another has a base offset."""
    mode = form.setting[1]
    leading, stride, start = (16 * int(one) for one in made.integers(1, 129, 3))
    base = int(made.integers(0, 8)) if tile % 4 == 3 else 0
    if tile % 4 == 0:
        leading, stride, start = 4096 if mode else 128, {0: 256, 1: 1024, 2: 512, 3: 256}[mode], 1024
    return start // 16 | leading // 16 << 16 | stride // 16 << 32 | base << 49 | mode << 62


def _probe_b(form, tile, made, image, parts):
    """A has ones at k = row: row k of D is row k of B."""
    lane = np.arange(128)
    ones = np.zeros((128, 4, 2), np.uint16)
    for register in range(4):
        for half in range(2):
            row, k = (
                16 * (lane // 32) + lane % 32 // 4 + 8 * (register % 2),
                2 * (lane % 4) + 8 * (register // 2) + half,
            )
            ones[:, register, half] = np.where(row % 16 == k, 0x3C00, 0)
    c = np.zeros((128, form.given[1][1]), "<u4")
    return [_distinct(form.image_bytes // 2)], [ones.view("<u4").reshape(128, 4), c], (0, _descriptor(form, tile, made))


def _probe_a(form, tile, made, image, parts):
    """B, which lies behind A, has ones at k = column: column k of D is column k of A."""
    n, k = np.meshgrid(np.arange(16), np.arange(16), indexing="ij")
    ones = np.zeros(256, np.uint16)
    ones[(n // 8 * STRIDE + k // 8 * LEADING + n % 8 * 16) // 2 + k % 8] = np.where(n == k, 0x3C00, 0)
    behind = form.image_bytes - 512
    pair = (_descriptor(form, tile, made), NONE | behind // 16)
    return [_distinct(behind // 2), ones.view("u1")], [np.zeros((128, 8), "<u4")], pair


def _addresses(form, tile, made, image, parts):
    """A word of each lane is the place of a row of 16 bytes, another for each."""
    parts[0][:] = 16 * made.permutation(form.image_bytes // 16)[: form.lanes, None]
    return image, parts, ()


SETTINGS = {"probe_b": _probe_b, "probe_a": _probe_a, "addresses": _addresses}


# Forms


DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
FLOAT8 = ("e4m3", "e5m2")
PAIRS = [("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
PAIRS += [(d, a, b) for d in ("f16", "f32") for a in FLOAT8 for b in FLOAT8]
INTEGERS = [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]


def wgmma(kinds, n=16, a_in="shared", end=(), saturates="", keeps=True, times=1, note="", **how):
    """A form of wgmma. end: imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b; keeps: D is added to."""
    d, a, b = kinds
    count = n // 2 // (32 // BITS[d])
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{DEPTH[a]}.{d}.{a}.{b}{saturates}"
    facts = {"depth": DEPTH[a], "keeps": keeps, "times": times, "saturates": bool(saturates)}
    if a in FLOATS:
        scales = list(end[:2]) or [1, 1]
        trans = (list(end[2:]) or [0, 0]) if BITS[a] == 16 else []
        facts |= {"signs": tuple(scales), "turned": tuple(trans) or (0, 0)}
        trans = trans[1:] if a_in == "registers" else trans
        end = scales + trans
    else:
        end = []
    where = listed("a", 4) if a_in == "registers" else "%d5"
    tail = "".join(f", {one}" for one in ("%p1", *end))
    text = f"setp.{'eq' if keeps else 'ne'}.u32 %p1, %r0, %r0; wgmma.fence.sync.aligned;"
    text += f" {opcode} {listed('c', count)}, {where}, %d6{tail};" * times
    text += " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    name = f"{opcode} {a_in}{tail}{' twice' if times == 2 else ''}{'' if keeps else ' fresh'}{note}"
    given = ((("a", 4, a),) if a_in == "registers" else ()) + (("c", count, d),)
    regions = ((a, IMAGE_A), (b, IMAGE_B * n))
    return Form(name, text, 128, kinds, given, count, **{"regions": regions, "descriptors": True, **facts, **how})


def wgmma_forms():
    for kinds in PAIRS:
        for a_in in ("shared", "registers"):
            yield wgmma(kinds, a_in=a_in, categories=OF_FLOATS, tiles=3)
        for scales in ((-1, 1), (1, -1), (-1, -1)):
            trans = (0, 0) if BITS[kinds[1]] == 16 else ()
            yield wgmma(kinds, end=(*scales, *trans), categories=("normal", "special", "zero"))
        yield wgmma(kinds, keeps=False, categories=("normal", "special", "zero"))
        yield wgmma(kinds, times=2)
    for kinds in INTEGERS:
        for saturates in ("", ".satfinite"):
            for a_in in ("shared", "registers"):
                yield wgmma(kinds, a_in=a_in, saturates=saturates, categories=OF_INTEGERS, tiles=3)
        yield wgmma(kinds, keeps=False)
    for kinds in PAIRS[:3]:
        for trans in ((0, 1), (1, 0), (1, 1)):
            yield wgmma(kinds, end=(1, 1, *trans))
        yield wgmma(kinds, a_in="registers", end=(1, 1, 0, 1))
    yield from sizes()
    for mode in range(4):
        for trans in (0, 1):
            how = {"categories": ("normal",), "tiles": 12, "note": f" probe {mode}"}
            regions = (("f16", 40960),)
            yield wgmma(PAIRS[1], 128, "registers", (1, 1, 0, trans), regions=regions, setting=("probe_b", mode), **how)
            yield wgmma(PAIRS[1], 16, "shared", (1, 1, trans, 0), regions=regions, setting=("probe_a", mode), **how)


def sizes():
    """All numbers of columns in one type, few in each other."""
    yield from (wgmma(PAIRS[2], n, tiles=1) for n in range(8, 257, 8) if n != 16)
    for kinds in (PAIRS[0], PAIRS[3], PAIRS[5], PAIRS[8]):
        yield from (wgmma(kinds, n, tiles=1) for n in (8, 24, 136, 256))
    yield from (wgmma(INTEGERS[0], n, tiles=1) for n in (8, 24, 32, 48, 112, 256))


def mma(shape, kinds, a, b, saturates=""):
    """A form of mma.sync. a, b: registers of each lane."""
    d, left, right = kinds
    m, n = (int(one) for one in shape[1:].split("k")[0].split("n"))
    count = m * n * BITS[d] // 32 // 32
    opcode = f"mma.sync.aligned.{shape}.row.col{saturates}.{d}.{left}.{right}.{d}"
    text = f"{opcode} {listed('c', count)}, {listed('a', a)}, {listed('b', b)}, {listed('c', count)};"
    given = (("a", a, left), ("b", b, right), ("c", count, d))
    categories = OF_FLOATS if left in FLOATS else OF_INTEGERS
    facts = {"depth": int(shape.split("k")[1]), "saturates": bool(saturates)}
    return Form(opcode, text, 32, kinds, given, count, categories=categories, tiles=16, **facts)


def mma_forms():
    for kinds in PAIRS[:3]:
        yield mma("m16n8k8", kinds, 2, 1)
        yield mma("m16n8k16", kinds, 4, 2)
    yield mma("m16n8k4", PAIRS[3], 2, 1)
    yield mma("m16n8k8", PAIRS[3], 4, 2)
    for kinds in PAIRS[4:]:
        yield mma("m16n8k16", kinds, 2, 1)
        yield mma("m16n8k32", kinds, 4, 2)
    for kinds in INTEGERS:
        for saturates in ("", ".satfinite"):
            yield mma("m8n8k16", kinds, 1, 1, saturates)
            yield mma("m16n8k16", kinds, 2, 1, saturates)
            yield mma("m16n8k32", kinds, 4, 2, saturates)


def copy_forms():
    """ldmatrix, stmatrix and movmatrix on random rows."""
    how = {"lanes": 32, "kinds": (), "categories": ("bits",), "tiles": 4}
    image = {"regions": (("f16", 1024),), "setting": ("addresses",)}
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            text = f"add.u32 %b0, %b0, %r2; {opcode} {listed('c', count)}, [%b0];"
            yield Form(opcode, text, given=(("b", 1, "f32"),), out=count, **how, **image)
            opcode = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            text = f"add.u32 %b0, %b0, %r2; {opcode} [%b0], {listed('a', count)};"
            yield Form(opcode, text, given=(("b", 1, "f32"), ("a", count, "f16")), out=8, dumps=True, **how, **image)
    opcode = "movmatrix.sync.aligned.m8n8.trans.b16"
    yield Form(opcode, f"{opcode} %c0, %a0;", given=(("a", 1, "f16"),), out=1, **how)


@cache
def forms():
    made = (*wgmma_forms(), *mma_forms(), *copy_forms())
    assert len({one.name for one in made}) == len(made)
    return made


@cache
def keys():
    """Keys of the table that the forms run, and setmaxnreg's, which gives nothing."""
    kernels = [parse_kernel(ptx_of(one), "kernel") for one in forms()]
    found = {key_of(one) for kernel in kernels for block in kernel.blocks for one in block.instructions}
    return frozenset(found | {"setmaxnreg.inc.u32", "setmaxnreg.dec.u32"})
