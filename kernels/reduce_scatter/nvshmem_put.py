"""reduce_scatter/nvshmem_put: every rank puts each contribution to its owner, with a signal behind it, who adds them.

When it wins: not measured. It also runs where ranks are reached over a network only.

Memory: an owner has a row for each other rank's contribution, with the 16-byte boundaries of its own, so that rows are
added by vectors wherever the input begins. In place is refused: it has not been tried.

Protocol: kernels/dsl/signalled.py: all ranks say that their rows may be overwritten, each puts its contributions, waits
for those of the others, and adds them to its own, which comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import NOT_ONE_WAY, ONE_WAY
from kernels import shares
from kernels.dsl import put_shares
from kernels.family import address, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning((Step(threads=256, blocks=64, loads_in_flight=8, reason="reduce_scatter/push's, not measured"),))


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.signalled import Signalled

    chunk = frame.size // frame.world_size
    source = frame.address("input")
    exchange = Signalled(frame)
    exchange.allow()
    exchange.each_other(lambda rank: exchange.contribute(source + chunk * rank, chunk, chunk, rank))
    exchange.await_others()
    exchange.reduce(source + chunk * frame.rank, chunk, chunk, frame.address("output"))
    frame.keep_epoch()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return put_shares.words(case, tuning.max_blocks), put_shares.rows(case, case.size_bytes // case.world_size)

    return spec_with(
        "reduce_scatter/nvshmem_put",
        body,
        tuning,
        summary="each rank puts its contributions to their owners by NVSHMEM's put_signal, who reduce them",
        placements=("out_of_place",),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "placement": "not tried"},
        fold="from_next_rank",
        owner=shares.own,
        buffers=(address("input"), address("output"), address("scratch"), address("words")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize),
        loads_per_vector=lambda case: case.world_size,
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        nvshmem=put_shares.EXCHANGE,
    )


SPEC = spec_of(TUNING)
