"""send_recv/push: every rank stores its input into the next rank's output: a shift around the ring.

When it wins: nearly always: a store crosses the links once, a load's request takes room, too.

Memory: reads the own input, writes the next rank's output through its address. Vectors are aligned at the target.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and nobody reads an input any more). Both block by block: kernels/signals.py says how they order
payload, which itself is weak. All ranks take part in both, not only neighbours: what a launch means for memory does not
depend on who is whose neighbour. In place is refused: an input would be overwritten before it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.frame import Frame

TUNING = Tuning((Step(threads=512, blocks=64, loads_in_flight=8, reason="all_reduce/two_shot's, not measured yet"),))


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.address("input")
    target = frame.peer("output", frame.after(frame.rank, 1 % frame.world_size))
    frame.wait()
    frame.copy(source, target, frame.size, push=True)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "send_recv/push",
        body,
        tuning,
        summary="each rank stores its input to the next rank",
        placements=("out_of_place",),
        reduces=False,
        buffers=(address("input"), peers("output")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
    )


SPEC = spec_of(TUNING)
