"""The first version of PTX with a form: what ptxas says, where it is installed, and the same list without it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from simulator_families import FAMILIES, bench_of
from simulator_harness import module, refuse_unsupported

from simulator.isa.registry import UnknownInstruction
from simulator.isa.versions import FIRST, Version, version_of, version_of_target
from simulator.ptx.assembler import find_ptxas
from simulator.ptx.parse import entries_of, parse_kernel

FORMS: dict[str, str] = {
    "fence.acq_rel.sys": "7.0",
    "cp.async.ca.shared::cta.global [%r1], [%d1], 4": "7.0",
    "cp.async.ca.shared.global [%r1], [%d1], 4, %r2": "7.0",
    "redux.sync.add.s32 %r1, %r2, -1": "7.0",
    "fma.rn.bf16 %h1, %h2, %h3, %h4": "7.0",
    "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0": "7.1",
    "cp.async.cg.shared::cta.global.L2::128B [%r1], [%d1], 16": "7.4",
    "ld.global.L1::evict_last.b32 %r1, [%d1]": "7.4",
    "prefetch.global.L2::evict_last [%d1]": "7.4",
    "cp.async.ca.shared.global [%r1], [%d1], 4, %p1": "7.5",
    "fence.proxy.alias": "7.5",
    "bmsk.clamp.b32 %r1, %r2, %r3": "7.6",
    "isspacep.param %p1, %d1": "7.7",
    "fence.acq_rel.cluster": "7.8",
    "ld.relaxed.cluster.b32 %r1, [%d2]": "7.8",
    "ld.shared::cta.b32 %r1, [%r2]": "7.8",
    "add.bf16x2 %r1, %r2, %r3": "7.8",
    "cvt.rn.f16x2.e4m3x2 %r1, %h1": "7.8",
    "mov.u32 %r1, %cluster_ctarank": "7.8",
    "barrier.cluster.arrive": "7.8",
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0": "7.8",
    "barrier.cluster.arrive.release": "8.0",
    "elect.sync %r1|%p1, -1": "8.0",
    "fence.mbarrier_init.release.cluster": "8.0",
    "fence.proxy.async.global": "8.0",
    "mbarrier.arrive.release.cta.shared::cta.b64 %d1, [%r1]": "8.0",
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 4": "8.0",
    "cp.async.bulk.commit_group": "8.0",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r2]": "8.0",
    "atom.global.add.v2.f32 {%f1, %f2}, [%d1], {%f3, %f4}": "8.1",
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r3]": "8.1",
    "multimem.red.relaxed.sys.global.add.u32 [%d1], %r1": "8.1",
    "multimem.st.relaxed.sys.global.b32 [%d1], %r1": "8.1",
    "multimem.ld_reduce.relaxed.sys.global.add.v4.bf16x2 {%r1, %r2, %r3, %r4}, [%d1]": "8.1",
    "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%r1, %r2, %r3, %r4}, [%d1]": "8.2",
    "ld.mmio.relaxed.sys.global.b32 %r1, [%d1]": "8.2",
    "atom.global.exch.b128 %q1, [%d1], %q2": "8.3",
    "mbarrier.arrive.relaxed.cta.shared::cta.b64 %d1, [%r1]": "8.6",
    "mbarrier.test_wait.parity.relaxed.cta.shared::cta.b64 %p1, [%r1], 0": "8.6",
    "fence.acquire.sys": "8.6",
    "fence.release.cluster": "8.6",
    "fence.acquire.sync_restrict::shared::cluster.cluster": "8.6",
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r2]": "8.6",
    "redux.sync.min.abs.NaN.f32 %f1, %f2, -1": "8.6",
    "add.rn.f32x2 %d1, %d2, %d3": "8.6",
    "ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1]": "8.8",
}
STEPS = ("7.0 7.1 7.4 7.5 7.6 7.7", "sm_80"), ("7.8", "sm_90"), ("8.0 8.1 8.2 8.3", "sm_90a"), ("8.6 8.8", "sm_100a")
"""Versions, and the oldest architecture that has all of their forms."""


def number(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


def written(version: str, target: str) -> tuple[str, int]:
    """A module with all forms, a line each, and the number of the first one's line."""
    has_wide = number(version) >= (8, 3)
    head = (
        f".version {version}\n.target {target}\n.address_size 64\n.visible .entry k() {{\n.reg .pred %p<5>; .reg .b16 "
        f"%h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>; {'.reg .b128 %q<3>;' * has_wide}\n"
    )
    return head + "".join(f"{form};\n" for form in FORMS) + "ret;\n}\n", head.count("\n") + 1


def refused(ptx: str, target: str, folder: Path) -> dict[int, str]:
    """By line what ptxas refuses."""
    path = folder / "module.ptx"
    path.write_text(ptx)
    command = [str(find_ptxas()), "-arch", target, "-O0", str(path), "-o", str(folder / "module.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    return {int(line): reason for line, reason in re.findall(r"line (\d+); error\s*: (.*)", said)}


def test_the_first_version_of_a_form() -> None:
    ptx, first = written("9.0", "sm_100a")
    kernel = parse_kernel(ptx, "k")
    found = {one.line - first: one for block in kernel.blocks for one in block.instructions}
    ours = {form: version_of(found[at], kernel.types) for at, form in enumerate(FORMS)}
    assert ours == {form: number(version) for form, version in FORMS.items()}


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas (PyPI: nvidia-cuda-nvcc)")
def test_ptxas_takes_each_form_from_that_version_on(tmp_path: Path) -> None:
    taken: dict[str, str] = {}
    for versions, target in STEPS:
        for version in versions.split():
            ptx, first = written(version, target)
            no = refused(ptx, target, tmp_path)
            for at, form in enumerate(FORMS):
                if first + at not in no:
                    taken.setdefault(form, version)
    assert taken == FORMS


@pytest.mark.slow
@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas (PyPI: nvidia-cuda-nvcc)")
@pytest.mark.parametrize("family", FAMILIES)
def test_no_form_of_the_vectors_needs_more_than_is_said(family: str, tmp_path: Path) -> None:
    """ptxas names the versions that forms need in a module of an old one; of some lines it names another error only."""
    ptx = re.sub(r"\.target \w+", ".target sm_80", re.sub(r"\.version [\d.]+", ".version 7.0", bench_of(family).ptx))
    reasons = refused(ptx, "sm_80", tmp_path)
    theirs = {line: re.search(r"PTX ISA \.version ([\d.]+\d)", reason) for line, reason in reasons.items()}
    ours: dict[int, Version] = {}
    for entry in entries_of(ptx):
        kernel = parse_kernel(ptx, entry)
        for one in (one for block in kernel.blocks for one in block.instructions):
            ours[one.line] = max(ours.get(one.line, FIRST), version_of(one, kernel.types))
    wrong = {line: named[1] for line, named in theirs.items() if named and number(named[1]) > ours.get(line, (9, 9))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("target", "version"), [("sm_80", (7, 0)), ("sm_90", (7, 8)), ("sm_90a", (8, 0)), ("sm_103a", (8, 8)), ("?", FIRST)]
)
def test_the_first_version_of_an_architecture(target: str, version: Version) -> None:
    assert version_of_target(target) == version


@pytest.mark.skipif(find_ptxas() is None, reason="needs ptxas (PyPI: nvidia-cuda-nvcc)")
@pytest.mark.parametrize(
    "target", ["sm_86", "sm_87", "sm_90", "sm_90a", "sm_100a", "sm_100f", "sm_103a", "sm_110a", "sm_120a"]
)
def test_ptxas_takes_an_architecture_from_that_version_on(target: str, tmp_path: Path) -> None:
    major, minor = version_of_target(target)
    before = {(8, 0): "7.8", (9, 0): "8.8"}.get((major, minor), f"{major}.{minor - 1}")
    text = ".version {}\n.target " + target + "\n.address_size 64\n.visible .entry k() {{\nret;\n}}\n"
    assert refused(text.format(f"{major}.{minor}"), target, tmp_path) == {}
    assert 2 in refused(text.format(before), target, tmp_path)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100", "sm_100a", "sm_103f", "sm_110a", "sm_120a"])
def test_targets_of_redux_of_floats(target: str, tmp_path: Path) -> None:
    text = module("redux.sync.min.abs.f32 %r1, %r2, -1;", target=target)
    has_it = target in ("sm_100a", "sm_103f")
    if find_ptxas() is not None:
        assert bool(refused(text, target, tmp_path)) != has_it
    if has_it:
        refuse_unsupported(text)
        return
    with pytest.raises(
        UnknownInstruction, match=f"{target} has no redux of f32: it takes one of sm_100a, sm_100f, sm_103"
    ):
        refuse_unsupported(text)
