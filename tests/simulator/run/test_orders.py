"""Orders and architectures that the assembler or a GPU would refuse are refused here, with their line."""

import pytest

from memory.fabric import Executable
from simulator.isa import UnknownInstruction
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.golden import refused
from tests.simulator.harness import refuse_unsupported, start

KERNEL = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 data)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  mov.u32 %r1, 0;
  BODY
  ret;
}
"""


@pytest.mark.parametrize(
    "text",
    [
        "ld.release.sys.global.u32 %r1, [%rd1];",
        "ld.relaxed.global.u32 %r1, [%rd1];",
        "ld.sys.global.u32 %r1, [%rd1];",
        "st.acquire.sys.global.u32 [%rd1], %r1;",
        "red.acquire.sys.global.add.u32 [%rd1], %r1;",
        "multimem.red.weak.global.add.u32 [%rd1], %r1;",
        "multimem.red.acquire.sys.global.add.u32 [%rd1], %r1;",
        "multimem.ld_reduce.release.sys.global.add.u32 %r1, [%rd1];",
        "multimem.st.acquire.sys.global.u32 [%rd1], %r1;",
        "multimem.st.relaxed.global.u32 [%rd1], %r1;",
    ],
)
def test_an_order_that_the_opcode_lacks_is_refused_with_its_line(text):
    with pytest.raises(UnknownInstruction, match="order.*PTX line 9"):
        refuse_unsupported(KERNEL.replace("BODY", text), "kernel")


@pytest.mark.parametrize(("arch", "fits"), [("sm_90a", True), ("sm_90", True), ("sm_100a", False)])
def test_a_kernel_for_another_gpu_is_not_launched(arch, fits):
    fabric = SimulatedWorld(1, SimulatorOptions(heap_bytes=4096)).fabric(0)
    kernel = Executable("mine", "kernel", arch, KERNEL.replace("BODY", ""), "sha256:0")
    if fits:
        start(fabric, kernel, 1, 32, [0])
    else:
        with refused(ValueError):
            start(fabric, kernel, 1, 32, [0])
