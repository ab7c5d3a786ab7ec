"""broadcast/bulk: each rank takes its slice of the root's input through shared memory into all outputs, by bulk copies.

When it wins: large buffers without multicast: as two_shot the root's links carry the buffer once, and every other
rank's as well; each piece is loaded from the root by one instruction and stored to each rank by another
(kernels/dsl/bulk.py). On 4 H200 it was level with two_shot from 16 MiB on, slower below.

Memory: the vectors between the first and last 16-byte boundary are divided into contiguous slices, one a rank
(kernels/shares.py); the elements around them are the root's, one by one. Reads the root's input and writes all outputs
through peers' addresses. Input and output begin equally far from a 16-byte boundary, so that they have the same ones.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, kernels/dsl/bulk.py how bulk copies fit in. In place the root's buffer is not stored to: it holds the
result, and others may still read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning(
    (
        Step(
            threads=512,
            blocks=32,
            loads_in_flight=4,
            reason="1 MiB under way; 2 MiB takes 18.1 us on 4 H200, 128 MiB 595",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.bulk import Stages, put_to

    frame.arrive()
    stages = Stages(frame)
    source = frame.peer("input", frame.root)
    span = frame.span(source, frame.size)
    # The root comes last, so that it can be left out.
    count = frame.world_size - 1 if frame.choice("in_place") else frame.world_size
    outputs = frame.peers("output", frame.after(frame.root), count)
    frame.wait()
    stages.copy(frame.sliced(span, frame.rank), source, put_to(outputs), frame.index, frame.lanes)
    frame.when(frame.rank == frame.root, lambda: frame.copy_edges_to_all(span, source, outputs))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def vectors(case: Case) -> int:
        return shares.longest_slice(shares.vectors(case.numel, case.itemsize, case.offset), case.world_size)

    return spec_with(
        "broadcast/bulk",
        body,
        tuning,
        summary="each rank passes its slice of the root's input through shared memory to all outputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        reduces=False,
        buffers=(address("output"), peers("input"), peers("output")),
        vectors=vectors,
        options=lambda case: {"in_place": case.placement == "in_place"},
    )


SPEC = spec_of(TUNING)
