"""all_reduce/nvshmem_put: every rank puts each slice to its owner, who adds them and puts the sum to all, with signals.

When it wins: not measured. It also runs where ranks are reached over a network only. On two ranks: they push halves.

Memory: the buffer is divided by bytes into slices of a multiple of 16, a rank's each (put_shares.slice_bytes), the last
ones smaller or empty. An owner has a row for each other rank's contribution, with the 16-byte boundaries of its own.

Protocol: kernels/dsl/signalled.py, in two rounds: all ranks say that their rows and outputs may be overwritten, each
puts its contributions, waits for those of the others, adds them to its own, which comes last, and puts the sum to all
others; then it waits for their sums. In place is right: who overwrites a slice of this rank has had its contribution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import NOT_ONE_WAY, ONE_WAY
from kernels import shares
from kernels.dsl import put_shares
from kernels.family import address, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning((Step(threads=256, blocks=64, loads_in_flight=8, reason="all_reduce/two_shot's, not measured"),))


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.signalled import Signalled

    source, output = frame.address("input"), frame.address("output")
    exchange = Signalled(frame, rounds=2)

    def contribute(rank: Any) -> None:
        start, size = exchange.slice_of(rank)
        exchange.contribute(source + start, size, exchange.slice_bytes, rank)

    start, size = exchange.slice_of(frame.rank)
    exchange.allow()
    exchange.each_other(contribute)
    exchange.await_others()
    exchange.reduce(source + start, size, exchange.slice_bytes, output + start)
    exchange.each_other(lambda rank: exchange.give(output + start, output + start, size, rank, 2))
    exchange.await_others(2)
    frame.keep_epoch()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return put_shares.words(case, tuning.max_blocks, 2), put_shares.rows(case, put_shares.slice_bytes(case))

    return spec_with(
        "all_reduce/nvshmem_put",
        body,
        tuning,
        summary="each rank puts slices to their owners by NVSHMEM's put_signal, who put the sums to all",
        placements=("out_of_place", "in_place"),
        promises=ONE_WAY,
        why_not=NOT_ONE_WAY,
        fold="from_next_rank",
        owner=put_shares.owner,
        buffers=(address("input"), address("output"), address("scratch"), address("words")),
        vectors=lambda case: -(-shares.vectors(case.numel, case.itemsize, case.offset) // case.world_size),
        loads_per_vector=lambda case: case.world_size,
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        nvshmem=put_shares.EXCHANGE,
    )


SPEC = spec_of(TUNING)
