"""reduce_scatter/push: every rank stores its contributions into their owners' scratch; the owner reduces them there.

When it wins: seldom: at 2 MiB on 4 H200 by a tenth. A store crosses the links once, a load's request takes room, too;
but what was stored has to be loaded again from the own memory, and at 128 MiB pull is faster by a tenth.

Memory: reads the own input, writes all ranks' scratch through peers' addresses, then reads the own scratch and writes
the own output. A row of scratch a rank, each with the boundaries of the chunk it is a copy of: 16 bytes longer than a
chunk. Scratch is (n-1)/n of the input.

Protocol: a barrier between the halves (block b of all ranks has pushed what block b of this rank adds; the elements are
divided among blocks alike in both), one at exit (all scratch is read). Nothing waits at entry: scratch is free since
the exit barrier of the launch before, whose grid was the same, and outputs are written by their own ranks. In place is
fine: contributions are pushed before the own chunk is overwritten, and no rank reads another's input.

Numerics: the owner begins with the next rank and ends with itself, as in pull: the same bits.
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

# Measured on 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16, CUDA graphs of 6 to 200 calls, medians of the
# slowest rank, with 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads; no run on 2 or 8 GPUs.
TUNING = Tuning(
    (
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=64 << 10,
            reason="64 KiB takes 6.6 us (512 threads: 7.0)",
        ),
        Step(
            threads=256,
            blocks=128,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 8.7 us (512 threads, 64 blocks: 8.7)",
        ),
        Step(
            threads=512,
            blocks=128,
            loads_in_flight=8,
            up_to_bytes=32 << 20,
            reason="2 MiB takes 12.3 us, 16 MiB 52.7 (64 blocks: 13.8, 53.4)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=16,
            reason="128 MiB takes 366 us (128 blocks, 8 loads: 377)",
        ),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    chunk = frame.size // frame.world_size
    source, output = frame.address("input"), frame.address("output")
    first = frame.after(frame.rank)
    others = frame.world_size - 1
    scratch = frame.peers("scratch", first)
    row_bytes = (chunk + 2 * shares.VECTOR_BYTES - 1) & -shares.VECTOR_BYTES

    def push(number: Any) -> None:
        begin = chunk * frame.after(first, number)
        shift = (source + begin) & (shares.VECTOR_BYTES - 1)
        place = scratch.look_up(number, 1)[0] + row_bytes * (others - 1 - number) + shift
        frame.copy(source + begin, place, chunk, push=True)

    frame.each_other(others, push)
    frame.meet()
    own = source + chunk * frame.rank
    shift = own & (shares.VECTOR_BYTES - 1)
    contributions = frame.rows(frame.address("scratch") + shift, row_bytes, own)
    span = frame.span(own, chunk)
    frame.reduce(span, contributions, frame.at(output), frame.aligned(own, output))
    frame.reduce_edges(span, contributions, frame.at(output))
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        chunk = case.numel // case.world_size * case.itemsize
        row_bytes = (chunk + 2 * shares.VECTOR_BYTES - 1) // shares.VECTOR_BYTES * shares.VECTOR_BYTES
        words = max(case.world_size - 1, 1) * row_bytes // 4
        return (Workspace("scratch", words, zeroed=False),)

    return spec_with(
        "reduce_scatter/push",
        body,
        tuning,
        summary="each rank stores its contributions to their owners, who reduce them",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=shares.own,
        buffers=(address("input"), address("output"), address("scratch"), peers("scratch")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize),
        loads_per_vector=lambda case: case.world_size,
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
