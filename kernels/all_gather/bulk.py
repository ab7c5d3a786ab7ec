"""all_gather/bulk: every rank's chunk goes through shared memory into all ranks' outputs, by bulk copies.

When it wins: large chunks without multicast: each piece of a chunk is loaded once and stored to all ranks by one
instruction each, so few threads keep all links busy (kernels/dsl/bulk.py). On 4 H200 push was faster at every size.

Memory: reads the own input, writes all outputs through peers' addresses, the next rank's first, so that no GPU is
everyone's first target. Chunks are multiples of 16 bytes, so that input and output have the same 16-byte boundaries;
where buffers begin between two of them, the elements at both ends of a chunk are copied one by one.

Protocol: a barrier over ranks at entry (all outputs may be overwritten), one at exit (all chunks have arrived). Both
block by block: kernels/dsl/signals.py says how they order payload, kernels/dsl/bulk.py how bulk copies fit in. In place
is fine: a chunk's place in a rank's own output is its input, and is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.shares import refuses_bulk
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
            reason="1 MiB under way; 2 MiB takes 12.9 us on 4 H200, 128 MiB 326",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.bulk import Stages, put_to

    frame.arrive()
    stages = Stages(frame)
    source = frame.address("input")
    chunk = frame.size // frame.world_size
    span = frame.span(source, chunk)
    # This rank comes last, so that it can be left out.
    count = frame.world_size - 1 if frame.choice("in_place") else frame.world_size
    outputs = frame.peers("output", frame.after(frame.rank), count).shifted(chunk * frame.rank)
    frame.wait()
    stages.copy(span, source, put_to(outputs), frame.index, frame.lanes)
    frame.copy_edges_to_all(span, source, outputs)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def vectors(case: Case) -> int:
        return shares.vectors(case.numel // case.world_size, case.itemsize, case.offset)

    return spec_with(
        "all_gather/bulk",
        body,
        tuning,
        summary="each rank's chunk goes through shared memory to all outputs",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        reduces=False,
        buffers=(address("input"), peers("output")),
        vectors=vectors,
        options=lambda case: {"in_place": case.placement == "in_place"},
        refusal=lambda case, arch: refuses_bulk(case),
    )


SPEC = spec_of(TUNING)
