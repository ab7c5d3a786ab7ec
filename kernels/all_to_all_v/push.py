"""all_to_all_v/push: every rank stores its row of counts, then what it has for each rank, into that rank's memory.

When it wins: not measured.

Memory: reads the own input and the own counts, writes all outputs and a row of every rank's counts through peers'
addresses. Blocks are shared out among the ranks that they write to, as in all_to_all/push, which also says how vectors
are aligned: messages begin anywhere, so the near side is mostly met element by element.

Protocol: a thread for each rank stores the own row there and arrives at the entry barrier with a release, so that one
signal says both that the output may be overwritten and how much comes from whom. After the wait all ranks know all
counts, and each finds its place in every output: what the ranks before it send there. So no rank waits for an answer,
at the price of world_size^2 counts in every block's memory; the other way, an offset that each receiver works out and
sends back, takes a second time across the links. The barrier at exit says that all outputs are complete and that no
rank reads an input or a row any more. Both go block by block: kernels/dsl/signals.py. In place is refused: a message
would be overwritten before it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.dsl.count_rooms import rooms
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Parameter, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning(
    (
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=64 << 10,
            reason="all_to_all/push's, not measured",
        ),
        Step(threads=512, blocks=64, loads_in_flight=8, reason="all_to_all/push's, not measured"),
    )
)


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.counted import Counted

    counted = Counted(frame)
    counted.store_row()
    frame.arrive()
    source = frame.address("input")

    def store(number: Any, index: Any, lanes: Any) -> None:
        peer = frame.after(frame.rank, number)
        start, there, size = counted.message(peer)
        frame.copy(source + start, frame.peer("output", peer) + there, size, (index, lanes), push=True)

    frame.wait()
    counted.find()
    frame.each_peer(frame.world_size, store)
    frame.leave()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return rooms(case, tuning.max_blocks)

    return spec_with(
        "all_to_all_v/push",
        body,
        tuning,
        summary="each rank stores its counts, then its messages, to their ranks",
        placements=("out_of_place",),
        promises=WITH_BARRIERS,
        why_not={"placement": "a message would be overwritten before it is sent"},
        reduces=False,
        buffers=(
            address("input"),
            peers("output"),
            Parameter("counts"),
            peers("rows"),
            address("rows"),
            address("places"),
        ),
        vectors=lambda case: shares.groups(case) * shares.vectors(case.numel // case.world_size, case.itemsize),
        groups=shares.groups,
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
