"""Ops whose data takes one way: from a rank's input into peers' inboxes, and from there into their outputs.

No barrier: kernels/dsl/inbox.py says why what is polled is sound, kernels/dsl/rounds.py what keeps a rank from storing
where a peer still reads. No user's buffer is accessed by another rank: an input is read and an output written by their
own rank alone, so a launch may end while peers have not begun theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import cutlass
from cutlass import Int32

from kernels.dsl.inbox import Flagged, Inbox, Lines, Sentinel, push
from kernels.dsl.messages import Message
from kernels.dsl.peers import Peers
from kernels.dsl.rounds import Round
from kernels.dsl.slots import UNIT_BYTES
from kernels.dsl.status import DATA

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


class OneWay:
    """A launch's inbox, with a number of rows. Send, then call between, then receive or reduce. Made while a kernel is
    traced.

    form: how the data lies in the inbox; sender(row) is the rank that stores into a row.
    """

    def __init__(
        self, frame: Frame, rows: int, form: type[Sentinel | Flagged | Lines], sender: Callable[[Any], Any]
    ) -> None:
        self.frame = frame
        self.round = Round(frame, is_set_back=form is Sentinel)
        self.form = form.of(frame)
        self.inbox = Inbox(frame, "inbox", rows, self.round, self.form, DATA, sender)

    def send(self, message: Message, peer: Any, row: Any, index: Any, lanes: Any, condition: Any = None) -> None:
        """Store a message into a row of a peer's inbox, by lane index of lanes; where a condition, if given, holds."""
        end = message.count * UNIT_BYTES
        if condition is not None:
            end = cutlass.select_(condition, end, Int32(0))

        def store(address: Any, words: Sequence[Any], at: Any) -> None:
            self.inbox.at_peer(address, words, at, row)

        push(message, (Int32(0), end), (index, lanes), lambda: self.frame.peer("inbox", peer), store)

    def receive(self, message: Message, row: Any, sender: Any, index: Any, lanes: Any) -> None:
        """Wait for what sender stores into a row, and store it where message is."""

        def copy(offsets: Sequence[Any], whole: bool) -> None:
            for at, (words,) in zip(offsets, self.inbox.take(offsets, row, 1, lambda row: sender), strict=True):
                message.store(at, words, whole)

        message.units(Int32(0), message.count * UNIT_BYTES, index, lanes, copy)

    def send_to_all(self, message: Message) -> None:
        """Store a message into this rank's row of all ranks' inboxes, its own last, by all threads."""
        frame, inbox = self.frame, self.inbox

        def store(peers: Peers, words: Sequence[Any], at: Any) -> None:
            inbox.at_peers(peers, words, at, frame.rank)

        look_up = partial(frame.peers, inbox.of, frame.after(frame.rank))
        push(message, (Int32(0), message.count * UNIT_BYTES), (frame.index, frame.lanes), look_up, store)

    def reduce_rows(self, output: Message) -> None:
        """Store the reduction of all rows in their order, by all threads."""
        frame = self.frame

        def store(offsets: Sequence[Any], whole: bool) -> None:
            for at, words in zip(offsets, self.inbox.fold(offsets), strict=True):
                output.store(at, words, whole)

        output.units(Int32(0), output.count * UNIT_BYTES, frame.index, frame.lanes, store)

    def reduce(self, own: Message, output: Message) -> None:
        """Store the reduction of all rows in their order, and last this rank's own contribution, by all threads."""
        frame = self.frame

        def store(offsets: Sequence[Any], whole: bool) -> None:
            mine = [own.load(at, whole) for at in offsets]
            if isinstance(self.form, Sentinel):
                mine = [self.form.safe_words(words) for words in mine]
            for at, words in zip(offsets, self.inbox.fold(offsets, mine), strict=True):
                output.store(at, words, whole)

        own.units(Int32(0), own.count * UNIT_BYTES, frame.index, frame.lanes, store, beside=output)

    def between(self, units: Any = 0) -> None:
        """While the data is under way: hand over to the next launch, and set back what the launch before has read.
        units: of a row's message in this launch, if the form is Sentinel."""
        self.round.hand_over(units)
        self.inbox.clear(self.round.last_units)
