"""all_to_all/nvshmem_put_signal: every rank puts each chunk to its rank, with a signal behind it (put_signal).

When it wins: not measured. It also runs where ranks are reached over a network only.

Memory: reads the own input, writes the own rank's place in all outputs.

Protocol: kernels/dsl/signalled.py: all ranks say that their outputs may be overwritten, each puts its parts with a
signal behind each, and waits for the signals of all. In place is refused: a chunk would be
overwritten before it is sent.
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

TUNING = Tuning((Step(threads=512, blocks=32, loads_in_flight=8, reason="all_to_all/push's, not measured"),))


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.signalled import Signalled

    chunk = frame.size // frame.world_size
    source, place = frame.address("input"), frame.address("output") + chunk * frame.rank
    exchange = Signalled(frame)
    exchange.allow()
    exchange.each_rank(lambda rank: exchange.give(place, source + chunk * rank, chunk, rank))
    exchange.await_all()
    frame.keep_epoch()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return (put_shares.words(case, tuning.max_blocks),)

    return spec_with(
        "all_to_all/nvshmem_put_signal",
        body,
        tuning,
        summary="each rank puts its chunks to their ranks by NVSHMEM's put_signal",
        placements=("out_of_place",),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "placement": "a chunk would be overwritten before it is sent"},
        reduces=False,
        buffers=(address("input"), address("output"), address("words")),
        vectors=lambda case: shares.vectors(case.numel // case.world_size, case.itemsize, case.offset),
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        nvshmem=put_shares.EXCHANGE,
    )


SPEC = spec_of(TUNING)
