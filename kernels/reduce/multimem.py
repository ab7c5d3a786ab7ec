"""reduce/multimem: the root gets the switch's reduction of all inputs.

When it wins: on GPUs whose switch does multicast: the root's links carry the buffer in once.

Memory: the root reads the inputs through the multicast address, 16 bytes at a time, and writes its own output; the
elements before the first 16-byte boundary and after the last, through peers' addresses, folded here. No other rank's
output is touched.

Protocol: a barrier over ranks at entry, one at exit, by a reduction on the multicast address of a counter, with proxy
fences on both sides: payload crosses from ordinary addresses to the multicast one and back. In place is fine: only
the root reads its input, and each thread reads what it overwrites first.

Numerics: the switch's, as in all_reduce/multimem_one_shot.
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
        # Never measured: no machine with multicast. Others found 2 to 8 blocks enough on 8 GPUs, and take 8 loads.
        Step(threads=512, blocks=8, loads_in_flight=4, reason="others' values, not measured"),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source, output = frame.multicast("input"), frame.address("output")
    span = frame.span(source, frame.size)
    frame.wait()

    def reduce() -> None:
        frame.reduce_by_switch(span, source, output)
        frame.reduce_edges(span, frame.peers("input"), frame.at(output))

    frame.when(frame.rank == frame.root, reduce)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "reduce/multimem",
        body,
        tuning,
        summary="the root loads the switch's reduction of all inputs",
        placements=("out_of_place", "in_place"),
        promises=THROUGH_SWITCH,
        needs_multicast=True,
        fold="unordered",
        buffers=(multicast("input"), peers("input"), address("output")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        refusal=refuses_multimem,
        multimem=lambda case: instructions(case, stores=False),
    )


SPEC = spec_of(TUNING)
