"""Vectors of mov in all its forms: registers, literals, special registers, halves put together and taken apart."""

import numpy as np

from tests.simulator.bench import SAMPLES, Vector
from tests.simulator.isa.vectors_integer import GUARD, flags, samples, vectors_of, width

SHARED = "  .shared .align 16 .b8 first_buffer[64];\n  .shared .align 8 .b64 second_buffer[4];\n"
KINDS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def plain():
    yield from vectors_of("mov.pred", lambda a: a, 1, (1,), literals={0: [("1", 1), ("0", 0), ("-1", 1)]})
    for kind in KINDS:
        bits = width(kind)
        top = (1 << bits) - 1
        if kind == "f32":
            literals = [("0f7F800001", 0x7F800001), ("0F3f800000", 0x3F800000)]
        elif kind == "f64":
            literals = [("0dFFF0000000000001", 0xFFF0000000000001), ("0D3FF0000000000000", 0x3FF0000000000000)]
        else:
            literals = [("-1", top), (hex(top // 3), top // 3), ("0XfF", 255), ("12U", 12), ("0", 0)]
        yield from vectors_of(f"mov.{kind}", lambda a: a, bits, (bits,), literals={0: literals})


def special():
    """Identities that hold in every shape of launch: %lane was made of %ctaid, %ntid and %tid by the bench's own prologue."""
    lanes = np.arange(SAMPLES)
    zero, one = np.zeros(SAMPLES, np.uint32), np.ones(SAMPLES, np.uint32)
    for kind in ("b32", "u32", "s32"):
        outputs = [("d", "b32", lanes)]
        text = f"mov.{kind} x, %tid.x; mov.{kind} y, %ntid.x; mov.{kind} z, %ctaid.x; mad.lo.u32 d, y, z, x; add.u32 d, d, %first;"
        yield Vector(f"mov.{kind}", "thread", text, (), tuple(outputs), registers=".reg .b32 x, y, z;")
        text = (
            f"mov.{kind} x, %nctaid.x; mov.{kind} y, %ntid.x; mul.lo.u32 d, x, y; sub.u32 d, d, y; sub.u32 d, d, %lane;"
        )
        text += "sub.u32 d, %lane, %first; mov.u32 z, %ctaid.x; setp.lt.u32 p, z, x; selp.b32 e, 1, 0, p;"
        first_of = ".reg .b32 x, y, z; .reg .pred p;"
        yield Vector(f"mov.{kind}", "grid", text, (), (("e", "b32", one),), registers=first_of + ".reg .b32 d;")
        text = f"mov.{kind} x, %laneid; mov.{kind} y, %warpid; mov.u32 z, %tid.x; shl.b32 y, y, 5; add.u32 x, x, y; sub.u32 d, x, z;"
        yield Vector(f"mov.{kind}", "warp", text, (), (("d", "b32", zero),), registers=".reg .b32 x, y, z;")
        text = f"mov.{kind} x, %smid; mov.{kind} y, %nsmid; sub.u32 d, x, %block; sub.u32 e, y, %nctaid.x;"
        outputs = (("d", "b32", zero), ("e", "b32", zero))
        yield Vector(f"mov.{kind}", "multiprocessor", text, (), outputs, registers=".reg .b32 x, y;")
        for name, value in (("WARP_SZ", 32), ("%nwarpid", 64)):
            read = (("d", "b32", np.full(SAMPLES, value)),)
            yield Vector(f"mov.{kind}", name.strip("%"), f"mov.{kind} d, {name};", (), read)
        for name in ("%tid.y", "%tid.z", "%ctaid.y", "%ctaid.z"):
            yield Vector(f"mov.{kind}", f"{name[1:]}", f"mov.{kind} d, {name};", (), (("d", "b32", zero),))
        for name in ("%ntid.y", "%ntid.z", "%nctaid.y", "%nctaid.z"):
            yield Vector(f"mov.{kind}", f"{name[1:]}", f"mov.{kind} d, {name};", (), (("d", "b32", one),))
    for kind in ("b16", "u16", "s16"):
        text = f"mov.{kind} x, %tid.x; mov.u32 y, %tid.x; cvt.u32.u16 d, x; sub.u32 d, d, y;"
        text += f"mov.{kind} x, %gridid; mov.u32 y, %gridid; cvt.u32.u16 e, x; sub.u32 e, e, y;"
        outputs = [("d", "b32", zero), ("e", "b32", zero)]
        yield Vector(f"mov.{kind}", "lower_half", text, (), tuple(outputs), registers=".reg .b16 x; .reg .b32 y;")
    text = "mov.b32 {x, y}, %ntid.x; cvt.u32.u16 d, x; sub.u32 d, d, %ntid.x; setp.eq.u32 p, %ntid.x, %ntid.x; selp.b32 e, 1, 0, p;"
    outputs = [("d", "b32", zero), ("e", "b32", one)]
    yield Vector("mov.b32", "uniform_operands", text, (), tuple(outputs), registers=".reg .b16 x, y; .reg .pred p;")


def clocks():
    """A clock stands still for nobody and never goes back: between two readings in different steps it has moved on."""
    one = np.ones(SAMPLES, np.uint32)
    for kind in ("u64", "b64", "s64"):
        for name in ("%globaltimer", "%clock64"):
            text = f"mov.{kind} x, {name}; bra ON; ON: mov.{kind} y, {name}; setp.gt.u64 p, y, x; selp.b32 d, 1, 0, p;"
            text += "setp.ne.u64 p, x, 0; selp.b32 e, 1, 0, p;"
            outputs = (("d", "b32", one), ("e", "b32", one))
            yield Vector(f"mov.{kind}", name[1:], text, (), outputs, registers=".reg .b64 x, y; .reg .pred p;")


def symbols():
    """Addresses of shared variables are offsets; only their distance and alignment mean anything."""
    for kind in ("b32", "u32", "s32", "b64", "u64", "s64"):
        bits = kind[1:]
        text = f"mov.{kind} x, first_buffer; mov.{kind} y, second_buffer; sub.u{bits} d, y, x;"
        expected = np.full(SAMPLES, 64)
        yield Vector(
            f"mov.{kind}", "shared", text, (), (("d", f"b{bits}", expected),), registers=f".reg .b{bits} x, y;"
        )


def vectors():
    a, b = samples(16, 0), samples(16, 1)
    c, e = samples(16, 3), samples(16, 4)
    two = a.astype(np.uint32) | b.astype(np.uint32) << 16
    four = a.astype(np.uint64) | b.astype(np.uint64) << 16 | c.astype(np.uint64) << 32 | e.astype(np.uint64) << 48
    low, high = samples(32, 0), samples(32, 1)
    long = low.astype(np.uint64) | high.astype(np.uint64) << 32
    halves = (("a", "b16", a), ("b", "b16", b))
    words = (("a", "b32", low), ("b", "b32", high))
    yield Vector("mov.b32", "join", "mov.b32 d, {a, b};", halves, (("d", "b32", two),))
    yield Vector("mov.b64", "join", "mov.b64 d, {a, b};", words, (("d", "b64", long),))
    quarter = tuple((n, "b16", v) for n, v in zip("abce", (a, b, c, e), strict=True))
    yield Vector("mov.b64", "join4", "mov.b64 d, {a, b, c, e};", quarter, (("d", "b64", four),))
    yield Vector("mov.b32", "join_same", "mov.b32 d, {a, a};", halves[:1], (("d", "b32", a.astype(np.uint32) * 65537),))
    yield Vector(
        "mov.b32", "join_literal", "mov.b32 d, {a, 258};", halves[:1], (("d", "b32", a.astype(np.uint32) | 258 << 16),)
    )
    yield Vector("mov.b32", "split", "mov.b32 {x, y}, a;", (("a", "b32", two),), (("x", "b16", a), ("y", "b16", b)))
    outputs = (("x", "b32", low), ("y", "b32", high))
    yield Vector("mov.b64", "split", "mov.b64 {x, y}, a;", (("a", "b64", long),), outputs)
    out4 = tuple((n, "b16", v) for n, v in zip("wxyz", (a, b, c, e), strict=True))
    yield Vector("mov.b64", "split4", "mov.b64 {w, x, y, z}, a;", (("a", "b64", four),), out4)
    yield Vector("mov.b32", "split_low", "mov.b32 {x, _}, a;", (("a", "b32", two),), (("x", "b16", a),))
    yield Vector("mov.b64", "split_high", "mov.b64 {_, y}, a;", (("a", "b64", long),), (("y", "b32", high),))
    swap = "mov.b32 {x, y}, a; mov.b32 a, {y, x}; mov.b32 d, a;"
    swapped = b.astype(np.uint32) | a.astype(np.uint32) << 16
    yield Vector("mov.b32", "swap", swap, (("a", "b32", two),), (("d", "b32", swapped),), registers=".reg .b16 x, y;")
    yield from _of_bytes(two)
    guard = GUARD.astype(bool)
    text = "mov.b16 x, 7; mov.b16 y, 9; @g mov.b32 {x, y}, a;"
    outputs = (("x", "b16", np.where(guard, a, 7)), ("y", "b16", np.where(guard, b, 9)))
    yield Vector("mov.b32", "split_guarded", text, (("a", "b32", two), ("g", "pred", GUARD)), outputs)


def _of_bytes(words):
    """8-bit registers: cut out of words, put together to 16 and 32 bits, taken apart, stored and loaded."""
    declared = ".reg .b8 v, w, x, y; .reg .b32 s; .reg .b16 t;"
    cut = "cvt.u8.u32 v, a; shr.u32 s, a, 8; cvt.u8.u32 w, s; shr.u32 s, a, 16; cvt.u8.u32 x, s; shr.u32 s, a, 24; cvt.u8.u32 y, s;"
    inputs = (("a", "b32", words),)
    yield Vector(
        "mov.b32", "join_bytes", f"{cut} mov.b32 d, {{v, w, x, y}};", inputs, (("d", "b32", words),), registers=declared
    )
    low = (words & np.uint32(0xFFFF)).astype(np.uint16)
    yield Vector(
        "mov.b16", "join_bytes", f"{cut} mov.b16 d, {{v, w}};", inputs, (("d", "b16", low),), registers=declared
    )
    mixed = (words >> np.uint32(24)).astype(np.uint16) | low << np.uint16(8)
    text = "mov.b32 {v, w, x, y}, a; mov.b16 d, {y, v}; mov.b16 {v, _}, d; cvt.s16.s8 e, v;"
    signed = (words.view(np.int32) >> 24).astype(np.int16).view(np.uint16)
    outputs = (("d", "b16", mixed), ("e", "b16", signed))
    yield Vector("mov.b32", "split_bytes", text, inputs, outputs, registers=declared)
    yield Vector("mov.b16", "split_bytes", text, inputs, outputs, registers=declared)


def guards():
    """A guard that its own instruction overwrites, and one that was made from another."""
    ones = flags(0).astype(bool)
    others = flags(1).astype(bool)
    inputs = (("p", "pred", ones.astype(np.uint32)), ("q", "pred", others.astype(np.uint32)))
    cases = {
        "own_guard": ("@p mov.pred p, q;", np.where(ones, others, ones)),
        "own_guard_not": ("@!p mov.pred p, q;", np.where(~ones, others, ones)),
        "own_guard_set": ("@p not.pred p, p;", np.zeros(SAMPLES, bool)),
        "own_guard_compare": ("@p setp.ne.u32 p, 1, 1;", np.zeros(SAMPLES, bool)),
        "own_guard_and": ("@!p or.pred p, q, p;", np.where(~ones, others | ones, ones)),
    }
    for name, (text, expected) in cases.items():
        yield Vector("mov.pred", name, text + " mov.pred d, p;", inputs, (("d", "pred", expected.astype(np.uint32)),))


def family():
    parts = (plain(), special(), clocks(), symbols(), vectors(), guards())
    return [vector for part in parts for vector in part]
