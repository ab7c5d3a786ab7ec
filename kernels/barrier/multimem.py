"""barrier/multimem: the flag barrier through the switch, handing a token round.

When it wins: many ranks on GPUs whose switch does multicast: one store and one reduction, whatever the world's size.

Memory: an inbox of tokens, a row of world_size of them for odd epochs and one for even ones. A rank stores its token
into all inboxes by one multimem.st, tells it by the barrier, and reads those of all ranks from its own inbox into its
output. Two rows are enough: who stores for epoch e + 2 has left e + 1, at which every rank had arrived, having read its
row of e before.

Protocol: one barrier over ranks, whose release orders the token before the signal. Nothing else is waited for. The
signal is a multimem.red on a counter of arrivals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.stress import THROUGH_SWITCH
from kernels.barrier.peers import TUNING, WHY_NOT, refuses, workspaces
from kernels.family import address, multicast, spec_with
from kernels.multimem import SIGNAL, store_form
from kernels.spec import KernelSpec
from kernels.tuning import Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


def body(frame: Frame) -> None:
    """The device half."""
    row = (frame.next_epoch & 1) * frame.world_size
    token = frame.load_element(frame.address("input"))
    own = frame.address("inbox")

    def give() -> None:
        frame.store_word_to_switch(frame.multicast("inbox") + (row + frame.rank) * 4, token[0])

    def take() -> None:
        found = frame.load_element(own + (row + frame.thread) * 4)
        frame.store_element(frame.address("output") + frame.thread * 4, found)

    frame.when(frame.thread == 0, give)
    frame.meet()
    frame.when(frame.thread < frame.world_size, take)
    frame.keep_epoch()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "barrier/multimem",
        body,
        tuning,
        summary="each rank adds to all counters through the switch, and waits for its own",
        placements=("out_of_place",),
        promises=THROUGH_SWITCH - {"alternating_sizes"},
        needs_multicast=True,
        reduces=False,
        dtypes=("uint32",),
        why_not=WHY_NOT,
        buffers=(address("input"), address("output"), address("inbox"), multicast("inbox")),
        vectors=lambda case: 1,
        workspaces=workspaces,
        refusal=refuses,
        multimem=lambda case: frozenset({SIGNAL, store_form(4).instruction()}),
    )


SPEC = spec_of(TUNING)
