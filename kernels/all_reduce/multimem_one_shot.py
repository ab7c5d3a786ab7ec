"""all_reduce/multimem_one_shot: every rank lets the switch add all ranks' inputs, and stores the sum in its own output.

When it wins: small buffers on GPUs whose switch does multicast: one load a vector instead of n, one barrier before
it.

Memory: reads the inputs through the multicast address, writes the own output. Full vectors of 16 bytes by
multimem.ld_reduce of four 32-bit words; then up to three words by the form of one word; a last odd 16-bit element
lies in no 32-bit word inside the buffer and is folded here, in rank order and the accumulator's precision, through
peers' addresses. Nothing outside [0, numel) is touched.

Protocol: a barrier over ranks at entry (all inputs are written), one at exit (nobody overwrites an input that the
switch still reads for a peer). Both block by block, by a reduction on the multicast address of a counter, with proxy
fences on both sides: inputs were written through ordinary addresses and are read through the multicast one, and a
release and an acquire alone do not order accesses to aliases of the same bytes. (Vendor libraries leave that fence
out; by PTX 8.6.1 only strong accesses are safe without it.) In place is refused: a rank would overwrite its input
while the switch reads it for slower ones.

Numerics: the switch's. Order and, without `.acc::f32`, precision of the sum are its own; -0.0 may come out as 0.0. So
there is no promise of bits, only of a bound (kernels/numerics.py), and equal bits on all ranks are to be expected,
not promised. accumulator float32 asks for `.acc::f32` where the type is of 16 bits; native asks for nothing.
"""

from __future__ import annotations

from typing import Any

from kernels.all_reduce.family import spec_with
from kernels.all_reduce.tuning import Step, Tuning
from kernels.spec import Case, KernelSpec, Parameter

TUNING = Tuning(
    (
        # Never measured: no machine with multicast. Others found 2 to 8 blocks enough on 8 GPUs, and take 8 loads; 4,
        # because at 1 MiB a thread has 16 vectors and below 128 KiB one.
        Step(threads=512, blocks=8, loads_in_flight=4, reason="others' values, not measured"),
    )
)

SIGNAL = "multimem.red.release.sys.global.add.u32"


def loads(case: Case) -> frozenset[str]:
    """The ld_reduce instructions for vectors and words of a case's type and accumulator."""
    packed = {"float32": "f32", "float16": "f16x2", "bfloat16": "bf16x2"}[case.dtype]
    precision = ".acc::f32" if case.accumulator == "float32" and case.dtype != "float32" else ""
    load = f"multimem.ld_reduce.relaxed.sys.global.add{precision}"
    return frozenset({f"{load}.v4.{packed}", f"{load}.{packed}"})


def multimem(case: Case) -> frozenset[str]:
    """All multimem instructions of the kernel."""
    return loads(case) | {SIGNAL}


def build(choices: dict[str, Any]) -> Any:
    from kernels.all_reduce.multimem_one_shot_device import MultimemOneShot

    return MultimemOneShot(**choices)


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial.

    signals[block] counts the arrivals of that block on all ranks.
    """

    def choices(case: Case) -> dict[str, Any]:
        return tuning.choices(case, loads_per_vector=1)

    return spec_with(
        tuning,
        "multimem_one_shot",
        summary="each rank loads the switch's sum of all inputs into its output",
        placements=("out_of_place",),
        needs_multicast=True,
        fold="unordered",
        buffers=(
            Parameter("multicast", "input"),
            Parameter("peers", "input"),
            Parameter("address", "output"),
            Parameter("multicast", "signals"),
        ),
        build=build,
        choices=choices,
        workspaces=lambda case: tuning.workspaces(1),
        multimem=multimem,
    )


SPEC = spec_of(TUNING)
