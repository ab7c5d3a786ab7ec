"""reduce_scatter/push_rounds: contributions are stored to their owners in rounds, who add each round as it arrives.

When it wins: not measured yet. It is for the largest buffers on 2 GPUs: pull, the best there so far, loads over the
links both ways and gets 325 GB/s at 256 MiB (2 H200, 2026-11-22), where kernels that store get 364 to 367. push stores,
too, but adds after the last byte has come: the link rests while own memory works. Here some warps of a block store and
others add, so both work at once. bulk does the same by bulk copies: fewer threads, and pieces go through shared memory.

Memory: as bulk: a row of scratch a rank, each with the boundaries of the chunk it is a copy of; (n-1)/n of the input.
Chunks are multiples of 16 bytes, so that all have the same boundaries; where buffers begin between two of them, the
elements at both ends of a chunk are loaded from peers' inputs.

Protocol: kernels/dsl/pieces.py, by stores: block b of a rank waits for each round of block b of its peers. One barrier
at exit, none at entry, in place is fine: all as in bulk.

Numerics: the owner begins with the next rank and ends with itself, as in pull: the same bits. Precision and rounding:
kernels/dsl/arithmetic.py.

Rejected, without a measurement: the same threads storing a round and then adding the one before. The block would meet
twice a round, and wait for its own release in between; other warps go on storing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

# Not measured yet. A block has a warp more than two halves that store and add: it signals.
TUNING = Tuning(
    (
        Step(
            threads=544,
            blocks=128,
            loads_in_flight=8,
            reason="not measured: 256 threads that store, as all_gather/push has at 128 MiB, and as many that add",
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

    pieces = Pieces(frame, chunk, by_stores=True)
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
        "reduce_scatter/push_rounds",
        body,
        tuning,
        summary="each rank stores its contributions to their owners in rounds, who add them as they arrive",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.own,
        buffers=(address("input"), address("output"), peers("input"), address("scratch"), peers("scratch")),
        vectors=lambda case: 2 * shares.vectors(case.numel // case.world_size, case.itemsize, case.offset),
        workspaces=workspaces,
        refusal=lambda case, arch: shares.refuses_bulk(case),
    )


SPEC = spec_of(TUNING)
