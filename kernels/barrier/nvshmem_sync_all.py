"""barrier/nvshmem_sync_all: every rank puts its token to all (p), then NVSHMEM's barrier: quiet and sync_all.

When it wins: not measured. It also runs where ranks are reached over a network only.

Memory: an inbox of two rows of tokens in turn.

Protocol: barrier_all of the block: NVSHMEM completes the block's puts (quiet), tells the other ranks and waits for them
through words of its own (sync_all). A token is overwritten two launches later, after a barrier that its reader came to
behind its read. There is one team of all ranks, so one block calls it, and no other launch at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.stress import NOT_ONE_WAY, ONE_WAY
from kernels.barrier.peers import WHY_NOT, refuses, workspaces
from kernels.family import address, spec_with
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning((Step(threads=96, blocks=1, loads_in_flight=1, reason="a thread for each of 72 ranks"),))


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.device_nvshmem import Nvshmem

    shmem = Nvshmem.of(frame)
    row = (frame.next_epoch & 1) * frame.world_size
    (token,) = frame.load_element(frame.address("input"))
    inbox = frame.address("inbox")

    def take() -> None:
        found = frame.load_element(inbox + (row + frame.thread) * 4)
        frame.store_element(frame.address("output") + frame.thread * 4, found)

    frame.when(frame.thread < frame.world_size, lambda: shmem.p(inbox + (row + frame.rank) * 4, token, frame.thread))
    shmem.barrier_all()
    frame.when(frame.thread < frame.world_size, take)
    frame.epoch += 1
    frame.keep_epoch()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "barrier/nvshmem_sync_all",
        body,
        tuning,
        summary="each rank puts its token to all, and waits in NVSHMEM's barrier",
        placements=("out_of_place",),
        promises=ONE_WAY - {"alternating_sizes"},
        reduces=False,
        dtypes=("uint32",),
        why_not={**WHY_NOT, **NOT_ONE_WAY},
        buffers=(address("input"), address("output"), address("inbox")),
        vectors=lambda case: 1,
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        refusal=refuses,
        nvshmem=("nvshmem_uint32_p", "nvshmemx_barrier_all_block"),
    )


SPEC = spec_of(TUNING)
