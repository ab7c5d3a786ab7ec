"""barrier/peers: the flag barrier through peers' addresses, handing a token round.

Memory: an inbox of tokens, a row of world_size of them for odd epochs and one for even ones. A rank stores its token
into all inboxes through peers' addresses, thread t into rank t's, tells it by the barrier, and reads those of all ranks
from its own inbox into its output. Two rows are enough: who stores for epoch e + 2 has left e + 1, at which every rank
had arrived, having read its row of e before.

Protocol: one barrier over ranks, whose release orders the token before the signal. Nothing else is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.refusal import Refusal
from cases.stress import WITH_BARRIERS
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning((Step(threads=96, blocks=1, loads_in_flight=1, reason="a thread for each of 72 ranks"),))

WHY_NOT = {
    "dtype": "a barrier exchanges one token of this type a rank",
    "alternating_sizes": "a barrier has one size",
}


def body(frame: Frame) -> None:
    """The device half."""
    row = (frame.next_epoch & 1) * frame.world_size
    token = frame.load_element(frame.address("input"))
    own = frame.address("inbox")

    def give() -> None:
        inbox = frame.peer("inbox", frame.thread)
        frame.store_element(inbox + (row + frame.rank) * 4, token)

    def take() -> None:
        found = frame.load_element(own + (row + frame.thread) * 4)
        frame.store_element(frame.address("output") + frame.thread * 4, found)

    frame.when(frame.thread < frame.world_size, give)
    frame.meet()
    frame.when(frame.thread < frame.world_size, take)
    frame.keep_epoch()


def workspaces(case: Case) -> tuple[Workspace, ...]:
    """Two rows of tokens."""
    return (Workspace("inbox", 2 * case.world_size, zeroed=False),)


def refuses(case: Case, arch: str) -> Refusal | None:
    """Return the refusal of any size but a token's."""
    if case.size_bytes == case.itemsize:
        return None
    reason = f"a barrier exchanges one token of {case.itemsize} bytes a rank, not {case.size_bytes} bytes"
    return Refusal("sizes", reason, f"give sizes=[{case.itemsize}]")


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "barrier/peers",
        body,
        tuning,
        summary="each rank tells every rank, and waits for all",
        placements=("out_of_place",),
        promises=WITH_BARRIERS - {"alternating_sizes"},
        reduces=False,
        dtypes=("uint32",),
        why_not=WHY_NOT,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: 1,
        workspaces=workspaces,
        refusal=refuses,
    )


SPEC = spec_of(TUNING)
