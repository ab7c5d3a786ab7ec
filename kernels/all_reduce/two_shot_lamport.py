"""all_reduce/two_shot_lamport: two_shot with both halves pushed into inboxes that are polled, without barriers.

When it wins: between lamport, whose traffic grows with the number of ranks, and two_shot, whose two barriers stop
counting as the buffer grows. Each GPU sends and receives (n-1)/n of the buffer twice, like two_shot.

Memory: the message's units of 16 bytes (kernels/dsl/inbox.py) are divided into contiguous slices in rank order, one
unit longer for the first ranks if they do not divide evenly; the last unit may be cut short. Two inboxes, eight banks
each: "contributions" has a row for each other rank, of the longest slice; "results" one for the message. Together 16
times the message in symmetric memory. Results can't go into outputs straight away: what is there could be anything, and
so says nothing of whether a result has come. Blocks are shared out among the ranks that they exchange slices with, so
that all links are busy at once.

Protocol: a rank stores its contribution to each other slice to the slice's owner. As an owner it polls for the others',
reduces, stores the result to all others and into its own output. Then it polls for the other slices' results and copies
them. A data half is its own flag; kernels/dsl/inbox.py says why that is sound, and kernels/dsl/rounds.py what keeps a
fast rank from storing where a slow one still reads, or sets back. While the first data is under way both inboxes' banks
of the launch before are set back. Blocks wait for other blocks' stores, of this rank's launch, too, in a circle over
ranks: all must be live at once, as for any barrier. In place is fine: a unit is overwritten with its result, which is
made of this rank's contribution and so can't have come before that was read; the own slice's by the thread that read
it. This rests on the dependency of the data alone: PTX orders nothing between that load and the store of another
thread.

Numerics: as two_shot: the owner begins with the next rank and ends with itself (owner+1, owner+2, .. owner). One owner
an element, so all ranks get the same bits. A contribution of -0.0 counts as +0.0, and so does a result that rounds to
it, on its owner, too. One rank alone copies its bits, -0.0 included. Floats only: integers have no value to spare.
Precision and rounding: kernels/dsl/arithmetic.py.

Rejected: an all-clear to all in each launch, with three banks: see lamport.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.dtypes import FLOAT_REDUCTIONS, FLOATS
from cases.stress import WITH_BARRIERS
from kernels import shares
from kernels.dsl import slots
from kernels.dsl.status import DATA, RESULT
from kernels.family import address, peers, spec_with
from kernels.spec import KernelSpec, Workspace
from kernels.tuning import Step, Tuning

if TYPE_CHECKING:
    import torch

    from kernels.dsl.frame import Frame

# Measured on 4 H200 (NVLink 4, multicast off) on 2026-11-21, bfloat16, CUDA graphs of 6 to 200 calls, medians of the
# slowest rank, with 256 to 1024 threads, 16 to 128 blocks, 8 and 16 loads: with an all-clear in each launch, which the
# kernel had then. No run since, and none on 8 GPUs.
TUNING = Tuning(
    (
        Step(
            threads=256,
            blocks=32,
            loads_in_flight=8,
            up_to_bytes=64 << 10,
            reason="64 KiB takes 5.0 us (512 threads: 5.5)",
        ),
        Step(
            threads=512,
            blocks=64,
            loads_in_flight=8,
            up_to_bytes=512 << 10,
            reason="512 KiB takes 6.3 us (128 blocks: 7.1, 32: 7.6)",
        ),
        Step(
            threads=512,
            blocks=128,
            loads_in_flight=8,
            reason="2 MiB takes 15.5 us (64 blocks: 16.8)",
        ),
    )
)


ROUNDS = slots.Rounds(banks=8, grant_every=4, slots=1)
"""Half the banks of slots.SET_BACK: messages are larger, and a grant's time counts for less than the memory."""


class Halves:
    """What the two halves work on: inboxes, slices, buffers. Made while a kernel is traced."""

    def __init__(self, frame: Frame) -> None:
        from kernels.dsl.inbox import Inbox, Sentinel
        from kernels.dsl.messages import Message
        from kernels.dsl.rounds import Round

        self.frame = frame
        self.round = Round(frame, is_set_back=True)
        self.form = Sentinel(frame.itemsize, frame.choice("safe_zeros", True))
        self.others = frame.world_size - 1
        self.parts = Inbox(frame, "contributions", self.others, self.round, self.form, DATA, self.after)
        self.results = Inbox(frame, "results", 1, self.round, self.form, RESULT)
        self.source, self.output = (Message(frame, frame.address(of)) for of in ("input", "output"))

    def after(self, number: Any) -> Any:
        """Numbers and rows begin with the next rank."""
        return self.frame.after(self.frame.rank, number + 1)

    def contribute(self, number: Any, index: Any, lanes: Any) -> None:
        """This rank's contribution to a slice, to its owner: there this rank comes others - 1 - number after it."""
        from kernels.dsl.inbox import push

        owner = self.after(number)
        begin, end = self.source.slice(owner)

        def store(inbox: Any, words: Sequence[Any], at: Any) -> None:
            self.parts.at_peer(inbox, words, at - begin, self.others - 1 - number)

        push(self.source, (begin, end), (index, lanes), partial(self.frame.peer, "contributions", owner), store)

    def reduce(self) -> None:
        """The own slice: what the others contributed, then the own, to the others and into the output."""
        frame = self.frame
        inboxes = frame.peers("results", self.after(0), self.others)
        begin, end = self.source.slice(frame.rank)

        def store(offsets: Sequence[Any], whole: bool) -> None:
            own = [self.form.safe_words(self.source.load(at, whole)) for at in offsets]
            for at, words in zip(offsets, self.parts.fold([at - begin for at in offsets], own), strict=True):
                self.results.at_peers(inboxes, words, at, 0)
                self.output.store(at, self.form.safe_words(words), whole)

        self.source.units(begin, end, frame.index, frame.lanes, store, beside=self.output)

    def collect(self, number: Any, index: Any, lanes: Any) -> None:
        """The result of another rank's slice, into the output."""
        owner = self.after(number)
        begin, end = self.source.slice(owner)

        def copy(offsets: Sequence[Any], whole: bool) -> None:
            for at, (words,) in zip(offsets, self.results.take(offsets, 0, 1, lambda row: owner), strict=True):
                self.output.store(at, words, whole)

        self.output.units(begin, end, index, lanes, copy)


def body(frame: Frame) -> None:
    """The device half."""
    if frame.world_size == 1:
        frame.copy(frame.address("input"), frame.address("output"), frame.size, push=True)
        return
    halves = Halves(frame)
    frame.each_peer(halves.others, halves.contribute)
    halves.round.hand_over(halves.source.count)
    last_units, ranks = halves.round.last_units, frame.world_size
    halves.parts.clear((last_units + ranks - 1) // ranks)
    halves.results.clear(last_units)
    halves.reduce()
    frame.each_peer(halves.others, halves.collect)


def owner(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element: int64[numel] of ranks."""
    import torch

    lengths = torch.tensor(shares.slice_vectors(slots.units(case), case.world_size)) * slots.UNIT_BYTES
    return torch.repeat_interleave(torch.arange(case.world_size), lengths // case.itemsize)[: case.numel]


def spec_of(tuning: Tuning, rounds: slots.Rounds = ROUNDS) -> KernelSpec:
    """The algorithm with a tuning: the catalogue's, or one on trial."""

    def longest(case: Case) -> int:
        return shares.longest_slice(slots.units(case), case.world_size)

    def groups(case: Case) -> int:
        return max(1, min(case.world_size - 1, shares.groups(case)))

    def workspaces(case: Case) -> tuple[Workspace, ...]:
        inbox = partial(slots.inbox, banks=rounds.banks, fill=slots.sentinel(case.itemsize))
        contributions = inbox("contributions", longest(case), max(case.world_size - 1, 1))
        return contributions, inbox("results", slots.units(case), 1), slots.turns(tuning.max_blocks)

    return spec_with(
        "all_reduce/two_shot_lamport",
        body,
        tuning,
        summary="two_shot with slices and results pushed and polled for instead of barriers",
        placements=("out_of_place", "in_place"),
        promises=WITH_BARRIERS,
        fold="from_next_rank",
        owner=owner,
        dtypes=FLOATS,
        why_not={
            "dtype": "an integer has no spare value that could mean 'not written yet'; take all_reduce/ll",
            "sizes": "take all_reduce/two_shot",
        },
        reductions=FLOAT_REDUCTIONS,
        positive_zero="results",
        max_size_bytes=4 << 20,
        buffers=(
            *(address("input"), address("output"), address("turns")),
            *(address("contributions"), peers("contributions"), address("results"), peers("results")),
        ),
        vectors=lambda case: slots.lanes(case, longest(case), groups(case)),
        loads_per_vector=lambda case: max(case.world_size - 1, 1),
        groups=groups,
        options=lambda case: rounds.choices(case, tuning.max_blocks),
        workspaces=workspaces,
    )


SPEC = spec_of(TUNING)
