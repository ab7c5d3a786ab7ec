"""reduce_scatter/bulk: contributions go to their owners in pieces, by bulk copies, and are added as they arrive.

When it wins: not measured yet. It is for the largest buffers on 2 GPUs: pull, the best there so far, loads over the
links both ways and gets 325 GB/s at 256 MiB (2 H200, 2026-11-22), where kernels that store get 364 to 367. push stores,
but adds after the last byte has come: the link rests while own memory works. Here both work at once.

Memory: reads the own input, writes all ranks' scratch through peers' addresses, then reads the own scratch and input
and writes the own output. A row of scratch a rank, each with the boundaries of the chunk it is a copy of: 16 bytes
longer than a chunk. Scratch is (n-1)/n of the input. Chunks are multiples of 16 bytes, so that all have the same
boundaries; where buffers begin between two of them, the elements at both ends of a chunk are loaded from peers' inputs.

Protocol: kernels/dsl/pieces.py: block b of a rank waits for each round of block b of its peers. One barrier at exit
(all scratch is read, and no rank reads an input any more). Nothing waits at entry: scratch is free since the exit
barrier of the launch before, outputs are written by their own ranks, and a peer whose round has come has begun, so its
input is written. In place is fine: of a rank's input only its own chunk is overwritten, which is sent to no other rank.

Numerics: the owner begins with the next rank and ends with itself, as in pull: the same bits. Precision and rounding:
kernels/dsl/arithmetic.py.

Rejected, without a measurement: adding at the owner's memory by cp.reduce.async.bulk, which would need no scratch. It
rounds to the data type after each contribution, so float32 sums of 16-bit types on more than two ranks are lost to it,
and the own contribution has to be in the output before the first arrives, which is another pass over own memory. A ring
of few pieces instead of whole rows of scratch: it needs a signal back from owner to sender for each round, and own
memory has bandwidth to spare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.shares import refuses_bulk
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

# Not measured yet. A block has a warp more than others: the mover's.
TUNING = Tuning(
    (
        Step(
            threads=544,
            blocks=64,
            loads_in_flight=4,
            reason="not measured: 512 threads that add; 32 KiB of a block under way, of all blocks 2 MiB",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.pieces import Pieces

    source, output = frame.address("input"), frame.address("output")
    if frame.world_size == 1:
        frame.copy(source, output, frame.size, push=True)
        return
    chunk, others = frame.size // frame.world_size, frame.world_size - 1
    first, begin = frame.after(frame.rank), chunk * frame.rank
    own = source + begin
    span = frame.span(own, chunk)
    shift = own & (shares.VECTOR_BYTES - 1)
    row_bytes = (chunk + 2 * shares.VECTOR_BYTES - 1) & -shares.VECTOR_BYTES

    def ends(number: Any) -> tuple[Any, Any, Any]:
        peer = frame.after(first, number)
        return peer, source + chunk * peer, frame.peer("scratch", peer) + row_bytes * (others - 1 - number) + shift

    pieces = Pieces(frame, chunk)
    pieces.send(span, others, ends)
    contributions = frame.rows(frame.address("scratch") + shift, row_bytes, own)
    pieces.add(span, contributions, output, frame.peers("input", first).shifted(begin))
    pieces.end()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        chunk = case.numel // case.world_size * case.itemsize
        row_bytes = (chunk + 2 * shares.VECTOR_BYTES - 1) // shares.VECTOR_BYTES * shares.VECTOR_BYTES
        words = max(case.world_size - 1, 1) * row_bytes // 4
        return (Workspace("scratch", words, zeroed=False),)

    return spec_with(
        "reduce_scatter/bulk",
        body,
        tuning,
        summary="each rank's contributions go through shared memory to their owners, who add them as they arrive",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.own,
        buffers=(address("input"), address("output"), peers("input"), address("scratch"), peers("scratch")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize, case.offset),
        workspaces=workspaces,
        refusal=lambda case, arch: refuses_bulk(case),
    )


SPEC = spec_of(TUNING)
