"""all_to_all_v/nvshmem_put_signal: every rank puts its row of counts, then each message with a signal behind it.

When it wins: not measured. It also runs where ranks are reached over a network only.

Memory: reads the own input and the own counts, writes a row of every rank's counts, and the own messages' places in all
outputs.

Protocol: kernels/dsl/signalled.py: a thread for each rank puts the own row there (put), fences, and signals that this
rank's output may be overwritten, so that one wait for all ranks gives the counts as well. Each rank then finds its
place in every output (kernels/dsl/counted.py), puts its messages with a signal behind each, empty ones too, and waits
for the signals of all. A rank overwrites its row at another one in its next launch, after it had that rank's signal,
which comes after that rank read all rows. In place is refused: a message would be overwritten before it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import NOT_ONE_WAY, ONE_WAY
from kernels import shares
from kernels.dsl import put_shares
from kernels.dsl.count_rooms import rooms
from kernels.family import address, spec_with
from kernels.spec import KernelSpec, Parameter, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning((Step(threads=512, blocks=32, loads_in_flight=8, reason="all_to_all/push's, not measured"),))


def body(frame: Frame) -> None:
    """The device half."""
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


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return (put_shares.words(case, tuning.max_blocks), *rooms(case, tuning.max_blocks))

    return spec_with(
        "all_to_all_v/nvshmem_put_signal",
        body,
        tuning,
        summary="each rank puts its counts, then its messages, to their ranks by NVSHMEM's put_signal",
        placements=("out_of_place",),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "placement": "a message would be overwritten before it is sent"},
        reduces=False,
        buffers=(
            address("input"),
            address("output"),
            Parameter("counts"),
            address("words"),
            address("rows"),
            address("places"),
        ),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize, case.offset),
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        nvshmem=(*put_shares.EXCHANGE, "nvshmem_putmem"),
    )


SPEC = spec_of(TUNING)
