"""Which multimem forms serve a case, and that kernels ask of the switch just what their specs promise."""

import pytest

from cases.case import Case
from cases.dtypes import ARITHMETIC, FLOAT8, accumulators_of, reductions_of
from cases.multimem import FORMS
from cases.ops import collective
from kernels.catalogue import SPECS, find
from kernels.multimem import PEER_TO_PEER, SIGNAL, reduce_form, reduce_forms, refuses_multimem, store_form
from kernels.spec import refuses
from memory.fabric import Traits
from tests.golden import same_text
from tests.kernels.launching import count_opcodes


def test_each_form_stands_once_and_fills_an_access():
    assert len({form.key for form in FORMS}) == len(FORMS)
    assert len(FORMS) == 204
    assert {form.width_bytes for form in FORMS} == {4, 8, 16}


WIDEST = {
    "float32": {"native sum": "add.v4.f32", "float32 avg": "add.v4.f32", "native min": None},
    "float64": {"native sum": "add.f64", "native max": None},
    "float16": {"native sum": "add.v4.f16x2", "native max": "max.v4.f16x2"},
    "bfloat16": {
        **dict.fromkeys(("float32 sum", "float32 avg"), "add.acc::f32.v4.bf16x2"),
        "native min": "min.v4.bf16x2",
    },
    "float8_e4m3fn": {"native sum": "add.v4.e4m3x4", "native max": "max.v4.e4m3x4"},
    "float8_e5m2": {"float16 sum": "add.acc::f16.v4.e5m2x4", "float32 sum": None},
    "int32": {"native sum": "add.s32", "native min": "min.s32", "native xor": "xor.b32"},
    "uint32": {"native avg": "add.u32", "native and": "and.b32"},
    "int64": {"native sum": "add.u64", "native max": "max.s64", "native or": "or.b64"},
    "uint64": {"native min": "min.u64"},
    "uint8": {"native sum": None},
}


@pytest.mark.parametrize("dtype", WIDEST)
def test_the_widest_form_of_a_reduction(dtype):
    for how, instruction in WIDEST[dtype].items():
        form = reduce_form(dtype, *how.split())
        assert (form and form.instruction()) == (
            instruction and f"multimem.ld_reduce.relaxed.sys.global.{instruction}"
        ), how


def test_every_reduction_has_a_form_or_a_reason():
    """And a form's narrower ones, down to 4 bytes where its type is that narrow, are legal as it is."""
    served = refused = 0
    for dtype in ARITHMETIC:
        for reduction in reductions_of(dtype):
            for accumulator in accumulators_of(dtype, reduction):
                forms = reduce_forms(dtype, accumulator, reduction)
                case = Case("all_reduce", "multimem_two_shot", dtype, accumulator, reduction, 1024, 8)
                assert (refuses_multimem(case, "sm_100a") is None) == bool(forms)
                assert set(forms) <= set(FORMS)
                widths = [form.width_bytes for form in forms]
                floats = dtype.startswith(("float", "bfloat")) and dtype != "float64"
                assert widths in ([], [16, 8, 4] if floats else [8 if dtype.endswith("64") else 4])
                served, refused = served + bool(forms), refused + (not forms)
    assert (served, refused) == (58, 8)


@pytest.mark.parametrize(
    ("types", "arch"),
    [
        *((f"{dtype} native {reduction}", "sm_90a") for dtype, reduction in (("float32", "min"), ("float64", "max"))),
        ("float8_e4m3fn float32 sum", "sm_100a"),
        ("float8_e5m2 float16 avg", "sm_90a"),
        ("bfloat16 float32 sum", "sm_80"),
        ("uint8 native sum", "sm_90a"),
        ("bfloat16 float32 min", "sm_90a"),
    ],
)
def test_a_reason_says_what_to_do(types, arch):
    case = Case("all_reduce", "multimem_one_shot", *types.split(), 1024, 8)
    same_text(str(refuses_multimem(case, arch)))


def test_the_algorithms_proposed_instead_exist():
    names = {spec.name for spec in SPECS}
    known = {op for op, _ in (name.split("/") for name in names)}
    assert {f"{op}/{algorithm}" for op, algorithm in PEER_TO_PEER.items() if op in known} <= names


def test_raw_stores_fill_their_width():
    assert [store_form(width).width_bytes for width in (16, 8, 4)] == [16, 8, 4]
    assert {store_form(width) for width in (16, 8, 4)} <= set(FORMS)
    assert store_form(16).instruction() == "multimem.st.relaxed.sys.global.v4.f32"
    assert not any(store_form(width).is_float8 for width in (16, 8, 4))
    assert {reduce_form(dtype, "native", "sum").runs_on("sm_90a") for dtype in FLOAT8} == {False}


# What kernels ask of the switch: exactly the instructions that their specs promise, for every case that has some.

SWITCHED = [spec.name for spec in SPECS if spec.needs_multicast]
REDUCING = [name for name in SWITCHED if collective(name.split("/")[0]).reduces]
FULL = "all_reduce/multimem_two_shot"
"""One kernel in every type, the others in a few: all take their instructions from the same table."""

FEW = [("bfloat16", "float32", "sum"), ("float64", "native", "avg"), ("int64", "native", "max")]
STORE = "multimem.st.relaxed.sys.global"


def kinds(arch):
    """All that the switch reduces on an architecture."""
    for dtype in ARITHMETIC:
        for reduction in reductions_of(dtype):
            for accumulator in accumulators_of(dtype, reduction):
                case = Case("all_reduce", "x", dtype, accumulator, reduction, 1024, 2)
                if refuses_multimem(case, arch) is None and (arch == "sm_90a" or dtype in FLOAT8):
                    yield dtype, accumulator, reduction


def check(spec, case, executable, arch):
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
def test_reductions_are_exactly_the_promised_ones(fit_case, compiled, name, arch, dtype, accumulator, reduction):
    spec = find(name)
    case = fit_case(spec, dtype=dtype, accumulator=accumulator, reduction=reduction)
    traits = Traits("simulator", arch, world_size=3, heap_bytes=1 << 28, multicast=True, simulated=True)
    assert refuses(spec, collective(spec.op), case, traits) is None
    check(spec, case, compiled(spec, case, arch), arch)


@pytest.mark.parametrize("name", [name for name in SWITCHED if name not in REDUCING])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_stores_are_exactly_the_promised_ones(fit_case, compiled, name, arch):
    spec = find(name)
    for dtype in ("uint32",) if spec.op == "barrier" else ("uint8", "float64"):
        case = fit_case(spec, dtype=dtype)
        assert spec.multimem(case) == {SIGNAL, f"{STORE}.b32" if spec.op == "barrier" else f"{STORE}.v4.f32"}
        check(spec, case, compiled(spec, case, arch), arch)
