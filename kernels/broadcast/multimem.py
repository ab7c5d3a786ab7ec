"""broadcast/multimem: the root stores its input to all ranks' outputs through the switch.

When it wins: on GPUs whose switch does multicast: the root's links carry the buffer once.

Memory: reads the root's input, writes all outputs through the multicast address, 16 bytes at a time; the elements
before the first 16-byte boundary and after the last, through peers' addresses: the switch takes no less than 4 bytes.

Protocol: a barrier over ranks at entry, one at exit, by a reduction on the multicast address of a counter, with proxy
fences on both sides: payload crosses from ordinary addresses to the multicast one and back. In place is fine: the
root's own replica is overwritten with itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.stress import THROUGH_SWITCH
from kernels import shares
from kernels.family import address, multicast, peers, spec_with
from kernels.multimem import instructions
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
    source, target = frame.address("input"), frame.multicast("output")
    span = frame.span(target, frame.size)
    frame.wait()

    def store() -> None:
        frame.copy_to_switch(span, source, target)
        frame.copy_edges_to_all(span, source, frame.peers("output"))

    frame.when(frame.rank == frame.root, store)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "broadcast/multimem",
        body,
        tuning,
        summary="the root stores its input through the switch",
        placements=("out_of_place", "in_place"),
        promises=THROUGH_SWITCH,
        needs_multicast=True,
        reduces=False,
        buffers=(address("input"), multicast("output"), peers("output")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        multimem=lambda case: instructions(case, stores=True),
    )


SPEC = spec_of(TUNING)
