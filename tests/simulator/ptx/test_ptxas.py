"""The assembler is the arbiter of what is legal: a generated set of forms gets the same yes and no from ptxas and from the
simulator's table. The locked ptxas is the first on PATH (tests/cuda_programs.py).

Forms that ptxas takes and the simulator does not have are allowed only where MISSING names them.
"""

import re
import subprocess

import pytest

from simulator.ptx.assembler import find_ptxas
from simulator.run.decode import unsupported_forms
from tests.simulator.harness import module
from tests.simulator.isa.families import FAMILIES, bench_of
from tests.simulator.ptx.forms import TEMPLATES, forms_of

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


def refused(ptx, folder, arch=ARCH):
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
def test_all_that_the_vectors_run_is_legal(family, tmp_path):
    ptx = bench_of(family).ptx.replace(".target sm_90a", f".target {ARCH}")
    lines = ptx.splitlines()
    assert {lines[line - 1]: reason for line, reason in refused(ptx, tmp_path).items()} == {}


MISSING = {
    "wide": r"ld(\.\w+(::\w+)?)?\.v2\.b64 \{%q",
    "arithmetic": r"rcp\.r.\.ftz\.f64",
    "whole_numbers": r"(addc|subc)\.[us]16",
    "multimem": r"multimem\.red\.relaxed\.sys\.global\.(min|max)\.(v\d\.b?f16|v[24]\.b?f16x2) ",
    "accesses": r"(ld|st)(\.\w+(::\w+)?)?\.v8\.[usb](8|16) ",
    "clusters": r"(mapa|getctarank)(\.u32 |(\.shared::cluster)?\.s64)|mapa\.u64 %d1, kernel_shared|getctarank\.u64 %r1, kernel_shared"
    r"|(ld|st)\.shared::cluster\.v8\.[usb](8|16) ",
    "cluster_copies": r"(st|red)\.async(\.(weak|relaxed|cluster))*\.shared(::cta)?\.",
    "conversions": r"cvt\.(r.\.)?(ftz\.)?(f16|f32|f64|bf16)\.bf16|cvt\.(r.i\.|r.\.)?bf16\.(bf16|f16)",
}
"""Forms that ptxas takes and the simulator does not have. Of vectors of eight small elements the PTX ISA knows nothing,
and ptxas crashes when it makes code of them; nor does it know loads of 64 bits into registers of 128, signed addresses, or st.async and red.async but for .shared::cluster.
Generic addresses have 64 bits."""


def judged(name, arch, folder):
    """The generated forms, and which of them ptxas and the simulator refuse under a .target."""
    forms = list(forms_of(TEMPLATES[name]()))
    body = "\n".join(f"{form};" for form in forms)
    ptx = module("BODY", ["struct256 s"], target=arch).replace("<16>", "<40>").replace("<32>", "<40>")
    ptx = ptx.replace(".version 9.0", f".version {'9.1' if name == 'multicast_copies' else '9.0'}")
    ptx = ptx.replace("BODY", f".reg .b128 %q<8>; .reg .b8 %x<9>; .shared .align 16 .b8 kernel_shared[64];\n{body}")
    first = ptx[: ptx.index(forms[0])].count("\n") + 1
    theirs = {line - first for line in refused(ptx, folder, arch)}
    return forms, theirs, {one.line - first for one in unsupported_forms(ptx)}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_same_yes_and_no_as_ptxas(name, tmp_path):
    forms, theirs, ours = judged(name, ARCH, tmp_path)
    assert len(theirs) < len(forms)
    _compare(name, forms, theirs, ours)


def _compare(name, forms, theirs, ours):
    wrong = [f"ptxas refuses {forms[one]}" for one in sorted(theirs - ours)]
    missing = [forms[one] for one in sorted(ours - theirs)]
    allowed = re.compile(MISSING.get(name, "(?!)"))
    wrong += [f"the simulator lacks {one}" for one in missing if not allowed.match(one)]
    assert theirs
    assert wrong == [], "\n".join([f"{len(wrong)} of {len(forms)}", *wrong[:40]])


ARCHES = ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_103")
OF_MULTIMEM = ("sm_90a", "sm_100", "sm_100f", "sm_103a", "sm_110a", "sm_120", "sm_120a", "sm_121a")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "name", [one for one in TEMPLATES if one not in ("numbers_of_comparisons", "multicast_copies")]
)
def test_the_same_yes_and_no_under_other_targets(name, arch, tmp_path):
    _compare(name, *judged(name, arch, tmp_path))


@pytest.mark.parametrize("arch", OF_MULTIMEM)
def test_multimem_under_the_targets_that_differ(arch, tmp_path):
    _compare("multimem", *judged("multimem", arch, tmp_path))


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
def test_a_form_of_a_later_architecture_is_named_with_it(form, target, first, tmp_path):
    ptx = module(f"{form};", target=target)
    (one,) = unsupported_forms(ptx)
    assert one.reason == f"{target} has no {form.split()[0]}: it takes {first} or later"
    assert set(refused(ptx, tmp_path, target)) == {one.line}
    later = module(f"{form};", target=first)
    assert unsupported_forms(later) == ()
    assert refused(later, tmp_path, first) == {}


ASKS = "clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r1], [%r2]"


@pytest.mark.parametrize(
    ("form", "target", "its"),
    [
        ("tensormap.replace.tile.rank.global.b1024.b32 [%d1], %r1", "sm_90", "sm_90a"),
        ("setmaxnreg.inc.sync.aligned.u32 40", "sm_90", "sm_90a"),
        (ASKS, "sm_100", "sm_100a"),
        (ASKS.replace(".multicast::cluster::all", ""), "sm_90a", "sm_100"),
    ],
)
def test_a_form_of_some_targets_alone_is_refused_under_others(form, target, its, tmp_path):
    ptx, other = (module(f"{form};", target=one).replace(".version 8.0", ".version 8.8") for one in (target, its))
    (one,) = unsupported_forms(ptx)
    assert one.reason.startswith(f"{target} has no {form.split()[0]}: it takes ")
    assert set(refused(ptx, tmp_path, target)) == {one.line}
    assert unsupported_forms(other) == ()
    assert refused(other, tmp_path, its) == {}
