"""broadcast/nvshmem_put_signal: the root puts its buffer to all outputs, each with a signal behind it (put_signal).

When it wins: not measured. It also runs where ranks are reached over a network only.

Memory: the root reads its input; writes all outputs.

Protocol: kernels/dsl/signalled.py: all ranks tell the root that their outputs may be overwritten, which puts its buffer
to each with a signal behind it, and each waits for that signal. They do not tell each other: a rank that has its data
begins the next launch while another one still waits, whose words it would set anew.
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

TUNING = Tuning((Step(threads=512, blocks=32, loads_in_flight=8, reason="broadcast/push's, not measured"),))


def body(frame: Frame) -> None:
    """The device half."""
    from kernels.dsl.signalled import Signalled

    source, output = frame.address("input"), frame.address("output")
    exchange = Signalled(frame)
    exchange.allow_one(frame.root)

    def give_all() -> None:
        exchange.each_rank(lambda rank: exchange.give(output, source, frame.size, rank))

    frame.when(frame.rank == frame.root, give_all)
    exchange.await_one(frame.root)
    frame.keep_epoch()


def spec_of(tuning: Tuning) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        return (put_shares.words(case, tuning.max_blocks),)

    return spec_with(
        "broadcast/nvshmem_put_signal",
        body,
        tuning,
        summary="the root puts its buffer to all ranks by NVSHMEM's put_signal",
        placements=("out_of_place",),
        promises=ONE_WAY,
        why_not={**NOT_ONE_WAY, "placement": "not tried"},
        reduces=False,
        buffers=(address("input"), address("output"), address("words")),
        vectors=lambda case: shares.vectors(case.numel, case.itemsize, case.offset),
        options=lambda case: {"without_barriers": True},
        workspaces=workspaces,
        nvshmem=put_shares.EXCHANGE,
    )


SPEC = spec_of(TUNING)
