"""A barrier over ranks in one trip: a token and the epoch in 8 bytes that peers store and their owner polls.

8 bytes are stored and loaded at once (single-copy atomic in the PTX model), so a slot whose epoch is the launch's has
the launch's token, and the token needs no order of its own. What came before the barrier does: a thread's store comes
after a fence at system scope, which with it releases all that happened before the launch, and polls acquire.

Two rows of slots are enough, one for odd epochs and one for even ones: who stores for epoch e + 2 has seen all tokens
of e + 1, which a rank stores after its launch of e has ended, and so has read its row.

The fence needs nothing that the launch has to load, and so is under way together with the loads of the epoch, the
token and the peer's address; a release store would begin when they have come.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import device
from kernels.dsl.arithmetic import join, split
from kernels.dsl.inbox import received
from kernels.dsl.rank_barriers import report
from kernels.dsl.status import MIDDLE
from kernels.dsl.traverse import when

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


def exchange_tokens(frame: Frame) -> None:
    """Give this rank's token, one word, to all ranks, and store those of all into the output; thread t does it for rank
    t. The workspace "inbox" has two rows of 8 bytes a rank."""
    frame.epoch += 1
    row = (frame.epoch & 1) * frame.world_size

    def give_and_take() -> None:
        (token,) = frame.load_element(frame.address("input"))
        inbox = frame.peer("inbox", frame.thread)
        if frame.choice("fences", True):
            device.fence_system()
        device.store_half(inbox + Int64(row + frame.rank) * 8, join(token, frame.epoch))
        slot = frame.address("inbox") + Int64(row + frame.thread) * 8
        (half,) = received(
            lambda: [device.observe_half(slot)],
            partial(_absent, frame.epoch),
            frame.watch,
            partial(_give_up, frame),
            _alone,
        )
        frame.store_element(frame.address("output") + Int64(frame.thread) * 4, [split(half)[0]])

    when(frame.thread < frame.world_size, give_and_take)
    cute.arch.sync_threads()  # all threads have read the last epoch
    frame.keep_epoch()


def _absent(epoch: Any, halves: Sequence[Any]) -> Any:
    return split(halves[0])[1] != epoch


def _alone(waited: Any, patience: Any) -> Any:
    """How long a thread has waited: each waits alone."""
    return waited


def _give_up(frame: Frame, halves: Sequence[Any], waited: Any) -> None:
    watch, seen = frame.watch, split(halves[0])[1]
    report(watch.status, watch.rank, watch.block, MIDDLE, Int32(frame.thread), frame.epoch, seen, waited)
