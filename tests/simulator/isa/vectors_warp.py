"""Vectors of what warps do together. A quarter of the lanes (number 1 of every four) is away in some shapes, so expected
values are those that do not depend on them. The oracle of shuffles is CUDA's description of __shfl_sync by width and
delta, not the PTX ISA's formulas; for the others it is Python over the lanes of a warp.
"""

import struct

import numpy as np

from tests.simulator.bench import SAMPLES, Vector
from tests.simulator.isa.oracle import signed, wrap
from tests.simulator.isa.vectors_integer import GUARD, samples

WARP = 32
LANES = np.arange(SAMPLES)
PRESENT = LANES % 4 != 1
SHARED = "  .shared .align 4 .b8 exchange[4096];\n"


def shuffles():
    a = samples(32, 0)
    for width in (32, 16, 8):
        segment = (32 - width) << 8
        for way, amounts in (("up", (4, 8)), ("down", (4, 12)), ("bfly", (4, 16)), ("idx", (0, 3, 6))):
            for amount in amounts:
                yield _shuffle(way, width, amount, segment | (0 if way == "up" else 31), a)
    amounts = np.array([(7 * lane % 8) * 4 for lane in LANES.tolist()])
    found = a[LANES // WARP * WARP + amounts]
    text = "shfl.sync.idx.b32 d|p, a, n, 31, -1;"
    inputs = (("a", "b32", a), ("n", "b32", amounts))
    yield Vector(
        "shfl.sync.idx.b32", "each_its_own", text, inputs, (("d", "b32", found), ("p", "pred", np.ones(SAMPLES)))
    )
    quads = np.where(GUARD[LANES // 4 * 4] != 0, 1, 0)  # whole quads take part, so that the masks are known
    text = "mov.u32 d, 9; vote.sync.ballot.b32 m, g, -1; @g shfl.sync.bfly.b32 d, a, 2, 31, m;"
    found = np.where(quads != 0, a[LANES ^ 2], 9)
    away = np.where(LANES % 4 == 3, 9, found)  # its partner is away in some shapes
    text += " and.b32 x, %lane, 3; setp.eq.u32 q, x, 3; @q mov.u32 d, 9;"
    yield Vector(
        "shfl.sync.bfly.b32", "some_lanes", text, (("a", "b32", a), ("g", "pred", quads)), (("d", "b32", away),),
        registers=".reg .b32 m, x; .reg .pred q;",
    )  # fmt: skip


def _shuffle(way, width, amount, clamp, a):
    source, inside = [], []
    for lane in LANES.tolist():
        start, place = lane // width * width, lane % width
        if way == "up":
            good, wanted = place >= amount, lane - amount
        elif way == "down":
            good, wanted = place + amount < width, lane + amount
        elif way == "bfly":  # of later segments nothing is read, of earlier ones it may be
            good, wanted = (lane ^ amount) < start + width, lane ^ amount
        else:
            good, wanted = True, start + amount % width
        source.append(wanted if good else lane)
        inside.append(good)
    text = f"shfl.sync.{way}.b32 d|p, a, {amount}, {clamp:#x}, 0xffffffff; shfl.sync.{way}.b32 e, a, {amount}, {clamp:#x}, -1;"
    found = a[np.array(source)]
    outputs = (("d", "b32", found), ("p", "pred", np.array(inside)), ("e", "b32", found))
    return Vector(f"shfl.sync.{way}.b32", f"{width}_by_{amount}", text, (("a", "b32", a),), outputs)


def by_warp(function, values):
    """function(places, values) of the lanes of each warp that are never away, for each lane."""
    out = []
    for lane in LANES.tolist():
        mates = [one for one in range(lane // WARP * WARP, lane // WARP * WARP + WARP) if PRESENT[one]]
        out.append(function([one % WARP for one in mates], [int(values[one]) for one in mates]))
    return out


def votes():
    columns = {
        "mixed": np.repeat(samples(32, 3)[: SAMPLES // 4] & 1, 4),
        "blocks": LANES // 64 % 2,
        "none": LANES * 0,
        "every": LANES * 0 + 1,
    }
    words = {
        "all": lambda places, values: all(values),
        "any": lambda places, values: any(values),
        "uni": lambda places, values: len(set(values)) == 1,
    }
    for name, column in columns.items():
        for word, function in words.items():
            for sign in ("", "!"):
                flags = column if not sign else 1 - column
                text = f"vote.sync.{word}.pred d, {sign}a, -1;"
                found = np.array(by_warp(function, flags))
                inputs, outputs = (("a", "pred", column),), (("d", "pred", found),)
                yield Vector(f"vote.sync.{word}.pred", f"{name}{'_not' if sign else ''}", text, inputs, outputs)
        bits = by_warp(lambda places, values: sum(v << p for p, v in zip(places, values, strict=True)), column)
        text = "vote.sync.ballot.b32 d, a, 0xffffffff; and.b32 d, d, 0xdddddddd;"
        yield Vector("vote.sync.ballot.b32", name, text, (("a", "pred", column),), (("d", "b32", np.array(bits)),))


def matches():
    for kind in ("b32", "b64"):
        bits = int(kind[1:])
        few = (
            samples(bits, 0)[LANES * 5 % 3 + LANES // WARP]
            if bits == 32
            else samples(64, 0)[LANES * 7 % 4 + LANES // WARP]
        )
        same = samples(bits, 1)[np.where(LANES % 96 < 40, LANES // WARP, 5)]
        for name, column in (("few", few), ("same", same)):
            good = [
                sum(1 << p for p, v in zip(places, values, strict=True) if v == int(column[lane]))
                for lane, (places, values) in enumerate(by_warp(lambda places, values: (places, values), column))
            ]
            text = f"match.any.sync.{kind} d, a, -1; and.b32 d, d, 0xdddddddd;"
            inputs = (("a", f"b{bits}", column),)
            yield Vector(f"match.any.sync.{kind}", name, text, inputs, (("d", "b32", np.array(good)),))
            column = np.where(PRESENT, column, np.roll(column, 1))  # as its neighbour's, present or not
            inputs = (("a", f"b{bits}", column),)
            alike = by_warp(lambda places, values: len(set(values)) == 1, column)
            whole = np.where(alike, 0xDDDDDDDD, 0)
            text = f"match.all.sync.{kind} d|p, a, -1; and.b32 d, d, 0xdddddddd;"
            outputs = (("d", "b32", whole), ("p", "pred", np.array(alike)))
            yield Vector(f"match.all.sync.{kind}", name, text, inputs, outputs)


def elections():
    outputs = (("d", "b32", np.zeros(SAMPLES)), ("p", "pred", LANES % WARP == 0))
    yield Vector("elect.sync", "whole", "elect.sync d|p, -1;", (), outputs)
    half = np.where(LANES % WARP < 16, 0xFFFF, 0xFFFF0000)
    outputs = (("d", "b32", LANES % WARP // 16 * 16), ("p", "pred", LANES % 16 == 0))
    yield Vector("elect.sync", "halves", "elect.sync d|p, m;", (("m", "b32", half),), outputs)
    yield Vector("elect.sync", "sink", "elect.sync _|p, m;", (("m", "b32", half),), outputs[1:])


def reductions():
    neutral = {"min.u32": 2**32 - 1, "min.s32": 2**31 - 1, "max.s32": 2**31, "and": 2**32 - 1}
    folds = {"add": sum, "min": min, "max": max}
    for word in ("and", "or", "xor"):
        folds[word] = lambda v, word=word: int(getattr(np, f"bitwise_{word}").reduce(v))
    for word, fold in folds.items():
        for kind in ("u32", "s32") if word in ("add", "min", "max") else ("b32",):
            away = neutral.get(f"{word}.{kind}", neutral.get(word, 0))
            column = np.where(PRESENT, samples(32, 2), np.uint32(away))

            def value(places, values, kind=kind, fold=fold):
                return wrap(fold([signed(v, 32) if kind == "s32" else v for v in values]), 32)

            found = np.array(by_warp(value, column))
            key = f"redux.sync.{word}.{kind}"
            yield Vector(key, "whole", f"{key} d, a, 0xffffffff;", (("a", "b32", column),), (("d", "b32", found),))


FLOATS = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF,
          0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x42280000, 0xC2280000]  # fmt: skip
NANS = [0x7FC00000, 0xFFC00001, 0x7F800001]


def reductions_of_floats():
    """Warps of numbers, of zeros, with few NaNs, and of NaNs alone. Lanes that may be away have what changes nothing."""
    random = np.random.default_rng(9)
    warps = SAMPLES // WARP
    kinds = [[one for one in FLOATS if one not in NANS], FLOATS[:2], FLOATS, NANS, FLOATS[2:5], [0x7F7FFFFF, *NANS]]
    column = np.concatenate([random.choice(kinds[number % len(kinds)], WARP) for number in range(warps)])
    for word in ("min", "max"):
        for is_abs in (False, True):
            for is_nan in (False, True):
                neutral = 0x7F800000 if word == "min" else 0 if is_abs else 0xFF800000
                given = np.where(PRESENT, column, np.uint32(neutral if is_nan else 0x7FC00000))

                def value(places, values, word=word, a=is_abs, nan=is_nan):
                    values = [one & 0x7FFFFFFF if a else one for one in values]
                    numbers = [one for one in values if one & 0x7FFFFFFF <= 0x7F800000]
                    if not numbers or (nan and len(numbers) < len(values)):
                        return 0x7FFFFFFF
                    exact = sorted(
                        numbers, key=lambda one: (struct.unpack("f", struct.pack("I", one))[0], one < 1 << 31)
                    )
                    return exact[0] if word == "min" else exact[-1]

                found = np.array(by_warp(value, given.astype(np.uint32)))
                key = f"redux.sync.{word}{'.abs' * is_abs}{'.NaN' * is_nan}.f32"
                inputs = (("a", "b32", given),)
                yield Vector(key, "whole", f"{key} d, a, 0xffffffff;", inputs, (("d", "b32", found),))


def masks():
    lane = LANES % WARP
    values = {
        "eq": [1 << n for n in lane.tolist()],
        "lt": [sum(1 << k for k in range(n)) for n in lane.tolist()],
        "le": [sum(1 << k for k in range(n + 1)) for n in lane.tolist()],
        "gt": [sum(1 << k for k in range(n + 1, 32)) for n in lane.tolist()],
        "ge": [sum(1 << k for k in range(n, 32)) for n in lane.tolist()],
    }
    for word, column in values.items():
        yield Vector(
            "mov.u32", f"lanemask_{word}", f"mov.u32 d, %lanemask_{word};", (), (("d", "b32", np.array(column)),)
        )
    text = "activemask.b32 d; mov.u32 e, %laneid; shr.u32 d, d, e; and.b32 d, d, 1;"
    yield Vector(
        "activemask.b32", "knows_itself", text, (), (("d", "b32", np.ones(SAMPLES)),), registers=".reg .b32 e;"
    )
    a = samples(32, 0)
    text = (
        "mov.u32 p, %tid.x; xor.b32 q, p, 4; shl.b32 p, p, 2; shl.b32 q, q, 2; mov.u32 b, exchange; add.u32 p, p, b;"
        "add.u32 q, q, b; bar.warp.sync m; st.shared.u32 [p], a; bar.warp.sync m; ld.shared.u32 d, [q]; bar.warp.sync m;"
    )
    half = np.where(LANES % WARP < 8, 0xFF, 0xFFFFFF00)
    inputs = (("a", "b32", a), ("m", "b32", half))
    yield Vector("bar.warp.sync", "parts", text, inputs, (("d", "b32", a[LANES ^ 4]),), registers=".reg .b32 p, q, b;")


def blocks():
    """Barriers of blocks by number; test_meetings has those of some threads only."""
    a = samples(32, 1)
    text = (
        "mov.u32 p, %tid.x; xor.b32 q, p, 4; shl.b32 p, p, 2; shl.b32 q, q, 2; mov.u32 b, exchange; add.u32 p, p, b;"
        "add.u32 q, q, b; BARRIER st.shared.u32 [p], a; BARRIER ld.shared.u32 d, [q]; BARRIER"
    )
    registers = ".reg .b32 p, q, b;"
    for key, spelled in (("bar.sync", "bar.sync 3;"), ("barrier.sync", "barrier.sync b_number;")):
        one = text.replace("BARRIER", spelled)
        extra = " .reg .b32 b_number;" if "b_number" in spelled else ""
        one = f"mov.u32 b_number, 5; {one}" if extra else one
        yield Vector(
            key, "numbered", one, (("a", "b32", a),), (("d", "b32", a[LANES ^ 4]),), registers=registers + extra
        )
    for bar in ("bar", "barrier"):
        for word in ("and", "or"):
            text = f"{bar}.red.{word}.pred d, 2, a;"
            same = LANES * 0 + 1
            yield Vector(f"{bar}.red.{word}.pred", "ones", text, (("a", "pred", same),), (("d", "pred", same),))
            text = f"{bar}.red.{word}.pred d, 2, !a;"
            yield Vector(f"{bar}.red.{word}.pred", "zeros", text, (("a", "pred", same),), (("d", "pred", same * 0),))
        text = f"mov.u32 e, %tid.x; and.b32 e, e, 3; setp.eq.u32 q, e, 2; {bar}.red.popc.u32 d, 2, q; mov.u32 e, %ntid.x; shr.u32 e, e, 2; sub.u32 d, d, e;"
        zero, registers = (("d", "b32", LANES * 0),), ".reg .b32 e; .reg .pred q;"
        yield Vector(f"{bar}.red.popc.u32", "a_quarter", text, (), zero, registers=registers)
        text = f"mov.u32 d, 7; @never {bar}.arrive 6, 64; add.u32 d, d, 1;"
        yield Vector(
            f"{bar}.arrive", "passed_by", text, (("never", "pred", LANES * 0),), (("d", "b32", LANES * 0 + 8),)
        )


def family():
    parts = (shuffles(), votes(), matches(), elections(), reductions(), reductions_of_floats(), masks(), blocks())
    return [vector for part in parts for vector in part]
