"""A launch with all that it can have, on a GPU: the same kernel leaves the same bytes there and in the simulator."""

import hashlib
import struct
from dataclasses import replace

import pytest
import torch

from memory.driver import CudaDriver
from memory.fabric import Argument, Executable, Launch
from runner.gpu.reading import gpu_type
from simulator.gpu import Need, fit
from simulator.world import SimulatedWorld, SimulatorOptions

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"

NUMBERS = """
  .reg .b32 %r<40>; .reg .b64 %d<8>; .reg .f64 %g<4>; .reg .f32 %f<4>;
  mov.u32 %r1, %tid.z; mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r4, %r1, %r2, %r3;
  mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.u32 %r7, %r4, %r5, %r6;
  mov.u32 %r8, %ctaid.z; mov.u32 %r9, %nctaid.y; mov.u32 %r10, %ctaid.y; mad.lo.u32 %r11, %r8, %r9, %r10;
  mov.u32 %r12, %nctaid.x; mov.u32 %r13, %ctaid.x; mad.lo.u32 %r14, %r11, %r12, %r13;
  mov.u32 %r15, %ntid.z; mul.lo.u32 %r16, %r5, %r2; mul.lo.u32 %r16, %r16, %r15; mad.lo.u32 %r17, %r14, %r16, %r7;
"""
"""%r7: the thread's number in its block; %r14: the block's; %r16: threads of a block; %r17: the thread's on the GPU."""

EVERYTHING = f"""{HEADER}
.extern .shared .align 16 .b8 dynamic[];
.visible .entry kernel(.param .align 8 .b8 given[24], .param .u64 out, .param .u32 small, .param .f32 ratio,
                       .param .f64 wide)
{{
  .shared .align 4 .b8 own[12];{NUMBERS}
  mov.u32 %r18, dynamic; mov.u32 %r19, %dynamic_smem_size; add.u32 %r18, %r18, %r19; sub.u32 %r18, %r18, 4;
  mul.lo.u32 %r20, %r7, 4; sub.u32 %r20, %r18, %r20; st.shared.u32 [%r20], %r17;
  st.shared.u32 [own+8], %r14; bar.sync 0;
  sub.u32 %r21, %r16, %r7; sub.u32 %r21, %r21, 1; mul.lo.u32 %r21, %r21, 4; sub.u32 %r21, %r18, %r21;
  ld.shared.u32 %r22, [%r21]; ld.shared.u32 %r23, [own+8];
  ld.param.v2.u32 {{%r24, %r25}}, [given]; ld.param.u16 %r26, [given+10]; ld.param.f64 %g1, [given+16];
  ld.param.u32 %r27, [small]; ld.param.f32 %f1, [ratio]; ld.param.f64 %g2, [wide]; add.f64 %g1, %g1, %g2;
  mov.u32 %r28, %nctaid.z;
  ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r17, 64; add.s64 %d1, %d1, %d2;
  st.global.v4.b32 [%d1], {{%r6, %r3, %r1, %r13}}; st.global.v4.b32 [%d1+16], {{%r10, %r8, %r22, %r23}};
  st.global.v4.b32 [%d1+32], {{%r24, %r25, %r26, %r27}}; st.global.f32 [%d1+48], %f1;
  st.global.b32 [%d1+52], %r28; st.global.f64 [%d1+56], %g1;
  ret;
}}
"""

CLUSTER = f"""{HEADER}
.visible .entry kernel(.param .u64 out)
{{{NUMBERS}
  mov.u32 %r20, %cluster_nctaid.x; mov.u32 %r21, %cluster_nctaid.y; mov.u32 %r22, %cluster_nctaid.z;
  mov.u32 %r23, %cluster_ctarank;
  ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r17, 16; add.s64 %d1, %d1, %d2;
  st.global.v4.b32 [%d1], {{%r20, %r21, %r22, %r23}};
  ret;
}}
"""

EMPTY = f"{HEADER}.visible .entry kernel(.param .u64 out) {{ ret; }}"

LAUNCH = Launch((3, 2, 2), (5, 4, 3), shared_bytes=100_000)


def executable(ptx):
    """The PTX as the driver takes it, too: it assembles what it is given as machine code."""
    digest = f"sha256:{hashlib.sha256(ptx.encode()).hexdigest()}"
    return Executable("test/launch", "kernel", "sm_90a", ptx, digest, ptx.encode() + b"\0")


def arguments(address):
    given = struct.pack("<IIHHId", 7, 2**32 - 1, 1, 65_535, 0, 0.25)
    return (
        Argument("bytes", given),
        Argument("address", address),
        Argument("u32", -3),
        Argument("f32", 1.5),
        Argument("f64", -8.0),
    )


def simulated(launch, size_bytes):
    world = SimulatedWorld(1, SimulatorOptions())
    fabric = world.fabric(0)
    out = fabric.allocate(size_bytes, 256, "out")
    fabric.launch(executable(EVERYTHING), launch, arguments(out.address))
    found = fabric.read(out, 0, size_bytes)
    world.leave(0, None)
    return found


def test_the_kernel_of_this_file_runs_in_the_simulator():
    """Without a GPU, too: what the comparison below compares with. Thread 17 of block 7, by hand."""
    found = simulated(LAUNCH, 64 * 12 * 60).view(torch.int32).view(-1, 16)[7 * 60 + 17].tolist()
    assert found[:6] == [2, 3, 0, 1, 0, 1]
    assert found[6:12] == [7 * 60 + 42, 7, 7, -1, 65_535, -3]
    assert struct.pack("<ii", *found[12:14]) == struct.pack("<fi", 1.5, 2)
    assert struct.unpack("<d", struct.pack("<ii", *found[14:])) == (-7.75,)


@pytest.fixture(scope="module")
def driver():
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(0)[0] != 9:
        pytest.skip("there is no GPU of sm_90")
    return CudaDriver(0, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("own_stream", [False, True], ids=["current", "given"])
def test_a_gpu_leaves_what_the_simulator_leaves(driver, own_stream):
    size_bytes = 64 * LAUNCH.blocks * LAUNCH.threads
    stream = torch.cuda.Stream()
    launch = Launch(LAUNCH.grid, LAUNCH.block, LAUNCH.shared_bytes, stream=stream.cuda_stream if own_stream else None)
    out = torch.full((size_bytes,), 0xFF, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    driver.launch(executable(EVERYTHING), launch, arguments(out.data_ptr()))
    driver.wait(None)
    assert torch.equal(out.cpu(), simulated(LAUNCH, size_bytes))


VARIABLES = f"""{HEADER}
.visible .const .align 8 .b8 table[16];
.visible .global .align 4 .u32 counter = 40;
.visible .entry kernel(.param .u64 out)
{{
  .reg .b32 %r<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [out]; ld.const.b32 %r1, [table+8]; ld.const.b32 %r2, [table]; ld.global.u32 %r3, [counter];
  st.global.b32 [%d1], %r1; st.global.b32 [%d1+4], %r2; st.global.b32 [%d1+8], %r3;
  ret;
}}
"""


@pytest.mark.gpu
def test_a_gpu_gets_a_modules_variables(driver):
    kernel, out = executable(VARIABLES), torch.zeros(3, dtype=torch.int32, device="cuda:0")
    for values, expected in (({}, [0, 0, 40]), ({"table": (8, 7), "counter": (0, 5)}, [7, 0, 5])):
        for name, (offset, value) in values.items():
            driver.set_variable(kernel, name, offset, struct.pack("<i", value))
        driver.launch(kernel, Launch(1, 1), (Argument("address", out.data_ptr()),))
        driver.wait(None)
        assert out.tolist() == expected
    with pytest.raises(ValueError, match="has no variable tabel"):
        driver.set_variable(kernel, "tabel", 0, b"1")


@pytest.mark.gpu
def test_a_gpu_makes_clusters_of_blocks(driver):
    launch = Launch((4, 2, 2), 1, cluster=(2, 1, 2))
    out = torch.full((launch.blocks, 4), -1, dtype=torch.int32, device="cuda:0")
    driver.launch(executable(CLUSTER), launch, (Argument("address", out.data_ptr()),))
    driver.wait(None)
    assert out[:, :3].tolist() == [[2, 1, 2]] * 16
    blocks = [(x, y, z) for z in range(2) for y in range(2) for x in range(4)]
    assert out[:, 3].tolist() == [x % 2 + 2 * (z % 2) for x, y, z in blocks]


@pytest.mark.gpu
def test_a_gpu_has_no_more_shared_memory_than_it_says(driver):
    """The kernel's own are what the assembler made of its 12 bytes: as many as the dynamic ones' alignment divides."""
    out = torch.zeros(64 * 32, dtype=torch.uint8, device="cuda:0")
    with pytest.raises(ValueError, match="shared_bytes is 232,448; .* have 232,4"):
        driver.launch(executable(EVERYTHING), Launch(1, 32, shared_bytes=232_448), arguments(out.data_ptr()))
    driver.launch(executable(EVERYTHING), Launch(1, 32, shared_bytes=232_448 - 1024), arguments(out.data_ptr()))
    driver.wait(None)


@pytest.mark.gpu
def test_a_gpu_holds_as_many_blocks_as_the_limits_say(driver):
    """A cooperative launch of that many blocks runs, and of one more is refused; the limits of h100 say as many."""
    limits = replace(gpu_type("h100").limits, multiprocessors=driver.multiprocessors)
    given = (Argument("address", 0),)
    for threads in (96, 512, 1024):
        most = fit(limits, Need(threads, 0)).blocks
        driver.launch(executable(EMPTY), Launch(most, threads, cooperative=True), given)
        with pytest.raises(ValueError, match=f"{most + 1} blocks, .*holds {most}"):
            driver.launch(executable(EMPTY), Launch(most + 1, threads, cooperative=True), given)
    driver.wait(None)
