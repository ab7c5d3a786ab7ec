"""Vectors of state spaces: local and constant memory, parameters of calls, conversions of addresses and questions."""

import random

import numpy as np

from tests.simulator.bench import SAMPLES, Store, Vector
from tests.simulator.isa.vectors_control import STRUCT
from tests.simulator.isa.vectors_integer import samples
from tests.simulator.isa.vectors_memory import COUNTS, TYPES, bits_of, held, homes, round_trip

SHARED = "  .shared .align 16 .b8 words[512];\n"
_RANDOM = random.Random("constants").randbytes(64)
BEFORE = (
    f".const .align 32 .b8 fixed[64] = {{{', '.join(map(str, _RANDOM))}}};\n"
    ".global .align 8 .b8 changing[64];\n"
    f".global .align 32 .b8 initial[64] = {{{', '.join(map(str, _RANDOM))}}};\n"
    ".func (.param .align 32 .b8 r[32]) echo(.param .align 32 .b8 a[32]) {\n  .reg .b64 x<4>;\n"
    + "".join(f"  ld.param.b64 x{n}, [a+{8 * n}]; st.param.b64 [r+{8 * n}], x{n};\n" for n in range(4))
    + "  ret;\n}\n"
)


def round_trips():
    """What a thread stores in its local memory, or passes to a function that gives it back, it loads again."""
    for vector, count in COUNTS.items():
        for kind in TYPES:
            for home in homes(kind):
                if bits_of(kind) * count <= 128 and count < 8:
                    yield from _round_trip(vector, count, kind, home)


def _round_trip(vector, count, kind, home):
    s, d, inputs, outputs = round_trip(count, kind, home)
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


def constants():
    """Constant memory and kernel parameters: each type from a place that its width divides."""
    spaces = {"const": ("fixed", _RANDOM), "param::entry": ("kernel_struct", STRUCT)}
    for space, (name, contents) in spaces.items():
        for vector, count in COUNTS.items():
            for kind in TYPES:
                size = bits_of(kind) // 8
                if size * count > 16 or count == 8:
                    continue
                at = 32 - size * count
                d, outputs = held(contents, at, count, kind)
                key = f"ld.{space}.{vector}{kind}"
                yield Vector(key, "by_name", f"{key} {d}, [{name}+{at}];", (), outputs)
                plain = f"mov.u64 w, {name}; add.u64 w, w, {at}; {key} {d}, [w];"
                yield Vector(key, "by_address", plain, (), outputs, registers=".reg .b64 w;")
                conversion = "cvta.const.u64" if space == "const" else "cvta.param.u64"
                generic = f"mov.u64 w, {name}; {conversion} w, w; ld.{vector}{kind} {d}, [w+{at}];"
                yield Vector(conversion, f"{vector}{kind}", generic, (), outputs, registers=".reg .b64 w;")


NAMES = {"global": "changing", "shared": "words", "local": "depot", "const": "fixed", "param": "kernel_struct"}


def conversions():
    """There and back again; and a generic address answers for its own space only."""
    a = samples(32, 0)
    places = {**NAMES, "shared::cta": "words", "shared::cluster": "words"}
    for space, name in places.items():
        text = f"mov.u64 v, {name}; cvta.{space}.u64 w, v; cvta.to.{space}.u64 x, w; sub.u64 x, x, v; cvt.u32.u64 d, x;"
        declared = ".local .align 8 .b8 depot[8]; .reg .b64 v, w, x;"
        for key in (f"cvta.{space}.u64", f"cvta.to.{space}.u64"):
            yield Vector(key, "there_and_back", text, (), (("d", "b32", np.zeros(SAMPLES)),), registers=declared)
        for asked in (*NAMES, "shared::cta", "shared::cluster"):
            good = np.full(SAMPLES, asked.partition("::")[0] == space.partition("::")[0])
            text = f"mov.u64 v, {name}; cvta.{space}.u64 w, v; isspacep.{asked} d, w;"
            yield Vector(f"isspacep.{asked}", space, text, (), (("d", "pred", good),), registers=declared)
    text = (
        "mov.u32 p, %tid.x; and.b32 p, p, 127; shl.b32 p, p, 2; mov.u32 q, words; add.u32 p, p, q; cvt.u64.u32 w, p;"
        "cvta.shared.u64 w, w; st.u32 [w], a; ld.u32 d, [w];"
    )
    declared = ".reg .b32 p, q; .reg .b64 w;"
    yield Vector("cvta.shared.u64", "used", text, (("a", "b32", a),), (("d", "b32", a),), registers=declared)


def mixed():
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


def read_only():
    """Memory that is not symmetric, through the cache for what nothing writes."""
    for vector, count in COUNTS.items():
        for kind in TYPES:
            size = bits_of(kind) // 8
            if size * count > 32 or (count == 8 and size < 4):
                continue
            d, outputs = held(_RANDOM, 32, count, kind)
            key = f"ld.global.nc.{vector}{kind}"
            for words in ("", "L1::no_allocate.L2::128B."):
                text = f"ld.global.nc.{words}{vector}{kind} {d}, [initial+32];"
                yield Vector(key, words or "bare", text, (), outputs)


def hints():
    """They leave every register and all memory as they were; a policy is a number of which nothing is known."""
    a = samples(32, 3)
    kept = (("d", "b32", a),)
    keys = [f"prefetch{space}.{level}" for space in ("", ".global", ".local") for level in ("L1", "L2")]
    keys += ["prefetch.global.L2::evict_last", "prefetch.global.L2::evict_normal", "prefetchu.L1"]
    for key in keys:
        yield Vector(key, "kept", f"mov.u32 d, a; {key} [%in];", (("a", "b32", a),), kept)
    for key in ("applypriority.L2::evict_normal", "applypriority.global.L2::evict_normal"):
        yield Vector(key, "kept", f"mov.u32 d, a; {key} [%in], 128;", (("a", "b32", a),), kept)
    for key in ("griddepcontrol.wait", "griddepcontrol.launch_dependents"):
        yield Vector(key, "kept", f"mov.u32 d, a; {key};", (("a", "b32", a),), kept)
    priorities = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
    forms = [f"createpolicy.fractional.{one}.b64" for one in priorities]
    others = [
        ("last", "first"),
        ("last", "unchanged"),
        ("first", "unchanged"),
        ("normal", "unchanged"),
        ("normal", "first"),
    ]
    forms += [f"createpolicy.fractional.L2::evict_{one}.L2::evict_{other}.b64" for one, other in others]
    for key in forms:
        text = f"{key} p, 0f3F000000; ld.L2::cache_hint.b32 d, [%in4+{{held}}], p;"
        yield Vector(key, "used", text, (), (("d", "b32", a),), {"held": a}, registers=".reg .b64 p;")
    text = "createpolicy.cvt.L2.b64 p, 0x14f0000000000000; ld.global.L2::cache_hint.b32 d, [%in4+{held}], p;"
    yield Vector("createpolicy.cvt.L2.b64", "used", text, (), (("d", "b32", a),), {"held": a}, registers=".reg .b64 p;")
    line = np.arange(SAMPLES, dtype=np.int64)[::-1] * 128
    for key in ("discard.L2", "discard.global.L2"):
        rows = a.reshape(-1, 1).view(np.uint8)
        text = f"add.s64 p, at, %out; {key} [p+{{to}}], 128; st.global.b32 [p+{{to}}], a;"
        inputs = (("at", "b64", line), ("a", "b32", a))
        yield Vector(key, "rewritten", text, inputs, (), {}, {"to": Store(rows, line, 128 * SAMPLES)}, ".reg .b64 p;")


def family():
    return [
        vector for part in (read_only(), hints(), round_trips(), constants(), conversions(), mixed()) for vector in part
    ]
