"""reduce_scatter/pull: every rank loads its chunk of all inputs and reduces it.

When it wins: up to a few MiB without multicast: one trip over the links, no scratch. push moves less over the links.

Memory: reads all inputs through peers' addresses, writes the own output. Vectors are aligned at the inputs; where the
output has other boundaries it is written element by element.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and nobody reads an input any more). Both block by block: kernels/signals.py says how they order
payload, which itself is weak. In place is fine: of a rank's input only its own chunk is overwritten, which nobody else
reads.

Numerics: the owner begins with the next rank and ends with itself (rank+1, rank+2, .. rank), so that no GPU is
everyone's first target. Precision and rounding: kernels/arithmetic.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.frame import Frame

TUNING = Tuning((Step(threads=512, blocks=64, loads_in_flight=16, reason="all_reduce/two_shot's, not measured yet"),))


def body(frame: Frame) -> None:
    """The device half."""
    frame.arrive()
    chunk = frame.size // frame.world_size
    begin = chunk * frame.rank
    source, output = frame.address("input") + begin, frame.address("output")
    span = frame.span(source, chunk)
    inputs = frame.peers("input", frame.after(frame.rank)).shifted(begin)
    outputs = frame.at(output)
    frame.wait()
    frame.reduce(span, inputs, outputs, frame.aligned(source, output))
    frame.reduce_edges(span, inputs, outputs)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "reduce_scatter/pull",
        body,
        tuning,
        summary="each rank reduces its chunk of all inputs",
        placements=("out_of_place", "in_place"),
        fold="from_next_rank",
        owner=shares.own,
        buffers=(address("input"), address("output"), peers("input")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize),
        loads_per_vector=lambda case: case.world_size,
    )


SPEC = spec_of(TUNING)
