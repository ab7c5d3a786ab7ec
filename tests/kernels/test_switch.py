"""What kernels ask of the switch: exactly the instructions that their specs promise, for every case that has some."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kernels_launching import count_opcodes

from kernels.catalogue import SPECS, collective, find
from kernels.multimem import SIGNAL, refuses_multimem
from kernels.numeric.dtypes import ARITHMETIC, FLOAT8, accumulators_of, reductions_of
from kernels.spec import Case, KernelSpec, refuses
from memory.fabric import Executable, Traits

Compiled = Callable[[KernelSpec, Case, str], Executable]
FitCase = Callable[..., Case]

SWITCHED = [spec.name for spec in SPECS if spec.needs_multicast]
REDUCING = [name for name in SWITCHED if collective(name.split("/")[0]).reduces]
FULL = "all_reduce/multimem_two_shot"
"""One kernel in every type, the others in a few: all take their instructions from the same table."""

FEW = [("bfloat16", "float32", "sum"), ("float64", "native", "avg"), ("int64", "native", "max")]
LOAD = "multimem.ld_reduce.relaxed.sys.global"
STORE = "multimem.st.relaxed.sys.global"


def kinds(arch: str) -> Iterator[tuple[str, str, str]]:
    """All that the switch reduces on an architecture."""
    for dtype in ARITHMETIC:
        for reduction in reductions_of(dtype):
            for accumulator in accumulators_of(dtype, reduction):
                case = Case("all_reduce", "x", dtype, accumulator, reduction, 1024, 2)
                if refuses_multimem(case, arch) is None and (arch == "sm_90a" or dtype in FLOAT8):
                    yield dtype, accumulator, reduction


def check(spec: KernelSpec, case: Case, executable: Executable, arch: str) -> None:
    found = {opcode for opcode in count_opcodes(executable.ptx) if opcode.startswith("multimem")}
    assert found == spec.multimem(case)
    assert SIGNAL in found
    assert f".target {arch}\n" in executable.ptx
    assert executable.cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "accumulator", "reduction"),
    [
        *((FULL, arch, *kind) for arch in ("sm_90a", "sm_100a") for kind in kinds(arch)),
        *((name, "sm_90a", *kind) for name in REDUCING if name != FULL for kind in FEW),
        *((name, "sm_100a", "float8_e5m2", "float16", "avg") for name in REDUCING if name != FULL),
    ],
)
def test_reductions_are_exactly_the_promised_ones(
    fit_case: FitCase, compiled: Compiled, name: str, arch: str, dtype: str, accumulator: str, reduction: str
) -> None:
    spec = find(name)
    case = fit_case(spec, dtype=dtype, accumulator=accumulator, reduction=reduction)
    traits = Traits("simulator", arch, world_size=3, heap_bytes=1 << 28, multicast=True, simulated=True)
    assert refuses(spec, collective(spec.op), case, traits) is None
    check(spec, case, compiled(spec, case, arch), arch)


@pytest.mark.parametrize("name", [name for name in SWITCHED if name not in REDUCING])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_stores_are_exactly_the_promised_ones(fit_case: FitCase, compiled: Compiled, name: str, arch: str) -> None:
    spec = find(name)
    for dtype in ("uint32",) if spec.op == "barrier" else ("uint8", "float64"):
        case = fit_case(spec, dtype=dtype)
        assert spec.multimem(case) == {SIGNAL, f"{STORE}.b32" if spec.op == "barrier" else f"{STORE}.v4.f32"}
        check(spec, case, compiled(spec, case, arch), arch)


@pytest.mark.parametrize(
    ("dtype", "accumulator", "reduction", "load"),
    [
        ("bfloat16", "float32", "sum", "add.acc::f32.v4.bf16x2"),
        ("bfloat16", "native", "sum", "add.v4.bf16x2"),
        ("float16", "float32", "avg", "add.acc::f32.v4.f16x2"),
        ("float16", "native", "max", "max.v4.f16x2"),
        ("float32", "float32", "sum", "add.v4.f32"),
        ("float32", "native", "sum", "add.v4.f32"),
        ("float64", "native", "sum", "add.f64"),
        ("float8_e4m3fn", "float16", "sum", "add.acc::f16.v4.e4m3x4"),
        ("float8_e5m2", "native", "min", "min.v4.e5m2x4"),
        ("int32", "native", "sum", "add.s32"),
        ("int64", "native", "sum", "add.u64"),
        ("uint32", "native", "xor", "xor.b32"),
        ("uint64", "native", "max", "max.u64"),
    ],
)
def test_the_promises_are_these(
    case_of: Callable[..., Case], dtype: str, accumulator: str, reduction: str, load: str
) -> None:
    case = case_of(dtype=dtype, accumulator=accumulator, reduction=reduction)
    for name in REDUCING:
        stores = {f"{STORE}.v4.f32"} if name == FULL else set()
        assert find(name).multimem(case) == {SIGNAL, f"{LOAD}.{load}", *stores}
    for spec in SPECS:
        assert spec.needs_multicast or spec.multimem(case) == set()
