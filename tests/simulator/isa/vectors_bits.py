"""Vectors of bits.py: counting, masks, carries, dot products. The oracle is Python's integers."""

import numpy as np

from tests.simulator.bench import Vector
from tests.simulator.isa.oracle import signed, wrap
from tests.simulator.isa.vectors_integer import samples, vectors_of, width


def counting():
    def reverse(a, bits):
        return int(f"{a:0{bits}b}"[::-1], 2)

    for kind in ("b32", "b64"):
        bits = width(kind)
        words = {"popc": lambda a: bin(a).count("1"), "clz": lambda a, bits=bits: bits - a.bit_length()}
        for word, function in words.items():
            yield from vectors_of(f"{word}.{kind}", function, 32, (bits,))
        yield from vectors_of(f"brev.{kind}", lambda a, bits=bits: reverse(a, bits), bits, (bits,))
    for kind in ("u32", "s32", "u64", "s64"):
        bits = width(kind)

        def find(a, kind=kind, bits=bits):
            a = signed(a, bits) if kind[0] == "s" else a
            a = ~a if a < 0 else a
            return a.bit_length() - 1

        yield from vectors_of(f"bfind.{kind}", find, 32, (bits,))
        key = f"bfind.shiftamt.{kind}"
        yield from vectors_of(key, lambda a, f=find, bits=bits: -1 if f(a) < 0 else bits - 1 - f(a), 32, (bits,))
    for kind in ("b16", "b32", "b64"):
        yield from vectors_of(f"cnot.{kind}", lambda a: int(a == 0), width(kind), (width(kind),))


def masks():
    places = samples(32, 0) % 40
    lengths = samples(32, 1) % 40
    for word in ("clamp", "wrap"):

        def cut(n, word=word):
            return n & 31 if word == "wrap" else min(n, 32)

        def mask(a, b, cut=cut):
            return ((1 << cut(b)) - 1) << cut(a)

        yield from vectors_of(f"bmsk.{word}.b32", mask, 32, (32, 32), [places, lengths])
        for kind in ("u32", "s32"):

            def extend(a, b, kind=kind, cut=cut):
                field = a & ((1 << cut(b)) - 1)
                return signed(field, cut(b)) if kind == "s32" and cut(b) else field

            key = f"szext.{word}.{kind}"
            yield from vectors_of(key, extend, 32, (32, 32), [samples(32, 2), lengths])
    for table in (0x00, 0x96, 0xE8, 0xFE, 0x80, 0x1B, 0xFF):

        def logic(a, b, c, table=table):
            return sum((table >> ((a >> n & 1) << 2 | (b >> n & 1) << 1 | (c >> n & 1)) & 1) << n for n in range(32))

        columns = [samples(32, role) for role in (0, 1, 4)]
        inputs = tuple((n, "b32", c) for n, c in zip("abc", columns, strict=True))
        found = np.array([logic(*map(int, row)) for row in zip(*columns, strict=True)], np.uint64)
        text = f"lop3.b32 d, a, b, c, {table:#x}; lop3.b32 e, a, -1, c, {table:#x};"
        ones = np.array([logic(int(a), 0xFFFFFFFF, int(c)) for a, _, c in zip(*columns, strict=True)], np.uint64)
        yield Vector("lop3.b32", f"{table:#x}", text, inputs, (("d", "b32", found), ("e", "b32", ones)))


def sums():
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = width(kind)

        def number(a, kind=kind, bits=bits):
            return signed(a, bits) if kind[0] == "s" else a

        def high(a, b, c, n=number, bits=bits):
            return (n(a) * n(b) >> bits) + c

        def apart(a, b, c, n=number):
            return abs(n(a) - n(b)) + c

        yield from vectors_of(f"mad.hi.{kind}", high, bits, (bits,) * 3)
        yield from vectors_of(f"sad.{kind}", apart, bits, (bits,) * 3)
    for kind in ("u32", "s32"):

        def low24(a, kind=kind):
            return signed(a, 24) if kind == "s32" else a & 0xFFFFFF

        for word, shift in (("lo", 0), ("hi", 16)):

            def product(a, b, c=0, n=low24, shift=shift):
                return (n(a) * n(b) >> shift) + c

            yield from vectors_of(f"mul24.{word}.{kind}", product, 32, (32, 32))
            yield from vectors_of(f"mad24.{word}.{kind}", product, 32, (32,) * 3)
    for opcode, sign in (("add", 1), ("sub", -1)):

        def clipped(a, b, sign=sign):
            return max(-(1 << 31), min((1 << 31) - 1, signed(a, 32) + sign * signed(b, 32)))

        yield from vectors_of(f"{opcode}.sat.s32", clipped, 32, (32, 32))
    yield from pairs()


def pairs():
    functions = {"add": lambda a, b: a + b, "min": min, "max": max}
    for kind in ("u16x2", "s16x2"):
        for opcode, function in functions.items():
            for relu in ("", ".relu") if kind[0] == "s" and opcode != "add" else ("",):

                def both(a, b, kind=kind, function=function, relu=relu):
                    out = 0
                    for shift in (0, 16):
                        x, y = (one >> shift & 0xFFFF for one in (a, b))
                        found = function(*((signed(x, 16), signed(y, 16)) if kind[0] == "s" else (x, y)))
                        out |= wrap(max(found, 0) if relu else found, 16) << shift
                    return out

                key = f"{opcode}{relu}.{kind}"
                yield from vectors_of(key, both, 32, (32, 32))
    for opcode in ("min", "max"):

        def single(a, b, function=functions[opcode]):
            return max(0, function(signed(a, 32), signed(b, 32)))

        yield from vectors_of(f"{opcode}.relu.s32", single, 32, (32, 32))


def carries():
    """Numbers of two words: the low words leave a carry, the high ones take it, and leave one for a third."""
    for kind in ("u32", "s32", "u64", "s64"):
        bits = width(kind)
        columns = [samples(bits, role) for role in (0, 1, 4, 2)]
        inputs = tuple((n, f"b{bits}", c) for n, c in zip(("al", "bl", "ah", "bh"), columns, strict=True))
        mask = (1 << bits) - 1
        for opcode, sign in (("add", 1), ("sub", -1)):
            low, high, third = [], [], []
            for al, bl, ah, bh in zip(*(c.tolist() for c in columns), strict=True):
                exact = (al | ah << bits) + sign * (bl | bh << bits)
                low.append(exact & mask)
                high.append(exact >> bits & mask)
                third.append(5 + (exact >> 2 * bits) & mask)
            text = f"{opcode}.cc.{kind} d, al, bl; {opcode}c.cc.{kind} e, ah, bh; {opcode}c.{kind} f, 5, 0;"
            outputs = tuple(
                (n, f"b{bits}", np.array(v, np.uint64)) for n, v in zip("def", (low, high, third), strict=True)
            )
            for key in (f"{opcode}.cc.{kind}", f"{opcode}c.cc.{kind}", f"{opcode}c.{kind}"):
                yield Vector(key, "words", text, inputs, outputs)

        def number(a, kind=kind, bits=bits):
            return signed(a, bits) if kind[0] == "s" else a

        low, high, more = [], [], []
        for al, bl, ah, bh in zip(*(c.tolist() for c in columns), strict=True):
            product = number(al) * number(bl)
            first = (product & mask) + ah
            second = (product >> bits & mask) + bh + (first >> bits)
            low.append(first & mask)
            high.append(second & mask)
            more.append((second >> bits) + (product & mask) & mask)
        text = (
            f"mad.lo.cc.{kind} d, al, bl, ah; madc.hi.cc.{kind} e, al, bl, bh; madc.lo.{kind} f, al, bl, 0;"
            f"mad.hi.cc.{kind} x, al, bl, ah; madc.lo.cc.{kind} x, al, bl, ah; madc.hi.{kind} x, al, bl, ah;"
        )
        outputs = tuple((n, f"b{bits}", np.array(v, np.uint64)) for n, v in zip("def", (low, high, more), strict=True))
        for key in (f"mad.lo.cc.{kind}", f"madc.hi.cc.{kind}", f"madc.lo.{kind}"):
            yield Vector(key, "words", text, inputs, outputs, registers=f".reg .b{bits} x;")
        hi_first, lo_next, hi_next = [], [], []
        for al, bl, ah, bh in zip(*(c.tolist() for c in columns), strict=True):
            product = number(al) * number(bl)
            one = (product >> bits & mask) + ah
            two = (product & mask) + bh + (one >> bits)
            hi_first.append(one & mask)
            lo_next.append(two & mask)
            hi_next.append((product >> bits & mask) + ah + (two >> bits) & mask)
        text = f"mad.hi.cc.{kind} d, al, bl, ah; madc.lo.cc.{kind} e, al, bl, bh; madc.hi.{kind} f, al, bl, ah;"
        values = (hi_first, lo_next, hi_next)
        outputs = tuple((n, f"b{bits}", np.array(v, np.uint64)) for n, v in zip("def", values, strict=True))
        for key in (f"mad.hi.cc.{kind}", f"madc.lo.cc.{kind}", f"madc.hi.{kind}"):
            yield Vector(key, "other_halves", text, inputs, outputs)


def dots():
    for a_kind in ("u32", "s32"):
        for b_kind in ("u32", "s32"):

            def part(word, at, bits, kind):
                field = word >> at * bits & ((1 << bits) - 1)
                return signed(field, bits) if kind == "s32" else field

            def four(a, b, c, k=(a_kind, b_kind), part=part):
                return c + sum(part(a, n, 8, k[0]) * part(b, n, 8, k[1]) for n in range(4))

            yield from vectors_of(f"dp4a.{a_kind}.{b_kind}", four, 32, (32,) * 3)
            for way, start in (("lo", 0), ("hi", 2)):

                def two(a, b, c, k=(a_kind, b_kind), s=start, part=part):
                    return c + sum(part(a, n, 16, k[0]) * part(b, n + s, 8, k[1]) for n in range(2))

                key = f"dp2a.{way}.{a_kind}.{b_kind}"
                yield from vectors_of(key, two, 32, (32,) * 3)


def family():
    parts = (counting(), masks(), sums(), carries(), dots())
    return [vector for part in parts for vector in part]
