"""What registers an instruction can have: the simulator refuses those that ptxas refuses, and no others."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from memory.fabric import DeviceFault
from simulator.run.decode import unsupported_forms
from tests.golden import same_text
from tests.simulator.harness import HEADER, launching, make_world, module, run, simple

BANKS = {
    "pred": "%p", "b16": "%hb", "u16": "%hu", "s16": "%hs", "f16": "%hf", "b32": "%rb", "u32": "%ru", "s32": "%rs",
    "f32": "%rf", "b64": "%db", "u64": "%du", "s64": "%ds", "f64": "%df",
}  # fmt: skip
FORMS = """
add.u32 X, %ru1, %ru2; add.u32 %ru1, X, 3; add.f32 %rf1, X, %rf2; add.f32 X, %rf1, %rf2; add.f64 %df1, X, %df1
add.s16 X, %hu1, 1; add.f16 %hf1, X, %hf2; fma.rn.f32 %rf1, %rf1, %rf1, X; fma.rn.f16x2 %rb1, %rb1, %rb1, X
and.b32 X, %rb1, 1; and.b32 %rb1, X, 1; and.pred %p1, X, %p2; and.b16 %hb1, X, 1; not.b32 X, %rb1; not.pred X, %p1
mul.wide.u32 X, %ru1, 4; mul.wide.u32 %du1, X, 4; mul.wide.s16 X, %hs1, 1; mad.wide.u32 %du1, %ru1, %ru1, X
mad.wide.u32 %du1, X, %ru1, %du1; mad.lo.s32 %rs1, %rs1, %rs1, X; mul.hi.u64 X, %du1, %du1; div.u32 %ru1, X, 3
mov.u32 X, %ru1; mov.u32 %ru1, X; mov.f32 X, %rb1; mov.f32 %rf1, X; mov.b32 X, %rf1; mov.b64 X, %db1; mov.pred X, %p1
mov.u16 X, %hb1; mov.b16 %hb1, X; mov.u32 X, %tid.x; mov.u64 X, %tid.x; mov.u64 X, %globaltimer; mov.u32 X, %clock64
mov.f32 X, %tid.x; mov.u16 X, %ctaid.y; mov.u16 X, %laneid; mov.u16 X, %gridid; mov.u32 X, %gridid; mov.u64 X, %gridid
mov.b64 X, %clock64; mov.u64 X, %clock; mov.u32 X, %clock; mov.u32 X, %globaltimer; mov.b64 {%rb1, %rb2}, X; mov.b64 X, {%rb1, %rb2}; mov.b32 {%hb1, %hb2}, X; mov.b32 {X, %hb1}, %rb1
ld.global.u32 X, [%du1]; ld.global.f32 X, [%du1]; ld.global.b32 X, [%du1]; ld.global.u8 X, [%du1]
ld.global.s16 X, [%du1]; ld.global.b16 X, [%du1]; ld.global.u64 X, [%du1]; ld.global.f64 X, [%du1]; ld.param.u32 X, [n]
ld.shared.u32 X, [sh]; ld.global.u32 %ru1, [X]; ld.global.v2.u32 {X, %ru1}, [%du1]; ld.global.v2.f32 {X, X}, [%du1]
st.global.u32 [%du1], X; st.global.f32 [%du1], X; st.global.u8 [%du1], X; st.global.b16 [%du1], X; st.global.u64 [X], 1
st.global.f64 [%du1], X; st.shared.u32 [sh], X; st.global.v2.u32 [%du1], {X, X}
cvt.u64.u32 X, %ru1; cvt.u64.u32 %du1, X; cvt.u32.u16 %ru1, X; cvt.u8.u32 X, %ru1; cvt.u16.u32 X, %ru1
cvt.rn.f32.u32 X, %ru1; cvt.rn.f32.u32 %rf1, X; cvt.f64.f32 X, %rf1; cvt.f64.f32 %df1, X; cvt.rzi.u32.f32 X, %rf1
cvt.rn.f16.f32 X, %rf1; cvt.f32.f16 %rf1, X; cvt.rn.bf16.f32 X, %rf1; cvt.rn.f16x2.f32 X, %rf1, %rf2
cvt.rn.bf16x2.f32 X, %rf1, %rf2; cvt.rn.satfinite.e4m3x2.f32 X, %rf1, %rf2; cvt.rn.f32.s64 %rf1, X
setp.eq.u32 X, %ru1, 3; setp.eq.u32 %p1, X, 3; setp.lt.f32 %p1, X, %rf1; setp.eq.b16 %p1, X, 1
setp.eq.and.u32 %p1, %ru1, %ru2, X; setp.eq.u32 %p1|X, %ru1, 3; selp.u32 X, %ru1, %ru2, %p1; selp.u32 %ru1, X, 1, %p1
selp.u32 %ru1, %ru1, %ru2, X; selp.f32 X, %rf1, %rf1, %p1; set.eq.u32.f32 %ru1, X, %rf1; set.eq.u32.f32 X, %rf1, %rf1
set.lt.f32.s16 X, %hs1, 1; set.lt.f16.f16 X, %hf1, %hf2; set.lt.and.u32.u64 %ru1, %du1, X, %p1; set.lt.or.u32.u32 %ru1, %ru1, %ru1, X
set.lt.f16x2.f16x2 X, %rb1, %rb2; set.lt.u32.bf16x2 %ru1, X, %rb2; set.lt.u16.f16 X, %hf1, %hf1; testp.finite.f32 %p1, X
testp.finite.f32 X, %rf1; @X add.u32 %ru1, %ru1, 1; @!X add.u32 %ru1, %ru1, 1
shl.b32 X, %rb1, 1; shl.b32 %rb1, X, 1; shl.b32 %rb1, %rb1, X; shr.u64 %du1, %du1, X; popc.b32 X, %rb1
popc.b64 %ru1, X; clz.b32 %ru1, X; bfind.u64 X, %du1; brev.b32 X, %rb1; bfe.u64 %du1, %du1, X, 2; bfe.u32 X, %ru1, 1, 2
bfi.b64 %db1, %db1, %db1, X, 2; prmt.b32 X, %rb1, %rb1, 1; lop3.b32 %rb1, X, %rb1, %rb1, 1; dp4a.u32.u32 X, %ru1, 1, 1
shf.l.wrap.b32 %rb1, %rb1, %rb1, X; szext.clamp.u32 X, %ru1, 3
shfl.sync.idx.b32 X|%p1, %rb1, 0, 31, -1; shfl.sync.idx.b32 %rb1|X, %rb1, 0, 31, -1; shfl.sync.idx.b32 %rb1, X, 0, 31, -1
shfl.sync.idx.b32 %rb1, %rb1, 1, 31, X; vote.sync.ballot.b32 X, %p1, -1; vote.sync.ballot.b32 %rb1, X, -1
vote.sync.any.pred X, %p1, -1; vote.sync.any.pred %p1, %p1, X; match.any.sync.b32 X, %rb1, -1
match.any.sync.b64 %rb1, X, -1; redux.sync.add.u32 X, %ru1, -1; activemask.b32 X; elect.sync %ru1|X, -1
atom.global.add.u32 X, [%du1], 1; atom.global.add.u32 %ru1, [%du1], X; atom.global.add.f32 %rf1, [%du1], X
atom.global.cas.b32 X, [%du1], 1, 2; atom.global.cas.b64 %db1, [%du1], 1, X; red.global.add.u64 [%du1], X
red.global.add.f32 [%du1], X; bar.red.popc.u32 X, 0, %p1; bar.red.popc.u32 %ru1, 0, X; cvta.to.global.u64 X, %du1
cvta.to.global.u64 %du1, X; isspacep.global X, %du1; neg.f32 X, %rf1; rcp.rn.f32 X, %rf1; min.f32 X, %rf1, %rf1
"""
LITERALS = ("1", "-1", "0xFFFFFFFF", "1.0", "0f3F800000", "0d3FF0000000000000")
OF_LITERALS = """
mov.u32 %ru1, X; add.s32 %rs1, %rs1, X; mov.b32 %rb1, X; mov.u64 %du1, X; mov.f32 %rf1, X; add.f64 %df1, %df1, X
st.global.u8 [%du1], X; st.global.f32 [%du1], X; st.global.b32 [%du1], X; setp.eq.f32 %p1, %rf1, X; shl.b32 %rb1, %rb1, X
selp.b32 %rb1, X, 1, %p1; mul.wide.u32 %du1, %ru1, X; cvt.f64.f32 %df1, X; ld.global.u32 X, [%du1]
"""
SINGLE = """
ld.global.v2.u32 %ru1, [%du1]; ld.global.u32 {%ru1, %ru2}, [%du1]; ld.global.v4.f32 {%rf1, %rf2, %rf3}, [%du1]
ld.global.v2.u32 {%ru1, %du2}, [%du1]; ld.global.v2.f32 {%rf1, _}, [%du1]; st.global.v4.u32 [%du1], {%ru1, %ru2}
st.global.u32 [%du1], {%ru1, %ru2}; add.u32 %ru1, %ru2; add.u32 %ru1, %ru2, %ru3, %ru4; setp.eq.u32 %p1, %ru1
mov.u32 %ru1; mov.u32 5, %ru1; ld.global.u32 [%du1], %ru1; mov.b64 {%hb1, %hb2}, %db1; mov.b64 {%rb1, %hb2}, %db1
mov.u32 %ru1, !%p1; mov.pred %p1, !%p2; selp.u32 %ru1, 1, 2, !%p1; add.u32 %ru1, %ru1, [%du1]; add.u32 %ru1|%p1, %ru1, 1
mov.u64 {%rb1, %rb2}, %db1; mov.b64 {%hb1, %hb2, %hb3, %hb4}, %db1; mov.u32 %ru1, nothing; ld.param.u32 %ru1, [nn]
st.shared.u32 [tile], %ru1
"""


def _ptxas():
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found and found.submodule_search_locations else ():
        for one in sorted(Path(folder).glob("c*/bin/ptxas")):
            return str(one)
    return shutil.which("ptxas")


PTXAS = _ptxas()


def _listed(text):
    return [one.strip() for one in text.replace("\n", ";").split(";") if one.strip()]


def generated():
    forms = [form.replace("X", f"{bank}3") for form in _listed(FORMS) for bank in BANKS.values()]
    forms += [form.replace("X", value) for form in _listed(OF_LITERALS) for value in LITERALS]
    return [*forms, *_listed(SINGLE)]


@pytest.mark.skipif(PTXAS is None, reason="needs ptxas (PyPI: nvidia-cuda-nvcc)")
def test_the_same_registers_as_ptxas(tmp_path):
    forms = generated()
    registers = "".join(f".reg .{kind} {bank}<8>; " for kind, bank in BANKS.items())
    head = f"{HEADER.replace('sm_90a', 'sm_100a')}.visible .entry k(.param .u64 x, .param .u32 n) {{\n{registers}"
    head += ".shared .align 16 .b8 sh[64];\n"
    ptx = head + "\n".join(f"{form};" for form in forms) + "\nret;\n}\n"
    path = tmp_path / "module.ptx"
    path.write_text(ptx)
    command = [str(PTXAS), "-arch", "sm_100a", "-O0", str(path), "-o", str(tmp_path / "module.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    first = head.count("\n") + 1
    theirs = {int(line) - first for line in re.findall(r"line (\d+); error\s*:", done.stderr)}
    ours = {one.line - first: one.reason for one in unsupported_forms(ptx)}
    assert len(forms) / 2 < len(theirs) < len(forms)
    wrong = [f"ptxas refuses {forms[one]}" for one in sorted(theirs - ours.keys())]
    lacks = re.compile("the simulator has no such operands of (mov.pred|selp.u32)")
    strict = [one for one in sorted(ours.keys() - theirs) if not lacks.match(ours[one])]
    wrong += [f"ptxas takes {forms[one]}: {ours[one]}" for one in strict]
    assert wrong == [], "\n".join([f"{len(wrong)} of {len(forms)}", *wrong[:60]])


@pytest.mark.parametrize(
    "body",
    [
        "mul.wide.u32 %r4, %r4, 8;",
        "vote.sync.ballot.b32 %p1, %p1, -1;",
        "mov.b32 {%r2, %r3}, %r1;",
        "@%r1 add.u32 %r1, %r1, 1;",
        "ld.param.u32 %r1, [numell];",
        "ld.param.u32 %r1, [kernel_n+4];",
        "st.shared.u32 [tile], %r1;",
        "call foo;",
    ],
)
def test_a_thread_that_gets_there_faults_with_the_line(body):
    world = make_world(1)
    ptx = module(f"mov.u32 %r1, 0;\n{body}", ["u32 n"])

    outcome = run(world, launching(ptx, 1, 32, [1]))
    same_text(str(outcome.error()))


def test_a_mistake_of_the_simulator_names_the_thread_and_the_line(monkeypatch):
    def broken(*arguments):
        raise ValueError("could not broadcast")

    monkeypatch.setattr("simulator.isa.memory.rows_of", broken)
    with pytest.raises(DeviceFault, match="PTX line") as found:
        simple("st.global.u32 [%out], %r1;")
    same_text(str(found.value))
