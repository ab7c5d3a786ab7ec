"""Vectors of state spaces: local and constant memory, parameters of calls, conversions of addresses and questions."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from simulator_bench import SAMPLES, Vector
from simulator_oracle import signed, wrap
from simulator_vectors_control import STRUCT
from simulator_vectors_integer import samples
from simulator_vectors_memory import COUNTS, TYPES, bits_of, homes

SHARED = "  .shared .align 16 .b8 words[512];\n"
_RANDOM = random.Random("constants").randbytes(64)
BEFORE = (
    f".const .align 32 .b8 fixed[64] = {{{', '.join(map(str, _RANDOM))}}};\n"
    ".global .align 8 .b8 changing[64];\n"
    ".func (.param .align 32 .b8 r[32]) echo(.param .align 32 .b8 a[32]) {\n  .reg .b64 x<4>;\n"
    + "".join(f"  ld.param.b64 x{n}, [a+{8 * n}]; st.param.b64 [r+{8 * n}], x{n};\n" for n in range(4))
    + "  ret;\n}\n"
)


def listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def round_trips() -> Iterator[Vector]:
    """What a thread stores in its local memory, or passes to a function that gives it back, it loads again."""
    for vector, count in COUNTS.items():
        for kind in TYPES:
            for home in homes(kind):
                yield from _round_trip(vector, count, kind, home)


def _round_trip(vector: str, count: int, kind: str, home: int) -> Iterator[Vector]:
    size = bits_of(kind) // 8
    stores, loads = ([f"{letter}{one}" for one in range(count)] for letter in "sd")
    columns = [samples(home, one) for one in range(count)]
    inputs = tuple((n, f"b{home}", c) for n, c in zip(stores, columns, strict=True))
    kept = [[wrap(int(v), 8 * size) for v in c] for c in columns]
    back = [[wrap(signed(v, 8 * size) if kind[0] == "s" else v, home) for v in c] for c in kept]
    outputs = tuple((n, f"b{home}", np.array(c, np.uint64)) for n, c in zip(loads, back, strict=True))
    s, d = listed(stores), listed(loads)
    local = f"mov.u64 w, depot; st.local.{vector}{kind} [w+32], {s}; ld.local.{vector}{kind} {d}, [w+32];"
    declared = ".local .align 32 .b8 depot[96]; .reg .b64 w;"
    for opcode in ("st", "ld"):
        yield Vector(f"{opcode}.local.{vector}{kind}", f"r{home}", local, inputs, outputs, registers=declared)
    for where in ("", "::func"):
        call = f"st.param{where}.{vector}{kind} [box], {s}; call (got), echo, (box); ld.param{where}.{vector}{kind} {d}, [got];"
        declared = ".param .align 32 .b8 box[32]; .param .align 32 .b8 got[32];"
        for opcode in ("st", "ld"):
            key = f"{opcode}.param{where}.{vector}{kind}"
            yield Vector(key, f"r{home}", f"{{ {declared} {call} }}", inputs, outputs)
    if home != homes(kind)[0]:
        return
    generic = f"mov.u64 w, depot; cvta.local.u64 w, w; st.{vector}{kind} [w+32], {s}; ld.{vector}{kind} {d}, [w+32];"
    declared = ".local .align 32 .b8 depot[96]; .reg .b64 w;"
    yield Vector("cvta.local.u64", f"{vector}{kind}", generic, inputs, outputs, registers=declared)


def constants() -> Iterator[Vector]:
    """Constant memory and kernel parameters: each type from a place that its width divides."""
    spaces = {"const": ("fixed", _RANDOM), "param::entry": ("kernel_struct", STRUCT)}
    for space, (name, contents) in spaces.items():
        for vector, count in COUNTS.items():
            for kind in TYPES:
                size = bits_of(kind) // 8
                at = 32 - size * count
                values = [
                    int.from_bytes(contents[first : first + size], "little", signed=kind[0] == "s")
                    for first in range(at, at + size * count, size)
                ]
                home = homes(kind)[0]
                names = [f"d{one}" for one in range(count)]
                outputs = tuple(
                    (n, f"b{home}", np.full(SAMPLES, wrap(v, home), np.uint64)) for n, v in zip(names, values, strict=True)
                )
                key = f"ld.{space}.{vector}{kind}"
                yield Vector(key, "by_name", f"{key} {listed(names)}, [{name}+{at}];", (), outputs)
                plain = f"mov.u64 w, {name}; add.u64 w, w, {at}; {key} {listed(names)}, [w];"
                yield Vector(key, "by_address", plain, (), outputs, registers=".reg .b64 w;")
                conversion = "cvta.const.u64" if space == "const" else "cvta.param.u64"
                generic = f"mov.u64 w, {name}; {conversion} w, w; ld.{vector}{kind} {listed(names)}, [w+{at}];"
                yield Vector(conversion, f"{vector}{kind}", generic, (), outputs, registers=".reg .b64 w;")


NAMES = {"global": "changing", "shared": "words", "local": "depot", "const": "fixed", "param": "kernel_struct"}


def conversions() -> Iterator[Vector]:
    """There and back again; and a generic address answers for its own space only."""
    a = samples(32, 0)
    for space, name in NAMES.items():
        text = f"mov.u64 v, {name}; cvta.{space}.u64 w, v; cvta.to.{space}.u64 x, w; sub.u64 x, x, v; cvt.u32.u64 d, x;"
        declared = ".local .align 8 .b8 depot[8]; .reg .b64 v, w, x;"
        for key in (f"cvta.{space}.u64", f"cvta.to.{space}.u64"):
            yield Vector(key, "there_and_back", text, (), (("d", "b32", np.zeros(SAMPLES)),), registers=declared)
        for asked in (*NAMES, "shared::cta", "shared::cluster"):
            good = np.full(SAMPLES, asked.partition("::")[0] == space)
            text = f"mov.u64 v, {name}; cvta.{space}.u64 w, v; isspacep.{asked} d, w;"
            yield Vector(f"isspacep.{asked}", space, text, (), (("d", "pred", good),), registers=declared)
    text = (
        "mov.u32 p, %tid.x; and.b32 p, p, 127; shl.b32 p, p, 2; mov.u32 q, words; add.u32 p, p, q; cvt.u64.u32 w, p;"
        "cvta.shared.u64 w, w; st.u32 [w], a; ld.u32 d, [w];"
    )
    declared = ".reg .b32 p, q; .reg .b64 w;"
    yield Vector("cvta.shared.u64", "used", text, (("a", "b32", a),), (("d", "b32", a),), registers=declared)


def mixed() -> Iterator[Vector]:
    """Lanes side by side whose generic addresses lie in different spaces."""
    a, b = samples(32, 0), samples(32, 1)
    lanes = np.arange(SAMPLES)
    fixed = int.from_bytes(_RANDOM[4:8], "little")
    expected = np.choose(lanes % 3, [a, b, np.full(SAMPLES, fixed)])
    text = (
        "st.local.b32 [depot+4], a; mov.u32 p, %tid.x; and.b32 p, p, 127; shl.b32 p, p, 2; mov.u32 q, words; add.u32 p, p, q;"
        "st.shared.b32 [p], b; mov.u64 v, depot; cvta.local.u64 v, v; add.u64 v, v, 4; cvt.u64.u32 w, p; cvta.shared.u64 w, w;"
        "mov.u64 x, fixed+4; cvta.const.u64 x, x; rem.u32 p, %lane, 3; setp.eq.u32 one, p, 1; setp.eq.u32 two, p, 2;"
        "selp.b64 v, w, v, one; selp.b64 v, x, v, two; ld.b32 d, [v];"
    )
    inputs = (("a", "b32", a), ("b", "b32", b))
    declared = ".local .align 8 .b8 depot[16]; .reg .b32 p, q; .reg .b64 v, w, x; .reg .pred one, two;"
    yield Vector("ld.b32", "mixed_spaces", text, inputs, (("d", "b32", expected),), registers=declared)


def family() -> list[Vector]:
    return [vector for part in (round_trips(), constants(), conversions(), mixed()) for vector in part]
