"""ping_pong: two ranks hand a number to and fro, a store to the other's flag and a poll of the own.

What it measures: how long a store takes to be seen by the other GPU, one way: what every flag of every collective
takes at least. With relaxed order; with a release store and acquire polls; and the same after 1 or 64 weak stores to
the other GPU's memory by the same thread, because a release has to wait until those have arrived.

Memory: a flag and 64 lines of 128 bytes to store to, on each rank; a word beside them in which a rank keeps the last
number of its launches, so that launches follow each other without a reset. Ranks 0 and 1 play, the others do nothing.

Protocol: rank 0 stores base + t to rank 1's flag, which rank 1 waits for and answers with the same number, for t = 1 to
TRIPS. The base is a rank's own word and not its flag: rank 0 may have begun, and stored, before rank 1 reads. A rank
counts the trips in which it saw exactly base + t. The check compares that count: a rank that did not wait has another,
and one that is never answered ends at the deadline. It compares the lines stored to as well.

Order and scope: all flags at system scope. The weak stores go to lines of their own, which no thread loads.

One way is (the launch - an empty node) / (2 x TRIPS). With 128 trips an error of 0.1 us in the empty node is below
0.5 ns. Reading the base and keeping it adds two accesses to own memory in 128 trips: some 5 ns a trip.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.floors.launched import Launched

TRIPS = 128
LINE_BYTES = 128
MOST_STORES = 64


class PingPong(Launched):
    """order: of the store, "relaxed" or "release"; polls are relaxed or acquire. stores: weak stores to the other
    rank's memory before each store to its flag."""

    def __init__(self, order: str, stores: int = 0) -> None:
        self.order = order
        self.poll = "relaxed" if order == "relaxed" else "acquire"
        self.stores = stores

    @cute.kernel
    def kernel(
        self,
        flags: cute.Pointer,
        flag: cute.Pointer,
        lines: cute.Pointer,
        last: cute.Pointer,
        bounced: cute.Pointer,
        rank: cutlass.Uint32,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        if (thread == 0) & (rank < 2):
            other = 1 - cutlass.Int32(rank)
            theirs = device.load_address(flags.toint(), other)
            target = device.load_address(lines.toint(), other)
            mine, kept = flag.toint(), last.toint()
            base = device.load_word(kept)
            count = cutlass.Int32(0)
            for trip in cutlass.range(1, TRIPS + 1, unroll=1):
                number = base + trip
                if rank == 0:
                    send(theirs, target, number, trip, self.order, self.stores)
                seen = device.observe(mine, self.poll)
                while seen - number < 0:
                    seen = device.observe(mine, self.poll)
                if seen == number:
                    count += 1
                if rank == 1:
                    send(theirs, target, number, trip, self.order, self.stores)
            device.store_word(kept, base + TRIPS)
            device.store_word(bounced.toint(), count)


def send(theirs: Any, target: Any, number: Any, trip: Any, order: str, stores: int) -> None:
    """The stores of a trip: first the weak ones, then the flag."""
    for line in range(stores):
        device.store_word(target + line * LINE_BYTES, trip)
    device.signal(theirs, number, order)


def expecting(stores: int) -> Any:
    """The reference of a kernel with a number of weak stores."""

    def expected(inputs: Any) -> Any:
        """The two players' counts, and what lies in the lines: the number of the last trip, and zeros."""
        found: list[Any] = [None] * len(inputs)
        for rank in range(2):
            lines = inputs[rank]["lines"].clone()
            lines[: stores * LINE_BYTES // 4 : LINE_BYTES // 4] = TRIPS
            found[rank] = {"bounced": inputs[rank]["last"] + TRIPS, "lines": lines}
        return found

    return expected


ping_pong_relaxed = PingPong("relaxed")
ping_pong_release_0 = PingPong("release")
ping_pong_release_1 = PingPong("release", 1)
ping_pong_release_64 = PingPong("release", MOST_STORES)
expected_0 = expecting(0)
expected_1 = expecting(1)
expected_64 = expecting(MOST_STORES)
