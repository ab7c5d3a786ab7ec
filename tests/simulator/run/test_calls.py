"""Functions: recursion with registers that are saved, indirect calls, what a stack can't hold, and what faults."""

import numpy as np
import pytest

from memory.fabric import DeviceFault
from simulator.isa import UnknownInstruction
from simulator.run.calls import MAX_DEPTH
from simulator.run.decode import decode, unsupported_forms
from tests.golden import same_text
from tests.simulator import harness

FIBONACCI = """
.func (.param .b32 r) fib(.param .b32 n) {
  .reg .b32 %n, %a, %b; .reg .pred %p;
  ld.param.b32 %n, [n]; mov.u32 %a, %n; setp.lt.u32 %p, %n, 2; @%p bra DONE;
  sub.u32 %b, %n, 1;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %b; call (y), fib, (x); ld.param.b32 %a, [y]; }
  sub.u32 %b, %n, 2;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %b; call (y), fib, (x); ld.param.b32 %b, [y]; }
  add.u32 %a, %a, %b;
DONE: st.param.b32 [r], %a; ret;
}
"""
DEEP = """
.func (.param .b32 r) deep(.param .b32 n, .param .align 16 .b8 box[FRAME]) {
  .reg .b32 %n, %m; .reg .pred %p;
  ld.param.b32 %n, [n]; setp.eq.u32 %p, %n, 0; @%p bra DONE; sub.u32 %m, %n, 1;
  { .param .b32 x; .param .align 16 .b8 z[FRAME]; .param .b32 y; st.param.b32 [x], %m;
    call (y), deep, (x, z); ld.param.b32 %m, [y]; } add.u32 %n, %n, %m;
DONE: st.param.b32 [r], %n; ret;
}
"""
TABLE = """
.func (.param .b32 r) plus(.param .b32 a) { .reg .b32 x; ld.param.b32 x, [a]; add.u32 x, x, 100; st.param.b32 [r], x; ret; }
.func (.param .b32 r) times(.param .b32 a) { .reg .b32 x; ld.param.b32 x, [a]; mul.lo.u32 x, x, 7; st.param.b32 [r], x; ret; }
.func (.param .b32 r) leave(.param .b32 a) { exit; }
.func other(.param .b64 a) { ret; }
.global .align 8 .u64 functions[4] = {plus, times, leave, other};
"""
INDIRECT = """
  KIND: .callprototype (.param .b32 _) _ (.param .b32 _);
  rem.u32 %r1, %lane, {ways}; mul.wide.u32 %d1, %r1, 8; mov.u64 %d2, functions; add.u64 %d2, %d2, %d1; ld.global.b64 %d3, [%d2];
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %lane; call (y), %d3, (x), KIND; ld.param.b32 %r2, [y]; }
"""


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@harness.in_orders(3)
def test_recursion_keeps_the_registers_of_each_activation(options):
    body = "{ .param .b32 x; .param .b32 y; rem.u32 %r1, %lane, 11; st.param.b32 [x], %r1; call (y), fib, (x); ld.param.b32 %r2, [y]; }"
    assert harness.stored(body, block=24, before=FIBONACCI, **options) == [fibonacci(lane % 11) for lane in range(48)]


@harness.in_orders(3)
def test_an_indirect_call_goes_where_each_lane_s_address_says(options):
    found = harness.stored(INDIRECT.replace("{ways}", "3"), block=24, before=TABLE, **options)
    assert found == [(lane + 100, lane * 7, 99)[lane % 3] for lane in range(48)]


def test_a_call_by_a_list_of_targets_and_a_name_in_a_register():
    """The functions of a list have one prototype; a list may have one function, whose result is shorter than what it takes."""
    call = "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %lane; call (y), %d3, (x), WAYS; ld.param.b32 %r2, [y]; }"
    choice = "mov.u64 %d4, plus; mov.u64 %d5, times; setp.lt.u32 %p1, %lane, 20; selp.b64 %d3, %d4, %d5, %p1;"
    found = harness.stored(f"WAYS: .calltargets plus, times; {choice} {call}", block=24, before=TABLE)
    assert found == [lane + 100 if lane < 20 else lane * 7 for lane in range(48)]
    high = (
        ".func (.param .b32 r) high(.param .b64 a) { .reg .b32 x; ld.param.b32 x, [a+4]; st.param.b32 [r], x; ret; }\n"
    )
    call = call.replace("st.param.b32 [x], %lane", "st.param.b64 [x], %d4").replace(".b32 x", ".b64 x")
    body = f"WAYS: .calltargets high; mov.b64 %d4, {{9, %lane}}; mov.u64 %d3, high; {call}"
    assert harness.stored(body, block=24, before=high) == [*range(48)]


def test_a_function_of_registers():
    twice = ".func (.reg .b32 r) twice(.reg .b32 a) { add.u32 r, a, a; ret; }\n"
    assert harness.stored("call (%r2), twice, (%lane);", block=24, before=twice) == [*range(0, 96, 2)]


def test_recursion_ends_at_a_depth():
    body = f"{{ .param .b32 x; .param .align 16 .b8 z[16]; .param .b32 y; st.param.b32 [x], {MAX_DEPTH - 1}; call (y), deep, (x, z); ld.param.b32 %r2, [y]; }}"
    before = DEEP.replace("FRAME", "16")
    assert set(harness.stored(body, block=24, before=before)) == {MAX_DEPTH * (MAX_DEPTH - 1) // 2}
    same_text(harness.failed(body.replace(str(MAX_DEPTH - 1), str(MAX_DEPTH)), block=4, before=before))


def test_the_stack_of_a_thread_has_an_end():
    body = (
        "{ .param .b32 x; .param .align 16 .b8 z[1024]; .param .b32 y; st.param.b32 [x], 100; call (y), deep, (x, z); }"
    )
    same_text(harness.failed(body, block=4, before=DEEP.replace("FRAME", "1024")))


def test_an_address_that_is_no_function():
    body = "KIND: .callprototype (.param .b32 _) _ (.param .b32 _); mov.u64 %d3, 64; { .param .b32 x; .param .b32 y; st.param.b32 [x], 1; call (y), %d3, (x), KIND; }"
    same_text(harness.failed(body, block=4))


def test_a_function_of_another_prototype():
    same_text(harness.failed("add.u32 %lane, %lane, 3;" + INDIRECT.replace("{ways}", "4"), block=4, before=TABLE))


def test_a_function_without_a_body_faults_when_it_is_called():
    before = ".extern .func (.param .b32 r) elsewhere(.param .b32 a);\n"
    body = "{ .param .b32 x; .param .b32 y; st.param.b32 [x], 1; @%p1 call (y), elsewhere, (x); }"
    assert harness.stored("setp.ne.u32 %p1, %lane, %lane; mov.u32 %r2, 3;" + body, block=24, before=before) == [3] * 48
    ptx = harness.module(body, before=before)
    (form,) = unsupported_forms(ptx)
    same_text(form.reason)
    same_text(harness.failed("setp.eq.u32 %p1, %lane, 2;" + body, block=4, before=before))


def test_functions_that_the_kernel_does_not_reach_are_not_decoded():
    assert [
        one.name for one in decode(harness.module("mov.u32 %r1, 1;", before=TABLE), "kernel").kernel.functions
    ] == []


def test_local_memory_is_each_thread_s_own_and_ends():
    body = """
      .local .align 8 .b8 depot[64]; mov.u64 %d2, depot; cvta.local.u64 %d3, %d2; rem.u32 %r1, %lane, 16;
      mul.wide.u32 %d4, %r1, 4; add.u64 %d3, %d3, %d4; st.u32 [%d3], %lane; bar.sync 0; ld.u32 %r2, [%d3];
    """
    assert harness.stored(body, block=24) == list(range(48))
    same_text(harness.failed(".local .align 8 .b8 depot[64]; ld.local.u32 %r1, [depot+64];", block=4))


def test_variables_of_a_module_live_from_launch_to_launch_and_on_each_rank():
    before = ".global .align 4 .u32 counter = 5;\n.visible .const .u32 fixed[2] = {3, 4};\n"
    body = "atom.global.add.u32 %r1, [counter], 1; ld.const.u32 %r2, [fixed+4]; mad.lo.u32 %r2, %r2, 1000, %r1;"
    code = harness.executable(harness.module(body + harness.STORE, ["u64 out"], before))

    def program(fabric):
        out, found = harness.put(fabric, "out", np.zeros(1, np.uint32)), []
        for _ in range(2 + fabric.rank):
            harness.start(fabric, code, 1, 1, [out.address])
            fabric.synchronize()
            found.append(int(harness.get(fabric, out, "u4")[0]))
        return found

    assert harness.succeed(harness.make_world(2), program).results == [[4005, 4006], [4005, 4006, 4007]]


@pytest.mark.parametrize(
    "reach",
    [
        "st.release.sys.global.u64 [%mine], %d1;"
        "LOOP: ld.acquire.sys.global.u64 %d2, [%theirs]; setp.eq.u64 %p1, %d2, 0; @%p1 bra LOOP;",
        "sub.u64 %d2, %theirs, %mine; add.u64 %d2, %d1, %d2;",
    ],
    ids=["its address", "the distance of a tensor's parts"],
)
def test_a_variable_of_a_peers_module_is_out_of_reach(reach):
    """By an address that the peer wrote into symmetric memory, and by what leads to a peer's part of a tensor."""
    body = f"mov.u64 %d1, counter; {reach} setp.ne.u32 %p1, %rank, 0; @%p1 ret; ld.global.u32 %r1, [%d2];"
    values = {"mine": np.zeros(1, np.uint64), "theirs": harness.PEER, "rank": harness.RANK}
    outcome = harness.ran(body, values, ranks=2, before=".global .align 4 .u32 counter = 5;\n")
    same_text(str(next(one for one in outcome.errors if isinstance(one, DeviceFault))), "0x[0-9a-f]+")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_variable_of_a_peers_module_is_not_read_through_ones_own_view(rank):
    """An address that is right but for the rank whose variable lies there."""
    code = harness.executable(
        harness.module(
            "mov.u64 %d1, counter; add.u64 %d1, %d1, %off; ld.global.u32 %r1, [%d1];",
            ["u64 off"],
            ".global .align 4 .u32 counter = 5;\n",
        )
    )

    def program(fabric):
        space = fabric._world.space
        harness.start(fabric, code, 1, 1, [0])
        fabric.synchronize()
        fabric.barrier()
        places = {one.rank: one.start for one in space.variables.values()}
        distance = places[1 - rank] - places[rank] if fabric.rank == rank else 0
        harness.start(fabric, code, 1, 1, [distance])
        fabric.synchronize()

    error = next(one for one in harness.run(harness.make_world(2), program).errors if isinstance(one, DeviceFault))
    said = f"test/kernel on rank {rank}, block 0, thread 0: load of 4 bytes at"
    assert str(error).startswith(said)
    same_text(str(error))


@pytest.mark.parametrize(
    "body",
    [
        "mov.u64 %d1, fixed; st.global.u32 [%d1], 1;",
        "mov.u64 %d1, changing; ld.const.u32 %r1, [%d1];",
        "ld.global.u32 %r1, [changing+12];",
        "mov.u64 %d1, %lane64; cvta.param.u64 %d1, %d1; st.u32 [%d1], 1;",
        "ld.global.u32 %r1, [missing];",
        "cvta.shared.u64 %d1, %lane64; ld.u32 %r1, [%d1];",
    ],
)
def test_wrong_spaces(body):
    before = (
        ".const .align 4 .u32 fixed[2] = {3, 4};\n.global .align 4 .u32 changing[2];\n.extern .global .u32 missing;\n"
    )
    same_text(harness.failed(body, block=4, before=before))


def test_a_read_only_load_of_symmetric_memory_is_a_fault():
    """Of a rank's other memory it is none."""
    code = harness.executable(harness.module("ld.global.nc.u32 %r2, [%src];" + harness.STORE, ["u64 out", "u64 src"]))

    def program(fabric, symmetric):
        out, shared = (
            harness.put(fabric, "out", np.zeros(1, np.uint32)),
            harness.put(fabric, "shared", np.full(1, 7, np.uint32)),
        )
        space = fabric._world.space
        own = space.allocate(fabric.rank, 4, 256, "own", symmetric=False)
        space.host_write(own, 0, np.full(1, 9, np.uint32).view(np.uint8))
        harness.start(
            fabric, code, 1, 1, [out.address, shared.address if symmetric else space.address(fabric.rank, own)]
        )
        return int(harness.get(fabric, out, "u4")[0])

    assert harness.succeed(harness.make_world(2), lambda fabric: program(fabric, False)).results == [9, 9]
    same_text(str(harness.run(harness.make_world(2), lambda fabric: program(fabric, True)).error()))


def test_what_was_discarded_is_poison():
    body = "discard.global.L2 [%data], 128; ld.global.u32 %r1, [%data+4];"
    same_text(str(harness.ran(body, {"data": np.zeros(64, np.uint32)}).error()))


def test_a_fault_in_a_function_is_named_with_its_line():
    before = ".func broken() {\n  .reg .b64 a;\n  mov.u64 a, 3;\n  st.global.u32 [a], 1;\n  ret;\n}\n"
    same_text(harness.failed("setp.eq.u32 %p1, %lane, 2; @%p1 call broken;", block=4, before=before))


def test_what_is_unsupported_is_listed_for_all_kernels_at_once():
    other = ".visible .entry other() {\n  frobnicate.b32 1;\n ret;\n}\n"
    ptx = harness.module("frobnicate.u32 %r1, %r2;\n  tanh.exact.f32 %r1, %r1;", before=other)
    found = unsupported_forms(ptx)
    assert [one.text.split()[0] for one in found] == ["frobnicate.b32", "frobnicate.u32", "tanh.exact.f32"]
    assert [ptx.splitlines()[one.line - 1].strip() for one in found] == [f"{one.text};" for one in found]
    with pytest.raises(UnknownInstruction, match="no frobnicate.u32 yet"):
        harness.succeed(harness.make_world(1), harness.launching(ptx))
