"""all_gather/multimem: every rank stores its chunk to all ranks' outputs through the switch.

When it wins: on GPUs whose switch does multicast: a rank's links carry its chunk out once.

Memory: reads the own input, writes all outputs through the multicast address, 16 bytes at a time at the target's
boundaries; a chunk's elements before the first and after the last, through peers' addresses: the switch takes no less
than 4 bytes. Where the input has other boundaries it is read element by element.

Protocol: a barrier over ranks at entry, one at exit, by a reduction on the multicast address of a counter, with proxy
fences on both sides: payload crosses from ordinary addresses to the multicast one and back. In place is fine: the own
replica is overwritten with itself.
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
    chunk = frame.size // frame.world_size
    source, target = frame.address("input"), frame.multicast("output") + chunk * frame.rank
    span = frame.span(target, chunk)
    frame.wait()
    frame.copy_to_switch(span, source, target)
    frame.copy_edges_to_all(span, source, frame.peers("output").shifted(chunk * frame.rank))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "all_gather/multimem",
        body,
        tuning,
        summary="each rank stores its chunk through the switch",
        placements=("out_of_place", "in_place"),
        promises=THROUGH_SWITCH,
        needs_multicast=True,
        reduces=False,
        buffers=(address("input"), multicast("output"), peers("output")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize),
        multimem=lambda case: instructions(case, stores=True),
    )


SPEC = spec_of(TUNING)
