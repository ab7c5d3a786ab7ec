"""send_recv/nvshmem_put_signal: every rank gives its input to the next by NVSHMEM's put_signal, and waits for its own.

The smallest complete kernel on NVSHMEM's device functions (kernels/dsl/device_nvshmem.py): what others write by hand
beside it is send_recv/push, which stores through the peer's address. This one also runs where a peer is reached over a
network only.

When it wins: not measured.

Memory: reads the own input, writes the next rank's output. Symmetric addresses are the own ones: NVSHMEM finds the
peer's. Two words of 64 bits a block: `ready`, which the next rank sets, and `arrived`, which the rank before sets.

Protocol, block by block, each with its slice of the buffer: tell the rank before that this rank's output may be
overwritten (signal_op behind a fence, as it orders nothing itself), wait for the same from the next rank, put the slice
there with a signal behind it (put_signal), wait for the own slice. Signals carry the number of the launch, so nothing
is reset between launches. A rank can be one launch ahead at most, as the next number of either signal needs both ranks:
so waits are for equality, which is right when the number wraps. What a thread acquires by its wait, the block's barrier
behind it passes on. In place is refused: an input would be overwritten before it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import NOT_ONE_WAY, ONE_WAY
from kernels import shares
from kernels.family import address, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning((Step(threads=256, blocks=32, loads_in_flight=1, reason="send_recv/push's, not measured"),))


def body(frame: Frame) -> None:
    """The device half."""
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


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return (Workspace("words", 2 * tuning.max_blocks, "uint64"),)

    return spec_with(
        "send_recv/nvshmem_put_signal",
        body,
        tuning,
        summary="each rank gives its input to the next rank by NVSHMEM's put_signal",
        placements=("out_of_place",),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "placement": "an input would be overwritten before it is sent"},
        reduces=False,
        buffers=(address("input"), address("output"), address("words")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        nvshmem=(
            "nvshmem_my_pe",
            "nvshmem_n_pes",
            "nvshmem_fence",
            "nvshmemx_signal_op",
            "nvshmem_signal_wait_until",
            "nvshmemx_putmem_signal_block",
        ),
    )


SPEC = spec_of(TUNING)
