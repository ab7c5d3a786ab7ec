"""Vectors of loads, stores and parameters: bytes cut and extended by Python's int.from_bytes, places by their own formula."""

import random

import numpy as np

from tests.simulator.bench import SAMPLES, Store, Vector
from tests.simulator.isa.oracle import signed, wrap
from tests.simulator.isa.vectors_integer import GUARD, samples

TYPES = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
COUNTS = {"": 1, "v2.": 2, "v4.": 4, "v8.": 8}
QUALIFIERS = {
    "ld": ("weak.", "relaxed.sys.", "acquire.gpu.", "volatile.", "L1::no_allocate.", "ca.", "relaxed.cta.L2::128B."),
    "st": ("weak.", "relaxed.sys.", "release.gpu.", "volatile.", "wt.", "L1::no_allocate.", "release.cluster."),
}
SHARED = "  .shared .align 32 .b8 buffer[32768];\n"


def bits_of(kind):
    return int(kind[1:])


def homes(kind):
    """Widths of registers that may hold the type: its own, or a wider one."""
    bits = bits_of(kind)
    if kind[0] == "f":
        return [bits]
    return [width for width in (16, 32, 64) if width >= bits]


def offsets(pattern, width):
    """Byte offsets of the samples. affine: side by side; scattered: a permutation with gaps; uniform: all the same one."""
    lanes = np.arange(SAMPLES, dtype=np.int64)
    if pattern == "affine":
        return lanes * width
    if pattern == "uniform":
        return np.full(SAMPLES, 3 * width, np.int64)
    places = list(range(2 * SAMPLES))
    random.Random(f"{pattern} {width}").shuffle(places)
    return np.array(places[:SAMPLES], np.int64) * width


def data(width):
    rng = random.Random(f"data {width}")
    return np.frombuffer(rng.randbytes(2 * SAMPLES * width), np.uint8)


def fields(rows, count):
    """Each element of each row as an unsigned little-endian integer: fields[element][sample]."""
    size = rows.shape[1] // count
    return [
        [int.from_bytes(row[one * size : (one + 1) * size].tobytes(), "little") for row in rows] for one in range(count)
    ]


def loads():
    for space in ("", "global."):
        for vector, count in COUNTS.items():
            for number, kind in enumerate(TYPES):
                if bits_of(kind) * count > 256 or (count == 8 and bits_of(kind) < 32):
                    continue
                width = bits_of(kind) // 8 * count
                patterns = ("affine", "scattered", "uniform")
                for case, pattern in enumerate(patterns):
                    for home in homes(kind):
                        words = ("", "") if case == 0 else (QUALIFIERS["ld"][(number + case) % 7], "")
                        yield _load(f"ld.{space}{vector}{kind}", words[0], pattern, kind, count, width, home)


def _load(key, words, pattern, kind, count, width, home):
    table, at = data(width), offsets(pattern, width)
    rows = table[at[:, None] + np.arange(width)]
    names = [f"d{one}" for one in range(count)]
    outputs = []
    for name, column in zip(names, fields(rows, count), strict=True):
        extended = [wrap(signed(v, bits_of(kind)) if kind[0] == "s" else v, home) for v in column]
        outputs.append((name, f"b{home}", np.array(extended, np.uint64)))
    head, rest = key.split(".", 1)
    text = f"add.s64 p, at, %in; {head}.{words}{rest} {listed(names)}, [p+{{data}}];"
    name, inputs = f"{pattern}_r{home}_{words or 'bare'}", (("at", "b64", at),)
    return Vector(key, name, text, inputs, tuple(outputs), {"data": table}, registers=".reg .b64 p;")


def devices():
    """Accesses as to the registers of a device: .mmio, of one element."""
    for space in ("", "global."):
        for kind in TYPES:
            width, home = bits_of(kind) // 8, homes(kind)[0]
            for pattern in ("affine", "scattered"):
                yield _load(f"ld.{space}{kind}", "mmio.relaxed.sys.", pattern, kind, 1, width, home)
                yield _store(f"st.{space}{kind}", "mmio.relaxed.sys.", pattern, kind, 1, home)


def stores():
    for space in ("", "global."):
        for vector, count in COUNTS.items():
            for number, kind in enumerate(TYPES):
                if bits_of(kind) * count > 256 or (count == 8 and bits_of(kind) < 32):
                    continue
                for case, pattern in enumerate(("affine", "scattered")):
                    for home in homes(kind):
                        words = "" if case == 0 else QUALIFIERS["st"][(number + case) % 7]
                        yield _store(f"st.{space}{vector}{kind}", words, pattern, kind, count, home)
                yield _store(f"st.{space}{vector}{kind}", "", "scattered", kind, count, homes(kind)[0], guard=True)


def _store(key, words, pattern, kind, count, home, guard=False):
    """Guarded lanes that stay away store a constant first, so that every sample's bytes are known."""
    size = bits_of(kind) // 8
    at = offsets(pattern, size * count)
    names = [f"s{one}" for one in range(count)]
    columns = [samples(home, one) for one in range(count)]
    rows = np.concatenate([c.astype(f"u{size}").reshape(-1, 1).view(np.uint8) for c in columns], axis=1)
    source = listed(names)
    head, rest = key.split(".", 1)
    inputs = [("at", "b64", at), *((n, f"b{home}", c) for n, c in zip(names, columns, strict=True))]
    text = f"add.s64 p, at, %out; {head}.{words}{rest} [p+{{to}}], {source};"
    if guard:
        literal = "0d4030000000000000" if kind == "f64" else "0f41800000" if kind == "f32" else "16"
        bits = {"f64": 0x4030000000000000, "f32": 0x41800000}.get(kind, 16)
        constant = np.tile(np.array([bits], f"u{size}").view(np.uint8), count)
        rows = np.where(GUARD[:, None] != 0, rows, constant)
        zeros = listed([literal] * count)
        inputs.append(("g", "pred", GUARD))
        text = f"add.s64 p, at, %out; @g {key} [p+{{to}}], {source}; @!g {key} [p+{{to}}], {zeros};"
    name = f"{pattern}_r{home}_{words or 'bare'}{'_guarded' if guard else ''}"
    place = Store(rows, at, 2 * SAMPLES * size * count)
    return Vector(key, name, text, tuple(inputs), (), {}, {"to": place}, ".reg .b64 p;")


def negative_offsets():
    """[p+-8] as LLVM writes it, [p-8], hexadecimal and spaced: the element before the pointer's."""
    table = data(8)
    at = offsets("scattered", 8)
    before = at + 4096
    values = np.array(fields(table[at[:, None] + np.arange(8)], 1)[0], np.uint64)
    for number, spelled in enumerate(("+-4096", "-4096", " + -0x1000", "-0X1000", " - 4096", "+-010000")):
        text = f"add.s64 p, at, %in; add.s64 p, p, {{data}}; ld.global.b64 d, [p{spelled}];"
        inputs, outputs = (("at", "b64", before),), (("d", "b64", values),)
        how = {"registers": ".reg .b64 p;"}
        yield Vector("ld.global.b64", f"before_{number}", text, inputs, outputs, {"data": table}, **how)


def in_place():
    """The address register is the destination."""
    table, at = data(8), offsets("scattered", 8)
    values = np.array(fields(table[at[:, None] + np.arange(8)], 1)[0], np.uint64)
    text = "add.s64 d, at, %in; add.s64 d, d, {data}; ld.global.b64 d, [d];"
    yield Vector("ld.global.b64", "in_place", text, (("at", "b64", at),), (("d", "b64", values),), {"data": table})
    g = GUARD.astype(bool)
    text = "mov.b64 d, 5; add.s64 p, at, %in; @g ld.global.b64 d, [p+{data}];"
    inputs = (("at", "b64", np.where(g, at, 1 << 50)), ("g", "pred", GUARD))  # lanes that don't run may point anywhere
    outputs = (("d", "b64", np.where(g, values, np.uint64(5))),)
    yield Vector("ld.global.b64", "guarded", text, inputs, outputs, {"data": table}, registers=".reg .b64 p;")


def shared():
    """Each thread of a block owns a piece of shared memory: what it stores there it loads again, whole and in parts."""
    for opcode in ("shared.", "shared::cta."):
        for vector, count in COUNTS.items():
            for kind in TYPES:
                for home in homes(kind) if bits_of(kind) * count <= 128 and count < 8 else ():
                    yield from _shared(opcode, vector, count, kind, home)


def listed(names):
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def round_trip(count, kind, home, names="sd"):
    """What is stored and what comes back: operands s0, .. and d0, .. as text, and their registers with values."""
    bits = bits_of(kind)
    s, d = ([f"{letter}{one}" for one in range(count)] for letter in names)
    columns = [samples(home, one) for one in range(count)]
    back = [[wrap(signed(v, bits) if kind[0] == "s" else wrap(v, bits), home) for v in c.tolist()] for c in columns]
    inputs = tuple((n, f"b{home}", c) for n, c in zip(s, columns, strict=True))
    outputs = tuple((n, f"b{home}", np.array(c, np.uint64)) for n, c in zip(d, back, strict=True))
    return listed(s), listed(d), inputs, outputs


def held(contents, at, count, kind):
    """What a load of bytes that are the same for all samples gives: operands d0, .. as text, and their registers."""
    size, home = bits_of(kind) // 8, homes(kind)[0]
    parts = [contents[first : first + size] for first in range(at, at + size * count, size)]
    values = [wrap(int.from_bytes(part, "little", signed=kind[0] == "s"), home) for part in parts]
    outputs = tuple((f"d{one}", f"b{home}", np.full(SAMPLES, value, np.uint64)) for one, value in enumerate(values))
    return listed([name for name, _, _ in outputs]), outputs


def _shared(space, vector, count, kind, home):
    size = bits_of(kind) // 8
    s, d, inputs, outputs = round_trip(count, kind, home)
    place = f"mov.u32 p, %tid.x; mul.lo.u32 p, p, {size * count}; mov.u32 q, buffer; add.u32 p, p, q;"
    text = f"{place} st.{space}{vector}{kind} [p], {s}; ld.{space}{vector}{kind} {d}, [p];"
    declared = ".reg .b32 p, q;"
    for opcode in ("st", "ld"):
        yield Vector(f"{opcode}.{space}{vector}{kind}", f"r{home}", text, inputs, outputs, registers=declared)
    if home != homes(kind)[0]:
        return
    # The same bytes one by one: what a store left, and where.
    bytes_out = tuple(
        (f"e{one * size + byte}", "b32", (values >> 8 * byte & 255).astype(np.uint32))
        for one, (_, _, values) in enumerate(inputs)
        for byte in range(size)
    )
    reads = " ".join(f"ld.{space}u8 {name}, [p+{number}];" for number, (name, _, _) in enumerate(bytes_out))
    wide = f"{place} cvt.u64.u32 w, p; st.{space}{vector}{kind} [w], {s}; {reads.replace('[p', '[w')}"
    yield Vector(
        f"st.{space}{vector}{kind}", f"bytes_r{home}", wide, inputs, bytes_out, registers=declared + " .reg .b64 w;"
    )


def family_devices():
    return list(devices())


def family_loads():
    return [vector for part in (loads(), negative_offsets(), in_place()) for vector in part]


def family_stores():
    return list(stores())


def family_shared():
    return list(shared())
