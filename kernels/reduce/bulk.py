"""reduce/bulk: all inputs go to the root in pieces, by bulk copies, and are added there as they arrive.

When it wins: not measured yet. It is for the largest buffers on 2 GPUs, where the root's link has to carry the other
rank's buffer once whatever is done. two_shot, the best there so far, carries a half of it by loads and the other by
stores, and takes 727 us for 256 MiB (2 H200, 2026-11-22), level with NCCL. On more GPUs the root's link carries every
rank's buffer, as with pull, so that two_shot is the better one.

Memory: every other rank reads its own input and writes the root's scratch; the root reads its scratch and input and
writes its output. A row of scratch a rank, with the boundaries of the input: 16 bytes longer than the buffer; (n-1)
times the buffer, on all ranks, since any may be the root. The elements before the first 16-byte boundary and after the
last are loaded from peers' inputs.

Protocol: kernels/dsl/pieces.py: block b of the root waits for each round of block b of all others. One barrier at exit
(all scratch is read, and the root reads no input any more). Nothing waits at entry: scratch is free since the exit
barrier of the launch before, the output is written by its own rank, and a peer whose round has come has begun, so its
input is written. In place is fine: the root's buffer is read and written by itself alone, each element by one thread.

Numerics: the root begins with the next rank and ends with itself, as in pull: the same bits. Precision and rounding:
kernels/dsl/arithmetic.py.

Rejected, without a measurement: see reduce_scatter/bulk.
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

# Not measured yet. A block has a warp more than others: the mover's.
TUNING = Tuning(
    (
        Step(
            threads=544,
            blocks=64,
            loads_in_flight=4,
            reason="not measured: reduce_scatter/bulk's",
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
    span = frame.span(source, frame.size)
    first = frame.after(frame.root)
    shift = source & (shares.VECTOR_BYTES - 1)
    row_bytes = (frame.size + 2 * shares.VECTOR_BYTES - 1) & -shares.VECTOR_BYTES
    row = row_bytes * frame.steps(first, frame.rank)

    def ends(number: Any) -> tuple[Any, Any, Any]:
        return frame.root, source, frame.peer("scratch", frame.root) + row + shift

    pieces = Pieces(frame, frame.size)
    pieces.send(span, 1, ends, frame.rank != frame.root)
    contributions = frame.rows(frame.address("scratch") + shift, row_bytes, source)
    pieces.add(span, contributions, output, frame.peers("input", first), frame.rank == frame.root)
    pieces.end()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        row_bytes = (case.size_bytes + 2 * shares.VECTOR_BYTES - 1) // shares.VECTOR_BYTES * shares.VECTOR_BYTES
        words = max(case.world_size - 1, 1) * row_bytes // 4
        return (Workspace("scratch", words, zeroed=False),)

    return spec_with(
        "reduce/bulk",
        body,
        tuning,
        summary="all inputs go through shared memory to the root, which adds them as they arrive",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.roots,
        buffers=(address("input"), address("output"), peers("input"), address("scratch"), peers("scratch")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
