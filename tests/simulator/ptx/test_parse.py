"""PTX text: what the parser reads, and what it says, with the line, of what it can't read."""

import re

import numpy as np
import pytest

from memory.fabric import PeerLost
from simulator.isa import UnknownInstruction, key_of
from simulator.ptx.ir import Address, Immediate, Register
from simulator.ptx.parse import PtxSyntaxError, parse_kernel
from simulator.run.decode import unsupported_forms
from tests.golden import refused, same_text
from tests.simulator.harness import HEADER, executable, launching, make_world, module, run, simple, start

STORE = "st.global.b32 [%out], %r1;"


def instructions(body, before=""):
    kernel = parse_kernel(module(body, before=before), "kernel")
    return [one for block in kernel.blocks for one in block.instructions][5:-1]  # without harness's own


def result(body):
    return int(simple(body + STORE).view(np.uint32)[0])


SCOPES = {
    "names are the inner scopes": ("{ .reg .b32 t; mov.u32 t, 5; { .reg .b32 t; mov.u32 t, 9; } mov.u32 %r1, t; }", 5),
    "one name of different width": (
        "{ .reg .b64 t; mov.u64 t, 0x1FFFFFFFF; shr.u64 t, t, 32; cvt.u32.u64 %r1, t; }"
        "{ .reg .b32 t; mov.u32 t, 2; add.u32 %r1, %r1, t; }", 3),
    "declared after an inner scope has closed": (
        "{ { .reg .b32 t; mov.u32 t, 1; } .reg .b64 t; mov.u64 t, 0x100000000; shr.u64 t, t, 32; cvt.u32.u64 %r1, t; }", 1),
    "ranges of registers": (
        "{ .reg .b64 t<2>; mov.u64 t1, 0x300000000; shr.u64 t0, t1, 32; cvt.u32.u64 %r1, t0; }"
        "{ .reg .b32 t<2>; mov.u32 t1, 4; add.u32 %r1, %r1, t1; }", 7),
    "the names around it": ("mov.u32 %r2, 3; { .reg .b32 t; add.u32 t, %r2, 4; mov.u32 %r1, t; }", 7),
    "a jump out": ("mov.u32 %r1, 1; { bra OUT; } mov.u32 %r1, 2; OUT: add.u32 %r1, %r1, 10;", 11),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), SCOPES.values(), ids=SCOPES)
def test_scopes(body, expected):
    assert result(body) == expected


OPERANDS = {
    **{"0": Immediate(0), "-1": Immediate(-1), "-0x10": Immediate(-16)},
    **dict.fromkeys(("42U", "0x2A", "0X2aU", "052", "0b101010"), Immediate(42)),
    **{"0f3F800000": Immediate(0x3F800000, 32), "0Fff800001": Immediate(0xFF800001, 32)},
    **{"0d3FF0000000000000": Immediate(1023 << 52, 64), "[%d1]": Address(Register("%d1"), 0)},
    **dict.fromkeys(("[%d1+16]", "[ %d1 + 16 ]", "[%d1+0x10]", "[%d1+020]"), Address(Register("%d1"), 16)),
    **dict.fromkeys(("[%d1+-16]", "[%d1 + -16]", "[%d1-16]", "[%d1+-0x10]"), Address(Register("%d1"), -16)),
}


class TestText:
    def test_comments(self):
        body = "mov.u32 %r1, 1; // add.u32 %r1, %r1, 1;\n/* add.u32 %r1,\n %r1, 2; */ add.u32 %r1, /* 7 */ %r1, 4; //"
        assert result(body + "\n") == 5

    def test_statements_on_several_lines_and_several_on_one(self):
        assert result("mov.u32 %r1,\n\t7; add.u32\n%r1,\n%r1,\n1; { add.u32 %r1, %r1, 1; }") == 9
        found = instructions("mov.u32 %r1,\n 7;\n\nadd.u32 %r1, %r1, 1;")
        assert found[1].line == found[0].line + 3

    def test_operands(self):
        body = "".join(f"{'ld.global.b64' if one[0] == '[' else 'mov.b64'} %d1, {one};\n" for one in OPERANDS)
        assert dict(zip(OPERANDS, (one.operands[1] for one in instructions(body)), strict=True)) == OPERANDS

    def test_guards(self):
        found = instructions("@%p1 mov.u32 %r1, 1;\n@!%p2 mov.u32 %r1, 2;")
        assert [one.guard for one in found] == [(Register("%p1"), False), (Register("%p2"), True)]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("ld.relaxed.sys.global.b32 %r1, [%d1];", "ld.global.sys.relaxed.b32 %r1, [%d1];"),
            ("atom.global.sys.cas.b32 %r1, [%d1], 0, 1;", "atom.relaxed.sys.global.cas.b32 %r1, [%d1], 0, 1;"),
            ("red.release.gpu.global.add.u32 [%d1], 1;", "red.global.add.release.gpu.u32 [%d1], 1;"),
            ("add.rn.f32 %r1, %r2, %r3;", "add.f32 %r1, %r2, %r3;"),
            (
                "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%r1, %r2, %r3, %r4}, [%d1];",
                "multimem.ld_reduce.global.add.acc::f32.relaxed.sys.v4.bf16x2 {%r1, %r2, %r3, %r4}, [%d1];",
            ),
        ],
    )
    def test_qualifiers_in_any_order(self, one, other):
        assert key_of(instructions(one)[0]) == key_of(instructions(other)[0])

    def test_directives_of_real_kernels(self):
        ptx = (
            "\n// Generated\n.version 9.4\n.target sm_90a\n.address_size 64\n\n\t// .globl\tkernel\n\n"
            ".visible .entry kernel(\n\t.param .u64 .ptr .global .align 16 kernel_param_0,\n\t.param .u32 kernel_param_1\n)\n"
            '.reqntid 512, 1, 1\n.minnctapersm 1\n{\n\t.reg .b32 \t%r<3>;\n\t.loc\t1 49 0\n\t.pragma "nounroll";\n'
            "$L__BB0_1:\n\tmov.u32 \t%r1, %tid.x;\n\tbra.uni \t$L__BB0_2;\n$L__BB0_2:\n\tret;\n}\n\t.section\t.debug_loc\n"
        )
        kernel = parse_kernel(ptx, "kernel")
        assert {one.name: one.type for one in kernel.parameters} == {"kernel_param_0": "u64", "kernel_param_1": "u32"}
        assert (kernel.required_block, kernel.target) == ((512, 1, 1), "sm_90a")
        assert kernel.labels == {"$L__BB0_1": 0, "$L__BB0_2": 1}

    def test_sizes_of_parameters(self):
        heads = ".param .align 8 .b8 a[24], .param .u16 b, .param .f64 c, .param .u64 .ptr .shared .align 16 d, .param .u32 e[3]"
        kernel = parse_kernel(f"{HEADER}.visible .entry kernel({heads})\n{{ ret; }}", "kernel")
        assert " ".join(f"{one.name}:{one.size_bytes}" for one in kernel.parameters) == "a:24 b:2 c:8 d:8 e:12"

    @pytest.mark.parametrize(
        ("directives", "block", "cluster"),
        [
            ("", None, None),
            (".reqntid 8, 4, 2", (8, 4, 2), None),
            (".reqntid 8,4\n.maxnreg 32", (8, 4, 1), None),
            (".maxntid 64\n.reqnctapercluster 2", None, (2, 1, 1)),
        ],
    )
    def test_what_a_launch_must_have(self, directives, block, cluster):
        kernel = parse_kernel(f"{HEADER}.visible .entry kernel()\n{directives}\n{{ ret; }}", "kernel")
        assert (kernel.required_block, kernel.required_cluster) == (block, cluster)

    def test_shared_variables_of_the_module(self):
        """Of those outside all kernels the kernel has the ones that it names; dynamic ones begin behind all others."""
        before = (
            ".shared .align 4 .b8 unused[4096];\n.extern .shared .align 128 .b8 dynamic[];\n"
            ".visible .shared .align 16 .b8 static[20];\n.extern .shared .align 8 .b64 also[];\n"
            ".visible .entry other(.param .u64 .ptr .shared .align 16 a) { .shared .b32 other_own; ret; }\n"
        )
        body = ".shared .b32 own; mov.u32 %r1, static; mov.u32 %r2, dynamic; mov.u32 %r3, also; mov.u32 %r4, own;"
        kernel = parse_kernel(module(body, before=before), "kernel")
        found = {one.name: (one.offset_bytes, one.size_bytes) for one in kernel.shared}
        assert found == {"static": (0, 20), "own": (20, 4), "dynamic": (128, 0), "also": (128, 0)}
        assert (kernel.shared_bytes, kernel.dynamic_offset_bytes) == (24, 128)

    def test_the_entry_of_several(self):
        two = module("mov.u32 %r1, 1;") + module("mov.u32 %r1, 2;").replace("kernel", "other").replace(HEADER, "")
        values = {}
        for entry in ("kernel", "other"):
            found = [one for block in parse_kernel(two, entry).blocks for one in block.instructions]
            values[entry] = found[5].operands[1]
        assert values == {"kernel": Immediate(1), "other": Immediate(2)}


class TestPlaces:
    FILES = '.file 1 "kernels/one.py"\n.file 2 "kernels/dsl/device.py"\n'

    def places(self, body):
        return [str(one.source) for one in instructions(body, self.FILES)]

    def test_the_last_location_holds_and_line_0_says_nothing(self):
        found = self.places(".loc 1 10 3\nmov.u32 %r1, 1;\nmov.u32 %r1, 2;\n.loc\t2 20 1\nmov.u32 %r1, 3;")
        assert found == ["kernels/one.py:10", "kernels/one.py:10", "kernels/dsl/device.py:20"]
        assert self.places(".loc 1 10 3\nmov.u32 %r1, 1;\n.loc 1 0 0\nmov.u32 %r1, 2;")[1] == "kernels/one.py:10"

    def test_inlined_once_and_twice(self):
        body = (
            ".loc 2 20 1, function_name $L__info_string0+16, inlined_at 1 33 5\nmov.u32 %r1, 1;\n"
            ".loc 2 5 9, function_name $L__info_string1, inlined_at 2 20 1\nmov.u32 %r1, 2;"
        )
        once = "kernels/dsl/device.py:20 in kernels/one.py:33"
        assert self.places(body) == [once, f"kernels/dsl/device.py:5 in {once}"]


def line_of(body, text):
    return next(number for number, line in enumerate(module(body).splitlines(), 1) if text in line)


NO_DECLARATIONS = (
    *(".frobnicate 3;", ".reg .b7 %x;", ".shared .b32 a[];", ".shared .b32 a = 4;"),
    *(".local .b32 stack[];", ".local .b7 stack;"),
)
UNREADABLE = (
    *("ld.global.b32 %r1, [%d1+%d2];", "ld.global.b32 %r1, [%d1*4];", "ld.global.b32 %r1, [%d1;"),
    *("mov.u32 %r1, 08;", "mov.f32 %r1, 0fXYZ;", "st.global.v2.b32 [%d1], {%r1, [%d1]};"),
)
NO_FORMS = (
    *("frobnicate.u32 %r1, %r2;", "add.sat.u32 %r1, %r1, %r1;", "add.ftz.f64 %d1, %d1, %d1;"),
    *("add.rn.u32 %r1, %r1, %r1;", "ex2.full.f32 %r1, %r1;", "ld.shared.v8.b32 %r1, [%d1];"),
    "multimem.red.global.add.v4.e4m3x4 [%d1], {%r1, %r2, %r3, %r4};",
    *("bar.arrive 0;", "bar.warp.sync;", "bar.sync;", "bar.sync 0, 32, 32;", "add.u32 %r1, %r1;"),
    *("mad.lo.u32 %r1, %r1, %r1;", "ld.relaxed.global.b32 %r1, [%d1];", "st.sys.global.b32 [%d1], %r1;"),
)
NO_OPERANDS = (
    *("add.u32 %r1, %r1, %nonsense;", "add.u32 %nonsense, %r1, %r1;", "@%p77 add.u32 %r1, %r1, 1;"),
    *("mov.u32 %r1, %clock64;", "mov.u32 %r1, %envreg3;", "mov.u32 %r1, no_such_symbol;"),
    *("ld.shared.u32 %r1, [no_such_symbol];", "ld.global.u32 %r1, [no_such_symbol];"),
    *("ld.param.u32 %r1, [no_such_parameter];", "add.u32 5, %r1, %r1;", "bra NOWHERE;", "@!%p1 bra %r1;"),
)


class TestErrors:
    @pytest.mark.parametrize("statement", NO_DECLARATIONS)
    def test_declarations_that_it_can_not_read(self, statement):
        """`symlab check` lists them; a kernel that does not use them runs."""
        body = f"mov.u32 %r1, 1;\n\n  {statement}\n"
        (found,) = unsupported_forms(module(body))
        assert (found.line, found.text) == (line_of(body, statement), statement[:-1])
        same_text(found.reason)
        assert result(body) == 1

    @pytest.mark.parametrize("statement", UNREADABLE)
    def test_what_it_can_not_read(self, statement):
        """It faults when a thread gets there, and not before."""
        body = f"mov.u32 %r1, 1;\n\n  {statement}\n"
        (found,) = unsupported_forms(module(body))
        assert (found.line, found.text) == (line_of(body, statement), statement[:-1])
        place = rf"rank 0, block 0, thread 0: the simulator can't read these operands; PTX line \d+: {re.escape(found.text)}"
        with pytest.raises(UnknownInstruction, match=place):
            result(body)
        assert result(f"mov.u32 %r1, 1; bra OVER; {statement} OVER:") == 1
        assert result(f"mov.u32 %r1, 1; setp.ne.u32 %p1, %r1, 1; @%p1 {statement}") == 1

    def test_no_end_of_statement(self):
        with refused(PtxSyntaxError):
            parse_kernel(f"{HEADER}.visible .entry kernel()\n{{\n ret;\n mov.u32 %r1, 1\n}}\n", "kernel")

    def test_no_closing_brace(self):
        with pytest.raises(PtxSyntaxError, match="closing brace"):
            parse_kernel(f"{HEADER}.visible .entry kernel()\n{{\n ret;\n", "kernel")

    def test_no_such_entry(self):
        with refused(ValueError):
            parse_kernel(module(""), "other")
        with refused(ValueError):
            parse_kernel(HEADER, "other")

    def test_a_parameter_it_can_not_bind(self):
        for declared in (".param .texref kernel_x", ".param .b8 kernel_x[2][4]", ".param .pred kernel_x"):
            with pytest.raises(PtxSyntaxError, match=re.escape(declared)):
                parse_kernel(f"{HEADER}.visible .entry kernel({declared}) {{ ret; }}", "kernel")

    @pytest.mark.parametrize("statement", [*NO_FORMS, *NO_OPERANDS])
    def test_what_nobody_wrote(self, statement):
        """The rank that launched it gets the error itself, the others hear of it."""
        body = f"setp.ne.u32 %p1, %lane, %lane;\n\n  {statement}\n"
        ptx = module(body)

        def program(fabric):
            if fabric.rank == 1:
                start(fabric, executable(ptx), 1, 32, [])
            fabric.synchronize()
            fabric.barrier()

        outcome = run(make_world(2), program)
        assert isinstance(outcome.errors[1], UnknownInstruction)
        assert isinstance(outcome.errors[0], PeerLost)
        for error in outcome.errors:
            same_text(str(error))


class TestEndings:
    """A kernel needs no ret at its end, nor anything at all."""

    @pytest.mark.parametrize(
        "ending",
        [
            "st.global.b32 [%d1], %lane;",
            "setp.lt.u32 %p1, %lane, 2; st.global.b32 [%d1], %lane; @%p1 bra BACK; BACK:",
            "st.global.b32 [%d1], %lane; setp.lt.u32 %p1, %lane, 2; @%p1 ret;",
            "st.global.b32 [%d1], %lane; setp.lt.u32 %p1, %lane, 2; @%p1 exit;",
            "st.global.b32 [%d1], %lane; bar.sync 0;",
            "mov.u32 %r2, 0; AGAIN: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %lane; st.global.b32 [%d1], %lane; @%p1 bra AGAIN;",
        ],
    )
    def test_falling_off(self, ending):
        ptx = module(f"mad.lo.u64 %d1, %lane64, 4, %out; {ending}", ["u64 out"]).replace("\n  ret;\n", "\n")
        program = launching(ptx, 2, 4, [np.full(8, 99, np.uint32)])
        assert run(make_world(1, step_budget=1000), program).right == [list(range(8))]

    def test_nothing_at_all(self):
        ptx = f"{HEADER}.visible .entry kernel()\n{{\n}}\n"

        assert run(make_world(1), launching(ptx, 2, 4)).errors == [None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4 + 8 * 2 - 3", 17),
        ("(1 << 4 | 3) ^ ~0x1 & 0xF", 0b11101),
        ("-(WARP_SZ >> 2)", 0xFFFFFFF8),
        ("0xFFFFFFFFFFFFFFFF + 8", 7),
        ("1 << 64", 0),
        ("- " * 32 + "(" * 32 + "7" + ")" * 32, 7),
    ],
)
def test_constant_expressions(text, value):
    assert result(f"mov.u32 %r1, {text};") == value


NO_EXPRESSIONS = (
    *("1 < 2", "1 ? 7 : 0", "(.u64) 7", "7 7", "1 +", "* 7", "7)", "table * 2", "~1.5"),
    *("- " * 3000 + "7", "(" * 3000 + "7"),
)


@pytest.mark.parametrize("text", NO_EXPRESSIONS)
def test_expressions_that_it_can_not_read(text):
    (one,) = unsupported_forms(module(f"mov.u32 %r1, {text};", before=".shared .b32 table;"))
    assert one.reason == "the simulator can't read these operands"


def test_atomics_of_128_bits_begin_with_sm_90():
    body = ".reg .b128 q; mov.b128 q, {%d1, %d2};\natom.global.exch.b128 q, [%d3], q;"
    assert unsupported_forms(module(body)) == ()
    (one,) = unsupported_forms(module(body, target="sm_80"))
    assert one.reason.startswith("sm_80 has no atom.")
    assert one.reason.endswith("exch.b128: it takes sm_90 or later")
