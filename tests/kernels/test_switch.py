"""What kernels ask of the switch: exactly the instructions that their specs promise, for every case that has some."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kernels.catalogue import SPECS, collective, find
from kernels.multimem import SIGNAL, reduce_form, refuses_multimem
from kernels.numeric.dtypes import ARITHMETIC, FLOAT8, accumulators_of, reductions_of
from kernels.spec import Case, KernelSpec, refuses
from memory.fabric import Executable, Traits
from tests.kernels.launching import count_opcodes

Compiled = Callable[[KernelSpec, Case, str], Executable]
FitCase = Callable[..., Case]

SWITCHED = [spec.name for spec in SPECS if spec.needs_multicast]
REDUCING = [name for name in SWITCHED if collective(name.split("/")[0]).reduces]
FULL = "all_reduce/multimem_two_shot"
"""One kernel in every type, the others in a few: all take their instructions from the same table."""

FEW = [("bfloat16", "float32", "sum"), ("float64", "native", "avg"), ("int64", "native", "max")]
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


@pytest.mark.parametrize(("dtype", "accumulator", "reduction"), kinds("sm_90a"))
def test_the_promises_are_the_widest_forms(
    case_of: Callable[..., Case], dtype: str, accumulator: str, reduction: str
) -> None:
    """tests/kernels/test_multimem.py says which these are."""
    case = case_of(dtype=dtype, accumulator=accumulator, reduction=reduction)
    form = reduce_form(dtype, accumulator, reduction)
    assert form is not None
    for name in REDUCING:
        stores = {f"{STORE}.v4.f32"} if name == FULL else set()
        assert find(name).multimem(case) == {SIGNAL, form.instruction(), *stores}
    for spec in SPECS:
        assert spec.needs_multicast or spec.multimem(case) == set()
