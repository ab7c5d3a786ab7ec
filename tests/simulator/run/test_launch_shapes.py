"""How a kernel is launched: grids and blocks in three dimensions, dynamic shared memory, structs by value, refusals."""

import itertools
import struct
from contextlib import nullcontext

import numpy as np
import pytest

from memory.fabric import Argument, Deadlock, DeviceFault, Launch
from tests.golden import refused, same_text
from tests.simulator.harness import executable, get, launching, make_world, module, put, ran, run, start, succeed

GRID, BLOCK = (3, 2, 2), (5, 4, 3)
THREADS, BLOCKS = 60, 12
NAMES = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    "%laneid",
    "%warpid",
    "%smid",
    "%nsmid",
    "%dynamic_smem_size",
)

NUMBER = """
  .reg .b32 %n, %m;
  mov.u32 %n, %ctaid.z; mov.u32 %m, %nctaid.y; mul.lo.u32 %n, %n, %m; mov.u32 %m, %ctaid.y; add.u32 %n, %n, %m;
  mov.u32 %m, %nctaid.x; mul.lo.u32 %n, %n, %m; mov.u32 %m, %ctaid.x; add.u32 %n, %n, %m;
  mov.u32 %m, %ntid.z; mul.lo.u32 %n, %n, %m; mov.u32 %m, %tid.z; add.u32 %n, %n, %m;
  mov.u32 %m, %ntid.y; mul.lo.u32 %n, %n, %m; mov.u32 %m, %tid.y; add.u32 %n, %n, %m;
  mov.u32 %m, %ntid.x; mul.lo.u32 %n, %n, %m; mov.u32 %m, %tid.x; add.u32 %n, %n, %m;
"""
"""%n: the thread's number on its rank, from x, y and z."""


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
def test_every_thread_knows_its_place_in_three_dimensions(options):
    stores = "".join(f"mov.u32 %r1, {name}; st.global.b32 [%d1+{4 * at}], %r1;\n" for at, name in enumerate(NAMES))
    body = f"{NUMBER} mul.wide.u32 %d1, %n, {4 * len(NAMES)}; add.s64 %d1, %d1, %out;\n{stores}"
    wanted = []
    for block, (bz, by, bx) in enumerate(itertools.product(*(range(count) for count in reversed(GRID)))):
        for thread, (tz, ty, tx) in enumerate(itertools.product(*(range(count) for count in reversed(BLOCK)))):
            wanted.append([tx, ty, tz, *BLOCK, bx, by, bz, *GRID, thread % 32, thread // 32, block, BLOCKS, 96])
    out = {"out": np.zeros(len(NAMES) * THREADS * BLOCKS, np.uint32)}
    found = ran(body, out, GRID, BLOCK, 2, shared_bytes=96, **options).right
    assert found == [[one for row in wanted for one in row]] * 2


def test_a_fault_names_block_and_thread_and_where_they_are():
    body = f"{NUMBER} setp.eq.u32 %p1, %n, 437; mov.u64 %d1, 3; @%p1 ld.global.u32 %r1, [%d1];"
    fault = ran(body, {}, GRID, BLOCK).error()
    assert isinstance(fault, DeviceFault)
    same_text(str(fault))  # 7 * 60 + 17 = 437


def test_only_what_has_more_than_x_is_named_in_three_dimensions():
    same_text(str(ran("mov.u64 %d1, 3; ld.global.u32 %r1, [%d1];", {}, (1, 1, 2), 4).error()))


def test_a_deadlock_names_them_too():
    spin = "AGAIN: ld.relaxed.sys.global.u32 %r1, [%flag]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;"
    wait = "mov.u32 %r2, %tid.y; setp.eq.u32 %p2, %r2, 1; @%p2 bra MEET; bra.uni SPIN; MEET: bar.sync 0; ret; SPIN:"
    error = ran(f"{wait} {spin}", {"flag": np.zeros(1, np.uint32)}, (1, 2, 1), (2, 2, 1)).error()
    assert isinstance(error, Deadlock)
    same_text(str(error))


# Shared memory

EXTERN = ".extern .shared .align 16 .b8 dynamic[];\n"
REVERSE = """
  .shared .align 4 .b8 own[8];
  mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, dynamic; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], %lane;
  st.shared.u32 [own], 5; bar.sync 0; mov.u32 %r4, %ntid.x; sub.u32 %r4, %r4, %r1; sub.u32 %r4, %r4, 1;
  shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4];
  mad.lo.u64 %d1, %lane64, 4, %out; st.global.b32 [%d1], %r5;
"""


def reversed_blocks(shared_bytes, ranks=1):
    return ran(REVERSE, {"out": np.zeros(120, np.uint32)}, 3, 40, ranks, EXTERN, shared_bytes=shared_bytes)


def test_dynamic_shared_memory_lies_behind_the_kernels_own():
    assert (
        reversed_blocks(160, 2).right == [[40 * block + 39 - thread for block in range(3) for thread in range(40)]] * 2
    )


@pytest.mark.parametrize("shared_bytes", [156, 0])
def test_an_access_beyond_the_dynamic_shared_memory_is_a_fault(shared_bytes):
    """156 bytes are one word too few: dynamic memory begins at byte 16, behind the kernel's own 8."""
    fault = reversed_blocks(shared_bytes).error()
    assert isinstance(fault, DeviceFault)
    same_text(str(fault))


def test_dynamic_shared_memory_is_poisoned_and_bulk_copies_stay_within_it():
    beyond = (
        "mov.u32 %r1, dynamic; add.u32 %r1, %r1, 32; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 16;"
    )
    same_text(str(ran("ld.shared.u32 %r1, [dynamic+12];", before=EXTERN, shared_bytes=16).error()))
    same_text(str(ran(beyond, {"out": np.zeros(16, np.uint32)}, before=EXTERN, shared_bytes=32).error()))


@pytest.mark.parametrize(("arch", "most"), [("sm_90a", 232_448), ("sm_100a", 232_448), ("sm_120a", 101_376)])
def test_a_block_has_as_much_shared_memory_as_on_the_gpu(arch, most):
    code = executable(module(".shared .b8 own[48]; st.shared.b32 [own], 1;", before=EXTERN, target=arch), arch=arch)

    def program(fabric):
        start(fabric, code, 1, 1, shared_bytes=most - 48)
        message = f"shared_bytes is {most - 47:,}; beside the kernel's own 48 bytes a block can have {most - 48:,}"
        with pytest.raises(ValueError, match=message):
            start(fabric, code, 1, 1, shared_bytes=most - 47)
        fabric.synchronize()

    succeed(make_world(1, arch=arch), program)


# Arguments


def test_a_struct_by_value_on_every_rank():
    body = """
      .reg .f32 %f; .reg .f64 %g;
      ld.param.u32 %r1, [kernel_one]; ld.param.v2.u32 {%r2, %r3}, [kernel_one+8]; ld.param.f64 %g, [kernel_one+16];
      st.global.b32 [%out], %r1; st.global.v2.b32 [%out+8], {%r2, %r3}; st.global.f64 [%out+16], %g;
      ld.param.f32 %f, [kernel_ratio]; st.global.f32 [%out+4], %f;
    """.replace(".reg .f32 %f; .reg .f64 %g;", ".reg .b32 %f; .reg .b64 %g;")
    code = executable(module(body, ["struct24 one", "u64 out", "f32 ratio"]))

    def program(fabric):
        out = fabric.allocate(24, 256, "out")
        given = struct.pack("<IIIId", 10 + fabric.rank, 0, 20 + fabric.rank, 30, fabric.rank / 8)
        arguments = [Argument("bytes", given), Argument("address", out.address), Argument("f32", 0.5)]
        fabric.launch(code, Launch(2, 33), arguments)
        return struct.unpack("<IfIId", bytes(get(fabric, out, "u1")))

    wanted = [(10 + rank, 0.5, 20 + rank, 30, rank / 8) for rank in range(3)]
    assert succeed(make_world(3), program).results == wanted


@pytest.mark.parametrize(
    "load",
    [
        "ld.param.u64 %d1, [kernel_small];",
        "ld.param.u32 %r1, [kernel_small+4];",
        "ld.param.u32 %r1, [kernel_small-4];",
        "ld.param.u32 %r1, [kernel_one+2];",
        "ld.param.v2.u32 {%r1, %r2}, [kernel_one+4];",
        "ld.param.u64 %d1, [kernel_one+8];",
    ],
)
def test_a_load_beyond_a_parameter_or_across_its_alignment_is_refused(load):
    same_text(str(ran(load, {"small": 1, "one": bytes(12)}).error()))


# What a launch can't be


@pytest.mark.parametrize(
    ("said", "launch"),
    [
        (".reqntid 32, 1, 1", Launch(4, 16)),
        (".reqntid 32, 1, 1", Launch(4, (8, 4, 1))),
        (".maxntid 16, 4", Launch(4, 65)),
        (".maxntid 16, 4", Launch(4, (8, 4, 4))),
    ],
)
def test_a_launch_that_the_simulator_or_the_kernel_can_not_do(said, launch):
    """.maxntid bounds the number of threads alone: 32 in x are fine with 16 and 4."""
    code = executable(module("").replace(")\n{", f")\n{said}\n{{", 1))

    def program(fabric):
        with refused(ValueError):
            fabric.launch(code, launch, [])
        fabric.launch(code, Launch(4, 32), [])
        fabric.synchronize()

    succeed(make_world(1), program)


def test_launches_of_other_shapes_do_not_share_a_batch():
    """Ranks that launch the same kernel with other dimensions, or other shared memory, get their own."""
    body = (
        "mov.u32 %r1, %ntid.x; mov.u32 %r2, %dynamic_smem_size; st.global.b32 [%out], %r1; st.global.b32 [%out+4], %r2;"
    )
    code = executable(module(body, ["u64 out"]))
    launches = [Launch(1, (8, 4, 1)), Launch(1, (4, 8, 1)), Launch(1, 32), Launch(1, 32, shared_bytes=64)]

    def program(fabric):
        out = fabric.allocate(8, 256, "out")
        fabric.launch(code, launches[fabric.rank], [Argument("address", out.address)])
        return get(fabric, out, "u4").tolist()

    assert succeed(make_world(4), program).results == [[8, 0], [4, 0], [32, 0], [32, 64]]


@pytest.mark.parametrize("options", [{}, {"schedule": "random", "seed": 3}], ids=["fair", "random"])
def test_a_cooperative_launch_has_a_workspace_for_each_rank_and_kernel(options):
    """%envreg1 and %envreg2 are its address: a word with its size, and one that is 0 first and keeps its value."""
    body = """
      mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %d2, {%r2, %r1}; mul.wide.u32 %d1, %block, 16;
      add.u64 %d1, %d1, %out; st.global.u64 [%d1], %d2; setp.eq.u64 %p1, %d2, 0; @%p1 ret;
      ld.global.u32 %r3, [%d2]; atom.global.add.u32 %r4, [%d2+4], 1; st.global.v2.u32 [%d1+8], {%r3, %r4};
    """
    code = executable(module(body, ["u64 out"]))

    def program(fabric):
        found = []
        for is_cooperative in (True, True, False):
            out = put(fabric, f"out {len(found)}", np.zeros((3, 4), np.uint32))
            arguments = [Argument("address", out.address)]
            fabric.launch(code, Launch(3, 1, cooperative=is_cooperative), arguments)
            found.append(get(fabric, out, "u4").reshape(3, 4))
        return found

    places = []
    for first, second, alone in succeed(make_world(2, **options), program).results:
        assert (first[:, :2] == first[0, :2]).all()
        assert (second[:, :2] == first[0, :2]).all()
        assert (first[:, 2] == 8).all()
        assert sorted(first[:, 3].tolist()) == [0, 1, 2]
        assert sorted(second[:, 3].tolist()) == [3, 4, 5]
        assert not alone.any()
        places.append(tuple(first[0, :2].tolist()))
    assert len(set(places)) == 2


@pytest.mark.parametrize(
    ("target", "size_bytes", "is_right"),
    [
        ("sm_80", 49_152, True),
        ("sm_80", 49_156, False),
        ("sm_90", 49_156, False),
        ("sm_90a", 232_448, True),
        ("sm_90a", 232_452, False),
    ],
)
def test_shared_memory_that_a_kernel_declares_is_as_much_as_ptxas_takes(target, size_bytes, is_right):
    text = module(f".shared .align 4 .b8 mine[{size_bytes}];", target=target)
    with nullcontext() if is_right else refused(ValueError):
        assert run(make_world(1, arch=target), launching(executable(text, arch=target), 1, 32)).right == [None]
