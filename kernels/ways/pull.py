"""pull, one_shot: each rank loads what it needs from the others' inputs, between two barriers.

When it wins: reductions nearly always without multicast (one trip over the links, no scratch), small ones in any case.
Where data only moves, push is faster for large buffers, for a load's request takes room on the links, too; pull wins
where outputs are not ready early: each rank alone writes to its memory.

Memory: reads inputs through peers' addresses, writes the own output only. Vectors of 16 bytes are aligned at the far
side, where the inputs are; where the output has other 16-byte boundaries, it is written element by element. The
elements before the first boundary and after the last one are taken one by one, a thread each. Nothing outside [0,
numel) is touched. Each rank begins with its next, so that no GPU is everyone's first target.

Protocol: a barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit (all
outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/rank_barriers.py says how
they order payload, which itself is weak.

Numerics: who reduces begins with the next rank's contribution and ends with its own (rank+1, rank+2, .. rank).
Precision and rounding: kernels/dsl/arithmetic.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import OUT, Work, address, peers, spec_with
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    import torch

    from kernels.dsl.frame import Frame

kernel = partial(spec_with, promises=WITH_BARRIERS)

KIB = 1 << 10


def reduce_all(frame: Frame, first: Any) -> None:
    """Reduce all inputs to the own output, in an order that begins with rank first.

    one_shot wins for small buffers, where one trip over the links and one barrier before it are all the time there is.
    It moves n-1 buffers into each GPU, so two_shot overtakes it as the buffer grows. It adds in rank order 0, 1, ..
    n-1, on every rank, beginning with rank 0's contribution itself, so all ranks get the same bits. In place is
    refused: a rank would overwrite its input while slower ones read it.

    World sizes up to 8 have all loads of a vector under way before the first addition (kernels/dsl/peers.py), fewer
    ranks take more vectors at a time. The launch asks for one block an SM: without that ptxas, for the sake of
    occupancy, put the loads after the additions again (40 registers instead of 72, ptxas 13.0, 8 ranks, bfloat16).

    The way of a small buffer is kept short: a rank arrives before it looks up addresses, which travel while it waits;
    nothing but the waiting threads stays after the exit's signal; the two barriers have one bar.sync each.

    Trials, off until measured (Tuning.options). peer_loads: "no_allocate" (weak, with the advice not to keep lines in
    L1, for none is read twice) or "relaxed" (at system scope, past L1). entry_signal "relaxed": no fence before the
    arrival; what is released there was written by earlier work on the stream, which the hardware has flushed at that
    kernel's end, though the PTX model names no such rule. exit_signal "relaxed": no fence after the sums' stores, which
    concern no other rank; the loads that must be over are over, because their values went into those stores before the
    bar.sync. Rejected: an exit barrier of those blocks only that had work. The grid never exceeds the work, and block b
    has to answer for block b of all ranks.
    """
    frame.arrive()
    inputs = frame.peers("input", first)
    source, output = frame.address("input"), frame.address("output")
    span = frame.span(source, frame.size)
    frame.wait()
    outputs = frame.at(output)
    frame.reduce(span, inputs, outputs, frame.aligned(source, output))
    frame.reduce_edges(span, inputs, outputs)
    frame.leave()


def reduce_chunk(frame: Frame) -> None:
    """reduce_scatter/pull: every rank loads its chunk of all inputs and reduces it.

    In place is fine: of a rank's input only its own chunk is overwritten, which no other rank reads.

    A chunk need not begin at a line. Where it begins 64 bytes off one, loads at these 64 bytes got 281 GB/s on 4 H100
    where those of lines got 323 (27 November 2026), so lanes are laid out by lines; not measured since.
    """
    frame.arrive()
    chunk = frame.size // frame.world_size
    begin = chunk * frame.rank
    source, output = frame.address("input") + begin, frame.address("output")
    span = frame.span(source, chunk)
    inputs = frame.peers("input", frame.after(frame.rank)).shifted(begin)
    outputs = frame.at(output)
    frame.wait()
    place = frame.place_by_lines(source + span.first)
    frame.reduce(span, inputs, outputs, frame.aligned(source, output), place)
    frame.reduce_edges(span, inputs, outputs)
    frame.leave()


def reduce_at_root(frame: Frame) -> None:
    """reduce/pull: the root loads all inputs and reduces them; no other rank's output is touched.

    There is no push: it would fill the same links, and need scratch of n - 1 buffers at the root. The root's links
    carry every rank's buffer, so two_shot overtakes it. In place is fine: only the root reads its input, and each
    thread reads what it overwrites first.
    """
    frame.arrive()
    source, output = frame.address("input"), frame.address("output")
    span = frame.span(source, frame.size)
    inputs = frame.peers("input", frame.after(frame.root))
    outputs = frame.at(output)
    frame.wait()

    def reduce() -> None:
        frame.reduce(span, inputs, outputs, frame.aligned(source, output))
        frame.reduce_edges(span, inputs, outputs)

    frame.when(frame.rank == frame.root, reduce)
    frame.leave()


def load_chunks(frame: Frame, each_its_own: bool) -> None:
    """all_gather/pull: every rank loads the chunks of all ranks into its output. all_to_all/pull: of each rank's input
    the chunk that is its own.

    Blocks are shared out among the ranks that they read from, so that all links are busy at once. In place is fine for
    all_gather: a rank's own chunk is where it belongs.
    """
    frame.arrive()
    output = frame.address("output")
    chunk = frame.size // frame.world_size

    def load(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        source = frame.peer("input", peer)
        begin = source + chunk * frame.rank if each_its_own else source
        frame.copy(begin, output + chunk * peer, chunk, (index, lanes), push=False)

    frame.wait()
    frame.each_peer(frame.world_size, load)
    frame.leave()


def load_from(frame: Frame, rank: Callable[[], Any]) -> None:
    """broadcast/pull: every rank loads the root's input. send_recv/pull: that of the rank before it, around the ring.

    broadcast: the root's links carry the buffer world_size - 1 times, so two_shot overtakes it. In place is fine: the
    root leaves its buffer alone. send_recv: all ranks take part in both barriers, not only neighbours: what a launch
    means for memory does not depend on who is whose neighbour.
    """
    frame.arrive()
    source, output = frame.peer("input", rank()), frame.address("output")
    frame.wait()
    frame.copy(source, output, frame.size, push=False)
    frame.leave()


def own_order(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element of a rank's output: the rank itself."""
    import torch

    return torch.full((case.numel,), rank, dtype=torch.int64)


# Measured on 2 and 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16 with float32 sums, CUDA graphs, medians of
# the slowest rank, with 256, 512 and 1024 threads, 1, 2 and 4 vectors at a time, 1 to 128 blocks; no run on 8 GPUs. 512
# threads: 1 KiB takes 5.3 us on 4 GPUs (1024: 5.4), 64 KiB 6.4 to 6.8 either way. 8 loads are the most that
# peers.BATCH allows one vector to have; 4 made no difference beyond the noise.
ONE_SHOT = Tuning(
    (
        Step(512, 32, 8, "256 KiB: 8.7 us on 4 GPUs (16: 8.9, 8: 9.3), 6.8 on 2 (16: 6.9, 8: 7.6)", 512 * KIB),
        Step(512, 64, 8, "1 MiB takes 16.4 us on 4 GPUs (32: 16.0, 128: 17.6) and 8.9 on 2 (32: 9.0, 128: 10.1)"),
    )
)

# The others were measured on 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16, CUDA graphs of 6 to 200 calls,
# medians of the slowest rank, with 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads; no run on 2 or 8 GPUs.

KERNELS = (
    kernel(
        "all_reduce/one_shot",
        lambda frame: reduce_all(frame, 0),
        ONE_SHOT,
        summary="each rank reads all inputs and folds them in rank order",
        why_not={"placement": "a rank would overwrite its input while others read it"},
        fold="rank_order",
        buffers=(address("input"), peers("input"), address("output")),
        work=Work(shares.of_buffer, shares.each_rank),
    ),
    kernel(
        "all_reduce/one_shot_rotated",
        lambda frame: reduce_all(frame, frame.after(frame.rank)),
        ONE_SHOT,
        summary="each rank reads all inputs and folds them beginning with the next rank's",
        placements=OUT,
        owner=own_order,
        same_order=False,
        buffers=(address("input"), peers("input"), address("output")),
        work=Work(shares.of_buffer, shares.each_rank),
    ),
    kernel(
        "reduce_scatter/pull",
        reduce_chunk,
        Tuning(
            (
                Step(512, 32, 8, "512 KiB takes 8.3 us (64 blocks: 8.4)", 512 * KIB),
                Step(512, 64, 16, "2 MiB takes 13.3 us, 16 MiB 51.4, 128 MiB 330 (8 loads: 13.4, 51.0, 337)"),
            )
        ),
        summary="each rank reduces its chunk of all inputs",
        owner=shares.own,
        buffers=(address("input"), address("output"), peers("input")),
        work=Work(shares.of_chunk, shares.each_rank),
    ),
    kernel(
        "reduce/pull",
        reduce_at_root,
        Tuning(
            (
                Step(512, 32, 8, "64 KiB takes 7.0 us, 512 KiB 11.4", 512 * KIB),
                Step(
                    512, 64, 16, "2 MiB takes 25.2 us, 128 MiB 1103, and so with all others: the root's links are full"
                ),
            )
        ),
        summary="the root reduces all inputs",
        owner=shares.roots,
        buffers=(address("input"), address("output"), peers("input")),
        work=Work(shares.of_buffer, shares.each_rank),
    ),
    kernel(
        "all_gather/pull",
        lambda frame: load_chunks(frame, each_its_own=False),
        Tuning((Step(512, 32, 8, "64 KiB takes 6.7 us, 2 MiB 12.8, 128 MiB 329 (64 blocks: 13.6, 333)"),)),
        summary="each rank loads the chunks of all",
        buffers=(address("output"), peers("input")),
        work=Work(shares.of_chunks, groups=shares.groups),
    ),
    kernel(
        "all_to_all/pull",
        lambda frame: load_chunks(frame, each_its_own=True),
        Tuning(
            (
                Step(256, 32, 8, "4 KiB takes 6.2 us (512 threads: 6.4)", 64 * KIB),
                Step(512, 32, 8, "512 KiB takes 8.5 us (64 blocks: 8.7)", 512 * KIB),
                Step(256, 64, 8, "2 MiB takes 11.9 us, 128 MiB 330 (512 threads: 12.8, 333)"),
            )
        ),
        summary="each rank loads its chunk of all inputs",
        why_not={"placement": "a chunk would be overwritten before its receiver has it"},
        buffers=(address("output"), peers("input")),
        work=Work(shares.of_chunks, groups=shares.groups),
    ),
    kernel(
        "broadcast/pull",
        lambda frame: load_from(frame, lambda: frame.root),
        Tuning(
            (
                Step(256, 32, 8, "64 KiB takes 7.0 us, as with 512 and 1024 threads", 64 * KIB),
                Step(
                    512, 32, 8, "2 MiB takes 25.2 us, 128 MiB 1100, and so with all others: the root's links are full"
                ),
            )
        ),
        summary="each rank loads the root's input",
        buffers=(address("output"), peers("input")),
        work=Work(shares.of_buffer),
    ),
    kernel(
        "send_recv/pull",
        lambda frame: load_from(frame, lambda: frame.after(frame.rank, frame.world_size - 1)),
        Tuning(
            (
                Step(256, 32, 8, "4 KiB takes 5.7 us (512 threads: 5.9)", 64 * KIB),
                Step(256, 64, 8, "2 MiB takes 14.5 us, 16 MiB 61.6, 128 MiB 426 (512 threads: 14.8, 62.4, 430)"),
            )
        ),
        summary="each rank loads the input of the rank before",
        why_not={"placement": "an input would be overwritten before it is read"},
        buffers=(address("output"), peers("input")),
        work=Work(shares.of_buffer),
    ),
)
