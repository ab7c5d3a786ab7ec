"""Bulk copies (TMA): memory to memory through stages in shared memory, started by one thread of each block.

When it pays: a copy of kilobytes is one instruction, so one thread keeps as much under way as all of a block's do by
16-byte accesses, without registers, and a piece that is stored to many ranks is loaded once. It takes addresses and
sizes in multiples of 16 bytes and nothing else.

A piece is what a block's threads would take of one vector each; the choice "unroll" says how many stages of a piece
there are, so that a block has as many bytes under way as other kernels with the same tuning. Shared memory is static:
STATIC_BYTES at most, and nothing to be said at the launch.

Order, after the PTX ISA (9.7.9.25, asynchronous copies; 9.7.13, fence). A bulk copy is a weak access of the async
proxy, another way to memory than that of loads and stores:
- Before: what others did (written inputs, outputs that may be overwritten) was acquired by ordinary accesses; bulk
  copies come after it only with fence.proxy.async between, by the thread that starts them. The same fence covers the
  mbarriers that this thread has made. No other thread uses them, so they need no fence.mbarrier_init and no bar.sync.
- Piece by piece: a load counts its bytes on its stage's mbarrier. When that phase is over, its writes are visible to
  the thread that waited. The store that follows reads them through the proxy that wrote them.
- A stage may be loaded again when its store has read it: cp.async.bulk.wait_group.read.
- After: cp.async.bulk.wait_group (not .read) waits until all is written and visible to the thread that started it; the
  ISA puts a proxy fence behind completion by itself. From there on these are this thread's writes like others: the
  bar.sync and the release at system scope of the barrier over ranks pass them on. To signal before that wait is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.cutlass_dsl import T, dsl_user_op

from kernels.dsl.device import assemble
from kernels.dsl.traverse import Span
from kernels.shares import VECTOR_BYTES

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

STATIC_BYTES = 48 << 10
"""The most static shared memory of a block; the assembler takes no more."""

ALIGNMENT_BYTES = 128
BARRIER_BYTES = 8

# The instructions. Shared addresses are Int32, global ones Int64.


@dsl_user_op
def make_barrier(barrier: Any, *, loc: Any = None, ip: Any = None) -> None:
    """An mbarrier for one arrival a phase."""
    assemble("mbarrier.init.shared::cta.b64 [$0], 1;", "r", [Int32(barrier)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def end_barrier(barrier: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Its place is ordinary memory again."""
    assemble("mbarrier.inval.shared::cta.b64 [$0];", "r", [Int32(barrier)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def expect(barrier: Any, size_bytes: Any, *, loc: Any = None, ip: Any = None) -> None:
    """The one arrival, which says how many bytes the phase waits for besides."""
    text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    assemble(text, "r,r", [Int32(barrier), Int32(size_bytes)], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def is_over(barrier: Any, parity: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Whether the phase of this parity is over, as 0 or 1; an acquire of the block's scope."""
    text = "{ .reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [$1], $2; selp.b32 $0, 1, 0, over; }"
    operands = [Int32(barrier), Int32(parity)]
    return Int32(assemble(text, "=r,r,r", operands, T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def load(stage: Any, source: Any, size_bytes: Any, barrier: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Start a copy from global memory, own or a peer's, into shared memory; its end is counted on the mbarrier."""
    text = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    operands = [Int32(stage), Int64(source), Int32(size_bytes), Int32(barrier)]
    assemble(text, "r,l,r,r", operands, None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def store(target: Any, stage: Any, size_bytes: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Start a copy from shared memory into global memory, own or a peer's; of the thread's next group."""
    text = "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;"
    operands = [Int64(target), Int32(stage), Int32(size_bytes)]
    assemble(text, "l,r,r", operands, None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def end_group(*, loc: Any = None, ip: Any = None) -> None:
    """The stores since the last one are a group."""
    assemble("cp.async.bulk.commit_group;", "", [], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def await_read(but: int = 1, *, loc: Any = None, ip: Any = None) -> None:
    """Wait until all of this thread's groups, but for a number of the latest, have read their stages."""
    assemble(f"cp.async.bulk.wait_group.read {but};", "", [], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def await_written(but: int = 0, *, loc: Any = None, ip: Any = None) -> None:
    """Wait until all of this thread's groups, but for a number of the latest, are written, and visible to it."""
    assemble(f"cp.async.bulk.wait_group {but};", "", [], None, memory=True, loc=loc, ip=ip)


@dsl_user_op
def fence_proxies(*, loc: Any = None, ip: Any = None) -> None:
    """Orders this thread's ordinary accesses, and all it has acquired, before its bulk copies that follow."""
    assemble("fence.proxy.async;", "", [], None, memory=True, loc=loc, ip=ip)


class Stages:
    """A block's stages in shared memory, and an mbarrier for each. Made while a kernel is traced, once a kernel."""

    def __init__(self, frame: Frame, threads: int | None = None) -> None:
        """threads: those whose vectors make a piece, if they are not the whole block."""
        self.frame = frame
        self.piece_bytes = (threads or frame.threads) * VECTOR_BYTES
        self.count = frame.unroll
        wanted = self.count * (self.piece_bytes + BARRIER_BYTES)
        if self.count < 2 or wanted > STATIC_BYTES:
            raise ValueError(
                f"{self.count} stages of {self.piece_bytes} bytes: bulk copies take 2 or more, "
                f"and {STATIC_BYTES} bytes of shared memory at most (the tuning's threads and loads_in_flight)"
            )
        memory = cute.arch.alloc_smem(cutlass.Int8, self.count * self.piece_bytes, ALIGNMENT_BYTES)
        barriers = cute.arch.alloc_smem(cutlass.Int64, self.count, BARRIER_BYTES)
        self.memory, self.barriers = Int32(memory.toint()), Int32(barriers.toint())

    def place(self, stage: Any) -> Any:
        return self.memory + stage * self.piece_bytes

    def barrier(self, stage: Any) -> Any:
        return self.barriers + stage * BARRIER_BYTES

    def copy(self, span: Span, source: Any, put: Callable[[Any, Any], None], index: Any, lanes: Any) -> None:
        """The vectors of a span of source, which has their boundaries: put(offset, (place, size)) starts the stores of
        a piece. Threads of index below lanes share the work, in whole blocks."""
        pieces = span.first + index // self.frame.threads * self.piece_bytes
        step = lanes // self.frame.threads * self.piece_bytes
        copy_pieces(self.frame.thread, pieces, span.last, step, source, self, put)


@cute.jit
def copy_pieces(
    thread: Int32,
    begin: Int64,
    end: Int64,
    step: Int64,
    source: Int64,
    stages: cutlass.Constexpr,
    put: cutlass.Constexpr,
) -> None:
    """Pieces at begin, begin + step, .. below end, by the block's first thread: loads run ahead of stores by all stages
    but one, whose last store is being read meanwhile."""
    count, place, barrier, piece_bytes = stages.count, stages.place, stages.barrier, stages.piece_bytes
    if thread == 0:
        for i in cutlass.range_constexpr(count):
            make_barrier(barrier(i))
        fence_proxies()
        for i in cutlass.range_constexpr(count):
            load_piece(begin + step * i, end, source, place(i), barrier(i), piece_bytes)
        offset = begin
        stage = Int32(0)
        parity = Int32(0)
        while offset < end:
            await_loaded(barrier(stage), parity)
            put(offset, (place(stage), size_of(offset, end, piece_bytes)))
            end_group()
            ahead = offset + step * (count - 1)
            if (offset > begin) & (ahead < end):
                await_read()
                before = cutlass.select_(stage == 0, Int32(count - 1), stage - 1)
                load_piece(ahead, end, source, place(before), barrier(before), piece_bytes)
            offset += step
            stage += 1
            if stage == count:
                stage = Int32(0)
                parity = 1 - parity
        await_written()
        for i in cutlass.range_constexpr(count):
            end_barrier(barrier(i))


@cute.jit
def load_piece(
    offset: Int64, end: Int64, source: Int64, place: Int32, barrier: Int32, piece_bytes: cutlass.Constexpr
) -> None:
    if offset < end:
        size_bytes = size_of(offset, end, piece_bytes)
        expect(barrier, size_bytes)
        load(place, source + offset, size_bytes, barrier)


def size_of(offset: Any, end: Any, piece_bytes: int) -> Any:
    """Of the piece at offset: the last one is shorter."""
    rest = end - offset
    return Int32(cutlass.select_(rest < piece_bytes, rest, Int64(piece_bytes)))


@cute.jit
def await_loaded(barrier: Int32, parity: Int32) -> None:
    while is_over(barrier, parity) == 0:
        pass


def put_to(targets: Any) -> Callable[[Any, Any], None]:
    """For Stages.copy: each piece to the same bytes of all targets (kernels/dsl/peers.py)."""

    def store_piece(address: Any, piece: Any) -> None:
        store(address, *piece)

    return lambda offset, piece: targets.store(offset, piece, store_piece)
