"""What the compiled all-reduce kernels contain, read from their PTX; and how their work is divided."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from kernels.all_reduce import collective, multimem_one_shot, one_shot, shares
from kernels.catalogue import SPECS, find
from kernels.spec import Case, KernelSpec
from kernels.status import STATUS_WORDS
from memory.fabric import Executable

Compiled = Callable[[KernelSpec, Case, str], Executable]
Opcodes = Callable[[str], Counter[str]]

ALGORITHMS = [spec.algorithm for spec in SPECS]
PRECISIONS = [
    ("bfloat16", "float32"),
    ("bfloat16", "native"),
    ("float16", "float32"),
    ("float16", "native"),
    ("float32", "float32"),
    ("float32", "native"),
]
SIGNAL = "multimem.red.release.sys.global.add.u32"
REPORTING = {"atom.relaxed.sys.global.cas.b32", "st.release.sys.global.u32"}
PLAIN_ACCESSES = {
    *("ld.global.b32", "ld.global.b64", "ld.global.u16", "ld.global.v4.b32"),
    *("st.global.b32", "st.global.u16", "st.global.v4.b32"),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("dtype", "accumulator"), PRECISIONS)
def test_multimem_instructions_are_exactly_the_promised_ones(
    case_of: Callable[..., Case],
    compiled: Compiled,
    opcodes: Opcodes,
    algorithm: str,
    arch: str,
    dtype: str,
    accumulator: str,
) -> None:
    spec, case = find(f"all_reduce/{algorithm}"), case_of(algorithm, dtype=dtype, accumulator=accumulator)
    executable = compiled(spec, case, arch)
    found = {opcode for opcode in opcodes(executable.ptx) if opcode.startswith("multimem")}
    assert found == spec.multimem(case)
    assert bool(found) == spec.needs_multicast
    assert f".target {arch}\n" in executable.ptx
    assert executable.cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("dtype", "accumulator", "load", "packed"),
    [
        ("bfloat16", "float32", "add.acc::f32", "bf16x2"),
        ("bfloat16", "native", "add", "bf16x2"),
        ("float16", "float32", "add.acc::f32", "f16x2"),
        ("float16", "native", "add", "f16x2"),
        ("float32", "float32", "add", "f32"),
        ("float32", "native", "add", "f32"),
    ],
)
def test_the_promises_are_these(
    case_of: Callable[..., Case], dtype: str, accumulator: str, load: str, packed: str
) -> None:
    case = case_of(dtype=dtype, accumulator=accumulator)
    loads = {f"multimem.ld_reduce.relaxed.sys.global.{load}{vector}.{packed}" for vector in ("", ".v4")}
    stores = {f"multimem.st.relaxed.sys.global{vector}.{packed}" for vector in ("", ".v4")}
    assert find("all_reduce/one_shot").multimem(case) == set()
    assert find("all_reduce/two_shot").multimem(case) == set()
    assert find("all_reduce/multimem_one_shot").multimem(case) == {*loads, SIGNAL}
    assert find("all_reduce/multimem_two_shot").multimem(case) == {*loads, *stores, SIGNAL}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 9, 72])
def test_memory_is_accessed_only_in_the_written_ways(
    case_of: Callable[..., Case], compiled: Compiled, opcodes: Opcodes, algorithm: str, world_size: int
) -> None:
    spec, case = find(f"all_reduce/{algorithm}"), case_of(algorithm, world_size=world_size)
    ptx = compiled(spec, case, "sm_90a").ptx
    found = opcodes(ptx)
    signals = {SIGNAL} if spec.needs_multicast else {"st.release.sys.global.u32"}
    allowed = PLAIN_ACCESSES | signals | REPORTING | {"ld.acquire.sys.global.u32"} | spec.multimem(case)
    accesses = {
        opcode
        for opcode in found
        if re.match(r"(ld|st|atom|red|multimem|cp)\.", opcode) and not opcode.startswith("ld.param")
    }
    assert accesses <= allowed
    # Two barriers. Each signals once, looks at its flag in three places (first look, spin, wait with patience) and at
    # the status in one, and reports in one.
    for signal in signals:
        assert found[signal] == 2 * (2 if signal in REPORTING else 1)
    assert found["ld.acquire.sys.global.u32"] == 2 * 4
    assert found["mov.u64"] >= 2
    assert ptx.count("%globaltimer") == 2
    for reporting in REPORTING - signals:
        assert found[reporting] == 2
    assert found["bar.sync"] == (4 if spec.needs_multicast else 2)
    assert found["fence.proxy.alias"] == (4 if spec.needs_multicast else 0)
    assert ".local" not in ptx
    assert ".shared" not in ptx
    assert ".nc" not in ptx


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parameters_are_as_declared(case_of: Callable[..., Case], compiled: Compiled, algorithm: str) -> None:
    spec = find(f"all_reduce/{algorithm}")
    executable = compiled(spec, case_of(algorithm), "sm_90a")
    found = re.findall(r"^\s*\.param \.(u\d+) .*_param_(\d+),?$", executable.ptx, flags=re.MULTILINE)
    types = ["u32" if parameter.kind == "rank" else "u64" for parameter in spec.parameters]
    kinds = [(parameter.kind, parameter.of) for parameter in spec.parameters]
    assert ("address", "status") in kinds
    assert kinds[-2:] == [("rank", ""), ("patience", "")]
    assert found == [(type_, str(i)) for i, type_ in enumerate(types)]
    assert executable.entry == f"all_reduce_{algorithm}_0"
    assert f".visible .entry {executable.entry}(" in executable.ptx
    assert f".reqntid {spec.launch(case_of(algorithm)).block}, 1, 1" in executable.ptx


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sizes_and_seeds_that_a_tuning_treats_alike_share_one_ptx(
    case_of: Callable[..., Case], compiled: Compiled, algorithm: str
) -> None:
    spec = find(f"all_reduce/{algorithm}")
    cases = [case_of(algorithm, size_bytes=2 << power, seed=power) for power in range(0, 30, 3)]
    digests = {str(spec.choices(case)): set[str]() for case in cases}
    for case in cases:
        digests[str(spec.choices(case))].add(compiled(spec, case, "sm_90a").digest)
    assert all(len(found) == 1 for found in digests.values())
    assert len(set().union(*digests.values())) == len(digests) <= 3


def test_additions_have_the_accumulators_precision(
    case_of: Callable[..., Case], compiled: Compiled, opcodes: Opcodes
) -> None:
    for dtype, accumulator, addition, conversion in [
        ("bfloat16", "float32", "add.rn.f32", "cvt.rn.bf16x2.f32"),
        ("bfloat16", "native", "add.rn.bf16x2", None),
        ("float16", "float32", "add.rn.f32", "cvt.rn.f16x2.f32"),
        ("float16", "native", "add.rn.f16x2", None),
        ("float32", "native", "add.rn.f32", None),
    ]:
        case = case_of("one_shot", dtype=dtype, accumulator=accumulator)
        found = opcodes(compiled(one_shot.SPEC, case, "sm_90a").ptx)
        floats = {o for o in found if re.search(r"^(add|sub|mul|fma|mad|cvt|div)\b.*\b(f|bf)(16|32)", o)}
        assert floats - {"cvt.f32.f16"} == {addition, conversion} - {None}


def test_one_rank_copies_bits(case_of: Callable[..., Case], compiled: Compiled, opcodes: Opcodes) -> None:
    found = opcodes(compiled(one_shot.SPEC, case_of("one_shot", world_size=1), "sm_90a").ptx)
    assert [opcode for opcode in found if "f32" in opcode or "f16" in opcode] == []


def test_sabotaged_kernels_differ_where_they_should(
    case_of: Callable[..., Case], compiled: Compiled, opcodes: Opcodes, sabotaged: dict[str, KernelSpec]
) -> None:
    found = {}
    for algorithm, spec in sabotaged.items():
        found[algorithm] = opcodes(compiled(spec, case_of(algorithm), "sm_90a").ptx)
    for algorithm, counts in found.items():
        assert counts["ld.acquire.sys.global.u32"] == (4 if algorithm.endswith("_barrier") else 8)
    right = opcodes(compiled(one_shot.SPEC, case_of("one_shot"), "sm_90a").ptx)
    assert right["ld.global.v4.b32"] == 8
    assert found["one_shot_drops_last_rank"]["ld.global.v4.b32"] == 7
    assert found["one_shot_accumulates_natively"]["add.rn.bf16x2"] > 0
    counts = found["multimem_one_shot_no_wide_accumulator"]
    promised = multimem_one_shot.multimem(case_of("multimem_one_shot"))
    assert {opcode for opcode in counts if opcode.startswith("multimem")} != promised


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 72])
@pytest.mark.parametrize("numel", [1, 3, 7, 8, 9, 64, 1000, 4099])
def test_every_element_has_one_owner_in_rank_order(dtype: str, world_size: int, numel: int) -> None:
    owner = shares.owner(numel, world_size, dtype)
    assert owner.shape == (numel,)
    assert bool((owner[1:] >= owner[:-1]).all())
    per_vector = 16 // (4 if dtype == "float32" else 2)
    full = numel // per_vector * per_vector
    assert owner[full:].tolist() == [world_size - 1] * (numel - full)
    vectors = owner[:full].reshape(-1, per_vector)
    assert torch.equal(vectors, vectors[:, :1].expand_as(vectors))
    counts = torch.bincount(vectors[:, 0], minlength=world_size)
    assert int(counts.max() - counts.min()) <= 1


def test_launches_grow_with_the_work_up_to_a_bound(case_of: Callable[..., Case]) -> None:
    for algorithm, grids in {
        "one_shot": [1, 1, 2, 64, 64],
        "two_shot": [1, 1, 1, 32, 128],
        "multimem_one_shot": [1, 1, 2, 8, 8],
        "multimem_two_shot": [1, 1, 1, 8, 8],
    }.items():
        spec = find(f"all_reduce/{algorithm}")
        cases = [case_of(algorithm, size_bytes=size) for size in (2, 1 << 13, 1 << 14, 1 << 20, 1 << 26)]
        assert [spec.launch(case).grid for case in cases] == grids
        for case in cases:
            assert spec.launch(case).block >= spec.max_world_size
            sizes = {workspace.name: workspace.numel for workspace in spec.workspaces(case)}
            ranks = 1 if spec.needs_multicast else case.world_size
            assert sizes["status"] == STATUS_WORDS
            assert sizes["epochs"] >= spec.launch(case).grid
            assert sizes["signals"] >= spec.launch(case).grid * ranks


def test_what_all_reduce_means() -> None:
    inputs = [torch.full((3,), float(rank)) for rank in range(4)]
    assert collective.COLLECTIVE.counts(3, 4) == (3, 3)
    assert collective.COLLECTIVE.outputs(inputs, 2) == inputs
    assert [collective.COLLECTIVE.bus_factor(n) for n in (1, 2, 8)] == [0.0, 1.0, 1.75]
    assert collective.COLLECTIVE.same_on_all_ranks
