"""bulk: data goes in pieces through shared memory to other ranks, by bulk copies that one thread of a block starts.

When it wins: large messages: few threads keep all links busy (kernels/dsl/bulk.py). push_rounds is the same exchange in
rounds by ordinary stores.

Memory: writes go through peers' addresses. Messages are multiples of 16 bytes, so that both their places have the same
16-byte boundaries; where buffers begin between two of them, the elements at both ends are copied, or loaded from peers'
inputs, one by one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.refusal import Refusal
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.family import Work, address, peers, spec_with
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

kernel = partial(spec_with, promises=WITH_BARRIERS)


# Data that moves. A barrier over ranks at entry (all inputs are written, all outputs may be overwritten), one at exit
# (all outputs are complete, and no rank reads an input any more). Both block by block: kernels/dsl/rank_barriers.py
# says how they order payload, kernels/dsl/bulk.py how bulk copies fit in.


def gather(frame: Frame) -> None:
    """all_gather/bulk: every rank's chunk goes through shared memory into all ranks' outputs.

    Each piece of a chunk is loaded once and stored to all ranks by one instruction each, the next rank's first, so that
    no GPU is everyone's first target. On 4 H200 push was faster at every size. In place is fine: a chunk's place in a
    rank's own output is its input, and is left alone.
    """
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


def scatter_chunks(frame: Frame) -> None:
    """all_to_all/bulk: every rank's chunks go through shared memory into the outputs of their ranks.

    One thread a block keeps its link busy. On 4 H200 push was faster at every size. Blocks are shared out among the
    ranks that they write to, so that all links are busy at once, each rank beginning with its next.
    """
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


def pass_slices_on(frame: Frame) -> None:
    """broadcast/bulk: each rank takes its slice of the root's input through shared memory into all outputs.

    As with two_shot the root's links carry the buffer once, and every other rank's as well; each piece is loaded from
    the root by one instruction and stored to each rank by another. On 4 H200 it was level with two_shot from 16 MiB on,
    slower below, when the root had a slice, too. Slices are two_shot's; the elements around them are the root's, one by
    one. In place the root's buffer is not stored to: it holds the result, and others may still read it.
    """
    from kernels.dsl.bulk import Stages, put_to

    frame.arrive()
    stages = Stages(frame)
    source = frame.peer("input", frame.root)
    span = frame.span(source, frame.size)
    # The root comes last, so that it can be left out.
    count = frame.world_size - 1 if frame.choice("in_place") else frame.world_size
    outputs = frame.peers("output", frame.after(frame.root), count)
    frame.wait()
    put = put_to(outputs)
    frame.with_root_slice(span, lambda own: stages.copy(own, source, put, frame.index, frame.lanes))
    frame.when(frame.rank == frame.root, lambda: frame.copy_edges_to_all(span, source, outputs))
    frame.leave()


# Data that is added as it arrives.


def add_at_owners(frame: Frame, by_stores: bool) -> None:
    """reduce_scatter/bulk: contributions go to their owners in pieces, by bulk copies, and are added as they arrive.
    reduce_scatter/push_rounds: the same, stored by some warps of a block while others add.

    When they win: not measured yet. They are for the largest buffers on 2 GPUs: pull, the best there so far, loads over
    the links both ways and gets 325 GB/s at 256 MiB (2 H200, 2026-11-22), where kernels that store get 364 to 367. push
    stores, but adds after the last byte has come: the link rests while own memory works. Here both work at once. bulk
    takes fewer threads, and its pieces go through shared memory.

    Memory: reads the own input, writes all ranks' scratch, then reads the own scratch and input and writes the own
    output. A row of scratch a rank, each with the boundaries of the chunk it is a copy of: 16 bytes longer than a
    chunk; together (n-1)/n of the input.

    Protocol: kernels/dsl/pieces.py: block b of a rank waits for each round of block b of its peers. One barrier at exit
    (all scratch is read, and no rank reads an input any more). Nothing waits at entry: scratch is free since the exit
    barrier of the launch before, outputs are written by their own ranks, and a peer whose round has come has begun, so
    its input is written. In place is fine: of a rank's input only its own chunk is overwritten, which is sent to no
    other rank.

    Numerics: the owner begins with the next rank and ends with itself, as in pull: the same bits. Precision and
    rounding: kernels/dsl/arithmetic.py.

    Rejected, without a measurement: adding at the owner's memory by cp.reduce.async.bulk, which would need no scratch.
    It rounds to the data type after each contribution, so float32 sums of 16-bit types on more than two ranks are lost
    to it, and the own contribution has to be in the output before the first arrives, which is another pass over own
    memory. A ring of few pieces instead of whole rows of scratch: it needs a signal back from owner to sender for each
    round, and own memory has bandwidth to spare. By stores: the same threads storing a round and then adding the one
    before. The block would meet twice a round, and wait for its own release in between; other warps go on storing here.
    """
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

    pieces = Pieces(frame, chunk, by_stores)
    pieces.send(span, others, ends)
    contributions = frame.rows(frame.address("scratch") + shift, row_bytes, own)
    pieces.add(span, contributions, output, frame.peers("input", first).shifted(begin))
    pieces.end()


def add_at_root(frame: Frame) -> None:
    """reduce/bulk: all inputs go to the root in pieces, by bulk copies, and are added there as they arrive.

    When it wins: not measured yet. It is for the largest buffers on 2 GPUs, where the root's link has to carry the
    other rank's buffer once whatever is done. two_shot, the best there so far, carries a half of it by loads and the
    other by stores, and takes 727 us for 256 MiB (2 H200, 2026-11-22), level with NCCL. On more GPUs the root's link
    carries every rank's buffer, as with pull, so that two_shot is the better one.

    Memory, protocol, numerics: as add_at_owners with the root as the one owner. A row of scratch is 16 bytes longer
    than the buffer; they are on all ranks, since any may be the root. In place is fine: the root's buffer is read and
    written by itself alone, each element by one thread.
    """
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


def refuses(case: Case, arch: str) -> Refusal | None:
    """Return why bulk copies can't take the chunks of a case; None if they can.

    They take 16-byte boundaries only, which a chunk's place in the input and its place in the output must have in
    common.
    """
    chunk_bytes = case.size_bytes // case.world_size
    if case.world_size == 1 or chunk_bytes % shares.VECTOR_BYTES == 0:
        return None
    whole = shares.VECTOR_BYTES * case.world_size
    return Refusal(
        "sizes",
        f"{case.name} copies 16 bytes at a time, and chunks of {chunk_bytes} bytes don't begin at 16-byte boundaries",
        f"give a size that is a multiple of {whole} bytes, or take {case.op}/push",
    )


def of_chunk(case: Case) -> int:
    """Vectors within a chunk, of which all begin where the buffer does."""
    return shares.vectors(case.numel // case.world_size, case.itemsize, case.offset)


def _once(threads: int, blocks: int, loads_in_flight: int, reason: str) -> Tuning:
    return Tuning((Step(threads, blocks, loads_in_flight, reason),))


MOVED: dict[str, Any] = {"options": lambda case: {"in_place": case.placement == "in_place"}}
ADDED = (address("input"), address("output"), peers("input"), address("scratch"), peers("scratch"))

# A block that adds has a warp more than others: the mover's, or one that signals.
KERNELS = (
    kernel(
        "reduce_scatter/push_rounds",
        lambda frame: add_at_owners(frame, by_stores=True),
        _once(544, 128, 8, "not measured: 256 threads that store, as all_gather/push at 128 MiB, and as many that add"),
        summary="each rank stores its contributions to their owners in rounds, who add them as they arrive",
        owner=shares.own,
        buffers=ADDED,
        work=Work(lambda case: 2 * of_chunk(case)),
        workspaces=shares.chunk_rows,
        refusal=refuses,
    ),
    kernel(
        "reduce_scatter/bulk",
        lambda frame: add_at_owners(frame, by_stores=False),
        _once(544, 64, 4, "not measured: 512 threads that add; 32 KiB of a block under way, of all blocks 2 MiB"),
        summary="each rank's contributions go through shared memory to their owners, who add them as they arrive",
        owner=shares.own,
        buffers=ADDED,
        work=Work(of_chunk),
        workspaces=shares.chunk_rows,
        refusal=refuses,
    ),
    kernel(
        "reduce/bulk",
        add_at_root,
        _once(544, 64, 4, "not measured: reduce_scatter/bulk's"),
        summary="all inputs go through shared memory to the root, which adds them as they arrive",
        owner=shares.roots,
        buffers=ADDED,
        work=Work(shares.of_buffer),
        workspaces=lambda case: (shares.rows(case, case.size_bytes),),
    ),
    kernel(
        "all_gather/bulk",
        gather,
        _once(512, 32, 4, "1 MiB under way; 2 MiB takes 12.9 us on 4 H200, 128 MiB 326"),
        summary="each rank's chunk goes through shared memory to all outputs",
        buffers=(address("input"), peers("output")),
        work=Work(of_chunk),
        refusal=refuses,
        **MOVED,
    ),
    kernel(
        "all_to_all/bulk",
        scatter_chunks,
        _once(512, 64, 4, "2 MiB under way; 2 MiB takes 12.8 us on 4 H200, 128 MiB 321"),
        summary="each rank's chunks go through shared memory to their ranks",
        why_not={"placement": "a chunk would be overwritten before it is sent"},
        buffers=(address("input"), peers("output")),
        work=Work(lambda case: shares.groups(case) * of_chunk(case), groups=shares.groups),
        refusal=refuses,
    ),
    kernel(
        "broadcast/bulk",
        pass_slices_on,
        _once(512, 32, 4, "1 MiB under way; 2 MiB takes 18.1 us on 4 H200, 128 MiB 595"),
        summary="each rank passes its slice of the root's input through shared memory to all outputs",
        buffers=(address("output"), peers("input"), peers("output")),
        work=Work(shares.of_root_slice),
        **MOVED,
    ),
)
