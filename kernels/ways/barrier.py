"""barrier: every rank hands a token to all, and leaves with those of all ranks.

Memory: an inbox of tokens, a row of world_size of them for odd epochs and one for even ones. Two rows are enough: who
stores for epoch e + 2 has left e + 1, at which every rank had arrived, having read its row of e before. A rank reads
the tokens of all ranks from its own inbox into its output, thread t that of rank t.

Protocol: one barrier over ranks, whose release orders the token before the signal. Nothing else is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.refusal import Refusal
from cases.stress import NOT_ONE_WAY, ONE_WAY, THROUGH_SWITCH, WITH_BARRIERS
from kernels.family import OUT, Work, address, multicast, peers, spec_with
from kernels.multimem import SIGNAL, store_form
from kernels.spec import KernelSpec, Parameter, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


def over_peers(frame: Frame) -> None:
    """barrier/peers: the flag barrier through peers' addresses: thread t stores the token into rank t's inbox."""
    row = (frame.next_epoch & 1) * frame.world_size
    token = frame.load_element(frame.address("input"))
    own = frame.address("inbox")

    def give() -> None:
        inbox = frame.peer("inbox", frame.thread)
        frame.store_element(inbox + (row + frame.rank) * 4, token)

    frame.when(frame.thread < frame.world_size, give)
    frame.meet()
    frame.when(frame.thread < frame.world_size, lambda: take(frame, own, row))
    frame.keep_epoch()


def through_switch(frame: Frame) -> None:
    """barrier/multimem: the same through the switch: one multimem.st, and a multimem.red on a counter of arrivals.

    When it wins: many ranks on GPUs whose switch does multicast: one store and one reduction, whatever the world's
    size.
    """
    row = (frame.next_epoch & 1) * frame.world_size
    token = frame.load_element(frame.address("input"))
    own = frame.address("inbox")

    def give() -> None:
        frame.store_word_to_switch(frame.multicast("inbox") + (row + frame.rank) * 4, token[0])

    frame.when(frame.thread == 0, give)
    frame.meet()
    frame.when(frame.thread < frame.world_size, lambda: take(frame, own, row))
    frame.keep_epoch()


def by_nvshmem(frame: Frame) -> None:
    """barrier/nvshmem_sync_all: every rank puts its token to all (p), then NVSHMEM's barrier: quiet and sync_all.

    When it wins: not measured. It also runs where ranks are reached over a network only.

    Protocol: barrier_all of the block: NVSHMEM completes the block's puts (quiet), tells the other ranks and waits for
    them through words of its own (sync_all). A token is overwritten two launches later, after a barrier that its reader
    came to behind its read. There is one team of all ranks, so one block calls it, and no other launch at the same
    time.
    """
    from kernels.dsl.device_nvshmem import Nvshmem

    shmem = Nvshmem.of(frame)
    row = (frame.next_epoch & 1) * frame.world_size
    (token,) = frame.load_element(frame.address("input"))
    inbox = frame.address("inbox")
    frame.when(frame.thread < frame.world_size, lambda: shmem.p(inbox + (row + frame.rank) * 4, token, frame.thread))
    shmem.barrier_all()
    frame.when(frame.thread < frame.world_size, lambda: take(frame, inbox, row))
    frame.epoch += 1
    frame.keep_epoch()


def take(frame: Frame, inbox: Any, row: Any) -> None:
    """Copy the token of the thread's rank from a row to the output."""
    found = frame.load_element(inbox + (row + frame.thread) * 4)
    frame.store_element(frame.address("output") + frame.thread * 4, found)


def in_one_trip(frame: Frame) -> None:
    """barrier/push: every rank stores its token beside the number of the launch to all, and polls for theirs.

    When it wins: always, where there is no multicast: one trip, and nothing is loaded after the poll. peers signals
    with a flag beside the token, stores the one after the other, and then loads the token.

    Memory: an inbox of two rows in turn, 8 bytes a rank (kernels/dsl/tokens.py).

    Protocol: kernels/dsl/tokens.py. It orders memory as peers does: what a rank's stream did before its launch,
    anywhere, is visible to what any rank's stream does after its own. That takes a release and an acquire: a fence at
    system scope before the store, and polls that acquire. Nothing else is ordered, because the launch has no other
    data.

    Expected on 2 H200: 0.56 us of a launch, and 1.27 from a store to its poll with a release and an acquire; on 2 H100,
    0.85 and 2.13 (facts of 2026-11-22; the kernel itself has not been measured). Without order it would be 0.69 and
    0.62, but a barrier that orders nothing is none. The loads of the epoch, the token and the peer's address are under
    way with the fence.

    Rejected: a release store in place of the fence: it can't begin before its address and its value have been loaded.
    """
    from kernels.dsl.tokens import exchange_tokens

    exchange_tokens(frame)


def refuses(case: Case, arch: str) -> Refusal | None:
    """Return the refusal of any size but a token's."""
    if case.size_bytes == case.itemsize:
        return None
    reason = f"a barrier exchanges one token of {case.itemsize} bytes a rank, not {case.size_bytes} bytes"
    return Refusal("sizes", reason, f"give sizes=[{case.itemsize}]")


WHY_NOT = {
    "dtype": "a barrier exchanges one token of this type a rank",
    "alternating_sizes": "a barrier has one size",
}


def kernel(
    algorithm: str,
    body: Callable[[Frame], None],
    promises: frozenset[str],
    *,
    summary: str,
    buffers: tuple[Parameter, ...] = (),
    why_not: Mapping[str, str] = MappingProxyType({}),
    **rest: Any,
) -> KernelSpec:
    """Return a barrier. buffers: beside the input, the output and the inbox."""
    return spec_with(
        f"barrier/{algorithm}",
        body,
        Tuning((Step(96, 1, 1, "a thread for each of 72 ranks"),)),
        summary=summary,
        placements=OUT,
        promises=promises - {"alternating_sizes"},
        dtypes=("uint32",),
        why_not={**WHY_NOT, **why_not},
        buffers=(address("input"), address("output"), address("inbox"), *buffers),
        work=Work(lambda case: 1),
        refusal=refuses,
        **{"workspaces": lambda case: (Workspace("inbox", 2 * case.world_size, zeroed=False),), **rest},
    )


ALONE = {"without_barriers": True}
KERNELS = (
    kernel(
        "peers",
        over_peers,
        WITH_BARRIERS,
        summary="each rank tells every rank, and waits for all",
        buffers=(peers("inbox"),),
    ),
    kernel(
        "push",
        in_one_trip,
        WITH_BARRIERS,
        summary="each rank stores its token beside the epoch to all, and polls for theirs",
        buffers=(peers("inbox"),),
        options=lambda case: ALONE,
        workspaces=lambda case: (Workspace("inbox", 2 * 2 * case.world_size),),
    ),
    kernel(
        "multimem",
        through_switch,
        THROUGH_SWITCH,
        summary="each rank adds to all counters through the switch, and waits for its own",
        needs_multicast=True,
        buffers=(multicast("inbox"),),
        multimem=lambda case: frozenset({SIGNAL, store_form(4).instruction()}),
    ),
    kernel(
        "nvshmem_sync_all",
        by_nvshmem,
        ONE_WAY,
        summary="each rank puts its token to all, and waits in NVSHMEM's barrier",
        why_not=NOT_ONE_WAY,
        options=lambda case: ALONE,
        nvshmem=("nvshmem_uint32_p", "nvshmemx_barrier_all_block"),
    ),
)
