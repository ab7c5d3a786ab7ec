"""send_recv/pull: every rank loads the input of the rank before it: a shift around the ring.

When it wins: where outputs are not ready early; push is faster for large buffers, for a load's request takes room on
the links, too.

Memory: reads the input of the rank before through its address, writes the own output. Vectors are aligned at the
source.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and nobody reads an input any more). Both block by block: kernels/signals.py says how they order
payload, which itself is weak. All ranks take part in both, as in push. In place is refused: an input would be
overwritten before it is read.
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
    source = frame.peer("input", frame.after(frame.rank, frame.world_size - 1))
    output = frame.address("output")
    frame.wait()
    frame.copy(source, output, frame.size, push=False)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "send_recv/pull",
        body,
        tuning,
        summary="each rank loads the input of the rank before",
        placements=("out_of_place",),
        reduces=False,
        buffers=(address("output"), peers("input")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
    )


SPEC = spec_of(TUNING)
