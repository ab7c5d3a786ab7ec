"""barrier/push: every rank stores its token beside the number of the launch to all, and polls for theirs.

When it wins: always, where there is no multicast: one trip, and nothing is loaded after the poll. peers signals with a
flag beside the token, stores the one after the other, and then loads the token.

Memory: an inbox of two rows in turn, 8 bytes a rank (kernels/dsl/tokens.py).

Protocol: kernels/dsl/tokens.py. It orders memory as peers does: what a rank's stream did before its launch, anywhere,
is visible to what any rank's stream does after its own. That takes a release and an acquire: a fence at system scope
before the store, and polls that acquire. Nothing else is ordered, because the launch has no other data.

Expected on 2 H200: 0.56 us of a launch, and 1.27 from a store to its poll with a release and an acquire; on 2 H100,
0.85 and 2.13 (facts of 2026-11-22; the kernel itself has not been measured). Without order it would be 0.69 and 0.62,
but a barrier that orders nothing is none. The loads of the epoch, the token and the peer's address are under way with
the fence.

Rejected: a release store in place of the fence: it can't begin before its address and its value have been loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from cases.stress import WITH_BARRIERS
from kernels.barrier.peers import WHY_NOT, refuses
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

TUNING = Tuning((Step(threads=96, blocks=1, loads_in_flight=1, reason="a thread for each of 72 ranks"),))


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.tokens import exchange_tokens

    exchange_tokens(frame)


def workspaces(case: Case) -> tuple[Workspace, ...]:
    """Two rows of tokens with their epochs."""
    return (Workspace("inbox", 2 * 2 * case.world_size),)


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""
    return spec_with(
        "barrier/push",
        body,
        tuning,
        summary="each rank stores its token beside the epoch to all, and polls for theirs",
        placements=("out_of_place",),
        promises=WITH_BARRIERS - {"alternating_sizes"},
        reduces=False,
        dtypes=("uint32",),
        why_not=WHY_NOT,
        buffers=(address("input"), address("output"), address("inbox"), peers("inbox")),
        vectors=lambda case: 1,
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        refusal=refuses,
    )


SPEC = spec_of(TUNING)
