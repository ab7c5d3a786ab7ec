"""reduce_scatter/multimem: every rank gets the switch's reduction of its chunk of all inputs.

When it wins: on GPUs whose switch does multicast: a rank's links carry its chunk in once.

Memory: reads the inputs through the multicast address, 16 bytes at a time at the inputs' boundaries, and writes the own
output; a chunk's elements before the first boundary and after the last, through peers' addresses, folded here. Where
the output has other boundaries it is written element by element.

Protocol: a barrier over ranks at entry, one at exit, by a reduction on the multicast address of a counter, with proxy
fences on both sides: payload crosses from ordinary addresses to the multicast one and back. In place is fine: of a
rank's input only its own chunk is overwritten, which no other rank reads.

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
    chunk = frame.size // frame.world_size
    begin = chunk * frame.rank
    source, output = frame.multicast("input") + begin, frame.address("output")
    span = frame.span(source, chunk)
    inputs = frame.peers("input").shifted(begin)
    frame.wait()
    frame.reduce_by_switch(span, source, output)
    frame.reduce_edges(span, inputs, frame.at(output))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "reduce_scatter/multimem",
        body,
        tuning,
        summary="each rank loads the switch's reduction of its chunk",
        placements=("out_of_place", "in_place"),
        promises=THROUGH_SWITCH,
        needs_multicast=True,
        fold="unordered",
        buffers=(multicast("input"), peers("input"), address("output")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize),
        refusal=refuses_multimem,
        multimem=lambda case: instructions(case, stores=False),
    )


SPEC = spec_of(TUNING)
