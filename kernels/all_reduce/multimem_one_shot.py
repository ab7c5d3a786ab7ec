"""all_reduce/multimem_one_shot: every rank lets the switch add all ranks' inputs, and stores the sum in its own output.

When it wins: small buffers on GPUs whose switch does multicast: one load a vector instead of n, one barrier before
it.

Memory: reads the inputs through the multicast address, writes the own output. Vectors of 16 bytes by
multimem.ld_reduce: one for floats of up to 4 bytes; integers and float64 have no vectors and take one an element
(kernels/multimem.py has the forms as data). The elements before the first 16-byte boundary and after the last, fewer
than 16 bytes each, are folded here, in rank order and the accumulator's precision, through peers' addresses: no access
of the switch is narrower than 4 bytes. Nothing outside [0, numel) is touched.

Protocol: a barrier over ranks at entry (all inputs are written), one at exit (no rank overwrites an input that the
switch still reads for a peer). Both block by block, by a reduction on the multicast address of a counter, with proxy
fences on both sides: inputs were written through ordinary addresses and are read through the multicast one, and a
release and an acquire alone do not order accesses to aliases of the same bytes. (Vendor libraries leave that fence
out; by PTX 8.6.1 only strong accesses are safe without it.) In place is refused: a rank would overwrite its input
while the switch reads it for slower ones.

Numerics: the switch's. Order and, without `.acc::f32`, precision of the sum are its own; -0.0 may come out as 0.0. So
there is no promise of bits, only of a bound (kernels/numeric/numerics.py), and equal bits on all ranks are
expected, not promised. accumulator float32 asks for `.acc::f32` where the type is of 16 bits, float16 for `.acc::f16`
where it is of 8; native asks for nothing. avg: the switch's sum times 1/n, in float32, here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.stress import THROUGH_SWITCH
from kernels import shares
from kernels.family import address, multicast, peers, spec_with
from kernels.multimem import instructions, refuses_multimem
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning(
    (
        # Never measured: no machine with multicast. Others found 2 to 8 blocks enough on 8 GPUs, and take 8 loads; 4,
        # because at 1 MiB a thread has 16 vectors and below 128 KiB one.
        Step(threads=512, blocks=8, loads_in_flight=4, reason="others' values, not measured"),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source, output = frame.multicast("input"), frame.address("output")
    span = frame.span(source, frame.size)
    frame.wait()
    frame.reduce_by_switch(span, source, output)
    frame.reduce_edges(span, frame.peers("input"), frame.at(output))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_reduce/multimem_one_shot",
        body,
        tuning,
        summary="each rank loads the switch's reduction of all inputs into its output",
        placements=("out_of_place",),
        promises=THROUGH_SWITCH,
        why_not={"placement": "a rank would overwrite its input while the switch reads it for others"},
        needs_multicast=True,
        fold="unordered",
        buffers=(multicast("input"), peers("input"), address("output")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        refusal=refuses_multimem,
        multimem=lambda case: instructions(case, stores=False),
    )


SPEC = spec_of(TUNING)
