"""broadcast/two_shot: each rank loads its slice of the root's input and stores it into all outputs.

When it wins: large buffers without multicast: the root's links carry the buffer once, and every other rank's as well.

Memory: the vectors between the first and last 16-byte boundary are divided into contiguous slices, one a rank
(kernels/shares.py); the elements around them are the root's. Reads the root's input and writes all outputs through
peers' addresses.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and nobody reads an input any more). Both block by block: kernels/signals.py says how they order
payload, which itself is weak. Between load and store there is none: a slice is passed on by the thread that loaded it.
In place the root's buffer is not stored to: it holds the result, and others may still read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import Case, KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.frame import Frame

TUNING = Tuning((Step(threads=512, blocks=64, loads_in_flight=8, reason="all_reduce/two_shot's, not measured yet"),))


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    source = frame.peer("input", frame.root)
    span = frame.span(source, frame.size)
    # The root comes last, so that it can be left out.
    count = frame.world_size - 1 if frame.choice("in_place") else frame.world_size
    outputs = frame.peers("output", frame.after(frame.root), count)
    aligned = frame.aligned(source, frame.address("output"))
    frame.wait()
    frame.copy_to_all(frame.sliced(span, frame.rank), source, outputs, aligned)
    frame.when(frame.rank == frame.root, lambda: frame.copy_edges_to_all(span, source, outputs))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def vectors(case: Case) -> int:
        return shares.longest_slice(shares.vectors(case.numel, case.itemsize, case.offset), case.world_size)

    return spec_with(
        "broadcast/two_shot",
        body,
        tuning,
        summary="each rank passes its slice of the root's input to all outputs",
        placements=("out_of_place", "in_place"),
        reduces=False,
        buffers=(address("output"), peers("input"), peers("output")),
        vectors=vectors,
        options=lambda case: {"in_place": case.placement == "in_place"},
    )


SPEC = spec_of(TUNING)
