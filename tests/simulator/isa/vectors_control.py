"""Vectors of what ends a basic block, of fences, and of parameters. Divergence itself is test_control_flow's business."""

import numpy as np

from tests.simulator.bench import SAMPLES, Store, Vector
from tests.simulator.isa.oracle import signed, wrap
from tests.simulator.isa.vectors_integer import GUARD, samples
from tests.simulator.isa.vectors_memory import TYPES, bits_of, held

SHARED = "  .shared .align 4 .b8 exchange[4096];\n"
BEFORE = """
.func (.param .b32 r) triple(.param .b32 a, .param .b32 b) {
  .reg .b32 x, y; ld.param.b32 x, [a]; ld.param.b32 y, [b]; mad.lo.u32 x, x, 3, y; st.param.b32 [r], x; ret;
}
.func (.reg .b32 r) twice(.reg .b32 a) { add.u32 r, a, a; ret; }
"""
NEIGHBOUR = "mov.u32 p, %tid.x; xor.b32 q, p, 4; shl.b32 p, p, 2; shl.b32 q, q, 2; mov.u32 b, exchange; add.u32 p, p, b; add.u32 q, q, b;"


def family():
    return [vector for part in (branches(), barriers(), fences(), calls(), tables(), stops()) for vector in part]


def branches():
    a = samples(32, 0)
    even = a % 2 == 0
    for word in ("bra", "bra.uni"):
        text = f"mov.u32 d, 1; {word} SKIP; mov.u32 d, 2; SKIP: add.u32 d, d, a;"
        yield Vector("bra", f"forward_{word}", text, (("a", "b32", a),), (("d", "b32", a + np.uint32(1)),))
    text = "and.b32 d, a, 1; setp.eq.u32 p, d, 0; @p bra EVEN; mov.u32 d, 3; bra.uni DONE; EVEN: mov.u32 d, 4; DONE: add.u32 d, d, 1;"
    expected = np.where(even, 5, 4)
    yield Vector("bra", "both_ways", text, (("a", "b32", a),), (("d", "b32", expected),), registers=".reg .pred p;")
    count = a % 7
    text = "rem.u32 n, a, 7; mov.u32 d, 0; AGAIN: add.u32 d, d, 2; sub.s32 n, n, 1; setp.ge.s32 p, n, 0; @p bra AGAIN;"
    expected = 2 * (count.astype(np.int64) + 1)
    registers = ".reg .pred p; .reg .b32 n;"
    yield Vector("bra", "backward", text, (("a", "b32", a),), (("d", "b32", expected),), registers=registers)


def calls():
    """Functions of parameters and of registers; test_calls has recursion and indirect calls."""
    a, b = samples(32, 0), samples(32, 1)
    inputs = (("a", "b32", a), ("b", "b32", b))
    call = ".param .b32 p0; .param .b32 p1; .param .b32 q; st.param.b32 [p0], a; st.param.b32 [p1], b;"
    good = a * np.uint32(3) + b
    for word in ("call", "call.uni"):
        text = f"{{ {call} {word} (q), triple, (p0, p1); ld.param.b32 d, [q]; }}"
        yield Vector("call", f"param_{word}", text, inputs, (("d", "b32", good),))
    text = f"mov.u32 d, 9; {{ {call} @!g bra OVER; call (q), triple, (p0, p1); ld.param.b32 d, [q]; OVER: }} {{ {call} @g call (q), triple, (p0, p1); }}"
    expected = np.where(GUARD != 0, good, 9)
    yield Vector("call", "guarded", text, (*inputs, ("g", "pred", GUARD)), (("d", "b32", expected),))
    text = "call (d), twice, (a); call (e), twice, (21);"
    outputs = (("d", "b32", a * np.uint32(2)), ("e", "b32", np.full(SAMPLES, 42)))
    yield Vector("call", "registers", text, inputs[:1], outputs)


def tables():
    """A branch by number."""
    a = samples(32, 2)
    text = (
        "rem.u32 n, a, 3; mov.u32 d, 0; WAYS: .branchtargets ZERO, ONE, TWO; brx.idx n, WAYS;"
        "ZERO: add.u32 d, d, 5; bra DONE; ONE: add.u32 d, d, 50; TWO: add.u32 d, d, 500; DONE: add.u32 d, d, 1;"
    )
    expected = np.array([6, 551, 501])[a % 3]
    for word in ("brx.idx", "brx.idx.uni"):
        one = text.replace("brx.idx", word)
        yield Vector("brx.idx", word, one, (("a", "b32", a),), (("d", "b32", expected),), registers=".reg .b32 n;")


def stops():
    """No thread gets there; what happens to one that does, test_system says."""
    a = samples(32, 2)
    for key in ("trap", "brkpt"):
        text = f"mov.u32 d, a; setp.ne.u32 never, a, a; @never {key};"
        yield Vector(key, "passed_by", text, (("a", "b32", a),), (("d", "b32", a),), registers=".reg .pred never;")


def barriers():
    """Neighbours exchange values through shared memory: without the barrier a read would meet poison or an old value."""
    a = samples(32, 1)
    expected = a[np.arange(SAMPLES) ^ 4]
    registers = ".reg .b32 p, q, b;"
    for key, spelled in (
        ("bar.sync", "bar.sync 0;"),
        ("barrier.sync", "barrier.sync 0;"),
        ("barrier.sync", "barrier.sync.aligned 0;"),
        ("bar.sync", "bar.cta.sync 0;"),
        ("bar.warp.sync", "bar.warp.sync 0xffffffff;"),
        ("bar.warp.sync", "bar.warp.sync -1;"),
    ):
        text = f"{NEIGHBOUR} {spelled} st.shared.u32 [p], a; {spelled} ld.shared.u32 d, [q];"
        yield Vector(
            key, spelled.replace(" 0;", ""), text, (("a", "b32", a),), (("d", "b32", expected),), registers=registers
        )


def fences():
    """A fence leaves every register as it was; that it orders is in the nature of a machine that runs step by step."""
    a = samples(32, 2)
    forms = {
        "fence": (
            "fence.acq_rel.sys",
            "fence.acq_rel.gpu",
            "fence.acq_rel.cta",
            "fence.acquire.sys",
            "fence.release.cluster",
        ),
        "fence.sc": ("fence.sc.sys", "fence.sc.cta"),
        "fence.proxy.alias": ("fence.proxy.alias",),
        "membar": ("membar.sys", "membar.cta"),
        "membar.gl": ("membar.gl",),
        "nanosleep.u32": ("nanosleep.u32 20", "nanosleep.u32 a"),
    }
    for key, spelled in forms.items():
        for one in spelled:
            name, text = one.replace(" ", "_"), f"add.u32 d, a, 1; {one}; add.u32 d, d, 1;"
            yield Vector(key, name, text, (("a", "b32", a),), (("d", "b32", a + np.uint32(2)),))


def endings():
    """Threads that leave early, by ret and by exit: what they stored before stays, what comes after isn't theirs."""
    out = {}
    for word in ("ret", "exit"):
        at = np.arange(SAMPLES, dtype=np.int64) * 4
        rows = np.where(GUARD != 0, 1, 2).astype(np.uint32).reshape(-1, 1).view(np.uint8)
        text = f"add.s64 p, at, %out; st.global.b32 [p+{{to}}], 1; @g {word}; st.global.b32 [p+{{to}}], 2;"
        inputs = (("at", "b64", at), ("g", "pred", GUARD))
        place = Store(rows, at, SAMPLES * 4)
        out[word] = [Vector(word, "guarded", text, inputs, (), {}, {"to": place}, ".reg .b64 p;")]
    return out


STRUCT = bytes((91 * at + 7) % 256 for at in range(64))
PARAMETERS = (
    ("struct64", "struct", STRUCT),
    ("u16", "tiny", 0xBEEF),
    ("u32", "small", 0xDEADBEEF),
    ("u64", "large", 0xFEDCBA9876543210),
    ("f32", "float", 0x7FC54321),
    ("f64", "double", 0xFFF0000000000123),
)


def parameters():
    """Each type loads the parameter of its width."""
    held = {16: ("tiny", 0xBEEF), 32: ("small", 0xDEADBEEF), 64: ("large", 0xFEDCBA9876543210)}
    out = []
    for kind in ("u16", "b16", "u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64"):
        bits = int(kind[1:])
        name, value = {"f32": ("float", 0x7FC54321), "f64": ("double", 0xFFF0000000000123)}.get(kind, held[bits])
        expected = np.full(SAMPLES, value, np.uint64)
        text = f"ld.param.{kind} d, [kernel_{name}];"
        out.append(Vector(f"ld.param.{kind}", name, text, (), (("d", f"b{bits}", expected),)))
        for home in (32, 64) if kind[0] != "f" else ():
            if home > bits:
                wide = np.full(SAMPLES, wrap(signed(value, bits) if kind[0] == "s" else value, home), np.uint64)
                out.append(Vector(f"ld.param.{kind}", f"{name}_to_r{home}", text, (), (("d", f"b{home}", wide),)))
    return [*out, *struct_parts()]


def struct_parts():
    """Every type and vector loads its part of a struct by value, from the places that its width divides."""
    for kind in TYPES:
        size = bits_of(kind) // 8
        for count in (1, 2, 4) if size < 8 else (1, 2):
            at = max(size * count, 64 // (size * count) // 2 * size * count)
            target, outputs = held(STRUCT, at, count, kind)
            key = f"ld.param.{f'v{count}.' if count > 1 else ''}{kind}"
            yield Vector(key, f"struct_at_{at}", f"{key} {target}, [kernel_struct+{at}];", (), outputs)
