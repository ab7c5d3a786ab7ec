"""push: each rank stores what it has for the others straight into their memory, between two barriers.

When it wins: where data only moves, nearly always without multicast: a store crosses the links once, a load's request
takes room, too.

Memory: reads the own input, writes others' outputs (to be reduced: their scratch) through peers' addresses. Vectors of
16 bytes are aligned at the far side; where the two places of a message have no 16-byte boundary in common, the near
side is met element by element. Blocks are shared out among the ranks that they write to, so that all links are busy at
once, each rank beginning with its next, so that no GPU is everyone's first target.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/rank_barriers.py says how
they order payload, which itself is weak.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.dsl.count_rooms import rooms
from kernels.family import Work, address, peers, spec_with
from kernels.spec import KernelSpec, Parameter
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

kernel = partial(spec_with, promises=WITH_BARRIERS)

KIB, MIB = 1 << 10, 1 << 20


def store_chunks(frame: Frame, each_its_own: bool) -> None:
    """all_gather/push: every rank stores its chunk into all ranks' outputs. all_to_all/push: a chunk of its own to
    each.

    In place is fine for all_gather: a chunk's place in a rank's own output is its input, and no other rank writes
    there.
    """
    frame.arrive()
    source = frame.address("input")
    chunk = frame.size // frame.world_size

    def store(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        target = frame.peer("output", peer) + chunk * frame.rank
        begin = source + chunk * peer if each_its_own else source
        frame.copy(begin, target, chunk, (index, lanes), push=True)

    frame.wait()
    frame.each_peer(frame.world_size, store)
    frame.leave()


def store_counted(frame: Frame) -> None:
    """all_to_all_v/push: every rank stores its row of counts, then what it has for each rank, into that rank's memory.

    A thread for each rank stores the own row there and arrives at the entry barrier with a release, so that one signal
    says both that the output may be overwritten and how much comes from whom. After the wait all ranks know all counts,
    and each finds its place in every output: what the ranks before it send there. So no rank waits for an answer, at
    the price of world_size^2 counts in every block's memory; the other way, an offset that each receiver works out and
    sends back, takes a second time across the links. The barrier at exit says, too, that no rank reads a row any more.
    Messages begin anywhere, so the near side is mostly met element by element.
    """
    from kernels.dsl.counted import Counted

    counted = Counted(frame)
    counted.store_row()
    frame.arrive()
    source = frame.address("input")

    def store(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        start, there, size = counted.message(peer)
        frame.copy(source + start, frame.peer("output", peer) + there, size, (index, lanes), push=True)

    frame.wait()
    counted.find()
    frame.each_peer(frame.world_size, store)
    frame.leave()


def store_to_all(frame: Frame) -> None:
    """broadcast/push: the root stores its input into all ranks' outputs.

    When it wins: small buffers. The root's links carry the buffer world_size - 1 times, so two_shot overtakes it. In
    place is fine: the root leaves its buffer alone.
    """
    frame.arrive()
    source = frame.address("input")

    def store(number: Any, index: Any, lanes: Any) -> None:
        target = frame.peer("output", frame.after(frame.rank, number))
        frame.copy(source, target, frame.size, (index, lanes), push=True)

    frame.wait()
    frame.when(frame.rank == frame.root, lambda: frame.each_peer(frame.world_size, store))
    frame.leave()


def store_to_next(frame: Frame) -> None:
    """send_recv/push: every rank stores its input into the next rank's output: a shift around the ring.

    All ranks take part in both barriers, not only neighbours: what a launch means for memory does not depend on who is
    whose neighbour.
    """
    frame.arrive()
    source = frame.address("input")
    target = frame.peer("output", frame.after(frame.rank, 1 % frame.world_size))
    frame.wait()
    frame.copy(source, target, frame.size, push=True)
    frame.leave()


def store_contributions(frame: Frame) -> None:
    """reduce_scatter/push: every rank stores its contributions into their owners' scratch; the owner reduces them
    there.

    When it wins: seldom: at 2 MiB on 4 H200 by a tenth. What was stored has to be loaded again from the own memory, and
    at 128 MiB pull is faster by a tenth.

    Memory: a row of scratch a rank, each with the 16-byte boundaries of the chunk it is a copy of: 16 bytes longer than
    a chunk. Scratch is (n-1)/n of the input.

    Protocol: a barrier between the halves (block b of all ranks has pushed what block b of this rank adds; the elements
    are divided among blocks alike in both), one at exit (all scratch is read). Nothing waits at entry: scratch is free
    since the exit barrier of the launch before, whose grid was the same, and outputs are written by their own ranks. In
    place is fine: contributions are pushed before the own chunk is overwritten, and no rank reads another's input.

    Numerics: the owner begins with the next rank and ends with itself, as in pull: the same bits.
    """
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


def all_to_all_v(tuning: Tuning) -> KernelSpec:
    """Return all_to_all_v/push with a tuning."""
    rows = (Parameter("counts"), peers("rows"), address("rows"), address("places"))
    return kernel(
        "all_to_all_v/push",
        store_counted,
        tuning,
        summary="each rank stores its counts, then its messages, to their ranks",
        why_not={"placement": "a message would be overwritten before it is sent"},
        buffers=(address("input"), peers("output"), *rows),
        work=Work(shares.of_chunks, groups=shares.groups),
        workspaces=lambda case: rooms(case, tuning.max_blocks),
        retuned=all_to_all_v,
    )


# Measured on 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16, CUDA graphs of 6 to 200 calls, medians of the
# slowest rank, with 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads; no run on 2 or 8 GPUs. all_to_all_v was not.

KERNELS = (
    kernel(
        "reduce_scatter/push",
        store_contributions,
        Tuning(
            (
                Step(256, 32, 8, "64 KiB takes 6.6 us (512 threads: 7.0)", 64 * KIB),
                Step(256, 128, 8, "512 KiB takes 8.7 us (512 threads, 64 blocks: 8.7)", 512 * KIB),
                Step(512, 128, 8, "2 MiB takes 12.3 us, 16 MiB 52.7 (64 blocks: 13.8, 53.4)", 32 * MIB),
                Step(512, 64, 16, "128 MiB takes 366 us (128 blocks, 8 loads: 377)"),
            )
        ),
        summary="each rank stores its contributions to their owners, who reduce them",
        owner=shares.own,
        buffers=(address("input"), address("output"), address("scratch"), peers("scratch")),
        work=Work(shares.of_chunk, shares.each_rank),
        workspaces=shares.chunk_rows,
    ),
    kernel(
        "all_gather/push",
        lambda frame: store_chunks(frame, each_its_own=False),
        Tuning(
            (
                Step(512, 32, 8, "64 KiB takes 5.9 us, 512 KiB 7.7 (128 blocks: 8.0)", 512 * KIB),
                Step(512, 64, 16, "2 MiB takes 12.3 us, 16 MiB 44.1 (32 blocks, 8 loads: 12.7, 49.9)", 32 * MIB),
                Step(256, 132, 8, "all SMs: 256 MiB takes 575 us on 4 H100 (128 blocks: 582), 376 on 2 H200 (64: 383)"),
            )
        ),
        summary="each rank stores its chunk to all outputs",
        buffers=(address("input"), peers("output")),
        work=Work(shares.of_chunks, groups=shares.groups),
    ),
    kernel(
        "all_to_all/push",
        lambda frame: store_chunks(frame, each_its_own=True),
        Tuning(
            (
                Step(256, 32, 8, "4 KiB takes 5.7 us, 64 KiB 6.1 (512 threads: 5.8, 6.0)", 64 * KIB),
                Step(512, 32, 8, "512 KiB takes 7.6 us (64 blocks: 7.9)", 512 * KIB),
                Step(512, 64, 16, "2 MiB takes 12.0 us (32 blocks, 8 loads: 12.5)", 2 * MIB),
                Step(256, 132, 8, "all SMs: 256 MiB takes 575 us on 4 H100 (128 blocks: 583), 376 on 2 H200"),
            )
        ),
        summary="each rank stores its chunks to their ranks",
        why_not={"placement": "a chunk would be overwritten before it is sent"},
        buffers=(address("input"), peers("output")),
        work=Work(shares.of_chunks, groups=shares.groups),
    ),
    all_to_all_v(
        Tuning(
            (
                Step(256, 32, 8, "all_to_all/push's, not measured", 64 * KIB),
                Step(512, 64, 8, "all_to_all/push's, not measured"),
            )
        )
    ),
    kernel(
        "broadcast/push",
        store_to_all,
        Tuning(
            (
                Step(512, 32, 8, "64 KiB takes 6.3 us (16 blocks: 6.4)", 64 * KIB),
                Step(256, 64, 8, "512 KiB takes 10.6 us (512 threads: 10.9)", 512 * KIB),
                Step(256, 128, 8, "2 MiB takes 24.6 us (64 blocks: 25.4), 128 MiB 1119: the root's links are full"),
            )
        ),
        summary="the root stores its input to all outputs",
        buffers=(address("input"), peers("output")),
        work=Work(lambda case: shares.groups(case) * shares.of_buffer(case), groups=shares.groups),
    ),
    kernel(
        "send_recv/push",
        store_to_next,
        Tuning(
            (
                Step(256, 32, 8, "4 KiB takes 5.3 us, 64 KiB 5.9 (512 threads: 5.4, 6.0)", 64 * KIB),
                Step(512, 32, 8, "512 KiB takes 7.9 us (64 blocks: 8.1)", 512 * KIB),
                Step(
                    512, 64, 16, "2 MiB takes 12.8 us, 16 MiB 57.0, 128 MiB 396 (32 blocks, 8 loads: 13.4, 59.6, 408)"
                ),
            )
        ),
        summary="each rank stores its input to the next rank",
        why_not={"placement": "an input would be overwritten before it is sent"},
        buffers=(address("input"), peers("output")),
        work=Work(shares.of_buffer),
    ),
)
