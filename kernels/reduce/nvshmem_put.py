"""reduce/nvshmem_put: every rank puts each slice to its owner, who adds them and puts the sum to the root.

When it wins: not measured. It also runs where ranks are reached over a network only.

Memory: the buffer is divided by bytes into slices of a multiple of 16, a rank's each (put_shares.slice_bytes), the last
ones smaller or empty. An owner has a row for each other rank's contribution and one for its sum, with the 16-byte
boundaries of its own, as only the root's output may be written. Puts of whole buffers to the root would take world_size
- 1 rows of the buffer's size, on all ranks, and all come through the root's links.

Protocol: kernels/dsl/signalled.py, in two rounds: all ranks say that their rows and the root's output may be
overwritten, each puts its contributions, waits for those of the others and adds them to its own, which comes last; the
root to its output, the others to the row, which they put to the root. The root waits for their sums. In place is right:
who overwrites a slice of the root has had its contribution.
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

TUNING = Tuning((Step(threads=512, blocks=64, loads_in_flight=8, reason="reduce/two_shot's, not measured"),))


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.signalled import Signalled

    source, output = frame.address("input"), frame.address("output")
    exchange = Signalled(frame, rounds=2)

    def contribute(rank: Any) -> None:
        start, size = exchange.slice_of(rank)
        exchange.contribute(source + start, size, exchange.slice_bytes, rank)

    start, size = exchange.slice_of(frame.rank)
    own, target = source + start, output + start
    total = exchange.sum_place(frame.root, own, target)
    exchange.allow()
    exchange.each_other(contribute)
    exchange.await_others()
    exchange.reduce(own, size, exchange.slice_bytes, total)
    frame.when(frame.rank != frame.root, lambda: exchange.give(target, total, size, frame.root, 2))
    frame.when(frame.rank == frame.root, lambda: exchange.await_others(2))
    frame.keep_epoch()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        slice_bytes = put_shares.slice_bytes(case)
        rows = put_shares.rows(case, slice_bytes)
        return put_shares.words(case, tuning.max_blocks, 2), rows, put_shares.row("sum", slice_bytes)

    return spec_with(
        "reduce/nvshmem_put",
        body,
        tuning,
        summary="each rank puts slices to their owners by NVSHMEM's put_signal, who put the sums to the root",
        placements=("out_of_place", "in_place"),
        promises=ONE_WAY,
        why_not=NOT_ONE_WAY,
        fold="from_next_rank",
        owner=put_shares.owner,
        buffers=(address("input"), address("output"), address("scratch"), address("sum"), address("words")),
        vectors=lambda case: -(-shares.vectors(case.numel, case.itemsize, case.offset) // case.world_size),
        loads_per_vector=lambda case: case.world_size,
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        nvshmem=put_shares.EXCHANGE,
    )


SPEC = spec_of(TUNING)
