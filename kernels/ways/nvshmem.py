"""nvshmem_put, nvshmem_put_signal: ranks move data by NVSHMEM's device functions.

When it wins: not measured; kernels/README.md has what was seen. It also runs where ranks are reached over a network
only.

Protocol: kernels/dsl/signalled.py: all ranks say that their memory may be overwritten, each puts its messages with a
signal behind each, and waits for the signals of the others. Where messages are reduced, their owner has a row of
scratch for each other rank's contribution, with the 16-byte boundaries of its own, so that rows are added by vectors
wherever the input begins; its own comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import NOT_ONE_WAY, ONE_WAY
from kernels import shares
from kernels.dsl import put_shares
from kernels.dsl.count_rooms import rooms
from kernels.family import Work, address, spec_with
from kernels.spec import KernelSpec, Parameter, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


def give_chunks(frame: Frame, each_its_own: bool) -> None:
    """all_gather/nvshmem_put_signal: every rank puts its input to its place in all outputs, the own one included.
    all_to_all/nvshmem_put_signal: a chunk of its own to each."""
    from kernels.dsl.signalled import Signalled

    chunk = frame.size // frame.world_size
    source, place = frame.address("input"), frame.address("output") + chunk * frame.rank
    exchange = Signalled(frame)
    exchange.allow()
    exchange.each_rank(
        lambda rank: exchange.give(place, source + chunk * rank if each_its_own else source, chunk, rank)
    )
    exchange.await_all()
    frame.keep_epoch()


def give_from_root(frame: Frame) -> None:
    """broadcast/nvshmem_put_signal: the root puts its buffer to all outputs.

    All ranks tell the root that their outputs may be overwritten, and each waits for its signal. They do not tell each
    other: a rank that has its data begins the next launch while another one still waits, whose words it would set anew.
    """
    from kernels.dsl.signalled import Signalled

    source, output = frame.address("input"), frame.address("output")
    exchange = Signalled(frame)
    exchange.allow_one(frame.root)

    def give_all() -> None:
        exchange.each_rank(lambda rank: exchange.give(output, source, frame.size, rank))

    frame.when(frame.rank == frame.root, give_all)
    exchange.await_one(frame.root)
    frame.keep_epoch()


def give_counted(frame: Frame) -> None:
    """all_to_all_v/nvshmem_put_signal: every rank puts its row of counts, then each message with a signal behind it.

    A thread for each rank puts the own row there (put), fences, and signals that this rank's output may be overwritten,
    so that one wait for all ranks gives the counts as well. Each rank then finds its place in every output
    (kernels/dsl/counted.py), puts its messages, empty ones too, and waits for the signals of all. A rank overwrites its
    row at another one in its next launch, after it had that rank's signal, which comes after that rank read all rows.
    """
    from kernels.dsl.counted import Counted
    from kernels.dsl.signalled import Signalled

    source, output = frame.address("input"), frame.address("output")
    counted, exchange = Counted(frame), Signalled(frame)

    def tell(rank: Any) -> None:
        exchange.shmem.put(counted.own_row, frame.counts, counted.row_bytes, rank, scope="thread")

    exchange.allow(tell)
    counted.find()

    def give(rank: Any) -> None:
        start, there, size = counted.message(rank)
        exchange.give(output + there, source + start, size, rank)

    exchange.each_rank(give)
    exchange.await_all()
    frame.keep_epoch()


def give_to_next(frame: Frame) -> None:
    """send_recv/nvshmem_put_signal: every rank gives its input to the next by put_signal, and waits for its own.

    The smallest complete kernel on NVSHMEM's device functions (kernels/dsl/device_nvshmem.py): what others write by
    hand beside it is send_recv/push, which stores through the peer's address.

    Memory: symmetric addresses are the own ones: NVSHMEM finds the peer's. Two words of 64 bits a block: `ready`, which
    the next rank sets, and `arrived`, which the rank before sets.

    Protocol, block by block, each with its slice of the buffer: tell the rank before that this rank's output may be
    overwritten (signal_op behind a fence, as it orders nothing itself), wait for the same from the next rank, put the
    slice there with a signal behind it (put_signal), wait for the own slice. Signals carry the number of the launch, so
    nothing is reset between launches. A rank can be one launch ahead at most, as the next number of either signal needs
    both ranks: so waits are for equality, which is right when the number wraps. What a thread acquires by its wait, the
    block's barrier behind it passes on.
    """
    from kernels.dsl.device_nvshmem import EQUAL, Nvshmem
    from kernels.dsl.signalled import number_of, part_of_block, sync_block

    shmem = Nvshmem.of(frame)
    me, count = shmem.my_pe(), shmem.n_pes()
    after, before = (me + 1) % count, (me + count - 1) % count
    ready = frame.address("words") + frame.block * 16
    arrived = ready + 8
    number = number_of(frame)
    start, size = part_of_block(frame, frame.size)

    def allow() -> None:
        shmem.fence()
        shmem.signal_op(ready, number, before)
        shmem.signal_wait_until(ready, EQUAL, number)

    frame.when(frame.thread == 0, allow)
    shmem.put_signal(
        frame.address("output") + start, frame.address("input") + start, size, arrived, number, after, scope="block"
    )
    frame.when(frame.thread == 0, lambda: shmem.signal_wait_until(arrived, EQUAL, number))
    sync_block()
    frame.keep_epoch()


def contribute_chunks(frame: Frame) -> None:
    """reduce_scatter/nvshmem_put: every rank puts each contribution to its owner, who adds them."""
    from kernels.dsl.signalled import Signalled

    chunk = frame.size // frame.world_size
    source = frame.address("input")
    exchange = Signalled(frame)
    exchange.allow()
    exchange.each_other(lambda rank: exchange.contribute(source + chunk * rank, chunk, chunk, rank))
    exchange.await_others()
    exchange.reduce(source + chunk * frame.rank, chunk, chunk, frame.address("output"))
    frame.keep_epoch()


def contribute_slices(frame: Frame, to_root: bool) -> None:
    """all_reduce/nvshmem_put: every rank puts each slice to its owner, who adds them and puts the sum to all; on two
    ranks: they push halves. reduce/nvshmem_put: who puts the sum to the root.

    Memory: the buffer is divided by bytes into slices of a multiple of 16, a rank's each (put_shares.slice_bytes), the
    last ones smaller or empty. For reduce an owner has a row for its sum, too, as only the root's output may be
    written. Puts of whole buffers to the root would take world_size - 1 rows of the buffer's size, on all ranks, and
    all come through the root's links.

    Protocol: in two rounds, of contributions and of sums; ranks that get a sum wait for it. In place is right: who
    overwrites a slice of a rank has had its contribution.
    """
    from kernels.dsl.signalled import Signalled

    source, output = frame.address("input"), frame.address("output")
    exchange = Signalled(frame, rounds=2)

    def contribute(rank: Any) -> None:
        start, size = exchange.slice_of(rank)
        exchange.contribute(source + start, size, exchange.slice_bytes, rank)

    start, size = exchange.slice_of(frame.rank)
    own, target = source + start, output + start
    total = exchange.sum_place(frame.root, own, target) if to_root else target
    exchange.allow()
    exchange.each_other(contribute)
    exchange.await_others()
    exchange.reduce(own, size, exchange.slice_bytes, total)
    if to_root:
        frame.when(frame.rank != frame.root, lambda: exchange.give(target, total, size, frame.root, 2))
        frame.when(frame.rank == frame.root, lambda: exchange.await_others(2))
    else:
        exchange.each_other(lambda rank: exchange.give(target, total, size, rank, 2))
        exchange.await_others(2)
    frame.keep_epoch()


def kernel(
    name: str,
    body: Callable[[Frame], None],
    tuning: Tuning,
    *,
    workspaces: Callable[[Case, int], tuple[Workspace, ...]],
    buffers: tuple[Parameter, ...] = (),
    placement: str = "",
    nvshmem: tuple[str, ...] = put_shares.EXCHANGE,
    **rest: Any,
) -> KernelSpec:
    """Return a kernel with workspaces for a number of blocks. buffers: between the output and the words that signals
    set; placement: why it can't work in place."""
    return spec_with(
        name,
        body,
        tuning,
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, **({"placement": placement} if placement else {})},
        buffers=(address("input"), address("output"), *buffers),
        options=lambda case: {"without_barriers": True},
        workspaces=lambda case: workspaces(case, tuning.max_blocks),
        nvshmem=nvshmem,
        retuned=lambda other: kernel(
            *(name, body, other),
            workspaces=workspaces,
            buffers=buffers,
            placement=placement,
            nvshmem=nvshmem,
            **rest,
        ),
        **rest,
    )


def words(case: Case, max_blocks: int) -> tuple[Workspace, ...]:
    """Words for one round of messages."""
    return (put_shares.words(case, max_blocks),)


def of_chunk(case: Case) -> int:
    """Vectors of a chunk, of which all begin where the buffer does."""
    return shares.vectors(case.numel // case.world_size, case.itemsize, case.offset)


def _as(threads: int, blocks: int, of: str, loads_in_flight: int = 8) -> Tuning:
    """The values of another kernel."""
    return Tuning((Step(threads, blocks, loads_in_flight, f"{of}'s, not measured"),))


WORDS, ROWS = address("words"), address("scratch")
SLICED: dict[str, Any] = {
    "owner": put_shares.owner,
    "work": Work(lambda case: -(-shares.of_buffer(case) // case.world_size), shares.each_rank),
}

KERNELS = (
    kernel(
        "all_reduce/nvshmem_put",
        lambda frame: contribute_slices(frame, to_root=False),
        _as(256, 64, "all_reduce/two_shot"),
        summary="each rank puts slices to their owners by NVSHMEM's put_signal, who put the sums to all",
        buffers=(ROWS, WORDS),
        workspaces=lambda case, max_blocks: (
            put_shares.words(case, max_blocks, 2),
            shares.rows(case, put_shares.slice_bytes(case)),
        ),
        **SLICED,
    ),
    kernel(
        "reduce_scatter/nvshmem_put",
        contribute_chunks,
        _as(256, 64, "reduce_scatter/push"),
        summary="each rank puts its contributions to their owners by NVSHMEM's put_signal, who reduce them",
        placement="not tried",
        owner=shares.own,
        buffers=(ROWS, WORDS),
        work=Work(shares.of_chunk, shares.each_rank),
        workspaces=lambda case, max_blocks: (*words(case, max_blocks), *shares.chunk_rows(case)),
    ),
    kernel(
        "all_gather/nvshmem_put_signal",
        lambda frame: give_chunks(frame, each_its_own=False),
        _as(512, 32, "all_gather/push"),
        summary="each rank puts its input to all outputs by NVSHMEM's put_signal",
        placement="not tried",
        buffers=(WORDS,),
        work=Work(of_chunk),
        workspaces=words,
    ),
    kernel(
        "broadcast/nvshmem_put_signal",
        give_from_root,
        _as(512, 32, "broadcast/push"),
        summary="the root puts its buffer to all ranks by NVSHMEM's put_signal",
        placement="not tried",
        buffers=(WORDS,),
        work=Work(shares.of_buffer),
        workspaces=words,
    ),
    kernel(
        "reduce/nvshmem_put",
        lambda frame: contribute_slices(frame, to_root=True),
        _as(512, 64, "reduce/two_shot"),
        summary="each rank puts slices to their owners by NVSHMEM's put_signal, who put the sums to the root",
        buffers=(ROWS, address("sum"), WORDS),
        workspaces=lambda case, max_blocks: (
            put_shares.words(case, max_blocks, 2),
            shares.rows(case, put_shares.slice_bytes(case)),
            Workspace("sum", shares.row_bytes(put_shares.slice_bytes(case)) // 4, zeroed=False),
        ),
        **SLICED,
    ),
    kernel(
        "all_to_all/nvshmem_put_signal",
        lambda frame: give_chunks(frame, each_its_own=True),
        _as(512, 32, "all_to_all/push"),
        summary="each rank puts its chunks to their ranks by NVSHMEM's put_signal",
        placement="a chunk would be overwritten before it is sent",
        buffers=(WORDS,),
        work=Work(of_chunk),
        workspaces=words,
    ),
    kernel(
        "all_to_all_v/nvshmem_put_signal",
        give_counted,
        _as(512, 32, "all_to_all/push"),
        summary="each rank puts its counts, then its messages, to their ranks by NVSHMEM's put_signal",
        placement="a message would be overwritten before it is sent",
        buffers=(Parameter("counts"), WORDS, address("rows"), address("places")),
        work=Work(of_chunk),
        workspaces=lambda case, max_blocks: (*words(case, max_blocks), *rooms(case, max_blocks)),
        nvshmem=(*put_shares.EXCHANGE, "nvshmem_putmem"),
    ),
    kernel(
        "send_recv/nvshmem_put_signal",
        give_to_next,
        _as(256, 32, "send_recv/push", 1),
        summary="each rank gives its input to the next rank by NVSHMEM's put_signal",
        placement="an input would be overwritten before it is sent",
        buffers=(WORDS,),
        work=Work(shares.of_buffer),
        workspaces=lambda case, max_blocks: (Workspace("words", 2 * max_blocks, "uint64"),),
        nvshmem=("nvshmem_my_pe", "nvshmem_n_pes", *put_shares.EXCHANGE),
    ),
)
