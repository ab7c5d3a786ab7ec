"""The assembler is the arbiter of what is legal: a generated set of forms gets the same yes and no from ptxas and from the
simulator's table. The locked ptxas is the first on PATH (tests/cuda_programs.py).

Forms that ptxas takes and the simulator does not have are allowed only where MISSING names them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import simulator_forms_asynchronous as asynchronous
import simulator_forms_cluster as cluster
from simulator_families import FAMILIES, bench_of
from simulator_forms_cluster import FLOATS, INTEGERS, held, registers_for
from simulator_harness import module

from simulator.ptx.assembler import find_ptxas
from simulator.run.decode import unsupported_forms

ARCH = "sm_100a"
"""It has all forms; sm_90a lacks those of two f32 side by side."""


PTXAS = find_ptxas()
pytestmark = pytest.mark.skipif(PTXAS is None, reason="needs ptxas (PyPI: nvidia-cuda-nvcc)")
LITERALS_OF_PAIRS = "vectors give literals to packed types, of which ptxas takes none"
NOT_FOR_PTXAS = {
    "float": LITERALS_OF_PAIRS,
    "order": LITERALS_OF_PAIRS,
    "float8": LITERALS_OF_PAIRS,
    "move": "vectors read special registers in add and setp",
    "load": "vectors have spellings of offsets that ptxas does not read",
}


def refused(ptx: str, folder: Path, arch: str = ARCH) -> dict[int, str]:
    """The lines that ptxas refuses, with its reasons."""
    path = folder / "module.ptx"
    path.write_text(ptx)
    command = [str(PTXAS), "-arch", arch, "-O0", str(path), "-o", str(folder / "module.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "fatal   : Parsing" not in done.stderr, done.stderr
    if "Unsupported .version" in done.stderr:
        pytest.skip("ptxas is too old: nvidia-cuda-nvcc is not installed here")
    found = re.findall(r"line (\d+); error\s*: (.*)", done.stderr)
    assert bool(found) == bool(done.returncode), done.stderr[:2000]
    return {int(line): reason for line, reason in found}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(one, marks=pytest.mark.slow if one in ("atomic", "cluster") else ())  # which take seconds
        for one in FAMILIES
        if one not in NOT_FOR_PTXAS
    ],
)
def test_all_that_the_vectors_run_is_legal(family: str, tmp_path: Path) -> None:
    ptx = bench_of(family).ptx.replace(".target sm_90a", f".target {ARCH}")
    lines = ptx.splitlines()
    assert {lines[line - 1]: reason for line, reason in refused(ptx, tmp_path).items()} == {}


# Generated forms

PACKED = ("f16x2", "bf16x2", "f32x2", "u16x2", "s16x2")
BITS = ("b8", "b16", "b32", "b64", "pred")


def arithmetic() -> Iterator[str]:
    counts = {"add": 2, "sub": 2, "mul": 2, "min": 2, "max": 2, "fma": 3, "div": 2, "rem": 2, "sad": 3, "rcp": 1, "sqrt": 1,
              "neg": 1, "abs": 1, "rsqrt": 1, "sin": 1, "cos": 1, "lg2": 1, "ex2": 1, "tanh": 1, "copysign": 2}  # fmt: skip
    modes = {
        "round": ("", ".rn", ".rz", ".rm", ".rp", ".approx", ".full"),
        "flush": ("", ".ftz"),
        "last": ("", ".sat", ".relu", ".NaN"),
    }
    for (word, count), kind in product(counts.items(), (*INTEGERS, *FLOATS, *PACKED)):
        for direction, flush, last in product(*modes.values()):
            bank = registers_for(kind)
            # .NaN and .relu stand where PTX wants them: behind .ftz
            yield f"{word}{direction}{flush}{last}.{kind} " + ", ".join(f"{bank}{n}" for n in range(1, count + 2))


def whole_numbers() -> Iterator[str]:
    kinds = (*INTEGERS, *BITS)
    for word, way, kind in product(("mul", "mad", "mul24", "mad24"), (".lo", ".hi", ".wide"), INTEGERS):
        bank = registers_for(kind)
        wide = {"%h": "%r", "%r": "%d", "%d": "%d"}[bank] if way == ".wide" else bank
        sources = f"{bank}2, {bank}3" + (f", {wide}4" if word.startswith("mad") else "")
        yield f"{word}{way}.{kind} {wide}1, {sources}"
    for word, count in (("and", 2), ("or", 2), ("xor", 2), ("not", 1), ("cnot", 1)):
        for kind in kinds:
            yield f"{word}.{kind} " + ", ".join(f"{registers_for(kind)}{n}" for n in range(1, count + 2))
    for word, kind in product(("popc", "clz", "brev", "bfind", "bfind.shiftamt"), kinds):
        bank = registers_for(kind)
        yield f"{word}.{kind} {bank if word == 'brev' else '%r'}1, {bank}2"
    for word, kind in product(("shl", "shr"), kinds):
        bank = registers_for(kind)
        yield f"{word}.{kind} {bank}1, {bank}2, %r3"
    for word, kind in product(
        ("add.cc", "addc", "addc.cc", "sub.cc", "subc", "subc.cc", "add.sat", "sub.sat"), INTEGERS
    ):
        bank = registers_for(kind)
        yield f"{word}.{kind} {bank}1, {bank}2, {bank}3"
    for word, way, kind in product(("mad", "madc"), (".lo", ".hi"), INTEGERS):
        bank = registers_for(kind)
        yield f"{word}{way}.cc.{kind} {bank}1, {bank}2, {bank}3, {bank}4"
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16", ".rc32"):
        yield f"prmt.b32{mode} %r1, %r2, %r3, %r4"
    for flush, kind, by in product(("", ".ftz"), (*kinds, *FLOATS), ("s32", "f32", "u32", "s16", "f64")):
        bank = registers_for(kind)
        yield f"slct{flush}.{kind}.{by} {bank}1, {bank}2, {bank}3, {registers_for(by)}4"
    for a, b in product(INTEGERS, INTEGERS):
        yield f"dp4a.{a}.{b} %r1, %r2, %r3, %r4"
        yield f"dp2a.lo.{a}.{b} %r1, %r2, %r3, %r4"
    for word, way, kind in product(("bmsk", "szext"), (".clamp", ".wrap", ""), ("b32", "u32", "s32", "b64", "u64")):
        bank = registers_for(kind)
        yield f"{word}{way}.{kind} {bank}1, {bank}2, %r3"


WORDS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"),
    *("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"),
)


def comparisons() -> Iterator[str]:
    for word, join, flush, kind in product(
        WORDS, ("", ".and", ".or", ".xor"), ("", ".ftz"), (*INTEGERS, *BITS, *FLOATS)
    ):
        bank = registers_for(kind)
        yield f"setp.{word}{join}{flush}.{kind} %p1, {bank}2, {bank}3" + (", %p4" if join else "")
    for kind in (*INTEGERS, *BITS, *FLOATS):
        bank = registers_for(kind)
        yield f"setp.eq.{kind} %p1|%p2, {bank}2, {bank}3"
        yield f"selp.{kind} {bank}1, {bank}2, {bank}3, %p1"
    for word, join, flush, kind in product(WORDS, ("", ".and"), ("", ".ftz"), ("f16x2", "bf16x2", "u16x2")):
        last = ", !%p4" if join else ""
        yield f"setp.{word}{join}{flush}.{kind} %p1|%p2, %r2, %r3{last}"
        yield f"setp.{word}{join}{flush}.{kind} %p1, %r2, %r3{last}"


def numbers_of_comparisons() -> Iterator[str]:
    targets = ("pred", "b32", "u16", "s16", "u32", "s32", "u64", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
    sources = (*INTEGERS, *BITS, *FLOATS, "f16x2", "bf16x2", "u16x2")
    for (place, word), flush, target, source in product(enumerate(WORDS), ("", ".ftz"), targets, sources):
        bank = registers_for(source)
        join = ("", ".and", ".or", ".xor")[place % 4]
        form = f"set.{word}{join}{flush}.{target}.{source} {registers_for(target)}1, {bank}2, {bank}3"
        yield form + (", %p4" if join else "")
    yield from ("set.lt.and.u32.u32 %r1, %r2, %r3, !%p1", "set.lt.and.u32.u32 %r1, %r2, %r3", "set.lt.u32.u32 %r1, %r2")


def conversions() -> Iterator[str]:
    kinds = (*INTEGERS, *FLOATS)
    directions = ("", ".rn", ".rz", ".rm", ".rp", ".rni", ".rzi", ".rmi", ".rpi")
    for target, source, direction, flush, last in product(
        kinds, kinds, directions, ("", ".ftz"), ("", ".sat", ".relu")
    ):
        yield f"cvt{direction}{flush}{last}.{target}.{source} {registers_for(target)}1, {registers_for(source)}2"


def warps() -> Iterator[str]:
    for way, kind in product(("up", "down", "bfly", "idx", "all"), ("b32", "u32", "b64", "f32")):
        bank = registers_for(kind)
        yield f"shfl.sync.{way}.{kind} {bank}1, {bank}2, 1, 31, -1"
    for way, kind in product(("all", "any", "uni", "ballot"), ("pred", "b32", "u32")):
        yield f"vote.sync.{way}.{kind} {registers_for(kind)}1, %p2, -1"
    for way, kind in product(("any", "all"), ("b16", "b32", "b64", "u32")):
        yield f"match.{way}.sync.{kind} %r1, {registers_for(kind)}2, -1"
    for way, kind in product(("add", "min", "max", "and", "or", "xor"), ("u32", "s32", "b32", "u64", "b64")):
        yield f"redux.sync.{way}.{kind} {registers_for(kind)}1, {registers_for(kind)}2, -1"
    for way, last, kind in product(("add", "min", "max"), ("", ".abs", ".NaN", ".abs.NaN"), ("f32", "s32", "f16")):
        yield f"redux.sync.{way}{last}.{kind} {registers_for(kind)}1, {registers_for(kind)}2, -1"
    for way, kind in product(("popc", "and", "or"), ("u32", "pred", "s32")):
        yield f"barrier.red.{way}.{kind} {registers_for(kind)}1, 0, %p2"
    yield from (
        "bar.sync 0",
        "bar.sync 1, 64",
        "bar.arrive 1, 64",
        "bar.arrive 1",
        "bar.warp.sync %r1",
        "bar.warp.sync",
    )
    yield from ("barrier.sync.aligned 2, 32", "bar.sync", "activemask.b32 %r1", "elect.sync %r1|%p1, -1")
    yield from ("trap", "brkpt", "exit", "ret")


def atomics() -> Iterator[str]:
    words = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
    kinds = ("b16", "u16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64", *FLOATS[:2], *PACKED[:2])
    for opcode, space, word, noftz, kind in product(
        ("atom", "red"), ("", ".global", ".shared", ".shared::cta", ".local"), words, ("", ".noftz"), kinds
    ):
        bank = registers_for(kind)
        sources = f"{bank}2, {bank}3" if word == "cas" else f"{bank}2"
        yield (
            f"{opcode}{space}.{word}{noftz}.{kind} " + (f"{bank}1, " if opcode == "atom" else "") + f"[%d9], {sources}"
        )
    for opcode, space, word, noftz, vector, kind in product(
        ("atom", "red"),
        ("", ".global", ".shared"),
        ("add", "min", "max"),
        ("", ".noftz"),
        (2, 4, 8),
        (*kinds[-4:], "f32", "u32"),
    ):
        bank = registers_for(kind)
        given, got = held(bank, vector), held(bank, vector, 9)
        target = f"{got}, " if opcode == "atom" else ""
        yield f"{opcode}{space}.{word}{noftz}.v{vector}.{kind} {target}[%d20], {given}"


def accesses() -> Iterator[str]:
    kinds = (*INTEGERS, *BITS[:4], *FLOATS)
    spaces = ("", ".global", ".shared", ".shared::cta", ".local", ".const", ".param")
    for opcode, space, vector, kind in product(("ld", "st"), spaces, (1, 2, 4, 8), kinds):
        bank = registers_for(kind)
        given = held(bank, vector)
        dot = f".v{vector}" if vector > 1 else ""
        if (opcode, space) != ("st", ".param"):  # it needs a call
            place = "[kernel_s]" if space == ".param" else "[%d20]"
            yield f"{opcode}{space}{dot}.{kind} " + (f"{given}, {place}" if opcode == "ld" else f"{place}, {given}")
    orders = (".relaxed", ".weak", ".volatile", ".relaxed.volatile", "")
    for opcode, order, scope, space in product(
        ("ld", "st"), orders, (".sys", ".gpu", ""), ("", ".global", ".shared", ".local")
    ):
        operands = "%r1, [%d20]" if opcode == "ld" else "[%d20], %r1"
        yield f"{opcode}.mmio{order}{scope}{space}.b32 {operands}"
        if "volatile" in order and space == ".local":
            continue  # PTX ISA 9.1 and later
        pair = "{%r1, %r2}, [%d20]" if opcode == "ld" else "[%d20], {%r1, %r2}"
        yield f"{opcode}.mmio{order}{scope}{space}.v2.b32 {pair}"
        yield f"{opcode}{order}{scope}{space}.b32 {operands}"
    for space in ("global", "shared", "local", "const", "param", "shared::cta", "shared::cluster"):
        yield from (f"cvta.{space}.u64 %d1, %d2", f"cvta.to.{space}.u64 %d1, %d2", f"isspacep.{space} %p1, %d2")


def wide() -> Iterator[str]:
    """Registers of 128 bits, and others in their places."""
    for order, space, word in product(("", ".relaxed.gpu", ".acq_rel"), ("", ".global", ".shared", ".shared::cta"),
                                      ("exch", "cas", "add", "or")):  # fmt: skip
        for a, b in product(("%q1", "%d1", "{%d1, %d2}"), ("%q2", "%d2")):
            yield f"atom{order}{space}.{word}.b128 {a}, [%d9], {b}" + (", %q3" if word == "cas" else "")
        yield f"red{order}{space}.{word}.b128 [%d9], %q1"
    yield from ("atom.global.exch.b128 _, [%d9], %q1", "atom.global.exch.L2::cache_hint.b128 %q1, [%d9], %q2, %d3")
    for space, value in product(("", ".global", ".shared", ".shared::cta"), ("%q1", "%d1", "{%d1, %d2}", "{%q1, %q2}")):
        for dot in ("", ".relaxed.gpu", ".v2"):
            yield f"ld{dot}{space}.b128 {value}, [%d9]"
            yield f"st{dot}{space}.b128 [%d9], {value}"
        yield f"ld{space}.v2.b64 {value}, [%d9]" if value != "%d1" else f"ld{space}.b64 {value}, [%d9]"
    values = ("%q1", "{%d1, %d2}", "{%d1, _}", "{%r1, %r2, %r3, %r4}", "%d1", "{%r1, %r2}")
    yield from (f"mov.b128 {to}, {source}" for to, source in product(values, ("%q2", *values)))
    yield from (f"mov.b64 {to}, {source}" for to, source in (("%q1", "%q2"), ("%d1", "%q2"), ("%q1", "{%d1, %d2}")))
    yield "add.u64 %q1, %q2, %q3"


GENERATED = {
    "wide": wide,
    "arithmetic": arithmetic,
    "whole_numbers": whole_numbers,
    "comparisons": comparisons,
    "numbers_of_comparisons": numbers_of_comparisons,
    "conversions": conversions,
    "warps": warps,
    "atomics": atomics,
    "accesses": accesses,
    **cluster.GENERATED,
    **asynchronous.GENERATED,
}
MISSING = {
    "wide": r"ld(\.\w+(::\w+)?)?\.v2\.b64 \{%q",
    "arithmetic": r"rcp\.r.\.ftz\.f64",
    "whole_numbers": r"(addc|subc)\.[us]16",
    "accesses": r"(ld|st)(\.\w+(::\w+)?)?\.v8\.[usb](8|16) ",
    **cluster.MISSING,
    "conversions": r"cvt\.(r.\.)?(ftz\.)?(f16|f32|f64|bf16)\.bf16|cvt\.(r.i\.|r.\.)?bf16\.(bf16|f16)",
}
"""Forms that ptxas takes and the simulator does not have. Of vectors of eight small elements the PTX ISA knows nothing,
and ptxas crashes when it makes code of them; nor does it know loads of 64 bits into registers of 128."""


def judged(name: str, arch: str, folder: Path) -> tuple[list[str], set[int], set[int]]:
    """The generated forms, and which of them ptxas and the simulator refuse under a .target."""
    forms = list(dict.fromkeys(GENERATED[name]()))
    body = "\n".join(f"{form};" for form in forms)
    ptx = module("BODY", ["struct256 s"], target=arch).replace("<16>", "<40>").replace("<32>", "<40>")
    ptx = ptx.replace(".version 9.0", f".version {asynchronous.VERSIONS.get(name, '9.0')}")
    ptx = ptx.replace("BODY", f".reg .b128 %q<8>; .shared .align 16 .b8 kernel_shared[64];\n{body}")
    first = ptx[: ptx.index(forms[0])].count("\n") + 1
    theirs = {line - first for line in refused(ptx, folder, arch)}
    return forms, theirs, {one.line - first for one in unsupported_forms(ptx)}


@pytest.mark.parametrize("name", GENERATED)
def test_the_same_yes_and_no_as_ptxas(name: str, tmp_path: Path) -> None:
    forms, theirs, ours = judged(name, ARCH, tmp_path)
    assert len(theirs) < len(forms)
    _compare(name, forms, theirs, ours)


def _compare(name: str, forms: list[str], theirs: set[int], ours: set[int]) -> None:
    wrong = [f"ptxas refuses {forms[one]}" for one in sorted(theirs - ours)]
    missing = [forms[one] for one in sorted(ours - theirs)]
    allowed = re.compile(MISSING.get(name, "(?!)"))
    wrong += [f"the simulator lacks {one}" for one in missing if not allowed.match(one)]
    assert theirs
    assert wrong == [], "\n".join([f"{len(wrong)} of {len(forms)}", *wrong[:40]])


ARCHES = ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_103")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "name", [one for one in GENERATED if one not in ("numbers_of_comparisons", "multicast_copies")]
)
def test_the_same_yes_and_no_under_other_targets(name: str, arch: str, tmp_path: Path) -> None:
    _compare(name, *judged(name, arch, tmp_path))


@pytest.mark.parametrize(
    ("form", "target", "first"),
    [
        ("ld.global.v8.f32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1]", "sm_90", "sm_100"),
        ("add.rn.f32x2 %d1, %d2, %d3", "sm_90a", "sm_100"),
        ("multimem.ld_reduce.weak.global.add.f32 %r1, [%d1]", "sm_80", "sm_90"),
        ("red.global.add.noftz.bf16x2 [%d1], %r1", "sm_80", "sm_90"),
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %d2", "sm_80", "sm_90"),
        ("barrier.cluster.arrive", "sm_80", "sm_90"),
        ("cvt.rn.satfinite.e4m3x2.f32 %h1, %r1, %r2", "sm_80", "sm_89"),
    ],
)
def test_a_form_of_a_later_architecture_is_named_with_it(form: str, target: str, first: str, tmp_path: Path) -> None:
    ptx = module(f"{form};", target=target)
    (one,) = unsupported_forms(ptx)
    assert one.reason == f"{target} has no {form.split()[0]}: it takes {first} or later"
    assert set(refused(ptx, tmp_path, target)) == {one.line}
    later = module(f"{form};", target=first)
    assert unsupported_forms(later) == ()
    assert refused(later, tmp_path, first) == {}
