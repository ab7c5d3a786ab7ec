"""all_to_all/bulk: every rank's chunks go through shared memory into the outputs of their ranks, by bulk copies.

When it wins: large chunks: one thread a block keeps its link busy (kernels/dsl/bulk.py). On 4 H200 push was faster at
every size.

Memory: reads the own input, writes all outputs through peers' addresses. Blocks are shared out among the ranks that
they write to, so that all links are busy at once, each rank beginning with its next, so that no GPU is everyone's first
target. Chunks are multiples of 16 bytes, so that both places of a chunk have the same 16-byte boundaries; where buffers
begin between two of them, the elements at both ends of a chunk are copied one by one.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/signals.py says how they
order payload, kernels/dsl/bulk.py how bulk copies fit in. In place is refused: a chunk would be overwritten before it
is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
            blocks=64,
            loads_in_flight=4,
            reason="2 MiB under way; 2 MiB takes 12.8 us on 4 H200, 128 MiB 321",
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
    span = frame.span(source, chunk)  # chunks have their boundaries at the same offsets

    def push(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        own, far = source + chunk * peer, frame.peer("output", peer) + chunk * frame.rank
        stages.copy(span, own, put_to(frame.at(far)), index, lanes)
        span.edges(index, frame.itemsize, lambda at: frame.store_element(far + at, frame.load_element(own + at)))

    frame.wait()
    frame.each_peer(frame.world_size, push)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def vectors(case: Case) -> int:
        chunk = shares.vectors(case.numel // case.world_size, case.itemsize, case.offset)
        return shares.groups(case) * chunk

    return spec_with(
        "all_to_all/bulk",
        body,
        tuning,
        summary="each rank's chunks go through shared memory to their ranks",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "a chunk would be overwritten before it is sent"},
        reduces=False,
        buffers=(address("input"), peers("output")),
        vectors=vectors,
        groups=shares.groups,
        refusal=lambda case, arch: refuses_bulk(case),
    )


SPEC = spec_of(TUNING)
