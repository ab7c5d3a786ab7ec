"""Rounds: launches that take the banks of an inbox in turn by their epochs, and wait for no peer of their own round.

What an inbox is, and why data that is its own flag is sound, is in kernels/dsl/inbox.py. What is left is when a bank
may be written again. An all-clear to all peers in each launch, awaited at the launch's end, would do, and all_reduce
had it once: a release and an acquire between GPUs, which take longer than the data (1.27 us against 0.69 on H200, 2.13
against 0.62 on H100; 2 GPUs, 2026-11-22). Here nothing of that lies on the data's way:

- A grant is an all-clear: "all launches before this one are over on my rank". It is given in every grant_every-th
  launch, after the data is on its way, by the last threads of the last block, which small messages leave idle.
- What a launch waits for besides its data are grants of earlier launches, which the next launch needs; they came long
  ago unless a peer is that far behind. With B banks and a grant in every G-th launch, launch e stores into banks that
  peers read in launch e - B, so it needs grants of a launch after that: of e - B + 1 or later. The first launch with a
  grant from there on is awaited in launch e - 1. Where banks are set back (Sentinel), that happens one
  launch later, and so the grant has to be of e - B + 2 or later. B >= G + 1, and G + 2 with setting back: then it is
  no later launch's than the one that waits, which gives its own before it waits: so no ranks wait in a circle.

Why that is sound. A peer's launch ended before its next one began, so a grant, a release at system scope at any point
of a launch, covers all that any thread of that peer did in launches before: reads of a bank, and setting it back. Who
acquires it ends its own launch before the next one begins, so whatever any thread of this rank stores there comes
after. And no rank that is ahead overwrites what another still reads or sets back: it is at most B - 1 launches ahead
(B - 2 with setting back).

That holds for every sender: a rank that only sends (a broadcast's root) is stopped by the grants alone. Any rank may
send in the next launch, so all give grants to all.

A bank's number is the epoch's lowest bits, so the only word that a launch has to have before it can store is the
epoch, and its load waits for nothing. Each block has an epoch of its own, so that none waits for another, and writes it
for those blocks that there may be and are not.

All of this comes before the wait for data, not after it, so that the output's store is the last thing that a launch
does. What the words say, the launch's number and the size that the next one sets back, is known by then. They are read
by launches alone, and who reads them in this one is the block that writes them, whose threads have met in between; a
block that has not begun yet reads its own word. A launch that follows reads them when this one is over, for a
dependent launch, too, waits for that before it touches memory (kernels/dsl/frame.py): whatever its grid is, a launch
that has begun early has read nothing yet. The grant and the wait for grants are of launches before, so they can stand
anywhere in this one; the next launch begins its stores when this one's waits are over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import device
from kernels.dsl.rank_barriers import await_peer
from kernels.dsl.status import EXIT
from kernels.dsl.traverse import when

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


class Round:
    """Which bank a launch takes, and the grants. Made while a kernel is traced, before anything is stored.

    is_set_back: the form is Sentinel; then the workspace "turns" has the units of the last launch's message, a word for
    each block that there may be.
    """

    def __init__(self, frame: Frame, is_set_back: bool) -> None:
        self.frame = frame
        self.banks: int = frame.choice("banks")
        self.every: int = frame.choice("grant_every")
        self.behind: int = frame.choice("behind", 2 + is_set_back)
        self.grants: bool = frame.choice("all_clear", True)
        self.thread = frame.threads - 1 - frame.thread
        self.turns = frame.address("turns") if is_set_back else None
        self.last_units: Any = Int32(0)
        """Of the launch before; known after hand_over."""
        frame.epoch += 1
        self.bank = frame.epoch & (self.banks - 1)
        self.last_bank = (frame.epoch - 1) & (self.banks - 1)

    def hand_over(self, units: Any) -> None:
        """Once the data is on its way: tell all peers that the launches before this one are over here; write down this
        launch's epoch, and the units of its message for who sets the bank back; and wait for the grants that the next
        launch needs. Grants are given, and awaited, if it is this launch's turn."""
        frame = self.frame
        if self.turns is not None:
            self.last_units = device.load_word(self.turns + Int64(frame.block) * 4)
        granted = self._place()
        cute.arch.sync_threads()  # all threads of the block have read what is overwritten now
        self._in_turn(frame.epoch, partial(give_grant, self.thread, granted, frame.epoch, frame.world_size))
        kept = [(frame.address("epochs"), frame.epoch)]
        if self.turns is not None:
            kept.append((self.turns, Int32(units)))
        keep_words(frame.thread, frame.block, frame.blocks, kept, frame.choice("max_blocks"), frame.threads)
        oldest = frame.epoch + (self.behind - self.banks)
        needed = (oldest + (self.every - 1)) & -self.every
        flag = frame.address("signals") + Int64(self.thread) * 4
        wait = partial(await_peer, self.thread, flag, needed, EXIT, frame.watch, frame.world_size)
        self._in_turn(oldest - 1, wait)  # else the launch before has waited for the same

    def _place(self) -> Any:
        """Where thread t tells rank t: signals is int32[world_size] here, each rank's last grant. All threads look it
        up, for few give grants, and who does not have data to send does so before it knows the epoch."""
        frame = self.frame
        peer = cutlass.select_(self.thread < frame.world_size, self.thread, Int32(0))
        return frame.peer("signals", peer) + Int64(frame.rank) * 4

    def _in_turn(self, number: Any, body: Any) -> None:
        """Call body in the last block where number is a multiple of grant_every."""
        if not self.grants:
            return
        frame = self.frame
        is_last = frame.block == frame.blocks - 1
        if self.every > 1:
            is_last = is_last & ((number & (self.every - 1)) == 0)
        when(is_last, body)


@cute.jit
def give_grant(
    thread: cutlass.Int32, granted: cutlass.Int64, epoch: cutlass.Int32, world_size: cutlass.Constexpr
) -> None:
    """Thread t tells rank t."""
    if thread < world_size:
        device.signal(granted, epoch)


@cute.jit
def keep_words(
    thread: cutlass.Int32,
    block: cutlass.Int32,
    blocks: cutlass.Int32,
    kept: cutlass.Constexpr,
    max_blocks: cutlass.Constexpr,
    threads: cutlass.Constexpr,
) -> None:
    """Block b writes what belongs to blocks b, b + blocks, ..: those from blocks on don't run. kept: (array, word)."""
    for i in cutlass.range_constexpr(-(-max_blocks // threads)):
        other = block + (thread + i * threads) * blocks
        if other < max_blocks:
            for j in cutlass.range_constexpr(len(kept)):
                device.store_word(kept[j][0] + Int64(other) * 4, kept[j][1])
