"""The table of multimem forms against the assembler inside CuTe DSL: all candidates, legal and illegal, one by one."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from cases.case import Case
from cases.dtypes import ARITHMETIC, FLOAT8, accumulators_of, reductions_of
from cases.ops import collective
from kernels.catalogue import SPECS, find
from kernels.multimem import (
    ACTIONS,
    BITS,
    FLOAT8_ARCHS,
    FORMS,
    PEER_TO_PEER,
    SIGNAL,
    Form,
    reduce_form,
    reduce_forms,
    refuses_multimem,
    store_form,
)
from kernels.spec import KernelSpec, refuses
from memory.fabric import Executable, Traits
from tests.golden import same_text
from tests.kernels.conftest import Compiled, FitCase
from tests.kernels.launching import count_opcodes

OPERATIONS = ("add", "min", "max", "and", "or", "xor")
VECTORS = ("", "v2", "v4", "v8")

CANDIDATES = (
    *(
        Form("ld_reduce", *one)
        for one in itertools.product(OPERATIONS, ("", "acc::f32", "acc::f16"), VECTORS, tuple(BITS))
    ),
    *(Form("red", *one) for one in itertools.product(OPERATIONS, ("",), VECTORS, tuple(BITS))),
    *(Form("st", "", "", *one) for one in itertools.product(VECTORS, tuple(BITS))),
)

UNDOCUMENTED = {
    Form("red", operation, "", vector, name)
    for operation in ("min", "max")
    for vectors, names in (
        (("v2", "v4", "v8"), ("f16", "bf16")),
        (("v2", "v4"), ("f16x2", "bf16x2")),
    )
    for vector in vectors
    for name in names
}
"""What the assembler takes and no PTX document lists: not ours."""

REGISTERS = {8: "%byte", 16: "%half", 32: "%word", 64: "%long"}

KERNEL = """
import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op


@dsl_user_op
def emit(text, *, loc=None, ip=None):
    llvm.inline_asm(None, [], text, "~{memory}", has_side_effects=True, asm_dialect=0, loc=loc, ip=ip)


class Text:
    def __init__(self, text):
        self.text = text

    @cute.jit
    def __call__(self, number: cutlass.Int32):
        self.kernel(number).launch(grid=[1, 1, 1], block=[1, 1, 1])

    @cute.kernel
    def kernel(self, number: cutlass.Int32):
        emit(self.text)
"""


def statement(form: Form) -> str:
    """The form as an instruction whose registers have its type's width."""
    name = REGISTERS[BITS[form.type]]
    registers = ", ".join(f"{name}{number}" for number in range(form.registers))
    data = f"{{{registers}}}" if form.vector else registers
    operands = f"{data}, [%base]" if form.action == "ld_reduce" else f"[%base], {data}"
    return f"{form.instruction()} {operands};"


Assemble = Callable[[str, str], str]


@pytest.fixture(scope="module")
def assemble(tmp_path_factory: pytest.TempPathFactory) -> Assemble:
    """assemble(PTX statements, arch): the assembler's complaints, "" when there are none."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.base_dsl.compiler import DumpDir

    path = tmp_path_factory.mktemp("assembler") / "assembled_text.py"
    path.write_text(KERNEL)
    found = importlib.util.spec_from_file_location("assembled_text", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)

    def run(text: str, arch: str) -> str:
        options: Any = (cute.KeepCUBIN, DumpDir(str(path.parent)), cute.GPUArch(arch))
        try:
            artifacts = cute.compile[options](module.Text(text), cutlass.Int32(1)).artifacts
        except Exception as error:  # the compiler's errors have no common kind
            return " ".join(str(error).split())
        assert len(artifacts.CUBIN) > 0
        return ""

    return run


def block(statements: Sequence[str]) -> str:
    """PTX statements, each in a line of its own, in a block that has the registers they name."""
    registers = ".reg .b8 %byte<8>; .reg .b16 %half<8>; .reg .b32 %word<8>; .reg .b64 %long<8>; .reg .b64 %base;"
    values = "".join(
        f"mov.b32 %word{number}, {number}; mov.b64 %long{number}, {number}; mov.b16 %half{number}, {number}; "
        f"cvt.u8.u32 %byte{number}, %word{number};\n"
        for number in range(8)
    )
    lines = "\n".join(statements)
    return f"{{ {registers} mov.b64 %base, 4096;\n{values}{lines}\n}}"


def wrong_lines(complaints: str) -> list[int]:
    return sorted({int(number) for number in re.findall(r"line (\d+); error", complaints)})


def accepted(assemble: Assemble, arch: str, forms: Sequence[Form]) -> set[Form]:
    """The forms that are assembled to code. The assembler names all wrong lines of a text: they are taken out of it."""
    (first,) = wrong_lines(assemble(block(["nonsense;"]), arch))
    left = list(forms)
    while complaints := assemble(block([statement(form) for form in left]), arch):
        wrong = {line - first for line in wrong_lines(complaints)}
        assert wrong, complaints
        assert wrong <= set(range(len(left))), complaints
        left = [form for number, form in enumerate(left) if number not in wrong]
    return set(left)


@pytest.mark.parametrize(
    "arch", ["sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_103a", "sm_110a", "sm_120", "sm_120a", "sm_121a"]
)
def test_the_table_is_what_the_assembler_accepts(assemble: Assemble, arch: str) -> None:
    taken = {form.key for form in accepted(assemble, arch, CANDIDATES) - UNDOCUMENTED}
    legal = {form.key for form in FORMS if form.runs_on(arch)}
    assert len(legal) == (204 if arch in FLOAT8_ARCHS else 124)
    assert sorted(taken - legal) == []
    assert sorted(legal - taken) == []


def test_what_is_undocumented_is_still_taken(assemble: Assemble) -> None:
    assert accepted(assemble, "sm_90a", sorted(UNDOCUMENTED, key=lambda one: one.key)) == UNDOCUMENTED


@pytest.mark.slow
def test_before_sm_90_there_is_none(assemble: Assemble) -> None:
    assert accepted(assemble, "sm_80", CANDIDATES) == set()
    assert not any(form.runs_on("sm_80") for form in FORMS)


def test_each_form_stands_once_and_fills_an_access() -> None:
    assert len({form.key for form in FORMS}) == len(FORMS)
    assert set(FORMS) <= set(CANDIDATES)
    assert {form.action for form in FORMS} == set(ACTIONS)
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
def test_the_widest_form_of_a_reduction(dtype: str) -> None:
    for how, instruction in WIDEST[dtype].items():
        form = reduce_form(dtype, *how.split())
        assert (form and form.instruction()) == (
            instruction and f"multimem.ld_reduce.relaxed.sys.global.{instruction}"
        ), how


def test_every_reduction_has_a_form_or_a_reason() -> None:
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
        *(("float8_e4m3fn float32 sum", "sm_100a"), ("float8_e5m2 float16 avg", "sm_90a")),
        *(("bfloat16 float32 sum", "sm_80"), ("uint8 native sum", "sm_90a"), ("bfloat16 float32 min", "sm_90a")),
    ],
)
def test_a_reason_says_what_to_do(types: str, arch: str) -> None:
    case = Case("all_reduce", "multimem_one_shot", *types.split(), 1024, 8)  # type: ignore[arg-type]
    same_text(str(refuses_multimem(case, arch)))


def test_the_algorithms_proposed_instead_exist() -> None:
    names = {spec.name for spec in SPECS}
    known = {op for op, _ in (name.split("/") for name in names)}
    assert {f"{op}/{algorithm}" for op, algorithm in PEER_TO_PEER.items() if op in known} <= names


def test_raw_stores_fill_their_width() -> None:
    assert [store_form(width).width_bytes for width in (16, 8, 4)] == [16, 8, 4]
    assert {store_form(width) for width in (16, 8, 4)} <= set(FORMS)
    assert store_form(16).instruction() == "multimem.st.relaxed.sys.global.v4.f32"
    assert not any(store_form(width).is_float8 for width in (16, 8, 4))
    assert {reduce_form(dtype, "native", "sum").runs_on("sm_90a") for dtype in FLOAT8} == {False}  # type: ignore[union-attr]


def test_the_simulator_knows_just_these_forms_beside_bulk_copies() -> None:
    import simulator.isa.multimem  # noqa: F401
    from simulator.isa.registry import TABLE, canonical

    known = {key for key in TABLE if key.startswith("multimem.") and ".bulk." not in key}
    ours = {canonical(form.key.split("."), frozenset()) for form in FORMS}
    assert sorted(known - ours) == []
    assert sorted(ours - known) == []


# What kernels ask of the switch: exactly the instructions that their specs promise, for every case that has some.

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
